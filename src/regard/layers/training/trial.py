"""Whether the kernels of training run on a device, and rightly: each is tried once, beside its reference.

Compiling a kernel takes half a second, and there are some thirty of them. They are tried side by side, in the sizes that
training will ask for, so that little is left to compile in its first steps.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.core.processors import processors
from regard.core.types import Spans
from regard.layers.attention.relative import Layout
from regard.layers.attention.relative.rotary import turns
from regard.layers.decoding.products import Norm
from regard.layers.decoding.triton_here import bound_to, usable
from regard.layers.training import short_attention
from regard.layers.training.activations import activation_backward, summed
from regard.layers.training.dropped import dropped_gradient
from regard.layers.training.embedded import embed
from regard.layers.training.library_attention import copy_heads
from regard.layers.training.norms import Dropout, add_and_norm, norm_backward
from regard.layers.training.relu_product import product_through_relu
from regard.layers.training.short_attention import attention_backward, attention_forward
from regard.layers.training.tiles import on_device
from regard.layers.training.turned import Turning, turn_queries_and_keys

MOST_APART = (
    4e-2  # of numbers about 1, in bfloat16: rounding alone puts sums over 123 keys 0.02 apart (test_trial_rounding.py)
)
DROPPED = 0.3  # of states
TILES = (16, 32, 64)  # of attention, where nobody says how long sentences are
Outcome = list[Tensor]
OWN = "train.fused: layers are trained by the model's own operations, not by kernels, which takes longer"
PADDED = "train.packed: batches are padded, as kernels for packed ones are not used"
log = logging.getLogger(__name__)


class Piece:
    """Something to be computed on a device and by a reference."""

    def __init__(self, function: Callable[..., Any], *arguments: Any):
        self.function, self.arguments = function, arguments

    @property
    def name(self) -> str:
        return self.function.__name__.strip("_").replace("_", " ")

    def __call__(self) -> Outcome:
        found = self.function(*self.arguments)
        return [one.float() for one in (found if isinstance(found, tuple) else (found,)) if one is not None]


class Kind(NamedTuple):
    """What a model is made of, as far as kernels differ by it."""

    width: int
    heads: int
    activation: str = "relu"
    norm: int = 2  # as products.Norm counts them
    rotary: Layout | None = None
    positions: bool = True  # are added to embeddings
    biased: bool = True  # queries, keys and values are
    source: bool = True  # is there, and attended to
    inner: int = 0  # of feed-forward networks; 0: four times the width
    drops: bool = True  # states, in training
    eps: float = 1e-5  # of norms

    @property
    def attentions(self) -> list[tuple[bool, bool]]:
        """What there is of it: whether it is causal, and whether gradients are summed up for biases."""
        own = self.biased and self.rotary is None  # sums are not of what is turned
        of_source = {(False, own), (False, self.biased)} if self.source else set()
        return [(True, own), *sorted(of_source)]


@cache
def kernels_work(
    device: torch.device, kind: Kind, state: torch.dtype, low: torch.dtype, tiles: tuple[int, ...] = TILES
) -> bool:
    """For such a model with states of a type, and products of another; attention to sentences that take these tiles.

    What is not tried here is compiled when a run meets it, one after the other, which takes longer than anything else
    in its first steps.
    """
    return _as_references(pieces, device, kind, state, low, tiles, OWN)


@cache
def packed_work(
    device: torch.device, kind: Kind, state: torch.dtype, low: torch.dtype, tiles: tuple[int, ...] = TILES
) -> bool:
    """Likewise for sentences that are packed, by those kernels that know of it."""
    return _as_references(packed_pieces, device, kind, state, low, tiles, PADDED)


def _as_references(
    pieces: Callable[..., Iterator[Piece]],
    device: torch.device,
    kind: Kind,
    state: torch.dtype,
    low: torch.dtype,
    tiles: tuple[int, ...],
    otherwise: str,
) -> bool:
    if not usable(device.type):
        return False
    here = torch.device("cpu")
    exact = torch.float32

    def agree(pair: tuple[Piece, Piece]) -> bool:
        with torch.no_grad(), on_device(device), torch.autocast(device.type, enabled=False):
            found, expected = (piece() for piece in pair)
            return all(
                bool(((a.cpu() - b).abs() <= MOST_APART * (1 + b.abs())).all())
                for a, b in zip(found, expected, strict=True)
            )

    try:
        references = pieces(here, kind, exact, exact, of=low, tiles=tiles)
        pairs = list(zip(pieces(device, kind, state, low, tiles=tiles), references, strict=True))
        with ThreadPoolExecutor(max(1, processors()), initializer=bound_to, initargs=(device,)) as pool:
            right = list(pool.map(agree, pairs))
    except Exception as error:  # a compiler that does not work (Triton needs one for C, too): there is another way
        log.warning("%s: they do not run here (%s: %s)", otherwise, type(error).__name__, str(error)[:300])
        return False
    wrong = sorted({piece.name for (piece, _), one in zip(pairs, right, strict=True) if not one})
    if wrong:
        log.warning("%s: they do not find here what torch finds (%s)", otherwise, ", ".join(wrong))
    return not wrong


def pieces(
    device: torch.device,
    kind: Kind,
    state: torch.dtype,
    low: torch.dtype,
    of: torch.dtype | None = None,
    tiles: Sequence[int] = TILES,
) -> Iterator[Piece]:
    """What gives something by kernels; on a CPU, the same by their references. `of`: for which products, if not these."""
    width, heads, numbers, piece = kind.width, kind.heads, _numbers_on(device), Piece
    x, past = (numbers(33, width).to(state) for _ in range(2))
    d, seed = numbers(33, width).to(low), torch.tensor(-12345678901234567, device=device)
    bias, part = numbers(width).to(state) if kind.norm == 2 else None, DROPPED if kind.drops else 0.0
    norm, dropout = Norm(numbers(width).to(state), bias, kind.eps, rms=kind.norm == 3), Dropout(part, seed)
    yield piece(norm_backward, d, x, norm, past, dropout)
    yield piece(add_and_norm, x, d, dropout, norm, low)
    yield piece(norm_backward, d, x, norm, None, dropout)
    yield piece(norm_backward, d, x, norm, past)
    yield piece(add_and_norm, x, None, None, norm, low)
    yield piece(dropped_gradient, past, part, seed, state)
    for times in (1, 2, 3):
        yield piece(summed, numbers(33, times * width).to(low))
    inner = kind.inner or 4 * width
    yield piece(activation_backward, numbers(33, inner).to(low), numbers(33, inner).to(low), kind.activation)
    if kind.activation == "relu":
        weight, active = numbers(width, inner).to(low), numbers(33, inner).to(low)
        yield piece(product_through_relu, numbers(33, width).to(low) / width**0.5, weight, active)
    tokens, table = torch.arange(33, device=device).view(3, 11) % 7, numbers(7, width).to(state)
    yield piece(embed, tokens, table, 2.0, numbers(11, width).to(state) if kind.positions else None, part, seed)
    for tile in tiles:
        length = tile - 5  # the last ones of a tile are not there
        q, kv, d_out = (numbers(3, length, times * width).to(low) for times in (1, 2, 1))
        hiding = (torch.arange(length, device=device) < length - 4).expand(3, -1).contiguous()
        if short_attention.usable(length, length, width // heads, of or low):
            for causal in sorted({causal for causal, _ in kind.attentions}):
                yield piece(_attention, q, kv, heads, None if causal else hiding, causal)
            for causal, summed_up in kind.attentions:
                given = heads, None if causal else hiding, causal, summed_up
                yield piece(_attention_gradients, d_out, q, kv, *given)
    if kind.rotary is not None:
        turning = Turning(turns(torch.arange(11, device=device)[None], width // heads, 100.0), kind.rotary)
        yield piece(_turned, numbers(3, 11, 3 * width).to(low), heads, turning)
    yield piece(_merged, numbers(3, heads, 11, width // heads).to(low))


def packed_pieces(
    device: torch.device,
    kind: Kind,
    state: torch.dtype,
    low: torch.dtype,
    of: torch.dtype | None = None,
    tiles: Sequence[int] = TILES,
) -> Iterator[Piece]:
    """Likewise of sentences in one row."""
    width, heads, numbers = kind.width, kind.heads, _numbers_on(device)
    for longest in tiles:
        if not short_attention.usable(longest, longest, width // heads, of or low):
            continue
        # sides of like lengths: sums over many queries of few keys would be what rounding leaves of large numbers
        read, written = (_spans(lengths, device) for lengths in ((longest, 3, 0, 5), (longest - 2, 9, 7, 0)))
        q, kv, d_out = (numbers(1, longest + n, times * width).to(low) for n, times in ((8, 1), (8, 2), (8, 1)))
        memory = numbers(1, longest + 14, 2 * width).to(low)
        yield Piece(_attention, q, kv, heads, None, True, (read, read))
        yield Piece(_attention, q, memory, heads, None, False, (read, written))
        for causal, summed_up in kind.attentions:
            keys, both = (kv, (read, read)) if causal else (memory, (read, written))
            yield Piece(_attention_gradients, d_out, q, keys, heads, None, causal, summed_up, both)
    spans = _spans((11, 3, 6), device)
    tokens, table = torch.arange(20, device=device)[None] % 7, numbers(7, width).to(state)
    seed = torch.tensor(-12345678901234567, device=device)
    positions, part = numbers(11, width).to(state) if kind.positions else None, DROPPED if kind.drops else 0.0
    yield Piece(embed, tokens, table, 2.0, positions, part, seed, spans.places)
    if kind.rotary is not None:
        by = turns(torch.arange(11, device=device)[None], width // heads, 100.0)
        yield Piece(_turned, numbers(1, 20, 3 * width).to(low), heads, Turning(by, kind.rotary, spans.places))


def _spans(lengths: tuple[int, ...], device: torch.device) -> Spans:
    starts = torch.tensor([0, *itertools.accumulate(lengths)], dtype=torch.int32)
    places = torch.cat([torch.arange(n, dtype=torch.int32) for n in lengths])
    return Spans(starts, places, max(lengths)).to(device)


def _numbers_on(device: torch.device) -> Callable[..., Tensor]:
    """Gives random numbers, the same on every device."""
    generator = torch.Generator().manual_seed(1)
    return lambda *shape: torch.randn(shape, generator=generator).bfloat16().float().to(device)


Both = short_attention.Both


def _attention(q: Tensor, kv: Tensor, heads: int, keep: Tensor | None, causal: bool, spans: Both = None) -> Tensor:
    if q.device.type != "cpu":
        return attention_forward(q, kv, heads, keep, causal, spans)
    return short_attention.plainly(q, kv, heads, keep, causal, spans=spans)


def _turned(packed: Tensor, heads: int, turning: Turning) -> Tensor:
    turn_queries_and_keys(packed, heads, turning)
    return packed


def _merged(mixed: Tensor) -> Tensor:
    out = torch.empty_like(mixed.transpose(1, 2), memory_format=torch.contiguous_format)
    copy_heads(out.transpose(1, 2), mixed)
    return out


def _attention_gradients(
    d_out: Tensor,
    q: Tensor,
    kv: Tensor,
    heads: int,
    keep: Tensor | None,
    causal: bool,
    summed_up: bool,
    spans: Both = None,
) -> Any:
    """Of queries, keys and values, and maybe their sums over each sentence."""
    if q.device.type == "cpu":
        with torch.enable_grad():
            q, kv = q.requires_grad_(), kv.requires_grad_()
            out = short_attention.plainly(q, kv, heads, keep, causal, spans=spans)
            found = torch.autograd.grad(out, (q, kv), d_out)
        if not summed_up:
            return found
        if spans is None:
            return *found, *(one.float().sum(1) for one in found)
        return *found, *(_summed_by(one.float()[0], of) for one, of in zip(found, spans, strict=True))
    found = torch.empty_like(q), torch.empty_like(kv)
    sums = short_attention.sums_of(*found, spans=spans) if summed_up else ()
    attention_backward(d_out, q, kv, heads, keep, causal, *found, *sums, spans=spans)
    return *found, *sums


def _summed_by(x: Tensor, spans: Spans) -> Tensor:
    starts = spans.starts.tolist()
    return torch.stack([x[a:b].sum(0) for a, b in itertools.pairwise(starts)])
