"""The gradient of an activation and its sum over rows, which is that of a bias, in one kernel; or the sum alone."""

# pyright: reportOptionalMemberAccess=false, reportInvalidTypeForm=false, reportPossiblyUnboundVariable=false
from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from regard.layers.decoding.products import KINDS
from regard.layers.decoding.triton_here import power_of_2, runs_on, tl
from regard.layers.feedforward import ACTIVATIONS
from regard.layers.training.tiles import jit, on_device_of, programs_for, tile_rows, totalled
from regard.layers.training.tiling import options, tiles_of


def activation_backward(
    d_active: Float[Tensor, "N D"], seen: Float[Tensor, "N D"], activation: str
) -> tuple[Float[Tensor, "N D"], Float[Tensor, "D"]]:
    """The gradient of what went into it, in place of d_active, and its sum. `seen` is what went in; of relu, what came out."""
    if not runs_on(d_active):
        with torch.enable_grad():
            z = seen.detach().float().requires_grad_()
            (d,) = torch.autograd.grad(ACTIVATIONS[activation](z), z, d_active.float())
        return d_active.copy_(d), d.sum(0)
    return d_active, _launched(d_active, seen, KINDS[activation])


def summed(d: Float[Tensor, "N D"]) -> Float[Tensor, "D"]:
    """The sum over rows, of float32."""
    return _launched(d, d, 0) if runs_on(d) else d.sum(0, dtype=torch.float32)


def _launched(d: Tensor, seen: Tensor, kind: int) -> Tensor:
    rows, width = d.shape
    tiles = tiles_of("sum" if kind == 0 else "activation backward")
    cells = min(tiles.columns, power_of_2(width))
    tile, columns = tile_rows(cells, tiles), -(-width // cells)
    programs = programs_for(rows, tile, max(1, min(tiles.programs, 2 * tiles.programs // columns)))
    parts = torch.empty((programs, width), dtype=torch.float32, device=d.device)
    with on_device_of(d):
        _columns[(programs, columns)](
            d, seen, parts, rows, width, ACTIVATION=kind, ROWS=tile, CELLS=cells, STAGES=tiles.stages, **options(tiles)
        )  # fmt: skip
    return totalled(parts)


@jit("rows")
def _columns(
    d_active,
    seen,
    parts,
    rows,
    width,
    ACTIVATION: tl.constexpr,
    ROWS: tl.constexpr,
    CELLS: tl.constexpr,
    STAGES: tl.constexpr,
):
    cells = tl.program_id(1) * CELLS + tl.arange(0, CELLS)[None, :]
    total = tl.zeros((ROWS, CELLS), dtype=tl.float32)
    for begin in tl.range(tl.program_id(0) * ROWS, rows, tl.num_programs(0) * ROWS, num_stages=STAGES):
        row = begin + tl.arange(0, ROWS)[:, None]
        there = (row < rows) & (cells < width)
        at = row.to(tl.int64) * width + cells
        d = tl.load(d_active + at, mask=there, other=0.0).to(tl.float32)
        if ACTIVATION:
            z = tl.load(seen + at, mask=there, other=0.0).to(tl.float32)
            if ACTIVATION == 1:
                d = tl.where(z > 0, d, 0.0)
            elif ACTIVATION == 2:  # Φ(z) + z φ(z)
                d = d * (0.5 * (1.0 + tl.erf(z * 0.7071067811865476)) + z * 0.3989422804014327 * tl.exp(-0.5 * z * z))
            elif ACTIVATION == 3:
                inside = 0.7978845608028654 * (z + 0.044715 * z * z * z)
                t = 2.0 * tl.sigmoid(2.0 * inside) - 1.0
                slope = 0.7978845608028654 * (1.0 + 0.134145 * z * z)
                d = d * (0.5 * (1.0 + t) + 0.5 * z * (1.0 - t * t) * slope)
            else:
                s = tl.sigmoid(z)
                d = d * (s + z * s * (1.0 - s))
            tl.store(d_active + at, d.to(d_active.dtype.element_ty), mask=there)
        total += d
    one = tl.program_id(1) * CELLS + tl.arange(0, CELLS)
    tl.store(parts + tl.program_id(0) * width + one, tl.sum(total, axis=0), mask=one < width)
