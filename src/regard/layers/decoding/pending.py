"""States that are not added up yet: what sub-layers of few kernels hand to each other (`whole_attention`, `whole_feed_forward`).

    z = x + Σ parts + bias

Each program of a sub-layer leaves one part. Whoever reads next adds them up, always in the same order, and so needs no kernel in
between. One program leaves the sum behind for the sub-layer after that. Sums are of float32.
"""

# pyright: reportOptionalMemberAccess=false, reportInvalidTypeForm=false, reportPossiblyUnboundVariable=false
from __future__ import annotations

from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from regard.layers.decoding.kernel_choice import chosen
from regard.layers.decoding.products import Norm, tensors_of
from regard.layers.decoding.triton_here import INTERPRETED, jit, launch, power_of_2, ready, runs_on, tl

LINE = 128  # bytes that memory gives at once
STAGE = 48 << 10  # bytes of matrices that a program asks for at once
STAGES = 3


class Pending(NamedTuple):
    """States of rows before the last sub-layer is added, and before the norm after it where norms stand there."""

    x: Float[Tensor, "N D"]
    parts: Float[Tensor, "P N D"] | None = None  # of the last sub-layer
    bias: Float[Tensor, "D"] | None = None  # of its last product
    norm: Norm | None = None
    residual: bool = True  # whether x is added to the parts

    def read(self, norm: Norm | None) -> tuple[Float[Tensor, "N D"], Float[Tensor, "N D"]]:
        """The states as they go on, and as the next sub-layer reads them, whose norm before it this is. In float32."""
        total = self.x.float()
        if self.parts is not None:
            total = self.parts.sum(0) + (total if self.residual else 0.0)
            total = total if self.bias is None else total + self.bias.float()
        if self.norm is not None:
            total = _in_float32(self.norm)(total)
        return total, total if norm is None else _in_float32(norm)(total)


def _in_float32(norm: Norm) -> Norm:
    return norm._replace(weight=norm.weight.float(), bias=None if norm.bias is None else norm.bias.float())


class Reading(NamedTuple):
    """How a kernel reads states: what it is given for it, and the states as they go on."""

    tensors: tuple[Tensor, ...]
    shape: dict[str, Any]
    total: Tensor


def reading(pending: Pending, norm: Norm | None, programs: int, rows: int, dtype: torch.dtype) -> Reading:
    """For so many programs with so many rows each. Of two norms only one can be there: before sub-layers, or after."""
    x, parts, bias, after, residual = pending
    there, width = norm if after is None else after, x.shape[1]
    changes = parts is not None or after is not None
    total = x.new_empty(x.shape, dtype=torch.float32) if changes else x
    own = x.new_empty((programs, rows, width), dtype=dtype)
    shape = {
        "WIDTH": width,
        "PARTS": 0 if parts is None else len(parts),
        "ADDED": residual or parts is None,
        "PART_BIAS": bias is not None,
        "NORM": 0 if there is None else there.kind,
        "EPS": 0.0 if there is None else there.eps,
        "AFTER": after is not None,
        "CHANGES": changes,
        "ROW_CELLS": power_of_2(rows),
        "WIDTH_CELLS": power_of_2(width),
    }
    tensors = (
        x,
        x if parts is None else parts,
        x if bias is None else bias,
        *tensors_of(there, x),
        total,
        own,
    )
    return Reading(tensors, shape, total)


def ahead(*weights: Tensor) -> dict[str, Any]:
    """What kernels need to know to ask for matrices before they read them: in pieces that begin where 16 bytes do."""
    size = weights[0].element_size()
    can = all(weight.shape[1] * size % 16 == 0 and weight.data_ptr() % 16 == 0 for weight in weights)
    return {"AHEAD": chosen().ahead and can and not INTERPRETED, "LINE": LINE // size}


def turn(columns: int, weight: Tensor, matrices: int = 1) -> int:
    """How much of so many rows of each matrix a program takes in one turn."""
    most = STAGE // (matrices * columns * weight.element_size())
    return max(16, min(256, power_of_2(weight.shape[1]), power_of_2(most + 1) // 2))


def settle(pending: Pending, norm: Norm | None, dtype: torch.dtype) -> Float[Tensor, "N D"]:
    """The states after the last layer, normalised."""
    if not runs_on(pending.x):
        return pending.read(norm)[1].to(dtype)
    rows, width = pending.x.shape
    read = reading(pending, norm, rows, 1, dtype)
    launch(_settle, (rows,), *read.tensors, rows, **read.shape, num_warps=max(1, min(8, power_of_2(width) // 128)))
    return read.tensors[-1].flatten(0, 1)


@jit
def read_rows(
    x, parts, bias, norm_weight, norm_bias, total, own, first, rows, keeps,
    ROWS: tl.constexpr, WIDTH: tl.constexpr, PARTS: tl.constexpr, ADDED: tl.constexpr, PART_BIAS: tl.constexpr,
    NORM: tl.constexpr, EPS: tl.constexpr, AFTER: tl.constexpr, CHANGES: tl.constexpr, ROW_CELLS: tl.constexpr,
    WIDTH_CELLS: tl.constexpr,
):  # fmt: skip
    """Adds up and normalises rows, into memory of the program's own. The program that keeps them leaves their sums."""
    row, cells = tl.arange(0, ROW_CELLS), tl.arange(0, WIDTH_CELLS)
    whole = cells < WIDTH
    there = (row < ROWS)[:, None] & whole[None, :]
    at = (first + row)[:, None] * WIDTH + cells[None, :]
    z = tl.zeros((ROW_CELLS, WIDTH_CELLS), tl.float32)
    if ADDED:
        z += tl.load(x + at, mask=there, other=0.0).to(tl.float32)
    for part in tl.static_range(PARTS):
        z += tl.load(parts + part * rows * WIDTH + at, mask=there, other=0.0)
    # asked for with the rest, and needed later
    if PART_BIAS:
        c = tl.load(bias + cells, mask=whole, other=0.0)
    if NORM:
        g = tl.load(norm_weight + cells, mask=whole, other=0.0)
    if NORM == 2:
        b = tl.load(norm_bias + cells, mask=whole, other=0.0)
    if PART_BIAS:
        z += c.to(tl.float32)[None, :]
    y = z
    if NORM:
        if NORM != 3:
            y = tl.where(there, z - (tl.sum(z, axis=1) / WIDTH)[:, None], 0.0)
        y = y * (1.0 / tl.sqrt(tl.sum(y * y, axis=1) / WIDTH + EPS))[:, None]
        y = y * g.to(tl.float32)[None, :]
        if NORM == 2:
            y += b.to(tl.float32)[None, :]
    tl.store(own + row[:, None] * WIDTH + cells[None, :], y.to(own.dtype.element_ty), mask=there)
    if CHANGES:
        goes_on = y if AFTER else z
        tl.store(total + at, goes_on, mask=there & keeps)
    tl.debug_barrier()  # other threads of the program read what was written


@jit
def touch(weight, first, count, STRIDE: tl.constexpr, LINE: tl.constexpr, AHEAD: tl.constexpr):
    """Asks for whole rows of a matrix to be brought nearer, while something else is waited for. One thread asks for all."""
    if AHEAD:
        size = count * (STRIDE * (128 // LINE))
        tl.inline_asm_elementwise(
            "{ .reg .pred p; .reg .b32 t; mov.u32 t, %tid.x; setp.eq.u32 p, t, 0;"
            " @p cp.async.bulk.prefetch.L2.global [$1], $2; mov.b32 $0, 0; }",
            "=r,l,r",
            [(weight + first * STRIDE).to(tl.int64), size],
            dtype=tl.int32,
            is_pure=False,
            pack=1,
        )


@jit
def touch_columns(
    weight, column, ROWS: tl.constexpr, CELLS: tl.constexpr, STRIDE: tl.constexpr, COLUMNS: tl.constexpr,
    LINE: tl.constexpr, AHEAD: tl.constexpr,
):  # fmt: skip
    """The same of some columns, line by line."""
    if AHEAD:
        line = column + tl.arange(0, COLUMNS // LINE if COLUMNS > LINE else 1) * LINE
        row = tl.minimum(tl.arange(0, CELLS), ROWS - 1)
        at = row[:, None] * STRIDE + tl.minimum(line, STRIDE - 1)[None, :]
        tl.inline_asm_elementwise(
            "prefetch.global.L2 [$1]; mov.b32 $0, 0;",
            "=r,l",
            [(weight + at).to(tl.int64)],
            dtype=tl.int32,
            is_pure=False,
            pack=1,
        )


@jit
def give_part(
    y, weight, out, row, present, unit, there,
    INPUTS: tl.constexpr, OUTPUTS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """What some inputs of a product give, for all outputs of some rows."""
    for first in range(0, OUTPUTS, COLUMNS):
        column = first + tl.arange(0, COLUMNS)
        inside = column < OUTPUTS
        place = column[:, None] * INPUTS + unit[None, :]
        w = tl.load(weight + place, mask=inside[:, None] & there[None, :], other=0.0)
        found = tl.dot(y.to(w.dtype), tl.trans(w), input_precision="ieee")
        at = row[:, None] * OUTPUTS + column[None, :]
        tl.store(out + at, found, mask=present[:, None] & inside[None, :])


@jit
def _settle(
    x, parts, bias, norm_weight, norm_bias, total, own, rows,
    WIDTH: tl.constexpr, PARTS: tl.constexpr, ADDED: tl.constexpr, PART_BIAS: tl.constexpr, NORM: tl.constexpr,
    EPS: tl.constexpr, AFTER: tl.constexpr, CHANGES: tl.constexpr, ROW_CELLS: tl.constexpr, WIDTH_CELLS: tl.constexpr,
    EARLY: tl.constexpr,
):  # fmt: skip
    ready(EARLY)
    row = tl.program_id(0)
    read_rows(
        x, parts, bias, norm_weight, norm_bias, total, own + row * WIDTH, row, rows, False,
        1, WIDTH, PARTS, ADDED, PART_BIAS, NORM, EPS, AFTER, CHANGES, ROW_CELLS, WIDTH_CELLS,
    )  # fmt: skip
