"""A feed-forward sub-layer of few rows in one kernel: a program has some inner units, and leaves what they give as a part.

    part = f(norm(z) W₁ᵀ + b₁) W₂ᵀ, of its units

What is added to that, and when, see `pending`.
"""

# pyright: reportOptionalMemberAccess=false, reportInvalidTypeForm=false, reportPossiblyUnboundVariable=false
from __future__ import annotations

import torch
from torch import Tensor

from regard.layers.decoding.pending import (
    STAGES,
    Pending,
    ahead,
    give_part,
    read_rows,
    reading,
    touch,
    touch_columns,
    turn,
)
from regard.layers.decoding.products import KINDS, Linear, Norm, activated, tile_product
from regard.layers.decoding.triton_here import jit, launch, power_of_2, ready, runs_on, tl
from regard.layers.feedforward import ACTIVATIONS

# Programs, for one row and for more: more of them read matrices sooner, and leave more parts, which all programs after them read
SLICES, SLICES_OF_ROWS = 32, 16


def units_of(rows: int, inner: int) -> int:
    """How many inner units a program has."""
    return max(16, power_of_2(-(-inner // (SLICES if rows == 1 else SLICES_OF_ROWS))))


def feed(
    pending: Pending,
    norm: Norm | None,
    inner: Linear,
    outer: Linear,
    activation: str,
    *,
    after: Norm | None,
    residual: bool,
) -> Pending:
    """The sub-layer's norm stands before it or `after`."""
    x = pending.x
    (rows, width), units = x.shape, units_of(len(x), len(inner.weight))
    slices = -(-len(inner.weight) // units)
    if not runs_on(x):
        return _feed_plainly(pending, norm, inner, outer, activation, after, residual, units)
    read = reading(pending, norm, slices, rows, inner.weight.dtype)
    parts = x.new_empty((slices, rows, width), dtype=torch.float32)
    launch(
        _feed,
        (slices,),
        *read.tensors,
        inner.weight,
        inner.weight if inner.bias is None else inner.bias,
        outer.weight,
        parts,
        **read.shape,
        INNER=len(inner.weight),
        BIAS=inner.bias is not None,
        ACTIVATION=KINDS[activation],
        ROWS=rows,
        TILE=max(16, power_of_2(rows)),
        UNITS=units,
        CHUNK=turn(units, inner.weight),
        COLUMNS=turn(units, outer.weight.t()),
        **ahead(inner.weight, outer.weight),
        num_warps=8,
        num_stages=STAGES,
    )
    return Pending(read.total, parts, outer.bias, after, residual)


def _feed_plainly(
    pending: Pending,
    norm: Norm | None,
    inner: Linear,
    outer: Linear,
    activation: str,
    after: Norm | None,
    residual: bool,
    units: int,
) -> Pending:
    total, z = pending.read(norm)
    y: Tensor = ACTIVATIONS[activation](inner(z.to(inner.weight.dtype)))
    slices = zip(y.split(units, 1), outer.weight.split(units, 1), strict=True)
    return Pending(total, torch.stack([(y @ w.t()).float() for y, w in slices]), outer.bias, after, residual)


@jit
def _feed(
    x,
    before,
    part_bias,
    norm_weight,
    norm_bias,
    total,
    own,
    inner,
    inner_bias,
    outer,
    parts,
    WIDTH: tl.constexpr,
    PARTS: tl.constexpr,
    ADDED: tl.constexpr,
    PART_BIAS: tl.constexpr,
    NORM: tl.constexpr,
    EPS: tl.constexpr,
    AFTER: tl.constexpr,
    CHANGES: tl.constexpr,
    ROW_CELLS: tl.constexpr,
    WIDTH_CELLS: tl.constexpr,
    INNER: tl.constexpr,
    BIAS: tl.constexpr,
    ACTIVATION: tl.constexpr,
    ROWS: tl.constexpr,
    TILE: tl.constexpr,
    UNITS: tl.constexpr,
    CHUNK: tl.constexpr,
    COLUMNS: tl.constexpr,
    AHEAD: tl.constexpr,
    LINE: tl.constexpr,
    EARLY: tl.constexpr,
):
    part = tl.program_id(0)
    unit, row = part * UNITS + tl.arange(0, UNITS), tl.arange(0, TILE)
    there, present = unit < INNER, row < ROWS
    touch(inner, part * UNITS, tl.minimum(UNITS, INNER - part * UNITS), WIDTH, LINE, AHEAD)
    touch_columns(outer, part * UNITS, WIDTH, WIDTH_CELLS, INNER, UNITS, LINE, AHEAD)
    if BIAS:
        added = tl.load(inner_bias + unit, mask=there, other=0.0).to(tl.float32)[None, :]
    ready(EARLY)
    own += part * ROWS * WIDTH
    read_rows(
        x, before, part_bias, norm_weight, norm_bias, total, own, 0, ROWS, part == 0,
        ROWS, WIDTH, PARTS, ADDED, PART_BIAS, NORM, EPS, AFTER, CHANGES, ROW_CELLS, WIDTH_CELLS,
    )  # fmt: skip
    y = tile_product(own, inner, norm_weight, norm_bias, row, present, unit, WIDTH, INNER, 0, EPS, TILE, UNITS, CHUNK)
    if BIAS:
        y += added
    y = activated(y, ACTIVATION)
    give_part(y, outer, parts + part * ROWS * WIDTH, row, present, unit, there, INNER, WIDTH, COLUMNS)
