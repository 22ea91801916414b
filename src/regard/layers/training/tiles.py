"""How rows are shared out among the programs of a kernel, and how sums over all rows come together."""

# pyright: reportOptionalMemberAccess=false, reportInvalidTypeForm=false
from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from regard.layers.decoding.triton_here import power_of_2, tl, triton
from regard.layers.training.tiling import PROGRAMS, Tiles

COLUMNS = 16  # that one program totals


def jit(*varying: str) -> Callable[[Callable[..., Any]], Any]:
    """A kernel that is not compiled anew for other values of these arguments, which differ from batch to batch.

    Of tensors, the value is whether they begin at a multiple of 16 bytes: of seeds in a row, every other one does.
    """

    def compiled(function: Callable[..., Any]) -> Any:
        return function if triton is None else triton.jit(inspect.unwrap(function), do_not_specialize=varying)

    return compiled


def tile_rows(cells: int, tiles: Tiles) -> int:
    """Rows of a tile of so many columns."""
    return max(1, min(tiles.rows, tiles.cells // cells))


def programs_for(rows: int, tile: int, most: int) -> int:
    """How many programs share rows out in tiles."""
    return max(1, min(most, -(-rows // tile)))


def on_device(device: torch.device) -> AbstractContextManager:
    return torch.cuda.device(device) if device.type == "cuda" else contextlib.nullcontext()


def on_device_of(tensor: Tensor) -> AbstractContextManager:
    return on_device(tensor.device)


def totalled(parts: Float[Tensor, "P N"]) -> Float[Tensor, "N"]:
    """The sum of what programs have added up, always in the same order."""
    count, width = parts.shape
    out, most = parts.new_empty(width), power_of_2(PROGRAMS)
    with on_device_of(parts):
        _total[(-(-width // COLUMNS),)](parts, out, count, width, ROWS=most, COLUMNS=COLUMNS, num_warps=8)
    return out


@jit("count")
def _total(parts, out, count, width, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    row = tl.arange(0, ROWS)[:, None]
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    there = (row < count) & (column < width)[None, :]
    z = tl.load(parts + row * width + column[None, :], mask=there, other=0.0)
    for begin in range(ROWS, count, ROWS):
        there = (begin + row < count) & (column < width)[None, :]
        z += tl.load(parts + (begin + row) * width + column[None, :], mask=there, other=0.0)
    tl.store(out + column, tl.sum(z, axis=0), mask=column < width)
