"""A residual connection and the norm after it, forward and backward, each in one kernel; or the norm alone.

Backward, a row is read once more and its mean and spread are computed again, which costs nothing beside reading it. What flows past
the norm along the residual connection is added on the way, and the gradients of the norm's own weights (and of the bias of what
was added) are summed up by as many programs as run at a time, each over its rows, always in the same order.
"""

# pyright: reportOptionalMemberAccess=false, reportInvalidTypeForm=false, reportPossiblyUnboundVariable=false
from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.layers.decoding import triton_here
from regard.layers.decoding.products import Norm, tensors_of
from regard.layers.decoding.triton_here import power_of_2, runs_on, tl
from regard.layers.training.dropped import dropped_gradient, dropped_sum, hashed, least, scale_of
from regard.layers.training.tiles import jit, on_device_of, programs_for, tile_rows, totalled
from regard.layers.training.tiling import options, tiles_of

MOST_WIDTH = 8192
WIDE = 2048  # beyond, tiles that are asked for ahead take more memory than some GPUs have for a program


class Dropout(NamedTuple):
    """A dropout that was drawn or is to be."""

    part: float
    seed: Int[Tensor, ""]


class NormGradients(NamedTuple):
    x: Float[Tensor, "N D"]
    weight: Float[Tensor, "D"]
    bias: Float[Tensor, "D"] | None
    written: Float[Tensor, "N D"] | None = None  # of what was dropped from and added,
    written_sum: Float[Tensor, "D"] | None = None  # and its sum over rows


def add_and_norm(
    x: Float[Tensor, "N D"],
    written: Float[Tensor, "N D"] | None,
    dropout: Dropout | None,
    norm: Norm,
    dtype: torch.dtype,
) -> tuple[Float[Tensor, "N D"], Float[Tensor, "N D"]]:
    """x + dropout(written), or x itself, and its norm in numbers of this type; inside, all is float32."""
    if not runs_on(x):
        if written is not None and dropout is not None:
            x = dropped_sum(x, written, *dropout)
        bias = None if norm.bias is None else norm.bias.float()
        return x, norm._replace(weight=norm.weight.float(), bias=bias)(x.float()).to(dtype)
    rows, width = x.shape
    cells, tiles = power_of_2(width), tiles_of(_named("norm forward", x))
    tile = tile_rows(cells, tiles)
    total = x if written is None else torch.empty_like(x)
    out = torch.empty_like(x, dtype=dtype)
    part, seed = (0.0, out) if dropout is None else dropout
    with on_device_of(x):
        _forward[(-(-rows // tile),)](
            x, x if written is None else written, seed, *tensors_of(norm, x), total, out, rows, scale_of(part), least(part),
            WIDTH=width, NORM=norm.kind, EPS=norm.eps, ADD=written is not None, DROP=part > 0, ROWS=tile, CELLS=cells,
            **options(tiles),
        )  # fmt: skip
    return total, out


def norm_backward(
    d_normed: Float[Tensor, "N D"],
    x: Float[Tensor, "N D"],
    norm: Norm,
    past: Float[Tensor, "N D"] | None,
    dropout: Dropout | None = None,
) -> NormGradients:
    """The gradients of x (with `past`, what comes to it from elsewhere), of the norm's weights, and of what was dropped from."""
    if not runs_on(x):
        return _reference(d_normed, x, norm, past, dropout)
    rows, width = x.shape
    cells, tiles = power_of_2(width), tiles_of(_named("norm backward", x))
    if cells > WIDE:
        tiles = tiles._replace(warps=8, stages=1)
    tile = tile_rows(cells, tiles)
    programs = programs_for(rows, tile, tiles.programs)
    warps = tiles.warps if tile * cells >= 128 * tiles.warps else min(4, tiles.warps)
    d_x = torch.empty_like(x)
    d_written = None if dropout is None else torch.empty_like(d_normed)
    part, seed = (0.0, d_x) if dropout is None else dropout
    sums = 2 if dropout is None else 3
    parts = torch.empty((programs, sums * width), dtype=torch.float32, device=x.device)
    with on_device_of(x):
        _backward[(programs,)](
            d_normed, x, norm.weight, x if past is None else past, seed, d_x, d_x if d_written is None else d_written, parts,
            rows, scale_of(part), least(part), WIDTH=width, NORM=norm.kind, EPS=norm.eps, PAST=past is not None, SUMS=sums,
            DROP=part > 0, ROWS=tile, CELLS=cells, STAGES=tiles.stages, **options(tiles, warps),
        )  # fmt: skip
    found = totalled(parts).view(sums, width)
    written_sum = None if dropout is None else found[2]
    return NormGradients(d_x, found[0], None if norm.bias is None else found[1], d_written, written_sum)


def _named(kernel: str, states: Tensor) -> str:
    """In the table: twice as many numbers of 16 bits are as many bytes."""
    return kernel if states.element_size() == 4 else f"{kernel} of 16 bits"


def _reference(d_normed: Tensor, x: Tensor, norm: Norm, past: Tensor | None, dropout: Dropout | None) -> NormGradients:
    z, d = x.float(), d_normed.float()
    centred = z if norm.rms else z - z.mean(1, keepdim=True)
    rate = (centred.square().mean(1, keepdim=True) + norm.eps).rsqrt()
    unit, weighted = centred * rate, d * norm.weight.float()
    d_x = weighted - unit * (weighted * unit).mean(1, keepdim=True)
    if not norm.rms:
        d_x = d_x - weighted.mean(1, keepdim=True)
    d_x = d_x * rate
    if past is not None:
        d_x = d_x + past.float()
    d_written = (None, None) if dropout is None else dropped_gradient(d_x, *dropout, d_normed.dtype)
    return NormGradients(d_x.to(x.dtype), (d * unit).sum(0), None if norm.bias is None else d.sum(0), *d_written)


@jit("seed", "rows", "drop")
def _forward(
    x,
    written,
    seed,
    weight,
    bias,
    total,
    out,
    rows,
    scale,
    drop,
    WIDTH: tl.constexpr,
    NORM: tl.constexpr,
    EPS: tl.constexpr,
    ADD: tl.constexpr,
    DROP: tl.constexpr,
    ROWS: tl.constexpr,
    CELLS: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    cells = tl.arange(0, CELLS)[None, :]
    there = (row < rows) & (cells < WIDTH)
    at = row * WIDTH + cells
    z = tl.load(x + at, mask=there, other=0.0).to(tl.float32)
    if ADD:
        more = tl.load(written + at, mask=there, other=0.0).to(tl.float32)
        if DROP:
            more = tl.where(hashed(at, tl.load(seed)) >= drop.to(tl.uint32), more * scale, 0.0)
        rounded = (z + more).to(total.dtype.element_ty)
        tl.store(total + at, rounded, mask=there)
        z = rounded.to(tl.float32)
    if NORM != 3:
        z = tl.where(there, z - tl.sum(z, axis=1)[:, None] / WIDTH, 0.0)
    z = z / tl.sqrt(tl.sum(z * z, axis=1)[:, None] / WIDTH + EPS)
    z = z * tl.load(weight + cells, mask=cells < WIDTH, other=0.0).to(tl.float32)
    if NORM == 2:
        z = z + tl.load(bias + cells, mask=cells < WIDTH, other=0.0).to(tl.float32)
    tl.store(out + at, z.to(out.dtype.element_ty), mask=there)


@triton_here.jit
def added(a, b, c, d):
    return a + c, b + d


@jit("seed", "rows", "drop")
def _backward(
    d_normed,
    x,
    weight,
    past,
    seed,
    d_x,
    d_written,
    parts,
    rows,
    scale,
    drop,
    WIDTH: tl.constexpr,
    NORM: tl.constexpr,
    EPS: tl.constexpr,
    PAST: tl.constexpr,
    SUMS: tl.constexpr,
    DROP: tl.constexpr,
    ROWS: tl.constexpr,
    CELLS: tl.constexpr,
    STAGES: tl.constexpr,
):
    cells = tl.arange(0, CELLS)[None, :]
    w = tl.load(weight + cells, mask=cells < WIDTH, other=0.0).to(tl.float32)
    of_weight = tl.zeros((ROWS, CELLS), dtype=tl.float32)
    of_bias = tl.zeros((ROWS, CELLS), dtype=tl.float32)
    of_written = tl.zeros((ROWS, CELLS), dtype=tl.float32)
    for begin in tl.range(tl.program_id(0) * ROWS, rows, tl.num_programs(0) * ROWS, num_stages=STAGES):
        row = begin + tl.arange(0, ROWS)[:, None]
        there = (row < rows) & (cells < WIDTH)
        at = row.to(tl.int64) * WIDTH + cells
        z = tl.load(x + at, mask=there, other=0.0).to(tl.float32)
        d = tl.load(d_normed + at, mask=there, other=0.0).to(tl.float32)
        if PAST:
            more = tl.load(past + at, mask=there, other=0.0).to(tl.float32)
        weighted = d * w
        if NORM != 3:
            mean, shared = tl.reduce((z, weighted), 1, added)
            z = tl.where(there, z - mean[:, None] / WIDTH, 0.0)
        spread, along = tl.reduce((z * z, weighted * z), 1, added)
        rate = (1.0 / tl.sqrt(spread / WIDTH + EPS))[:, None]
        z = z * rate
        of_weight += d * z
        of_bias += d
        d_z = weighted - z * (along[:, None] * rate / WIDTH)
        if NORM != 3:
            d_z = d_z - shared[:, None] / WIDTH
        d_z = d_z * rate
        if PAST:
            d_z = d_z + more
        tl.store(d_x + at, d_z.to(d_x.dtype.element_ty), mask=there)
        if SUMS == 3:
            d_z = tl.where(there, d_z * scale, 0.0)
            if DROP:
                d_z = tl.where(hashed(at, tl.load(seed)) >= drop.to(tl.uint32), d_z, 0.0)
            of_written += d_z
            tl.store(d_written + at, d_z.to(d_written.dtype.element_ty), mask=there)
    one = tl.arange(0, CELLS)
    mine = parts + tl.program_id(0) * SUMS * WIDTH + one
    tl.store(mine, tl.sum(of_weight, axis=0), mask=one < WIDTH)
    tl.store(mine + WIDTH, tl.sum(of_bias, axis=0), mask=one < WIDTH)
    if SUMS == 3:
        tl.store(mine + 2 * WIDTH, tl.sum(of_written, axis=0), mask=one < WIDTH)
