"""Embeddings of tokens with their positions, dropout included, in one kernel."""

# pyright: reportOptionalMemberAccess=false, reportInvalidTypeForm=false, reportPossiblyUnboundVariable=false
from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from regard.layers.decoding.triton_here import power_of_2, runs_on, tl
from regard.layers.training.dropped import dropped_gradient, dropped_sum, hashed, least, scale_of
from regard.layers.training.tiles import jit, on_device_of, tile_rows
from regard.layers.training.tiling import options, tiles_of


def embedded(
    tokens: Int[Tensor, "B N"],
    table: Float[Tensor, "V D"],
    factor: float,
    positions: Float[Tensor, "P D"] | None,
    dropout: float,
    seed: Int[Tensor, ""],
    places: Int[Tensor, "N"] | None = None,
) -> Float[Tensor, "B N D"]:
    """dropout(factor * table[tokens] + positions), these of each token's place where `places` says it."""
    return _Embedded.apply(tokens, table, factor, positions, dropout, seed, places)  # type: ignore[return-value]


def embed(
    tokens: Int[Tensor, "B N"],
    table: Float[Tensor, "V D"],
    factor: float,
    positions: Float[Tensor, "P D"] | None,
    dropout: float,
    seed: Int[Tensor, ""],
    places: Int[Tensor, "N"] | None = None,
) -> Float[Tensor, "B N D"]:
    """The forward pass alone."""
    (batch, length), width = tokens.shape, table.shape[1]
    dtype = table.dtype if positions is None else torch.promote_types(table.dtype, positions.dtype)
    if not runs_on(table):
        x = table[tokens].to(dtype) * factor
        at = positions if positions is None or places is None else positions[places]
        x = (x if at is None else x + at).view(-1, width)
        return dropped_sum(torch.zeros_like(x), x, dropout, seed).view(batch, length, width)
    out = torch.empty((batch, length, width), dtype=dtype, device=table.device)
    rows, cells, tiles = tokens.numel(), power_of_2(width), tiles_of("embedded")
    tile = tile_rows(cells, tiles)
    with on_device_of(table):
        _embed[(-(-rows // tile),)](
            tokens.contiguous(), table, table if positions is None else positions.contiguous(),
            tokens if places is None else places, seed, out, rows, length, factor, scale_of(dropout), least(dropout),
            WIDTH=width, POSITIONS=positions is not None, PLACES=places is not None, DROP=dropout > 0, ROWS=tile, CELLS=cells,
            **options(tiles),
        )  # fmt: skip
    return out


class _Embedded(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tokens, table, factor, positions, dropout, seed, places):
        ctx.save_for_backward(tokens, seed, places)
        ctx.vocabulary, ctx.dtype, ctx.factor, ctx.dropout = len(table), table.dtype, factor, dropout
        ctx.of_positions = None if positions is None or not ctx.needs_input_grad[3] else positions.dtype
        ctx.places = None if positions is None else len(positions)
        return embed(tokens, table, factor, positions, dropout, seed, places)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_out):  # pyright: ignore[reportIncompatibleMethodOverride]
        tokens, seed, places = ctx.saved_tensors
        rows = d_out.reshape(-1, d_out.shape[-1])
        d_table, d_positions, factor = None, None, ctx.factor
        if ctx.of_positions is not None:
            d, _ = dropped_gradient(rows, ctx.dropout, seed, d_out.dtype)
            if places is None:
                d_positions = d.view(d_out.shape).sum(0)
            else:  # sorted and added up in order, not by atomics
                d_positions = torch.ops.aten.embedding_dense_backward(d, places.long(), ctx.places, -1, False)
            d_positions, d = d_positions.to(ctx.of_positions), d * factor if factor != 1 else d
        else:
            d, _ = dropped_gradient(rows, ctx.dropout, seed, d_out.dtype, factor)
        if ctx.needs_input_grad[1]:
            d_table = torch.ops.aten.embedding_dense_backward(d, tokens.reshape(-1), ctx.vocabulary, -1, False)
            d_table = d_table.to(ctx.dtype)
        return None, d_table, None, d_positions, None, None, None


@jit("seed", "rows", "length", "drop")
def _embed(
    tokens,
    table,
    positions,
    places,
    seed,
    out,
    rows,
    length,
    factor,
    scale,
    drop,
    WIDTH: tl.constexpr,
    POSITIONS: tl.constexpr,
    PLACES: tl.constexpr,
    DROP: tl.constexpr,
    ROWS: tl.constexpr,
    CELLS: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    cells = tl.arange(0, CELLS)[None, :]
    there = (row < rows) & (cells < WIDTH)
    token = tl.load(tokens + row, mask=row < rows, other=0)
    z = tl.load(table + token * WIDTH + cells, mask=there, other=0.0).to(tl.float32) * factor
    if POSITIONS:
        place = row % length
        if PLACES:
            place = tl.load(places + row, mask=row < rows, other=0).to(tl.int64)
        z += tl.load(positions + place * WIDTH + cells, mask=there, other=0.0).to(tl.float32)
    at = row * WIDTH + cells
    if DROP:
        z = tl.where(hashed(at, tl.load(seed)) >= drop.to(tl.uint32), z * scale, 0.0)
    tl.store(out + at, z.to(out.dtype.element_ty), mask=there)
