"""Torch's own fused attention between packed projections, for sequences that are not short, and with dropout of weights.

Its kernels give heads and gradients in orders of their own. Putting these where they belong is one fast copy each.
"""

# pyright: reportOptionalMemberAccess=false, reportInvalidTypeForm=false
from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from regard.layers.attention.multihead import merge_heads
from regard.layers.decoding.triton_here import power_of_2, runs_on, tl
from regard.layers.training.tiles import jit, on_device_of
from regard.layers.training.turned import Turning

ROWS = 64  # that one program copies


def library_self_attention(
    packed: Float[Tensor, "B T D3"],
    heads: int,
    keep: Bool[Tensor, "B T"] | None,
    causal: bool,
    dropout: float,
    turning: Turning | None = None,
) -> Float[Tensor, "B T D"]:
    """softmax(Q Kᵀ / √d) V of all heads, merged; queries, keys and values are packed, each head by head."""
    q, k, v = _parted(packed, 3, heads)
    q, k = (q, k) if turning is None else (turning(q), turning(k))
    return _attention(q, k, v, keep, causal, dropout)


def library_cross_attention(
    query: Float[Tensor, "B T D"], packed: Float[Tensor, "B S D2"], heads: int, keep: Bool[Tensor, "B S"] | None, dropout: float
) -> Float[Tensor, "B T D"]:  # fmt: skip
    (q,), (k, v) = _parted(query, 1, heads), _parted(packed, 2, heads)
    return _attention(q, k, v, keep, False, dropout)


def _attention(
    q: Tensor, k: Tensor, v: Tensor, keep: Bool[Tensor, "B S"] | None, causal: bool, dropout: float
) -> Float[Tensor, "B T D"]:
    mask = None if keep is None else keep[:, None, None, :]
    mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout, is_causal=causal)
    return _Merged.apply(mixed) if runs_on(mixed) else merge_heads(mixed)  # type: ignore[return-value]


def _parted(packed: Float[Tensor, "B N D"], parts: int, heads: int) -> tuple[Float[Tensor, "B H N Dh"], ...]:
    if runs_on(packed):
        return _Parted.apply(packed, parts, heads)  # type: ignore[return-value]
    return _heads_of(packed, parts, heads)


def _heads_of(packed: Float[Tensor, "B N D"], parts: int, heads: int) -> tuple[Float[Tensor, "B H N Dh"], ...]:
    return packed.unflatten(-1, (parts, heads, -1)).permute(2, 0, 3, 1, 4).unbind()


class _Parted(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, packed, parts, heads):
        ctx.shape, ctx.parts, ctx.heads = packed.shape, parts, heads
        return _heads_of(packed, parts, heads)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *d_parts):  # pyright: ignore[reportIncompatibleMethodOverride]
        d = torch.empty(ctx.shape, dtype=d_parts[0].dtype, device=d_parts[0].device)
        for into, one in zip(_heads_of(d, ctx.parts, ctx.heads), d_parts, strict=True):
            copy_heads(into, one)
        return d, None, None


class _Merged(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, mixed):
        batch, heads, length, width = mixed.shape
        ctx.heads = heads
        out = torch.empty((batch, length, heads * width), dtype=mixed.dtype, device=mixed.device)
        copy_heads(_heads_of(out, 1, heads)[0], mixed)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_out):  # pyright: ignore[reportIncompatibleMethodOverride]
        return _heads_of(d_out, 1, ctx.heads)[0]


def copy_heads(into: Float[Tensor, "B H N Dh"], what: Float[Tensor, "B H N Dh"]) -> None:
    """As `copy_`, where the numbers of a head stand side by side."""
    if not runs_on(into) or into.stride(3) != 1 or what.stride(3) != 1 or into.shape[3] > 256:
        into.copy_(what)
        return
    batch, heads, length, width = what.shape
    with on_device_of(into):
        _copy[(batch * heads, -(-length // ROWS))](
            what, into, heads, length, *what.stride()[:3], *into.stride()[:3], WIDTH=width, CELLS=power_of_2(width), ROWS=ROWS,
            num_warps=4,
        )  # fmt: skip


@jit("heads", "length")
def _copy(
    what, into, heads, length, from_batch, from_head, from_row, to_batch, to_head, to_row,
    WIDTH: tl.constexpr, CELLS: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    batch = (tl.program_id(0) // heads).to(tl.int64)
    head = tl.program_id(0) % heads
    row = tl.program_id(1) * ROWS + tl.arange(0, ROWS)[:, None]
    cell = tl.arange(0, CELLS)[None, :]
    there = (row < length) & (cell < WIDTH)
    z = tl.load(what + batch * from_batch + head * from_head + row * from_row + cell, mask=there, other=0.0)
    tl.store(into + batch * to_batch + head * to_head + row * to_row + cell, z, mask=there)
