"""BERT: "BERT: Pre-training of Deep Bidirectional Transformers for Language Understanding", Devlin et al. 2018 (arXiv 1810.04805).

An encoder of the Transformer's kind (post-norm) whose every position sees all others. It reads one text, or two (figure 2):

    one text     [CLS]  x_1 .. x_m  [SEP]                        two texts    [CLS]  a_1 .. a_m  [SEP]  b_1 .. b_n  [SEP]
    segments       0    0  ..  0      0                                         0    0  ..  0      0    1  ..  1      1

    E_i = LN(word + segment + position)        T = blocks(E)        C = T_[CLS]

It is trained to find words that were hidden (task 1), P(w_i) = softmax(W_e LN(gelu(W T_i + b)) + b_e), and to say whether the
second text follows the first (task 2), P(next) = softmax(W_n tanh(W_p C + b_p) + b_n). The loss is the sum of both means.

[PAD], [CLS], [SEP], [UNK] are our PAD BOS EOS UNK. The source has only tokens of texts, and EOS between two: [CLS] and the last
[SEP] are added here, and count towards the context. The defaults are BERT-base.

Departs:
- The paper says only the pre-training tasks; the head's dense layer and norm, the pooler (tanh) and ε = 1e-12 are the released
  code's. Queries, keys and values are one matrix here.
- The loss of the next sentence is the mean over those rows of a batch that have one: texts without are learned from, too.
- `next_sentence=false` leaves task 2 out, as later models do. `pooler` and `head=false` are for encoders from elsewhere, which
  have a pooler without its task, or no masked-word head: they give states, and fill in no words.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.core.bounds import check_bounds
from regard.core.errors import ConfigError, ModelError
from regard.core.types import BOS, EOS, PAD, Padded
from regard.core.workers import over_all_workers
from regard.layers.attention.multihead import SelfAttention
from regard.layers.feedforward import ACTIVATIONS, FeedForward
from regard.layers.output import SoftmaxOutput
from regard.models.base import MODELS, Forced, Limits, Recorder
from regard.models.reader import MaskedModel, at_places

NORM_EPS = 1e-12
START = 0.02  # standard deviation of weights at the start, cut at two of them
AROUND = 2  # tokens around every text: [CLS] and [SEP]
UNKNOWN_NEXT, IS_NEXT, NOT_NEXT = range(3)  # codes in the first column of a target
SIZES = {
    "width": (1, 1 << 14),
    "layers": (1, 1000),
    "heads": (1, 1 << 14),
    "inner": (0, 1 << 18),
    "context": (AROUND + 1, 1 << 20),
    "segments": (1, 1 << 10),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class BertConfig:
    """Sizes and choices of a BERT."""

    name: Literal["bert"] = "bert"
    width: int = 768
    layers: int = 12
    heads: int = 12
    inner: int = 0  # 0: four times the width
    context: int = 512  # the longest text that is read at once, with [CLS] and [SEP]
    segments: int = 2  # texts that are told apart
    activation: Literal["gelu", "gelu_tanh", "relu", "swish"] = "gelu"
    head: bool = True  # the masked-word head
    next_sentence: bool = True  # the head that says whether the second text follows the first
    pooler: bool = False  # a pooler without that head
    dropout: float = 0.1  # of embeddings and of what each sub-layer writes
    attention_dropout: float = 0.1

    def __post_init__(self) -> None:
        check_bounds("model", self, SIZES, parts=("dropout", "attention_dropout"))
        if self.width % self.heads:
            raise ConfigError(
                "setting model.heads", f"{self.heads} heads do not divide the width {self.width}", "Change one"
            )

    @property
    def inner_width(self) -> int:
        return self.inner or 4 * self.width


class Block(nn.Module):
    """x = LN(x + attention(x)); x = LN(x + feedforward(x))."""

    def __init__(self, config: BertConfig):
        super().__init__()
        self.attention = SelfAttention(config.width, config.heads, config.attention_dropout)
        self.attention_norm = nn.LayerNorm(config.width, eps=NORM_EPS)
        self.feedforward = FeedForward(config.width, config.inner_width, config.activation)
        self.feedforward_norm = nn.LayerNorm(config.width, eps=NORM_EPS)
        self.dropout = nn.Dropout(config.dropout)

    def forward(
        self, x: Float[Tensor, "B N D"], keep: Bool[Tensor, "B 1 1 N"] | None, explicit: bool
    ) -> tuple[Float[Tensor, "B N D"], Float[Tensor, "B H N N"] | None]:
        written, weights = self.attention(x, keep, False, explicit)
        x = self.attention_norm(x + self.dropout(written))
        return self.feedforward_norm(x + self.dropout(self.feedforward(x))), weights


class Pooler(nn.Module):
    """tanh(W_p C + b_p): what is known of the whole text, read at its first token."""

    def __init__(self, width: int):
        super().__init__()
        self.dense = nn.Linear(width, width)

    def forward(self, whole: Float[Tensor, "B N D"]) -> Float[Tensor, "B D"]:
        return self.dense(whole[:, 0]).tanh()


class WordHead(nn.Module):
    """LN(gelu(W T_i + b)): what the table of words is compared with."""

    def __init__(self, config: BertConfig):
        super().__init__()
        self.function = ACTIVATIONS[config.activation]
        self.dense = nn.Linear(config.width, config.width)
        self.norm = nn.LayerNorm(config.width, eps=NORM_EPS)

    def forward(self, states: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        return self.norm(self.function(self.dense(states)))


@MODELS.register("bert")
class Bert(MaskedModel):
    """A stack of self-attention over one text or two, in which every position sees every other."""

    Config = BertConfig
    depths = ("layers",)

    def __init__(self, config: BertConfig, *, vocabulary: int):
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(vocabulary, config.width)
        self.segments = nn.Embedding(config.segments, config.width)
        self.positions = nn.Embedding(config.context, config.width)
        self.norm = nn.LayerNorm(config.width, eps=NORM_EPS)
        self.dropout = nn.Dropout(config.dropout)
        self.encoder = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.pooler = Pooler(config.width) if config.pooler or config.next_sentence else None
        self.next_sentence = nn.Linear(config.width, 2) if config.next_sentence else None  # W_n: is next, is not
        self.head = WordHead(config) if config.head else None
        self.output = SoftmaxOutput(config.width, vocabulary, self.embedding.weight, bias=config.head)
        start_small(self)

    @property
    def limits(self) -> Limits:
        return Limits(source=self.config.context - AROUND)

    def keep_unread(self, *parts: Literal["head", "next_sentence", "pooler"]) -> None:
        """Makes parts that fine-tuning does not read part of the files only: they are neither trained nor counted."""
        modules = [module for part in parts if (top := getattr(self, part)) is not None for module in top.modules()]
        for module in [*modules, *([self.output] if "head" in parts else [])]:
            for name, parameter in list(module.named_parameters(recurse=False)):
                if parameter is not self.embedding.weight:
                    delattr(module, name)
                    module.register_buffer(name, parameter.detach())

    def whole_states(
        self, source: Padded, record: Recorder | None = None
    ) -> tuple[Float[Tensor, "B N D"], Bool[Tensor, "B N"]]:
        """The last states of all that is read, [CLS] first and the last [SEP] behind each text, and which of them are real.

        A recorder gets the states of the source's tokens in all layers as `reader.I.states`, 0 being the embeddings, and the
        weights of attention between all that is read, [CLS] and [SEP] too, as `reader.I.self`.
        """
        limit, count = self.config.context - AROUND, source.tokens.shape[1]
        if count > limit:
            what = f"{count} tokens are more than the {limit} that the model's context has room for"
            raise ModelError("the text", what, "Give shorter text")
        tokens, keep = _between_specials(source)
        ends = (tokens == EOS).long()
        segment = (ends.cumsum(1) - ends).clamp(max=self.config.segments - 1)  # how many texts have ended before
        places = torch.arange(count + AROUND, device=tokens.device)
        x = self.dropout(self.norm(self.embedding(tokens) + self.segments(segment) + self.positions(places)))
        if record is not None:
            record.add("reader.0.states", x[:, 1:-1])
        mask = None if source.mask is None else keep[:, None, None]
        for i, block in enumerate(self.encoder, start=1):
            x, weights = block(x, mask, record is not None)
            if record is not None:
                record.add(f"reader.{i}.self", weights)
                record.add(f"reader.{i}.states", x[:, 1:-1])
        return x, keep

    def states(self, source: Padded, record: Recorder | None = None) -> Float[Tensor, "B S D"]:
        return self.whole_states(source, record)[0][:, 1:-1]

    def pooled(self, source: Padded, record: Recorder | None = None) -> Float[Tensor, "B D"]:
        """What the pooler makes of each text's first state."""
        if self.pooler is None:
            raise ModelError(
                "the model", "it has no pooler", "Use its states, or a model with model.next_sentence=true"
            )
        return self.pooler(self.whole_states(source, record)[0])

    def next_sentence_scores(self, source: Padded) -> Float[Tensor, "B 2"]:
        """Log-probabilities that the second text follows the first, and that it does not."""
        if self.next_sentence is None:
            what = "it does not know which sentence follows another"
            raise ModelError("the model", what, "Use one with model.next_sentence=true")
        return self.next_sentence(self.pooled(source)).float().log_softmax(-1)

    def forward(self, source: Padded, target: Int[Tensor, "B T"], record: Recorder | None = None) -> Forced:
        if self.head is None:
            raise ModelError("the model", "it has no masked-word head, and fills in no words", "Use its states")
        whole, _ = self.whole_states(source, record)
        places = F.pad(target[:, 1:], (1, 0))  # the first column is no place: any will do
        hidden = self.head(at_places(whole, places + 1))
        if self.next_sentence is None or self.pooler is None or not self.training:
            return Forced(hidden, {})
        code = target[:, 0]
        known = (code != UNKNOWN_NEXT).float()
        logits = self.next_sentence(self.pooler(whole)).float()
        nll = F.cross_entropy(logits, (code - IS_NEXT).clamp(min=0), reduction="none")
        return Forced(hidden, {"next_sentence": (nll * known).sum() / over_all_workers(known.sum()).clamp(min=1)})


def _between_specials(source: Padded) -> Padded:
    """[CLS], the text, [SEP] right behind it, then padding."""
    last = source.lengths[:, None] + 1
    tokens = F.pad(F.pad(source.tokens, (1, 0), value=BOS), (0, 1), value=PAD)
    places = torch.arange(tokens.shape[1], device=tokens.device)
    tokens = torch.where(places < last, tokens, torch.where(places == last, EOS, PAD))
    return Padded(tokens, places <= last)


@torch.no_grad()
def start_small(model: nn.Module) -> None:
    """Tables and matrices start from N(0, 0.02) cut at two standard deviations, biases at 0, norms at 1."""
    within = math.erf(math.sqrt(2))  # the part of a normal distribution that is not cut
    for module in model.modules():
        if isinstance(module, (nn.Linear, nn.Embedding)):  # the inverse of its distribution function
            module.weight.uniform_(-within, within).erfinv_().mul_(START * math.sqrt(2))
        if isinstance(module, nn.Linear):
            nn.init.zeros_(module.bias)
