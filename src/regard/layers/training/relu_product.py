"""Backward through the last product of a feed-forward network and the ReLU before it, with the sum for its bias, in one kernel.

The product writes its result, and a kernel of its own would read it again only to set some of it to 0, which takes about as long as
the product itself. Tiles come by the copy engine of Hopper and later GPUs; two programs share a multiprocessor, so that one
multiplies while the other reads what was active and writes.
"""

# pyright: reportOptionalMemberAccess=false, reportInvalidTypeForm=false, reportPossiblyUnboundVariable=false
from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from regard.layers.decoding.triton_here import engine_copies, in_tiles, tl
from regard.layers.training.tiles import jit, on_device_of, totalled
from regard.layers.training.tiling import options, tiles_of


def product_through_relu(
    d_out: Float[Tensor, "M K"], weight: Float[Tensor, "K N"], active: Float[Tensor, "M N"]
) -> tuple[Float[Tensor, "M N"], Float[Tensor, "N"]]:
    """d_out W where `active` is above 0, and 0 elsewhere; and its sum over rows."""
    if not engine_copies(d_out, weight, active):
        d = (d_out @ weight) * (active > 0)
        return d, d.sum(0, dtype=torch.float32)
    (rows, depth), width = d_out.shape, weight.shape[1]
    d = torch.empty_like(active)
    tiles = tiles_of("product through relu")
    tile, turn = tiles.rows, tiles.columns
    tall, wide = -(-rows // tile), -(-width // tile)
    parts = torch.empty((tall, width), dtype=torch.float32, device=d_out.device)
    with on_device_of(d_out):
        _multiply[(tall * wide,)](
            in_tiles(d_out, tile, turn), in_tiles(weight, turn, tile), in_tiles(active, tile, tile), in_tiles(d, tile, tile),
            parts, width, wide,
            K=depth, TILE=tile, DEPTH=turn, num_stages=tiles.stages, **options(tiles),
        )  # fmt: skip
    return d, totalled(parts)


@jit("wide")
def _multiply(d_out, weight, active, d, parts, width, wide, K: tl.constexpr, TILE: tl.constexpr, DEPTH: tl.constexpr):
    row, column = tl.program_id(0) // wide * TILE, tl.program_id(0) % wide * TILE
    total = tl.zeros((TILE, TILE), tl.float32)
    for k in range(0, K, DEPTH):
        total = tl.dot(d_out.load([row, k]), weight.load([k, column]), total)
    total = tl.where(active.load([row, column]) > 0, total, 0.0)
    d.store([row, column], total.to(d.dtype))
    cells = column + tl.arange(0, TILE)
    tl.store(parts + tl.program_id(0) // wide * width + cells, tl.sum(total, axis=0), mask=cells < width)
