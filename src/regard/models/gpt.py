"""GPT: "Improving Language Understanding by Generative Pre-Training", Radford et al. 2018, and GPT-2, Radford et al. 2019.

Both are the Transformer's decoder without its cross-attention, over one text:

    h_0 = U W_e + W_p        h_l = block(h_{l-1})        P(u) = softmax(h_n W_eᵀ)        (2018, eq. 2)

    2018, norm="post":  h = LN(h + attention(h));  h = LN(h + feedforward(h))
    2019, norm="pre":   h = h + attention(LN(h));  h = h + feedforward(LN(h));  and LN(h_n) before the softmax

The defaults are GPT-2's form; its small model is width 768, layers 12, heads 12, context 1024. GPT is the same with norm="post"
and context 512. Today's choices are settings: rotary positions, RMSNorm, SwiGLU, grouped queries, normalised queries and keys.

Departs:
- Embeddings and matrices start from N(0, 0.02) as in both papers' code, positions from N(0, 0.01) with norm="pre" and N(0, 0.02)
  with norm="post". With norm="pre" the matrices that write into the residual stream start smaller by 1/√(2 layers), as the
  paper of 2019 says; the code that was released does not.
- The paper of 2019 scales by 1/√N, N the number of residual layers: here every sub-layer counts as one.
- BOS and EOS are two tokens. GPT-2 has one for both, <|endoftext|>; a model read from its files has two equal rows
  (exchange/huggingface_gpt2.py). With `silent`, as those files need, PAD, BOS and UNK are never written.
- Sinusoids are not offered: next to embeddings of size 0.02, which nothing scales here, they would drown the words.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.core.bounds import check_bounds
from regard.core.errors import ConfigError, ModelError
from regard.core.types import BOS, PAD, UNK, Padded
from regard.layers.attention.cache import CacheState
from regard.layers.attention.multihead import SelfAttention, attend_heads, merge_heads
from regard.layers.attention.relative import (
    RELATIVE,
    AddedTo,
    Layout,
    Places,
    RelativeSettings,
    RelativeStack,
    SchemeAtPlaces,
)
from regard.layers.feedforward import Activation, FeedForward
from regard.layers.output import SoftmaxOutput
from regard.layers.positions import LearnedPositions, make_positions
from regard.models.base import MODELS, Forced, LanguageModel, Limits, NoMemory, Recorder

NORM_EPS = 1e-5
START = 0.02  # standard deviation of weights at the start
START_OF_POSITIONS = {"pre": 0.01, "post": 0.02}
SWIGLU_MULTIPLE = 64
SIZES = {
    "width": (1, 1 << 14),
    "layers": (1, 1000),
    "heads": (1, 1 << 14),
    "kv_heads": (0, 1 << 14),
    "inner": (0, 1 << 18),
    "context": (1, 1 << 20),
    "relative_distance": (0, 1 << 14),
    "relative_buckets": (4, 1 << 14),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class GPTConfig:
    """Sizes and choices of a GPT."""

    name: Literal["gpt"] = "gpt"
    width: int = 384
    layers: int = 6
    heads: int = 6
    kv_heads: int = 0  # of keys and values, shared by groups of query heads; 0: as `heads`
    inner: int = 0  # 0: four times the width; of swiglu, which has three matrices, 8/3 of it, up to a multiple of 64
    context: int = 512  # the longest text that is read at once, and trained on
    norm: Literal["pre", "post"] = "pre"
    normalise: Literal["layer", "rms"] = "layer"  # rms: without mean and bias (Zhang & Sennrich 2019)
    qk_norm: bool = False  # queries and keys of each head are RMS-normalised, with learned scales
    positions: Literal["learned", "none"] = "learned"  # added to embeddings
    relative: Literal["none", "shaw", "music", "t5", "alibi", "rotary"] = "none"  # in attention
    relative_distance: int = 0  # the longest that shaw, music and t5 tell apart; 0: 16, of t5 128
    relative_buckets: int = 32  # of t5
    relative_to: AddedTo = "both"  # what shaw adds vectors to
    relative_per_head: bool = False  # shaw, music: each head has vectors of its own
    rotary_layout: Layout = "interleaved"  # which dimensions are turned together
    rotary_base: float = 10000.0
    activation: Activation = "gelu_tanh"
    bias: bool = True  # false: none in matrices and norms
    tie: bool = True  # the output's table is that of the embeddings
    silent: bool = False  # PAD, BOS and UNK are never written: for models whose vocabulary had none of them
    dropout: float = 0.1  # of embeddings and of what each sub-layer writes
    attention_dropout: float = 0.1

    def __post_init__(self) -> None:
        check_bounds("model", self, SIZES, parts=("dropout", "attention_dropout"))
        if self.width % self.heads:
            raise ConfigError(
                "setting model.heads", f"{self.heads} heads do not divide the width {self.width}", "Change one"
            )
        if self.kv_heads and self.heads % self.kv_heads:
            raise ConfigError(
                "setting model.kv_heads",
                f"{self.kv_heads} heads of keys and values do not divide the {self.heads} heads",
                "Give a number that does, or 0 for as many",
            )
        if self.relative != "none":
            RELATIVE.get(self.relative).check(self.relative_settings, self.head_width)

    @property
    def head_width(self) -> int:
        return self.width // self.heads

    @property
    def inner_width(self) -> int:
        """With two thirds of 4 · width, three matrices of SwiGLU have as many weights as two others (Shazeer 2020)."""
        if self.inner:
            return self.inner
        if self.activation != "swiglu":
            return 4 * self.width
        return -(-8 * self.width // (3 * SWIGLU_MULTIPLE)) * SWIGLU_MULTIPLE

    @property
    def relative_settings(self) -> RelativeSettings:
        return RelativeSettings(
            relative_distance=self.relative_distance,
            relative_buckets=self.relative_buckets,
            relative_to=self.relative_to,
            relative_per_head=self.relative_per_head,
            rotary_layout=self.rotary_layout,
            rotary_base=self.rotary_base,
        )


def _norm(config: GPTConfig) -> nn.Module:
    if config.normalise == "rms":
        return nn.RMSNorm(config.width, eps=NORM_EPS)
    return nn.LayerNorm(config.width, eps=NORM_EPS, bias=config.bias)


class Block(nn.Module):
    """Attention and a feed-forward network, each with its residual connection."""

    def __init__(self, config: GPTConfig):
        super().__init__()
        self.pre = config.norm == "pre"
        self.attention_norm = _norm(config)
        self.attention = SelfAttention(
            config.width,
            config.heads,
            config.attention_dropout,
            kv_heads=config.kv_heads,
            qk_norm=config.qk_norm,
            bias=config.bias,
        )
        self.feedforward_norm = _norm(config)
        self.feedforward = FeedForward(config.width, config.inner_width, config.activation, bias=config.bias)
        self.dropout = nn.Dropout(config.dropout)

    def forward(
        self, x: Float[Tensor, "B T D"], explicit: bool, relative: SchemeAtPlaces | None
    ) -> tuple[Float[Tensor, "B T D"], Tensor | None]:
        """Teacher forcing: each position sees itself and what is before it."""
        written, weights = self.attention(self._read(x), None, True, explicit, relative)
        return self._rest(x, written), weights

    def advance(
        self,
        x: Float[Tensor, "B KT D"],
        layer: int,
        state: CacheState,
        visible: Float[Tensor, "B 1 KT LK"] | None,
        count: int,
        explicit: bool,
        relative: SchemeAtPlaces | None,
    ) -> tuple[Float[Tensor, "B KT D"], Tensor | None]:
        """Incremental: the next `count` tokens of every hypothesis, with the past in the state's cache."""
        q, k, v = self.attention.project(self._read(x), relative)
        key, value = state.write(layer, k, v, count)
        dropout = self.attention.dropout if self.training else 0.0
        mixed, weights = attend_heads(q, key, value, visible, dropout=dropout, explicit=explicit, relative=relative)
        return self._rest(x, self.attention.out(merge_heads(mixed))), weights

    def _read(self, x: Float[Tensor, "B N D"]) -> Float[Tensor, "B N D"]:
        return self.attention_norm(x) if self.pre else x

    def _rest(self, x: Float[Tensor, "B N D"], attended: Float[Tensor, "B N D"]) -> Float[Tensor, "B N D"]:
        x = x + self.dropout(attended)
        if self.pre:
            return x + self.dropout(self.feedforward(self.feedforward_norm(x)))
        x = self.attention_norm(x)
        return self.feedforward_norm(x + self.dropout(self.feedforward(x)))


@MODELS.register("gpt")
class GPT(LanguageModel):
    """A stack of causal self-attention over one text."""

    Config = GPTConfig
    depths = ("layers",)

    def __init__(self, config: GPTConfig, *, vocabulary: int):
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(vocabulary, config.width)  # W_e
        self.positions = make_positions(config.positions, config.width, config.context)  # W_p
        self.dropout = nn.Dropout(config.dropout)
        self.decoder = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.relative = _relative(config)
        self.norm = _norm(config) if config.norm == "pre" else nn.Identity()
        self.output = SoftmaxOutput(
            config.width,
            vocabulary,
            self.embedding.weight if config.tie else None,
            bias=False,
            never=(PAD, BOS, UNK) if config.silent else (),
        )
        self._initialise()

    def _initialise(self) -> None:
        config = self.config
        nn.init.normal_(self.embedding.weight, std=START)
        if isinstance(self.positions, LearnedPositions):
            nn.init.normal_(self.positions.table.weight, std=START_OF_POSITIONS[config.norm])
        if not config.tie:
            nn.init.normal_(self.output.weight, std=START)  # type: ignore[arg-type]
        for module in self.decoder.modules():
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=START)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        if config.norm == "pre":
            for name, parameter in self.decoder.named_parameters():
                if name.endswith("out.weight"):
                    nn.init.normal_(parameter, std=START * (2 * config.layers) ** -0.5)

    @property
    def limits(self) -> Limits:
        """The context, whatever the positions: rotary ones and ALiBi go on beyond it, but what is written gets worse and worse."""
        return Limits(target=self.config.context)

    @classmethod
    def needs_float32(cls, config: Any) -> str | None:
        return None

    def check_length(self, longest: int) -> None:
        limit = self.config.context
        if longest > limit:
            what = f"{longest} tokens are more than the model's context, {limit}"
            raise ModelError("the text", what, "Give shorter text, or ask for less")

    def _embed(self, tokens: Int[Tensor, "B N"], at: Int[Tensor, "*#B N"], longest: int) -> Float[Tensor, "B N D"]:
        self.check_length(longest)
        x = self.embedding(tokens)
        return self.dropout(x if self.positions.limit is None else x + self.positions(at, longest))

    def _schemes(self, places: Places) -> list[SchemeAtPlaces | None]:
        return [None] * len(self.decoder) if self.relative is None else [*self.relative(places)]

    def forward(self, source: Padded, target: Int[Tensor, "B T"], record: Recorder | None = None) -> Forced:
        length = target.shape[1]
        x = self._embed(target, torch.arange(length, device=target.device), length)
        relative = self._schemes(Places.whole_sequence(length, target.device))
        for i, block in enumerate(self.decoder):
            x, weights = block(x, record is not None, relative[i])
            if record is not None:
                record.add(f"decoder.{i}.self", weights)
        return Forced(self.norm(x), {})

    def begin(self, rows: int, *, beams: int = 1, capacity: int = 256) -> CacheState:
        config, like = self.config, self.embedding.weight
        if torch.is_autocast_enabled(like.device.type):  # keys and values come in this type then
            like = like.new_empty(0, dtype=torch.get_autocast_dtype(like.device.type))
        heads = config.kv_heads or config.heads
        return CacheState.empty(rows, beams, capacity, config.layers, heads, heads * config.head_width, like.detach())

    def advance(
        self, tokens: Int[Tensor, "B K T"], memory: NoMemory, state: CacheState, record: Recorder | None = None
    ) -> tuple[Float[Tensor, "B K T D"], CacheState]:
        beams, count = tokens.shape[1:]
        at = state.next_positions(count)[:, None].expand(-1, beams, -1).flatten(1)
        x = self._embed(tokens.flatten(1), at, state.filled + count)
        if state.filled + count > state.capacity:
            raise ModelError(
                "the text",
                f"{state.filled + count} tokens exceed the state's capacity {state.capacity}",
                "Start with more",
            )
        relative = self._schemes(Places(at, state.stored_positions(count)))
        visible = state.visible(count)
        for i, block in enumerate(self.decoder):
            x, weights = block.advance(x, i, state, visible, count, record is not None, relative[i])  # type: ignore[operator]
            if record is not None and weights is not None:  # B H (K T) S -> B K H T S
                record.add(f"decoder.{i}.self", weights.unflatten(2, (beams, count)).transpose(1, 2))
        return self.norm(x).unflatten(1, (beams, count)), state.advanced(count)


def _relative(config: GPTConfig) -> RelativeStack | None:
    if config.relative == "none":
        return None
    return RelativeStack(
        config.relative,
        config.relative_settings,
        layers=config.layers,
        heads=config.heads,
        head_width=config.head_width,
        causal=True,
    )
