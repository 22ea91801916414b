"""How the kernels of training cut their work: one table, which benchmarks/training_kernels.py varies.

Tiles change nothing but the order of sums. Those of the table are the best of a sweep on an H200, unless said.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any, NamedTuple

PROGRAMS = 528  # of kernels that add something up over all rows: four for each multiprocessor of a large GPU


class Tiles(NamedTuple):
    """Of one kernel, which takes from it what applies."""

    cells: int = 2048  # of a tile at most; of attention, how many of a tile a warp is given
    rows: int = 8  # of a tile at most; of attention, queries
    columns: int = 1024  # of a tile at most, where programs share the columns of a row
    programs: int = PROGRAMS  # at most, where each adds up over its rows
    warps: int = 4
    stages: int = 1  # tiles in flight at once: beyond 1, those to come are copied into shared memory ahead
    registers: int = 0  # of a thread at most; 0: as many as the compiler takes


TILES = {
    "norm forward": Tiles(cells=512),
    "norm backward": Tiles(cells=1024, stages=3),
    "norm forward of 16 bits": Tiles(cells=512, warps=2),  # of states
    "norm backward of 16 bits": Tiles(cells=512, programs=2 * PROGRAMS, warps=1, stages=3),
    "activation backward": Tiles(cells=8192, rows=4, columns=512),
    "sum": Tiles(cells=8192, rows=2, stages=3),
    "dropped": Tiles(cells=4096, rows=2, warps=8, stages=3),
    "embedded": Tiles(cells=512, warps=2),
    "turned": Tiles(cells=4096, rows=4),
    "attention forward": Tiles(cells=1024, rows=64, warps=8),
    "attention backward": Tiles(cells=1024, rows=64, warps=8),
    "product through relu": Tiles(rows=128, columns=32, stages=4),  # rows: of a square; columns: of one turn
    "loss": Tiles(columns=8192, warps=8),
}
_NOW: ContextVar[dict[str, Tiles]] = ContextVar("tiles", default={})  # noqa: B039


def tiles_of(kernel: str) -> Tiles:
    """What holds here."""
    return _NOW.get().get(kernel) or TILES[kernel]


@contextlib.contextmanager
def using(kernel: str, tiles: Tiles) -> Iterator[None]:
    """Whatever starts this kernel in it, in this thread, cuts it so."""
    before = _NOW.set({**_NOW.get(), kernel: tiles})
    try:
        yield
    finally:
        _NOW.reset(before)


def options(tiles: Tiles, warps: int | None = None) -> dict[str, Any]:
    """For the compiler."""
    limit = {"maxnreg": tiles.registers} if tiles.registers else {}
    return {"num_warps": tiles.warps if warps is None else warps, **limit}
