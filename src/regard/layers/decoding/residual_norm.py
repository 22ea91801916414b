"""A residual connection and the norm after it in one kernel, for many rows, whose products are left to torch."""

# pyright: reportOptionalMemberAccess=false, reportInvalidTypeForm=false, reportPossiblyUnboundVariable=false
from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from regard.layers.decoding.products import Norm, normalised, tensors_of
from regard.layers.decoding.triton_here import jit, launch, power_of_2, ready, runs_on, tl


def add_and_normalise(
    x: Float[Tensor, "M D"], written: Float[Tensor, "M D"] | None, norm: Norm | None
) -> tuple[Float[Tensor, "M D"], Float[Tensor, "M D"]]:
    """x + written, and that normalised. The first is x itself where nothing is written."""
    if norm is None or not runs_on(x):
        total = x if written is None else x + written
        return total, total if norm is None else norm(total)
    rows, width = x.shape
    total = x if written is None else x.new_empty(x.shape)
    out, cells = x.new_empty(x.shape), power_of_2(width)
    launch(
        _add_and_normalise,
        (rows,),
        x,
        x if written is None else written,
        *tensors_of(norm, x),
        total,
        out,
        WIDTH=width,
        ADD=written is not None,
        NORM=norm.kind,
        EPS=norm.eps,
        CELLS=cells,
        num_warps=max(1, min(8, cells // 256)),
    )
    return total, out


@jit
def _add_and_normalise(
    x,
    written,
    weight,
    bias,
    total,
    out,
    WIDTH: tl.constexpr,
    ADD: tl.constexpr,
    NORM: tl.constexpr,
    EPS: tl.constexpr,
    CELLS: tl.constexpr,
    EARLY: tl.constexpr,
):
    ready(EARLY)
    row = tl.program_id(0).to(tl.int64) * WIDTH
    cells = tl.arange(0, CELLS)
    there = cells < WIDTH
    z = tl.load(x + row + cells, mask=there, other=0.0).to(tl.float32)
    if ADD:
        z += tl.load(written + row + cells, mask=there, other=0.0).to(tl.float32)
        tl.store(total + row + cells, z.to(total.dtype.element_ty), mask=there)
    z = normalised(z, weight, bias, cells, there, WIDTH, NORM, EPS)
    tl.store(out + row + cells, z.to(out.dtype.element_ty), mask=there)
