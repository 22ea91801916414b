"""GPT fine-tuned to classify: "Improving Language Understanding by Generative Pre-Training", Radford et al. 2018, section 3.2.

A pre-trained GPT reads the text between new tokens, and a new linear layer reads its last state (section 3.3, figure 1):

    one text    start  x^1 .. x^m  extract
    two texts   start  a^1 .. a^m  delimiter  b^1 .. b^n  extract

    P(y | x) = softmax(h_l^extract W_y)        L3 = L2 (labels) + λ L1 (the text, as in pre-training)        (2018, eq. 3-5)

Departs:
- The three new tokens have a small table of their own: the pre-trained table, and with it P(u), stays as it was. So they are
  read and never written: L1 counts the tokens of the texts only, where the released code also counts delimiter and extract.
- L1 and L2 are means, as in the released code (the paper writes sums): L2 over texts, L1 over tokens. The released code takes
  the mean of a text first, so that the tokens of a short text weigh more there.
- W_y has a bias, and dropout before it, as in the released code.
- The body may be any form of GPT that regard knows; with norm="pre" the state passes its last norm first.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.core.bounds import check_bounds
from regard.core.errors import ConfigError, ModelError
from regard.core.types import EOS, PAD, Padded
from regard.core.workers import over_all_workers
from regard.layers.attention.relative import Places
from regard.layers.output import SoftmaxOutput
from regard.models.base import MODELS, Forced, Limits, Recorder
from regard.models.classifier import Classifier
from regard.models.gpt import GPT, START, GPTConfig

START_TOKEN, DELIMITER, EXTRACT = range(3)  # rows of the table of new tokens
NEW = 2  # of them stand around every text


@dataclasses.dataclass(frozen=True, kw_only=True)
class GPTClassifierConfig(GPTConfig):
    """Sizes and choices of a GPT, and how it is fine-tuned."""

    name: Literal["gpt-classifier"] = "gpt-classifier"  # pyright: ignore[reportIncompatibleVariableOverride]
    auxiliary: float = 0.5  # λ: the weight of the language model's loss while fine-tuning
    classifier_dropout: float = 0.1  # of the state that the label is read from

    def __post_init__(self) -> None:
        super().__post_init__()
        check_bounds("model", self, {}, parts=("classifier_dropout",))
        if not 0 <= self.auxiliary <= 100:
            raise ConfigError("setting model.auxiliary", f"{self.auxiliary} is not in [0, 100]", "Give for example 0.5")
        if self.context <= NEW:
            what = f"{self.context} tokens leave no room for a text between the start and the extract token"
            raise ConfigError("setting model.context", what, f"Give more than {NEW}")


class Body(GPT):
    """A GPT that reads vectors: its tokens' embeddings, and those of tokens that its vocabulary does not have."""

    def read(self, embedded: Float[Tensor, "B T D"], record: Recorder | None) -> Float[Tensor, "B T D"]:
        """The states of all positions, as `forward` gives them for tokens."""
        length = embedded.shape[1]
        x = embedded
        if self.positions.limit is not None:
            x = x + self.positions(torch.arange(length, device=x.device), length)
        x = self.dropout(x)
        relative = self._schemes(Places.whole_sequence(length, x.device))
        for i, block in enumerate(self.decoder):
            x, weights = block(x, record is not None, relative[i])
            if record is not None:
                record.add(f"decoder.{i}.self", weights)
        return self.norm(x)


@MODELS.register("gpt-classifier")
class GPTClassifier(Classifier):
    """A GPT with three new tokens and a linear layer over labels."""

    Config = GPTClassifierConfig
    begins_with: ClassVar[str] = "gpt"
    depths = ("layers",)
    body: Body

    def __init__(self, config: GPTClassifierConfig, *, vocabulary: int, labels: int):
        super().__init__()
        self.config = config
        self.body = Body(config, vocabulary=vocabulary)
        self.new = nn.Embedding(3, config.width)  # start, delimiter, extract
        self.dropout = nn.Dropout(config.classifier_dropout)
        self.output = SoftmaxOutput(config.width, labels, never=(PAD,))  # W_y
        for table in (self.new, self.output):
            nn.init.normal_(table.weight, std=START)

    @property
    def limits(self) -> Limits:
        limit = self.body.limits.target
        return Limits(source=None if limit is None else limit - NEW)

    def forward(self, source: Padded, target: Int[Tensor, "B 1"], record: Recorder | None = None) -> Forced:
        tokens, keep = source
        limit = self.limits.source
        if limit is not None and tokens.shape[1] > limit:
            what = f"{tokens.shape[1]} tokens are more than the {limit} that the model's context has room for"
            raise ModelError("the text", what, "Give shorter text")
        hidden = self.body.read(self._between_new_tokens(source), record)
        last = (source.lengths + 1)[:, None, None].expand(-1, 1, hidden.shape[-1])
        extract = self.dropout(hidden.gather(1, last))
        if not self.training or not self.config.auxiliary:
            return Forced(extract, {})
        written = tokens.masked_fill(~keep | (tokens == EOS), PAD)  # what follows each position is a token of the text
        sums = self.body.output.loss(hidden[:, :-NEW], written)
        tokens = over_all_workers(sums.tokens).clamp(min=1)
        return Forced(extract, {"language_model": self.config.auxiliary * sums.loss / tokens})

    def _between_new_tokens(self, source: Padded) -> Float[Tensor, "B N D"]:
        """start, text, extract, then padding, which nothing reads that counts."""
        tokens = source.tokens
        start, delimiter, extract = self.new.weight
        x = torch.where((tokens == EOS)[..., None], delimiter, self.body.embedding(tokens))
        ends = start.expand(tokens.shape[0], 1, -1)
        x = torch.cat((ends, x, ends), dim=1)
        places = torch.arange(x.shape[1], device=x.device)
        return torch.where((places == (source.lengths + 1)[:, None])[..., None], extract, x)
