"""The forward passes of models for training, made of the fused sub-layers of layers/training.

The models' own files say what is computed. What is made of it here reads the same weights, and is compared with them in tests; a
model that has a part which is not known here is trained by its own forward pass.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.core.types import Packed, Padded, Spans
from regard.layers.attention.multihead import CrossAttention, SelfAttention
from regard.layers.attention.relative import Places, RelativeStack
from regard.layers.decoding.products import KINDS
from regard.layers.feedforward import FeedForward
from regard.layers.positions import LearnedPositions, NoPositions, Positions, SinusoidalPositions
from regard.layers.training import short_attention, trial
from regard.layers.training.dropped import seeds
from regard.layers.training.embedded import embedded
from regard.layers.training.library_attention import library_cross_attention, library_self_attention
from regard.layers.training.norms import MOST_WIDTH, Dropout
from regard.layers.training.sub_layers import Activated, Added, Matrix, between, matrices, number_type, product
from regard.layers.training.turned import Turning
from regard.models.base import Forced
from regard.models.decoder_parts import Other, is_watched, linear_parts, norm_parts

Forward = Callable[[Padded | Packed, Int[Tensor, "B T"]], Forced]


def fused_forward(model: Any) -> Forward | None:
    """What gives the same as the model's `forward` in training; None where that is the model's own matter."""
    from regard.models.gpt import GPT
    from regard.models.transformer import Transformer

    makers: dict[type, Any] = {Transformer: _of_transformer, GPT: _of_gpt}
    maker = makers.get(type(model))
    if maker is None or model.config.width > MOST_WIDTH or any(map(is_watched, model.modules())):
        return None
    try:
        return maker(model)
    except Other:
        return None


def kernels_work(
    model: Any, device: torch.device, bfloat16: bool, lowered: bool, lengths: Iterable[int] | None = None
) -> bool:
    """Whether the model can be trained so on a device, with products and maybe all states of bfloat16.

    `lengths` are those of sentences that will be read, if they are known.
    """
    if fused_forward(model) is None:
        return False
    return trial.kernels_work(device, *_tried(model, bfloat16, lowered), _tiles(model, lengths))


def longest_packed(
    model: Any, device: torch.device, bfloat16: bool, lowered: bool, lengths: Iterable[int] | None = None
) -> int:
    """The most tokens of a sentence that may be in a packed batch (`Packed`); 0 where the model reads none."""
    from regard.models.transformer import Transformer

    if not isinstance(model, Transformer) or fused_forward(model) is None or not model.config.source_end:
        return 0
    if _drops_attention(model):
        return 0
    kind, state, low = _tried(model, bfloat16, lowered)
    possible = [n for n in (128, 64, 32, 16) if short_attention.usable(n, n, kind.width // kind.heads, low)]
    if not possible or not trial.packed_work(device, kind, state, low, _tiles(model, lengths)):
        return 0
    return min([possible[0], *(limit for limit in model.limits if limit is not None)])


def _tiles(model: Any, lengths: Iterable[int] | None) -> tuple[int, ...]:
    """That attention of ours takes."""
    if _drops_attention(model):
        return ()
    return trial.TILES if lengths is None else short_attention.tiles_for(lengths)


def _drops_attention(model: Any) -> bool:
    return any(part.dropout for part in model.modules() if isinstance(part, SelfAttention | CrossAttention))


def _tried(model: Any, bfloat16: bool, lowered: bool) -> tuple[trial.Kind, torch.dtype, torch.dtype]:
    """What kernels have to be tried with: the kind of model, and its numbers of states and in products."""
    low, state = (torch.bfloat16 if given else torch.float32 for given in (bfloat16, lowered))
    config, norm = model.config, norm_parts(next(filter(_is_norm, model.modules())))
    layout = config.rotary_layout if config.relative == "rotary" else None
    attention = next(part for part in model.modules() if isinstance(part, SelfAttention))
    added, biased, drops = config.positions != "none", attention.query_key_value.bias is not None, config.dropout > 0
    source = any(isinstance(part, CrossAttention) for part in model.modules())
    feedforward = next(part for part in model.modules() if isinstance(part, FeedForward))
    inner, sizes = len(feedforward.inner.weight), (config.width, config.heads)
    kind = trial.Kind(*sizes, config.activation, norm.kind, layout, added, biased, source, inner, drops, norm.eps)
    return kind, state, low


def _is_norm(module: nn.Module) -> bool:
    return isinstance(module, nn.LayerNorm | nn.RMSNorm)


class _Reading:
    """One reading of a batch: states, and what the last sub-layer has left to be added to them."""

    def __init__(
        self,
        x: Float[Tensor, "B T D"],
        low: dict[nn.Linear, Matrix],
        dropout: float,
        drawn: Iterator[Tensor],
        rotary: RelativeStack | None = None,
        spans: Spans | None = None,
    ):
        self.x, self.low, self.dropout, self.drawn, self.spans = x, low, dropout, drawn, spans
        self.turning = None
        if rotary is not None:
            longest, places = (x.shape[1], None) if spans is None else (spans.longest, spans.places)
            first = rotary(Places.whole_sequence(longest, x.device))[0]
            self.turning = Turning.of(first.scheme, first.placed, places)
        self.added: Added | None = None

    def begin(
        self, norm: nn.Module, matrix: Matrix, activation: str | None = None, activated: Activated | None = None
    ) -> Float[Tensor, "B T K"]:
        """The last sub-layer's end, and the next one's beginning."""
        self.x, y = between(self.x, self.added, norm_parts(norm), matrix, activation, activated)
        return y

    def end(self, read: Float[Tensor, "B T K"], linear: nn.Linear, activated: Activated | None = None) -> None:
        self.added = Added(read, self.low[linear], Dropout(self.dropout, next(self.drawn)), activated)

    def last(self, norm: nn.Module) -> Float[Tensor, "B T D"]:
        return between(self.x, self.added, norm_parts(norm), None)[1]

    def attend(self, norm: nn.Module, part: SelfAttention, source: Padded | Packed | None) -> None:
        """To all of a source; or without one, to what is before."""
        length, causal = self.x.shape[1], source is None
        usable = short_attention.usable(length, length, part.head_width, number_type(self.x))
        if self.spans is not None or (part.dropout == 0 and usable):
            matrix, bias = self.low[part.query_key_value], None
            if self.turning is None:
                matrix, bias = _biased(matrix)
            packed, keep = self.begin(norm, matrix), source.keep if isinstance(source, Padded) else None
            mixed = short_attention.self_attention(packed, part.heads, keep, causal, bias, self.turning, self.spans)
        else:
            assert not isinstance(source, Packed)
            packed = self.begin(norm, self.low[part.query_key_value])
            given = part.heads, _hiding(source), causal, part.dropout, self.turning
            mixed = library_self_attention(packed, *given)
        self.end(mixed, part.out)

    def attend_source(
        self, norm: nn.Module, part: CrossAttention, memory: Float[Tensor, "B S D"], source: Padded | Packed
    ) -> None:
        of_query, of_memory = self.low[part.query], self.low[part.key_value]
        sizes = self.x.shape[1], memory.shape[1], len(of_query.weight) // part.heads
        packed_both = (source.target, source.spans) if isinstance(source, Packed) else None
        if packed_both or (part.dropout == 0 and short_attention.usable(*sizes, number_type(self.x))):
            keep = None if isinstance(source, Packed) else source.keep
            (of_query, bias), (of_memory, memory_bias) = _biased(of_query), _biased(of_memory)
            query, packed = self.begin(norm, of_query), product(memory, of_memory)
            mixed = short_attention.cross_attention(query, packed, part.heads, keep, (bias, memory_bias), packed_both)
        else:
            assert not isinstance(source, Packed)
            query, packed = self.begin(norm, of_query), product(memory, of_memory)
            mixed = library_cross_attention(query, packed, part.heads, _hiding(source), part.dropout)
        self.end(mixed, part.out)

    def feed(self, norm: nn.Module, part: FeedForward, activation: str) -> None:
        activated = Activated() if activation == "relu" else None
        self.end(self.begin(norm, self.low[part.inner], activation, activated), part.out, activated)


def _biased(matrix: Matrix) -> tuple[Matrix, Tensor | None]:
    """A matrix whose bias is added and learns nothing from that, and the bias, where attention finds what it learns."""
    return matrix._replace(bias=None), matrix.bias


def _hiding(source: Padded | None) -> Bool[Tensor, "B S"] | None:
    """What torch's attention is to see of a source, None where all: it is faster without a mask.

    Kernels for short sequences always get one: they would be compiled for none as well, and gain nothing.
    """
    return None if source is None or source.mask is None else source.keep


def _check(activation: str, *pairs: tuple[nn.Module, SelfAttention | CrossAttention | FeedForward]) -> None:
    """Whether these norms and what is behind them are known."""
    if activation not in KINDS:
        raise Other
    for norm, part in pairs:
        norm_parts(norm)
        for module in part.modules():
            if isinstance(module, nn.Linear):
                linear_parts(module)
        if isinstance(part, FeedForward):
            known = not part.gated and part.dropout.p == 0
        else:
            known = part.scaling and getattr(part, "query_norm", None) is None
            known = known and getattr(part, "kv_heads", part.heads) == part.heads
        if not known:
            raise Other


def _of_transformer(model: Any) -> Forward:
    config = model.config
    known = config.norm == "pre" and config.residual and config.normalise != "batch"
    if not known or config.relative not in ("none", "rotary"):
        raise Other
    _check_positions(model.source_positions, model.target_positions)
    pairs: list[tuple[Any, Any]] = []
    for layer in (*model.encoder, *model.decoder):
        pairs += [(layer.around_attention.norm, layer.attention), (layer.around_feedforward.norm, layer.feedforward)]
    pairs += [(layer.around_cross.norm, layer.cross) for layer in model.decoder]
    _check(config.activation, *pairs)
    return partial(_transformer, model)


def _transformer(model: Any, source: Padded | Packed, target: Int[Tensor, "B T"]) -> Forced:
    config, read, written = model.config, None, None
    if isinstance(source, Packed):
        read, written = source.spans, source.target
    else:
        source = model._as_read(source)
    drawn = iter(seeds(2 + 2 * len(model.encoder) + 3 * len(model.decoder), target.device))
    x = _of_side(model, source.tokens, "source", next(drawn), read)
    low = matrices(_linears(model.encoder, model.decoder), number_type(x))
    reading = _Reading(x, low, config.dropout, drawn, model.encoder_relative, read)
    for layer in model.encoder:
        reading.attend(layer.around_attention.norm, layer.attention, source)
        reading.feed(layer.around_feedforward.norm, layer.feedforward, config.activation)
    memory = reading.last(model.encoder_norm)
    x = _of_side(model, target, "target", next(drawn), written)
    reading = _Reading(x, low, config.dropout, drawn, model.decoder_relative, written)
    for layer in model.decoder:
        reading.attend(layer.around_attention.norm, layer.attention, None)
        reading.attend_source(layer.around_cross.norm, layer.cross, memory, source)
        reading.feed(layer.around_feedforward.norm, layer.feedforward, config.activation)
    return Forced(reading.last(model.decoder_norm), {})


def _linears(*stacks: nn.ModuleList) -> list[nn.Linear]:
    return [module for stack in stacks for module in stack.modules() if isinstance(module, nn.Linear)]


def _of_side(
    model: Any, tokens: Int[Tensor, "B N"], side: str, seed: Tensor, spans: Spans | None
) -> Float[Tensor, "B N D"]:
    longest, places = (tokens.shape[1], None) if spans is None else (spans.longest, spans.places)
    table, positions = model.tables(side, longest)
    factor, dropout = math.sqrt(model.config.width), model.config.dropout
    return embedded(tokens, table.weight, factor, _at(positions, longest), dropout, seed, places)


def _check_positions(*found: Positions) -> None:
    if not all(isinstance(one, NoPositions | LearnedPositions | SinusoidalPositions) for one in found):
        raise Other


def _at(positions: Positions, length: int) -> Float[Tensor, "N D"] | None:
    """The vectors of the first positions."""
    if isinstance(positions, NoPositions):
        return None
    if isinstance(positions, LearnedPositions):
        return positions.table.weight[:length]
    table = positions.get_buffer("table")
    return table[:length] if length <= len(table) else positions(torch.arange(length, device=table.device), length)


def _of_gpt(model: Any) -> Forward:
    config = model.config
    if config.norm != "pre" or config.relative != "none":
        raise Other
    _check_positions(model.positions)
    pairs: list[tuple[Any, Any]] = []
    for block in model.decoder:
        pairs += [(block.attention_norm, block.attention), (block.feedforward_norm, block.feedforward)]
    _check(config.activation, *pairs)
    return partial(_gpt, model)


def _gpt(model: Any, source: Padded | Packed, target: Int[Tensor, "B T"]) -> Forced:
    config, length = model.config, target.shape[1]
    model.check_length(length)
    drawn = iter(seeds(1 + 2 * len(model.decoder), target.device))
    x = embedded(target, model.embedding.weight, 1.0, _at(model.positions, length), config.dropout, next(drawn))
    reading = _Reading(x, matrices(_linears(model.decoder), number_type(x)), config.dropout, drawn)
    for block in model.decoder:
        reading.attend(block.attention_norm, block.attention, None)
        reading.feed(block.feedforward_norm, block.feedforward, config.activation)
    return Forced(reading.last(model.norm), {})
