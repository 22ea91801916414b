"""Products of few rows with a matrix, and all that stands around them in a decoder's layer, in one kernel.

    out = r + f(norm(x) Wᵀ + b)

The norm of x, the bias, the activation f and what is added, r, which may be normalised as well, can each be left out. With few rows
the time goes into reading W; everything else is done again by every program, from the cache, which costs less than another kernel.
All sums are of float32, by one program each, and so the same every time.
"""

# pyright: reportOptionalMemberAccess=false, reportInvalidTypeForm=false, reportPossiblyUnboundVariable=false
from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from regard.layers.decoding.triton_here import jit, launch, power_of_2, ready, runs_on, tl
from regard.layers.feedforward import ACTIVATIONS

FEWEST = 4  # rows up to here are multiplied one by one, without tensor cores
MOST_CELLS = 16384  # of a program's part of W, held in registers
PROGRAMS = 128  # about as many as there are multiprocessors
KINDS = {"relu": 1, "gelu": 2, "gelu_tanh": 3, "swish": 4}


class Norm(NamedTuple):
    """A layer normalisation, or one by the root mean square."""

    weight: Float[Tensor, "D"]
    bias: Float[Tensor, "D"] | None
    eps: float
    rms: bool

    def __call__(self, x: Float[Tensor, "*N D"]) -> Float[Tensor, "*N D"]:
        if self.rms:
            return F.rms_norm(x, x.shape[-1:], self.weight, self.eps)
        return F.layer_norm(x, x.shape[-1:], self.weight, self.bias, self.eps)

    @property
    def kind(self) -> int:
        return 3 if self.rms else 1 if self.bias is None else 2


class Linear(NamedTuple):
    weight: Float[Tensor, "N K"]
    bias: Float[Tensor, "N"] | None

    def __call__(self, x: Float[Tensor, "*M K"]) -> Float[Tensor, "*M N"]:
        return F.linear(x, self.weight, self.bias)


def product(
    x: Float[Tensor, "M K"],
    linear: Linear,
    *,
    norm: Norm | None = None,
    activation: str | None = None,
    residual: Float[Tensor, "M N"] | None = None,
    residual_norm: Norm | None = None,
) -> Float[Tensor, "M N"]:
    """See above."""
    if not runs_on(x):
        return _reference(x, linear, norm, activation, residual, residual_norm)
    weight, bias = linear
    (rows, inputs), outputs = x.shape, len(weight)
    out = x.new_empty((rows, outputs))
    shape = around(x, linear, norm) | {
        "ACTIVATION": KINDS[activation] if activation else 0,
        "RESIDUAL": residual is not None,
        "RESIDUAL_NORM": 0 if residual_norm is None else residual_norm.kind,
        "RESIDUAL_EPS": 0.0 if residual_norm is None else residual_norm.eps,
        "RESIDUAL_CELLS": power_of_2(outputs),
    }
    few = rows <= FEWEST
    columns = columns_of(inputs, outputs) if few else 16
    blocks = -(-outputs // columns)
    launch(
        _one_by_one if few else _tiles,
        (blocks,),
        x,
        weight,
        weight if bias is None else bias,
        *tensors_of(norm, x),
        x if residual is None else residual,
        *tensors_of(residual_norm, x),
        out,
        **shape,
        **tiling(rows, inputs, columns, few),
    )
    return out


def _reference(
    x: Tensor, linear: Linear, norm: Norm | None, activation: str | None, r: Tensor | None, residual_norm: Norm | None
) -> Tensor:
    y = linear(x if norm is None else norm(x))
    function: Callable[[Tensor], Tensor] | None = ACTIVATIONS[activation] if activation else None
    y = y if function is None else function(y)
    if r is None:
        return y
    return y + (r if residual_norm is None else residual_norm(r))


def around(x: Tensor, linear: Linear, norm: Norm | None) -> dict[str, Any]:
    """What kernels with a product in them know of it beforehand."""
    return {
        "INPUTS": x.shape[1],
        "OUTPUTS": len(linear.weight),
        "BIAS": linear.bias is not None,
        "NORM": 0 if norm is None else norm.kind,
        "EPS": 0.0 if norm is None else norm.eps,
    }


def tensors_of(norm: Norm | None, other: Tensor) -> tuple[Tensor, Tensor]:
    """Those of the norm; where there is none, another stands for it, and is not read."""
    if norm is None:
        return other, other
    return norm.weight, other if norm.bias is None else norm.bias


def columns_of(inputs: int, outputs: int) -> int:
    """How many outputs a program computes whose rows are multiplied one by one."""
    columns = max(1, min(32, MOST_CELLS // power_of_2(inputs)))
    while columns > 4 and outputs < columns * PROGRAMS:
        columns //= 2
    return columns


def tiling(rows: int, inputs: int, columns: int, singly: bool) -> dict[str, Any]:
    """How a kernel is cut into tiles, for so many outputs of each program, and rows one by one or all at once."""
    if singly:
        cells = power_of_2(inputs)
        return {"ROWS": rows, "COLUMNS": columns, "CELLS": cells, "num_warps": 8 if columns * cells > 8192 else 4}
    tile = max(16, power_of_2(rows))
    cells = min(128, max(16, power_of_2(inputs)))
    return {"rows_there": rows, "TILE": tile, "COLUMNS": columns, "CELLS": cells, "num_warps": 4, "num_stages": 3}


@jit
def normalised(
    z, weight, bias, place, there, WIDTH: tl.constexpr, NORM: tl.constexpr, EPS: tl.constexpr
):  # one row, in float32; 0 where there is nothing
    if NORM != 3:
        z = tl.where(there, z - tl.sum(z, axis=0) / WIDTH, 0.0)
    z = z * (1.0 / tl.sqrt(tl.sum(z * z, axis=0) / WIDTH + EPS))
    z = z * tl.load(weight + place, mask=there, other=0.0).to(tl.float32)
    if NORM == 2:
        z += tl.load(bias + place, mask=there, other=0.0).to(tl.float32)
    return z


@jit
def moments(x, rows, there, WIDTH: tl.constexpr, NORM: tl.constexpr, EPS: tl.constexpr, CELLS: tl.constexpr):
    """Mean and 1 / deviation of rows that are too many to be held."""
    mean = rows.to(tl.float32) * 0.0
    if NORM != 3:
        for first in range(0, WIDTH, CELLS):
            cells = first + tl.arange(0, CELLS)
            inside = there[:, None] & (cells < WIDTH)[None, :]
            z = tl.load(x + rows[:, None] * WIDTH + cells[None, :], mask=inside, other=0.0).to(tl.float32)
            mean += tl.sum(z, axis=1)
        mean = mean / WIDTH
    square = mean * 0.0
    for first in range(0, WIDTH, CELLS):
        cells = first + tl.arange(0, CELLS)
        inside = there[:, None] & (cells < WIDTH)[None, :]
        z = tl.load(x + rows[:, None] * WIDTH + cells[None, :], mask=inside, other=0.0).to(tl.float32)
        z = tl.where(inside, z - mean[:, None], 0.0)
        square += tl.sum(z * z, axis=1)
    return mean, 1.0 / tl.sqrt(square / WIDTH + EPS)


@jit
def activated(y, ACTIVATION: tl.constexpr):
    if ACTIVATION == 1:
        y = tl.where(y < 0.0, 0.0, y)  # nan stays
    if ACTIVATION == 2:
        y = 0.5 * y * (1.0 + tl.erf(y * 0.7071067811865476))
    if ACTIVATION == 3:  # (1 + tanh u) / 2 = sigmoid(2 u)
        y = y * tl.sigmoid(1.5957691216057308 * (y + 0.044715 * y * y * y))
    if ACTIVATION == 4:
        y = y * tl.sigmoid(y)
    return y


@jit
def tile_product(
    x,
    weight,
    norm_weight,
    norm_bias,
    rows,
    there,
    columns,
    INPUTS: tl.constexpr,
    OUTPUTS: tl.constexpr,
    NORM: tl.constexpr,
    EPS: tl.constexpr,
    TILE: tl.constexpr,
    COLUMNS: tl.constexpr,
    CELLS: tl.constexpr,
):
    """norm(x) Wᵀ of all rows and some outputs, in float32."""
    if NORM:
        mean, scale = moments(x, rows, there, INPUTS, NORM, EPS, CELLS)
    total = tl.zeros((TILE, COLUMNS), tl.float32)
    for first in range(0, INPUTS, CELLS):
        cells = first + tl.arange(0, CELLS)
        whole = cells < INPUTS
        w = tl.load(
            weight + columns[:, None].to(tl.int64) * INPUTS + cells[None, :],
            mask=(columns < OUTPUTS)[:, None] & whole[None, :],
            other=0.0,
        )
        z = tl.load(x + rows[:, None] * INPUTS + cells[None, :], mask=there[:, None] & whole[None, :], other=0.0)
        if NORM:
            g = tl.load(norm_weight + cells, mask=whole, other=0.0).to(tl.float32)
            z = (z.to(tl.float32) - mean[:, None]) * scale[:, None] * g[None, :]
            if NORM == 2:
                z += tl.load(norm_bias + cells, mask=whole, other=0.0).to(tl.float32)[None, :]
        total = tl.dot(z.to(w.dtype), tl.trans(w), total, input_precision="ieee")
    return total


@jit
def _one_by_one(
    x,
    weight,
    bias,
    norm_weight,
    norm_bias,
    residual,
    residual_weight,
    residual_bias,
    out,
    INPUTS: tl.constexpr,
    OUTPUTS: tl.constexpr,
    BIAS: tl.constexpr,
    NORM: tl.constexpr,
    EPS: tl.constexpr,
    ACTIVATION: tl.constexpr,
    RESIDUAL: tl.constexpr,
    RESIDUAL_NORM: tl.constexpr,
    RESIDUAL_EPS: tl.constexpr,
    RESIDUAL_CELLS: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    CELLS: tl.constexpr,
    EARLY: tl.constexpr,
):
    columns = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    cells = tl.arange(0, CELLS)
    there, whole = columns < OUTPUTS, cells < INPUTS
    # asked for first: it comes from far
    place = columns[:, None].to(tl.int64) * INPUTS + cells[None, :]
    w = tl.load(weight + place, mask=there[:, None] & whole[None, :], other=0.0)
    ready(EARLY)
    for row in tl.static_range(ROWS):
        z = tl.load(x + row * INPUTS + cells, mask=whole, other=0.0).to(tl.float32)
        if NORM:
            z = normalised(z, norm_weight, norm_bias, cells, whole, INPUTS, NORM, EPS)
        y = tl.sum(w.to(tl.float32) * z[None, :], axis=1)
        if BIAS:
            y += tl.load(bias + columns, mask=there, other=0.0).to(tl.float32)
        y = activated(y, ACTIVATION)
        if RESIDUAL:
            r = tl.load(residual + row * OUTPUTS + columns, mask=there, other=0.0).to(tl.float32)
            if RESIDUAL_NORM:
                others = tl.arange(0, RESIDUAL_CELLS)
                inside = others < OUTPUTS
                line = tl.load(residual + row * OUTPUTS + others, mask=inside, other=0.0).to(tl.float32)
                if RESIDUAL_NORM != 3:
                    mean = tl.sum(line, axis=0) / OUTPUTS
                    line = tl.where(inside, line - mean, 0.0)
                    r -= mean
                r = r * (1.0 / tl.sqrt(tl.sum(line * line, axis=0) / OUTPUTS + RESIDUAL_EPS))
                r = r * tl.load(residual_weight + columns, mask=there, other=0.0).to(tl.float32)
                if RESIDUAL_NORM == 2:
                    r += tl.load(residual_bias + columns, mask=there, other=0.0).to(tl.float32)
            y += r
        tl.store(out + row * OUTPUTS + columns, y.to(out.dtype.element_ty), mask=there)


@jit
def _tiles(
    x,
    weight,
    bias,
    norm_weight,
    norm_bias,
    residual,
    residual_weight,
    residual_bias,
    out,
    rows_there,
    INPUTS: tl.constexpr,
    OUTPUTS: tl.constexpr,
    BIAS: tl.constexpr,
    NORM: tl.constexpr,
    EPS: tl.constexpr,
    ACTIVATION: tl.constexpr,
    RESIDUAL: tl.constexpr,
    RESIDUAL_NORM: tl.constexpr,
    RESIDUAL_EPS: tl.constexpr,
    RESIDUAL_CELLS: tl.constexpr,
    TILE: tl.constexpr,
    COLUMNS: tl.constexpr,
    CELLS: tl.constexpr,
    EARLY: tl.constexpr,
):
    ready(EARLY)
    columns = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    rows = tl.arange(0, TILE)
    present, there = rows < rows_there, columns < OUTPUTS
    y = tile_product(
        x, weight, norm_weight, norm_bias, rows, present, columns,
        INPUTS, OUTPUTS, NORM, EPS, TILE, COLUMNS, CELLS,
    )  # fmt: skip
    if BIAS:
        y += tl.load(bias + columns, mask=there, other=0.0).to(tl.float32)[None, :]
    y = activated(y, ACTIVATION)
    place, inside = rows[:, None] * OUTPUTS + columns[None, :], present[:, None] & there[None, :]
    if RESIDUAL:
        r = tl.load(residual + place, mask=inside, other=0.0).to(tl.float32)
        if RESIDUAL_NORM:
            mean, scale = moments(residual, rows, present, OUTPUTS, RESIDUAL_NORM, RESIDUAL_EPS, CELLS)
            g = tl.load(residual_weight + columns, mask=there, other=0.0).to(tl.float32)
            r = (r - mean[:, None]) * scale[:, None] * g[None, :]
            if RESIDUAL_NORM == 2:
                r += tl.load(residual_bias + columns, mask=there, other=0.0).to(tl.float32)[None, :]
        y += r
    tl.store(out + place, y.to(out.dtype.element_ty), mask=inside)
