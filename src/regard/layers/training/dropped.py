"""Dropout in front of a residual connection: what it drops, and its gradient in one kernel.

Which numbers are dropped is not stored, but found again from a seed and their places, by a hash of 32 bits (two rounds of
multiplying and shifting, after the finalisers of MurmurHash3 and of Wellons' hash prospector). The generators of torch and of
Triton's own library draw better numbers than dropout needs, and take longer than reading and writing all of it.
"""

# pyright: reportOptionalMemberAccess=false, reportInvalidTypeForm=false, reportPossiblyUnboundVariable=false
from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.layers.decoding import triton_here
from regard.layers.decoding.triton_here import power_of_2, runs_on, tl
from regard.layers.training.tiles import jit, on_device_of, programs_for, tile_rows, totalled
from regard.layers.training.tiling import options, tiles_of

WHOLE = 1 << 32


def seeds(count: int, device: torch.device) -> Int[Tensor, "N"]:
    """Of dropouts to come, drawn by torch's generator."""
    return torch.empty(count, dtype=torch.int64, device=device).random_()


def dropped_sum(
    x: Float[Tensor, "N D"], written: Float[Tensor, "N D"], part: float, seed: Int[Tensor, ""]
) -> Float[Tensor, "N D"]:
    """x + dropout(written), in the type of x: the reference of what several kernels have in them."""
    more = written.float() if not part else written.float() * kept(x.shape, part, seed) * scale_of(part)
    return (x.float() + more).to(x.dtype)


def dropped_gradient(
    d_sum: Float[Tensor, "N D"], part: float, seed: Int[Tensor, ""], dtype: torch.dtype, factor: float = 1.0
) -> tuple[Float[Tensor, "N D"], Float[Tensor, "D"]]:
    """The gradient of what was dropped from, in this type and `factor` times, and its sum over rows."""
    if not runs_on(d_sum):
        d = d_sum.float() * (factor * scale_of(part))
        d = d if not part else d * kept(d_sum.shape, part, seed)
        return d.to(dtype), d.sum(0)
    rows, width = d_sum.shape
    tiles = tiles_of("dropped")
    cells = min(tiles.columns, power_of_2(width))
    tile = tile_rows(cells, tiles)
    programs = programs_for(rows, tile, tiles.programs)
    out = torch.empty_like(d_sum, dtype=dtype)
    parts = torch.empty((programs, width), dtype=torch.float32, device=d_sum.device)
    with on_device_of(d_sum):
        _gradient[(programs, -(-width // cells))](
            d_sum, seed, out, parts, rows, width, factor * scale_of(part), least(part), DROP=part > 0, ROWS=tile,
            CELLS=cells, STAGES=tiles.stages, **options(tiles),
        )  # fmt: skip
    return out, totalled(parts)


def kept(shape: tuple[int, ...], part: float, seed: Int[Tensor, ""]) -> Bool[Tensor, "N D"]:
    """Which numbers stay: the hashes of their places that are not among the least."""
    low, high = seed & (WHOLE - 1), (seed >> 32) & (WHOLE - 1)
    h = torch.arange(shape[0] * shape[1], device=seed.device).view(shape)

    def mixed(h: Tensor, shifts: tuple[int, int, int], factors: tuple[int, int]) -> Tensor:
        for shift, factor in zip(shifts, (*factors, 1), strict=True):
            h = ((h ^ (h >> shift)) * factor) & (WHOLE - 1)
        return h

    h = mixed((h * 0x9E3779B1 + low) & (WHOLE - 1), (16, 13, 16), (0x85EBCA6B, 0xC2B2AE35))
    h = mixed(h ^ high, (15, 12, 15), (0x2C1B3C6D, 0x297A2D39))
    return h >= least(part)


def least(part: float) -> int:
    return min(WHOLE - 1, round(part * WHOLE))


def scale_of(part: float) -> float:
    return 1.0 / (1.0 - part)


@triton_here.jit
def hashed(place, seed):
    low = seed.to(tl.uint32)
    high = (seed >> 32).to(tl.uint32)
    h = place.to(tl.uint32) * 0x9E3779B1 + low
    h = (h ^ (h >> 16)) * 0x85EBCA6B
    h = (h ^ (h >> 13)) * 0xC2B2AE35
    h = h ^ (h >> 16)
    h = h ^ high
    h = (h ^ (h >> 15)) * 0x2C1B3C6D
    h = (h ^ (h >> 12)) * 0x297A2D39
    return h ^ (h >> 15)


@jit("seed", "rows", "drop")
def _gradient(
    d_sum,
    seed,
    out,
    parts,
    rows,
    width,
    scale,
    drop,
    DROP: tl.constexpr,
    ROWS: tl.constexpr,
    CELLS: tl.constexpr,
    STAGES: tl.constexpr,
):
    cells = tl.program_id(1) * CELLS + tl.arange(0, CELLS)[None, :]
    total = tl.zeros((ROWS, CELLS), dtype=tl.float32)
    key = tl.load(seed)
    for begin in tl.range(tl.program_id(0) * ROWS, rows, tl.num_programs(0) * ROWS, num_stages=STAGES):
        row = begin + tl.arange(0, ROWS)[:, None]
        there = (row < rows) & (cells < width)
        at = row.to(tl.int64) * width + cells
        d = tl.load(d_sum + at, mask=there, other=0.0).to(tl.float32) * scale
        if DROP:
            d = tl.where(hashed(at, key) >= drop.to(tl.uint32), d, 0.0)
        total += d
        tl.store(out + at, d.to(out.dtype.element_ty), mask=there)
    one = tl.program_id(1) * CELLS + tl.arange(0, CELLS)
    tl.store(parts + tl.program_id(0) * width + one, tl.sum(total, axis=0), mask=one < width)
