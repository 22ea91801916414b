"""Attention over short sequences in training: one kernel forward, one backward, from packed projections to packed gradients.

What torch has is made for long texts. A sentence of 32 tokens fits into the registers of a program as it is, so that every number
is read once and written once, and gradients go where the projections were read: nothing is split, transposed or joined. Nothing
but the inputs is kept for the backward pass, which makes the weights anew.

Sentences are rows of a batch; or, where `Spans` say so, they lie one behind the other in its only row, without padding.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from regard.core.types import Spans
from regard.layers.decoding.triton_here import power_of_2, runs_on
from regard.layers.training.short_attention_kernels import attend, attend_backward
from regard.layers.training.tiles import on_device_of, totalled
from regard.layers.training.tiling import options, tiles_of
from regard.layers.training.turned import Turning, turn_queries_and_keys

LONGEST = 128
HEAD_WIDTHS = (16, 32, 64, 128)
LEAST_TILE = 16  # that tensor cores take
MOST_CELLS = {2: 8192, 4: 4096}  # of the keys of a head, by bytes of a number
Both = tuple[Spans, Spans] | None  # of queries and of keys


def usable(tokens: int, keys: int, head_width: int, dtype: torch.dtype = torch.bfloat16) -> bool:
    """Whether kernels take so many queries and keys of a sentence. Other sizes are computed plainly."""
    fits = 1 <= tokens <= LONGEST and 1 <= keys <= LONGEST and head_width in HEAD_WIDTHS
    return fits and _tile(max(tokens, keys)) * head_width <= MOST_CELLS.get(dtype.itemsize, 0)


def tiles_for(lengths: Iterable[int]) -> tuple[int, ...]:
    """The tiles that sentences of these lengths take; of longer ones, none."""
    return tuple(sorted({_tile(length) for length in lengths if length <= LONGEST}))


def self_attention(
    query_key_value: Float[Tensor, "B T D3"],
    heads: int,
    keep: Bool[Tensor, "B T"] | None,
    causal: bool,
    bias: Float[Tensor, "D3"] | None = None,
    turning: Turning | None = None,
    spans: Spans | None = None,
) -> Float[Tensor, "B T D"]:
    """softmax(Q Kᵀ / √d) V of all heads, merged. What is read are queries, keys and values, each head by head.

    `keep` says which tokens may be seen; a query that sees none becomes zeros. Of a bias that is in what is read already, and
    given here instead of where it was added, the gradient is summed up on the way, without a pass of its own. With `turning`,
    kernels turn queries and keys in place: nobody else may read them.
    """
    assert query_key_value.shape[2] % 3 == 0
    assert bias is None or turning is None  # sums are of what is turned
    query, key_value = _split(query_key_value)
    both = None if spans is None else (spans, spans)
    if _kernels_take(query, key_value, heads, both):
        return _SelfAttention.apply(query_key_value, bias, heads, keep, causal, turning, both)  # type: ignore[return-value]
    return plainly(*_split(_known(query_key_value, bias)), heads, keep, causal, turning, both)


def cross_attention(
    query: Float[Tensor, "B T D"],
    key_value: Float[Tensor, "B S D2"],
    heads: int,
    keep: Bool[Tensor, "B S"] | None,
    biases: tuple[Tensor | None, Tensor | None] = (None, None),
    spans: Both = None,
) -> Float[Tensor, "B T D"]:
    """Likewise from one sequence to another, of which there are keys and values."""
    if _kernels_take(query, key_value, heads, spans):
        return _CrossAttention.apply(query, key_value, *biases, heads, keep, spans)  # type: ignore[return-value]
    return plainly(_known(query, biases[0]), _known(key_value, biases[1]), heads, keep, causal=False, spans=spans)


class _SelfAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query_key_value, bias, heads, keep, causal, turning, spans):
        if turning is not None:
            turn_queries_and_keys(query_key_value, heads, turning)  # not told to autograd, which forbids it for views
        ctx.save_for_backward(query_key_value, keep)
        ctx.biased = None if bias is None or not ctx.needs_input_grad[1] else bias.dtype
        ctx.heads, ctx.causal, ctx.turning, ctx.spans = heads, causal, turning, spans
        return attention_forward(*_split(query_key_value), heads, keep, causal, spans)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_out):  # pyright: ignore[reportIncompatibleMethodOverride]
        query_key_value, keep = ctx.saved_tensors
        d = query_key_value.new_empty(query_key_value.shape)
        sums = () if ctx.biased is None else sums_of(*_split(d), spans=ctx.spans)
        given = ctx.heads, keep, ctx.causal
        attention_backward(d_out, *_split(query_key_value), *given, *_split(d), *sums, spans=ctx.spans)
        if ctx.turning is not None:
            turn_queries_and_keys(d, ctx.heads, ctx.turning.back)
        d_bias = torch.cat([totalled(one) for one in sums]).to(ctx.biased) if sums else None
        return d, d_bias, None, None, None, None, None


class _CrossAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query, key_value, query_bias, key_bias, heads, keep, spans):
        ctx.save_for_backward(query, key_value, keep)
        ctx.heads, ctx.spans, given = heads, spans, (query_bias, key_bias)
        ctx.biased = [b.dtype if b is not None and ctx.needs_input_grad[2 + i] else None for i, b in enumerate(given)]
        return attention_forward(query, key_value, heads, keep, causal=False, spans=spans)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_out):  # pyright: ignore[reportIncompatibleMethodOverride]
        query, key_value, keep = ctx.saved_tensors
        d_query, d_key_value = query.new_empty(query.shape), key_value.new_empty(key_value.shape)
        sums = sums_of(d_query, d_key_value, spans=ctx.spans) if any(ctx.biased) else ()
        given = ctx.heads, keep, False, d_query, d_key_value
        attention_backward(d_out, query, key_value, *given, *sums, spans=ctx.spans)
        pairs = zip(sums or (None, None), ctx.biased, strict=True)
        d_biases = (None if dtype is None or one is None else totalled(one).to(dtype) for one, dtype in pairs)
        return d_query, d_key_value, *d_biases, None, None, None


class _Known(torch.autograd.Function):
    """What has a bias in it already: passes it, and gives the bias its gradient."""

    @staticmethod
    def forward(ctx: Any, x, bias):
        ctx.dtype = bias.dtype
        return x.view_as(x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_out):  # pyright: ignore[reportIncompatibleMethodOverride]
        return d_out, d_out.flatten(0, 1).sum(0, dtype=torch.float32).to(ctx.dtype)


def _known(x: Float[Tensor, "B N D"], bias: Tensor | None) -> Float[Tensor, "B N D"]:
    return x if bias is None else _Known.apply(x, bias)  # type: ignore[return-value]


def sums_of(*gradients: Tensor, spans: Both = None) -> tuple[Tensor, ...]:
    """Room for their sums over each sentence: of packed ones, some may not be there, and are zeros already."""
    if spans is None:
        return tuple(d.new_empty((len(d), d.shape[2]), dtype=torch.float32) for d in gradients)
    return tuple(d.new_zeros((spans[0].sentences, d.shape[2]), dtype=torch.float32) for d in gradients)


def _split(packed: Float[Tensor, "B T D3"]) -> tuple[Float[Tensor, "B T D"], Float[Tensor, "B T D2"]]:
    """Queries, and keys with values."""
    width = packed.shape[-1] // 3
    return packed[..., :width], packed[..., width:]


def _kernels_take(query: Tensor, key_value: Tensor, heads: int, spans: Both = None) -> bool:
    width = query.shape[2]
    assert width % heads == 0
    assert key_value.shape[2] == 2 * width
    if spans is not None:
        assert len(query) == len(key_value) == 1
        assert spans[0].sentences == spans[1].sentences
    sizes = *_longest(query, key_value, spans), width // heads
    return runs_on(query) and query.dtype == key_value.dtype and usable(*sizes, query.dtype) and len(query) > 0


def plainly(
    query: Float[Tensor, "B T D"],
    key_value: Float[Tensor, "B S D2"],
    heads: int,
    keep: Bool[Tensor, "B S"] | None,
    causal: bool,
    turning: Turning | None = None,
    spans: Both = None,
) -> Float[Tensor, "B T D"]:
    """The reference, by torch's own operations; inside, numbers are float32 or wider."""
    exact = torch.promote_types(query.dtype, torch.float32)
    q = query.to(exact).unflatten(-1, (heads, -1)).transpose(1, 2)
    k, v = key_value.to(exact).unflatten(-1, (2, heads, -1)).permute(2, 0, 3, 1, 4)
    q, k = (q, k) if turning is None else (turning(q), turning(k))
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    seen = torch.ones(scores.shape[-2:], dtype=torch.bool, device=query.device)
    seen = seen.tril() if causal else seen
    seen = seen if keep is None else seen & keep[:, None, None]
    if spans is not None:
        asking, asked = (_sentences(one) for one in spans)
        seen = seen & (asking[:, None] == asked)
    # the second one is for queries that see nothing: no number becomes 0, and has no gradient
    weights = scores.masked_fill(~seen, -torch.inf).softmax(-1).masked_fill(~seen, 0.0)
    return (weights @ v).transpose(1, 2).flatten(2).to(query.dtype)


def _sentences(spans: Spans) -> Int[Tensor, "N"]:
    """The number of each token's sentence."""
    every = torch.arange(len(spans.places), dtype=torch.int32, device=spans.starts.device)
    return torch.searchsorted(spans.starts[1:].contiguous(), every, right=True)


def _longest(query: Tensor, key_value: Tensor, spans: Both) -> tuple[int, int]:
    """The most queries and keys that a sentence has."""
    return (query.shape[1], key_value.shape[1]) if spans is None else (spans[0].longest, spans[1].longest)


def _rows(query: Tensor, spans: Both) -> tuple[int, Tensor, Tensor]:
    """How many sentences there are, and where they and their keys start, if not in rows of their own."""
    return (len(query), query, query) if spans is None else (spans[0].sentences, spans[0].starts, spans[1].starts)


def attention_forward(
    query: Tensor, key_value: Tensor, heads: int, keep: Tensor | None, causal: bool, spans: Both = None
) -> Tensor:
    query, key_value, keep = _readable(query), _readable(key_value), _bytes_of(keep)
    out, (sentences, *starts) = query.new_empty(query.shape), _rows(query, spans)
    _launch(
        attend,
        sentences * heads,
        query,
        key_value,
        out.view(torch.uint8) if keep is None else keep,
        out,
        *starts,
        query.shape[1],
        key_value.shape[1],
        *query.stride()[:2],
        *key_value.stride()[:2],
        0 if keep is None else keep.stride(0),
        **_settings("attention forward", query, key_value, heads, keep, causal, spans),
    )
    return out


def attention_backward(
    d_out: Tensor,
    query: Tensor,
    key_value: Tensor,
    heads: int,
    keep: Tensor | None,
    causal: bool,
    d_query: Tensor,
    d_key_value: Tensor,
    *sums: Tensor,
    spans: Both = None,
) -> None:
    """Writes the gradients into these two, whose sentences follow each other; and their sums over each sentence into `sums`."""
    d_out, query, key_value, keep = _readable(d_out), _readable(query), _readable(key_value), _bytes_of(keep)
    sentences, *starts = _rows(query, spans)
    _launch(
        attend_backward,
        sentences * heads,
        d_out,
        query,
        key_value,
        d_query.view(torch.uint8) if keep is None else keep,
        d_query,
        d_key_value,
        *(sums or (d_query, d_key_value)),
        *starts,
        query.shape[1],
        key_value.shape[1],
        *d_out.stride()[:2],
        *query.stride()[:2],
        *key_value.stride()[:2],
        0 if keep is None else keep.stride(0),
        d_query.stride(1),
        d_key_value.stride(1),
        SUMS=bool(sums),
        **_settings("attention backward", query, key_value, heads, keep, causal, spans),
    )


def _readable(x: Tensor) -> Tensor:
    """Itself, where rows lie in one piece and places in a sentence are counted in 32 bits; else a copy."""
    return x if x.stride(-1) == 1 and x.stride(1) * x.shape[1] < 1 << 31 else x.contiguous()


def _bytes_of(keep: Tensor | None) -> Tensor | None:
    if keep is None:
        return None
    return (keep if keep.stride(-1) == 1 else keep.contiguous()).view(torch.uint8)


def _launch(kernel: Any, programs: int, *arguments: Any, **settings: Any) -> None:
    with on_device_of(arguments[0]):
        kernel[(programs,)](*arguments, **settings)


def _settings(
    kernel: str, query: Tensor, key_value: Tensor, heads: int, keep: Tensor | None, causal: bool, spans: Both
) -> dict[str, Any]:
    """Sizes of tiles, and how many warps share them: so many that all of it stays in registers.

    Tiles follow from the longer side: compiling for each pair of lengths takes longer than some thousand batches.
    """
    width, tiles = query.shape[2] // heads, tiles_of(kernel)
    tokens = keys = _tile(max(_longest(query, key_value, spans)))
    wide = query.dtype.itemsize == 4
    queries = min(tokens, tiles.rows, 16 if wide else 64 if keys * width <= 4096 else 32)
    cells = max(queries * width, keys * width, queries * keys)
    warps = max(1, min(tiles.warps, cells // (tiles.cells // 2 if wide else tiles.cells)))
    return {
        "scale": 1.0 / math.sqrt(width),
        "HEADS": heads,
        "WIDTH": width,
        "QUERIES": queries,
        "BLOCKS": tokens // queries,
        "KEYS": keys,
        "CAUSAL": causal,
        "HAS_KEEP": keep is not None,
        "PACKED": spans is not None,
        "PRECISION": "ieee" if torch.get_float32_matmul_precision() == "highest" else "tf32",
        "num_stages": 1,
        **options(tiles, warps),
    }


def _tile(length: int) -> int:
    return max(LEAST_TILE, power_of_2(length))
