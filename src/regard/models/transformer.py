"""The Transformer: "Attention Is All You Need", Vaswani et al. 2017 (arXiv 1706.03762).

Departs:
- `norm="pre"` (the default here) normalises the input of each sub-layer and the output of each stack, as the authors' own
  later code does; it trains without care. `norm="post"` is the paper's LN(x + Sublayer(x)).
- With `norm="pre"` the matrices that write into the residual stream start smaller by 1/sqrt(number of sub-layers).
- Queries, keys and values are one matrix, and start as one: smaller by 1/sqrt(2) than three matrices would.
- Attention weights and inner activations have dropouts of their own (off by default, as in the paper).
- `normalise`, `residual` and `scaling` take parts of it away or exchange them; the paper's are the defaults.
- `normalise="batch"` puts batch normalisation (layers/batch_norm.py) in the place of every layer normalisation. In training each
  feature is normalised over the tokens of all rows together, on either side, padding and rows that only fill a batch up left
  out: so outputs depend on the whole batch, and in the decoder on later positions too. In evaluation, and so in search, running
  averages take their place, and outputs depend on their own text and its past alone.
- The output layer has a bias, as in most implementations; the paper does not mention one.
- Positions can be others than the paper's sinusoids (layers/positions.py), and self-attention can see distances instead or as
  well (layers/attention/relative/, one file for each paper, with where it departs). Cross-attention sees neither.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.core.bounds import check_bounds
from regard.core.errors import ConfigError, ModelError
from regard.core.tree import Memory
from regard.core.types import EOS, PAD, Padded
from regard.layers.attention.cache import CacheState
from regard.layers.attention.multihead import CrossAttention, SelfAttention, as_added, attend_heads, merge_heads
from regard.layers.attention.relative import (
    RELATIVE,
    AddedTo,
    Layout,
    Places,
    RelativeSettings,
    RelativeStack,
    SchemeAtPlaces,
)
from regard.layers.embeddings import Tie, embedding_tables
from regard.layers.feedforward import Activation, FeedForward
from regard.layers.normalise import EPSILON, Counted, Normalise, normaliser
from regard.layers.output import SoftmaxOutput
from regard.layers.positions import Absolute, Positions, make_positions
from regard.models.base import MODELS, Forced, Limits, Recorder, Writer

SIZES = {
    "width": (1, 1 << 14),
    "layers": (1, 1000),
    "heads": (1, 1 << 14),
    "inner": (0, 1 << 18),
    "max_length": (1, 1 << 20),
    "relative_distance": (0, 1 << 14),
    "relative_buckets": (4, 1 << 14),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class BlockConfig:
    """Sizes and choices of the layers of an encoder or decoder."""

    name: str = ""  # each model's own
    width: int = 256
    layers: int = 3
    heads: int = 4
    inner: int = 0  # 0: four times the width
    norm: Literal["pre", "post"] = "pre"
    normalise: Normalise = "layer"  # rms: without mean and bias (Zhang & Sennrich 2019); batch: over a batch's tokens
    norm_epsilon: float = EPSILON  # added to the variance; imported models may have another
    residual: bool = True  # false: sub-layers replace their input, to see what residual connections are for
    scaling: bool = True  # false: dot products are not divided by √d, to see what that is for
    positions: Absolute = "sinusoidal"  # added to embeddings; fraction fails, and with norm=pre does nothing
    max_length: int = 512  # of learned positions
    relative: Literal["none", "shaw", "music", "t5", "alibi", "rotary"] = "none"  # in self-attention
    relative_distance: int = 0  # the longest that shaw, music and t5 tell apart; 0: 16, of t5 128
    relative_buckets: int = 32  # of t5
    relative_to: AddedTo = "both"  # what shaw adds vectors to
    relative_per_head: bool = False  # shaw, music: each head has vectors of its own
    rotary_layout: Layout = "interleaved"  # which dimensions are turned together
    rotary_base: float = 10000.0
    activation: Activation = "relu"
    dropout: float = 0.1
    attention_dropout: float = 0.0
    activation_dropout: float = 0.0

    def __post_init__(self) -> None:
        check_bounds("model", self, SIZES, parts=("dropout", "attention_dropout", "activation_dropout"))
        if not 0 < self.norm_epsilon <= 0.01:
            what = f"{self.norm_epsilon} is not above 0 and at most 0.01"
            raise ConfigError("setting model.norm_epsilon", what, "Give for example 1e-5")
        if self.width % self.heads:
            raise ConfigError(
                "setting model.heads", f"{self.heads} heads do not divide the width {self.width}", "Change one"
            )
        if self.width % 2 and self.positions in ("sinusoidal", "sinusoidal-halves"):
            raise ConfigError(
                "setting model.width", f"sinusoids need an even width, got {self.width}", "Give an even one"
            )
        if self.relative != "none":
            RELATIVE.get(self.relative).check(self.relative_settings, self.width // self.heads)

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


@dataclasses.dataclass(frozen=True, kw_only=True)
class TransformerConfig(BlockConfig):
    """Sizes and choices of a Transformer; the paper's base model is width 512, layers 6, heads 8, inner 2048, norm post."""

    name: Literal["transformer"] = "transformer"
    encoder_layers: int = 0  # 0: as `layers`
    decoder_layers: int = 0  # 0: as `layers`
    tie: Tie = "auto"  # which tables are one: auto ties all that share a vocabulary
    source_end: bool = True  # false: the source is read without its EOS, as by models of OpenNMT-py

    def __post_init__(self) -> None:
        check_bounds("model", self, {"encoder_layers": (0, 1000), "decoder_layers": (0, 1000)})
        super().__post_init__()

    @property
    def depth(self) -> tuple[int, int]:
        return self.encoder_layers or self.layers, self.decoder_layers or self.layers


class Residual(nn.Module):
    """LN(x + Sublayer(x)) (section 3.1), or x + Sublayer(LN(x)) with pre-norm: `before` and `after` a sub-layer."""

    def __init__(self, config: BlockConfig):
        super().__init__()
        self.pre = config.norm == "pre"
        self.residual = config.residual
        self.norm = normaliser(config.normalise, config.width, config.norm_epsilon)
        self.dropout = nn.Dropout(config.dropout)

    def before(self, x: Tensor, counted: Counted) -> Tensor:
        return self.norm(x, counted) if self.pre else x

    def after(self, x: Tensor, written: Tensor, counted: Counted) -> Tensor:
        written = self.dropout(written)
        x = x + written if self.residual else written
        return x if self.pre else self.norm(x, counted)


class EncoderLayer(nn.Module):
    def __init__(self, config: BlockConfig):
        super().__init__()
        self.attention = SelfAttention(config.width, config.heads, config.attention_dropout, config.scaling)
        self.feedforward = _feedforward(config)
        self.around_attention, self.around_feedforward = Residual(config), Residual(config)

    def forward(
        self,
        x: Float[Tensor, "B S D"],
        keep: Bool[Tensor, "B 1 1 S"] | None,
        explicit: bool,
        relative: SchemeAtPlaces | None = None,
        counted: Bool[Tensor, "B S"] | None = None,
    ) -> tuple[Float[Tensor, "B S D"], Tensor | None]:
        """`counted` are the tokens that batch normalisation counts."""
        read = self.around_attention.before(x, counted)
        written, weights = self.attention(read, keep, False, explicit, relative)
        x = self.around_attention.after(x, written, counted)
        read = self.around_feedforward.before(x, counted)
        return self.around_feedforward.after(x, self.feedforward(read), counted), weights


class DecoderLayer(nn.Module):
    def __init__(self, config: BlockConfig):
        super().__init__()
        self.attention = SelfAttention(config.width, config.heads, config.attention_dropout, config.scaling)
        self.cross = CrossAttention(config.width, config.heads, config.attention_dropout, scaling=config.scaling)
        self.feedforward = _feedforward(config)
        self.around_attention, self.around_cross, self.around_feedforward = (
            Residual(config),
            Residual(config),
            Residual(config),
        )

    def forward(
        self,
        x: Float[Tensor, "B T D"],
        key: Float[Tensor, "B H S Dh"],
        value: Float[Tensor, "B H S Dh"],
        keep: Bool[Tensor, "B 1 1 S"] | None,
        explicit: bool,
        relative: SchemeAtPlaces | None = None,
        counted: Bool[Tensor, "B T"] | None = None,
    ) -> tuple[Float[Tensor, "B T D"], Tensor | None, Tensor | None]:
        """Teacher forcing: each position sees itself and what is before it, and this layer's keys and values of the source."""
        written, own = self.attention(self.around_attention.before(x, counted), None, True, explicit, relative)
        x = self.around_attention.after(x, written, counted)
        x, weights = self._rest(x, key, value, keep, explicit, counted)
        return x, own, weights

    def advance(
        self,
        x: Float[Tensor, "B KT D"],
        memory: TransformerMemory,
        keep: Float[Tensor, "B 1 1 S"],
        layer: int,
        state: CacheState,
        visible: Float[Tensor, "B 1 KT LK"] | None,
        count: int,
        explicit: bool,
        relative: SchemeAtPlaces | None = None,
    ) -> tuple[Float[Tensor, "B KT D"], Tensor | None, Tensor | None]:
        """Incremental: the next `count` tokens of every hypothesis, with the past in the state's cache. Masks are added."""
        q, k, v = self.attention.project(self.around_attention.before(x, None), relative)
        key, value = state.write(layer, k, v, count)
        mixed, own = attend_heads(q, key, value, visible, explicit=explicit, relative=relative)
        x = self.around_attention.after(x, self.attention.out(merge_heads(mixed)), None)
        x, weights = self._rest(x, memory.keys[layer], memory.values[layer], keep, explicit, None)
        return x, own, weights

    def _rest(
        self,
        x: Float[Tensor, "B N D"],
        key: Float[Tensor, "B H S Dh"],
        value: Float[Tensor, "B H S Dh"],
        keep: Bool[Tensor, "B 1 1 S"] | Float[Tensor, "B 1 1 S"] | None,
        explicit: bool,
        counted: Bool[Tensor, "B N"] | None,
    ) -> tuple[Float[Tensor, "B N D"], Tensor | None]:
        written, weights = self.cross(self.around_cross.before(x, counted), key, value, keep, explicit)
        x = self.around_cross.after(x, written, counted)
        read = self.around_feedforward.before(x, counted)
        return self.around_feedforward.after(x, self.feedforward(read), counted), weights


def counted_tokens(source: Padded) -> Bool[Tensor, "B S"]:
    """The tokens that batch normalisation counts: not padding, nor the one EOS of a row that only fills a batch up."""
    return source.keep & (source.tokens[:, :1] != EOS)


def _feedforward(config: BlockConfig) -> FeedForward:
    return FeedForward(config.width, config.inner or 4 * config.width, config.activation, config.activation_dropout)


@dataclasses.dataclass
class TransformerMemory(Memory):
    """The source, as keys and values of every decoder layer."""

    keys: tuple[Float[Tensor, "B H S Dh"], ...]
    values: tuple[Float[Tensor, "B H S Dh"], ...]
    keep: Bool[Tensor, "B 1 1 S"]


@MODELS.register("transformer")
class Transformer(Writer):
    """Encoder and decoder of stacked attention and feed-forward layers (figure 1)."""

    Config = TransformerConfig
    capabilities = frozenset({"translates", "attends"})
    depths = ("layers", "encoder_layers", "decoder_layers")

    def __init__(self, config: TransformerConfig, *, source_vocabulary: int, target_vocabulary: int, shared: bool):
        super().__init__()
        self.config = config
        encoders, decoders = config.depth
        tables = embedding_tables(source_vocabulary, target_vocabulary, config.width, config.tie, shared)
        self.target_embedding, self.source_embedding = tables.target, tables.source
        self.source_positions = make_positions(config.positions, config.width, config.max_length)
        self.target_positions = make_positions(config.positions, config.width, config.max_length)
        self.dropout = nn.Dropout(config.dropout)
        self.encoder = nn.ModuleList(EncoderLayer(config) for _ in range(encoders))
        self.decoder = nn.ModuleList(DecoderLayer(config) for _ in range(decoders))
        self.encoder_relative = relative_stack(config, encoders, causal=False)
        self.decoder_relative = relative_stack(config, decoders, causal=True)
        last = config.normalise if config.norm == "pre" else None
        self.encoder_norm, self.decoder_norm = (normaliser(last, config.width, config.norm_epsilon) for _ in range(2))
        self.output = SoftmaxOutput(config.width, target_vocabulary, tables.output)
        self._initialise()

    def _initialise(self) -> None:
        for table in dict.fromkeys((self.source_embedding, self.target_embedding)):  # in order: a set would not repeat
            nn.init.normal_(table.weight, std=self.config.width**-0.5)
        for stack, sublayers in ((self.encoder, 2), (self.decoder, 3)):
            start_layers(self.config, stack, sublayers)

    @property
    def limits(self) -> Limits:
        return Limits(self.source_positions.limit, self.target_positions.limit)

    @classmethod
    def needs_float32(cls, config: Any) -> str | None:
        return "batch normalisation is in float32" if config.normalise == "batch" else None

    def _embed(
        self,
        tokens: Int[Tensor, "B N"],
        side: Literal["source", "target"],
        at: Int[Tensor, "*#B N"],
        longest: int,
        keep: Bool[Tensor, "B S"],
    ) -> Float[Tensor, "B N D"]:
        """Embeddings and positions. `keep` is that of the source, on either side."""
        table, positions = self.tables(side, longest)
        x = table(tokens) * math.sqrt(self.config.width)
        return self.dropout(x + positions(at, longest, keep).to(x.dtype))

    def tables(self, side: Literal["source", "target"], longest: int) -> tuple[nn.Embedding, Positions]:
        """Of a side's embeddings and positions, for texts of so many tokens."""
        table, positions = (
            (self.source_embedding, self.source_positions)
            if side == "source"
            else (self.target_embedding, self.target_positions)
        )
        if positions.limit is not None and longest > positions.limit:
            raise ModelError(
                f"the {side}",
                f"{longest} tokens are more than the model's learned positions, {positions.limit}",
                "Give shorter text",
            )
        return table, positions

    def _as_read(self, source: Padded) -> Padded:
        """The source, its EOS hidden where the model reads none; of an empty one it is left."""
        if self.config.source_end:
            return source
        first = torch.arange(source.tokens.shape[1], device=source.tokens.device) == 0
        return Padded(source.tokens, source.keep & ((source.tokens != EOS) | first))

    def encode(self, source: Padded, record: Recorder | None = None) -> TransformerMemory:
        """Reads the source once; gives what the decoder will look at."""
        source = self._as_read(source)
        length, device = source.tokens.shape[1], source.tokens.device
        x = self._embed(source.tokens, "source", torch.arange(length, device=device), length, source.keep)
        relative = [None] * len(self.encoder)
        if self.encoder_relative is not None:
            relative = self.encoder_relative(Places.whole_sequence(length, device))
        keep, counted = source.keep[:, None, None, :], counted_tokens(source)
        for i, layer in enumerate(self.encoder):
            x, weights = layer(x, source.mask, record is not None, relative[i], counted)
            if record is not None and weights is not None:
                record.add(f"encoder.{i}.self", weights)
        x = self.encoder_norm(x, counted)
        pairs = [layer.cross.project_memory(x) for layer in self.decoder]  # type: ignore[union-attr]
        return TransformerMemory(tuple(k for k, _ in pairs), tuple(v for _, v in pairs), keep)

    def forward(self, source: Padded, target: Int[Tensor, "B T"], record: Recorder | None = None) -> Forced:
        source = self._as_read(source)
        memory = self.encode(source, record)
        length = target.shape[1]
        x = self._embed(target, "target", torch.arange(length, device=target.device), length, source.keep)
        relative = [None] * len(self.decoder)
        if self.decoder_relative is not None:
            relative = self.decoder_relative(Places.whole_sequence(length, target.device))
        counted = target != PAD
        for i, layer in enumerate(self.decoder):
            key, value = memory.keys[i], memory.values[i]
            x, own, weights = layer(x, key, value, source.mask, record is not None, relative[i], counted)
            if record is not None:
                record.add(f"decoder.{i}.self", own)
                record.add(f"decoder.{i}.cross", weights)
        return Forced(self.decoder_norm(x, counted), {})

    def start(
        self, source: Padded, *, beams: int = 1, capacity: int = 256, target_length: int | None = None
    ) -> tuple[TransformerMemory, CacheState]:
        memory = self.encode(source)
        if beams > 1 and source.tokens.device.type == "cpu":  # steps want heads that lie evenly: see few_queries.py
            memory = memory.map(Tensor.contiguous)
        config = self.config
        state = CacheState.empty(
            source.tokens.shape[0], beams, capacity, config.depth[1], config.heads, config.width, memory.keys[0]
        )
        return memory, state

    def advance(
        self, tokens: Int[Tensor, "B K T"], memory: TransformerMemory, state: CacheState, record: Recorder | None = None
    ) -> tuple[Float[Tensor, "B K T D"], CacheState]:
        beams, count = tokens.shape[1:]
        if state.filled + count > state.capacity:
            raise ModelError(
                "the target",
                f"{state.filled + count} tokens exceed the state's capacity {state.capacity}",
                "Start with more",
            )
        at = state.next_positions(count)[:, None].expand(-1, beams, -1).flatten(1)
        x = self._embed(tokens.flatten(1), "target", at, state.filled + count, memory.keep[:, 0, 0])
        relative = [None] * len(self.decoder)
        if self.decoder_relative is not None:
            relative = self.decoder_relative(Places(at, state.stored_positions(count)))
        visible, keep = state.visible(count), as_added(memory.keep, x)
        for i, layer in enumerate(self.decoder):
            x, own, weights = layer.advance(  # type: ignore[operator]
                x, memory, keep, i, state, visible, count, record is not None, relative[i]
            )
            if record is not None:
                for name, seen in (("self", own), ("cross", weights)):  # B H (K T) S -> B K H T S
                    record.add(f"decoder.{i}.{name}", seen.unflatten(2, (beams, count)).transpose(1, 2))
        return self.decoder_norm(x).unflatten(1, (beams, count)), state.advanced(count)

    def alignment(self, record: Recorder) -> Float[Tensor, "B *K T S"]:
        """Cross-attention averaged over heads: of the last layer; in deep models of the one before, as the last looks ahead."""
        layer = len(self.decoder) - (1 if len(self.decoder) <= 4 else 2)
        return record.tensors[f"decoder.{layer}.cross"].mean(-3)


def start_layers(config: BlockConfig, stack: nn.ModuleList, sublayers: int) -> None:
    """Matrices start by Glorot's rule, biases at 0; with pre-norm, what writes into the residual stream starts smaller."""
    for module in stack.modules():
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight)
            nn.init.zeros_(module.bias)
    if config.norm == "pre" and config.residual:
        for name, parameter in stack.named_parameters():
            if name.endswith("out.weight"):
                parameter.data *= (sublayers * len(stack)) ** -0.5


def relative_stack(config: BlockConfig, layers: int, causal: bool) -> RelativeStack | None:
    if config.relative == "none":
        return None
    head_width = config.width // config.heads
    return RelativeStack(
        config.relative,
        config.relative_settings,
        layers=layers,
        heads=config.heads,
        head_width=head_width,
        causal=causal,
    )
