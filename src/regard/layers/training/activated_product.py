"""Backward through the last product of a feed-forward network and the activation before it, with its bias's sum, in one kernel.

The product writes its result, and a kernel of its own would read it again only to multiply it by a slope (of a ReLU, to set some of
it to 0), which takes about as long as the product itself. Tiles come by the copy engine of Hopper and later GPUs; two programs
share a multiprocessor, so that one multiplies while the other reads what the activation has seen, and writes.
"""

# pyright: reportOptionalMemberAccess=false, reportInvalidTypeForm=false, reportPossiblyUnboundVariable=false
from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from regard.layers.decoding.kernel_choice import starts_early
from regard.layers.decoding.products import KINDS
from regard.layers.decoding.triton_here import INTERPRETED, runs_on, tl
from regard.layers.training.activations import activation_backward, through
from regard.layers.training.tiles import jit, on_device_of, totalled
from regard.layers.training.tiling import TILES, options, tiles_of

try:
    from triton.tools.tensor_descriptor import TensorDescriptor  # pyright: ignore[reportMissingImports]
except ImportError:  # there is no Triton, or one from before descriptors
    TensorDescriptor = None

ALIGNED = 16  # bytes, of which the copy engine wants rows to be multiples


def product_through(
    d_out: Float[Tensor, "M K"], weight: Float[Tensor, "K N"], seen: Float[Tensor, "M N"], activation: str
) -> tuple[Float[Tensor, "M N"], Float[Tensor, "N"]]:
    """The gradient of what went into the activation, from that of the product, and its sum over rows.

    `seen` is what went in; of relu, what came out.
    """
    if not kernel_takes(d_out, weight, seen, activation):
        return activation_backward(d_out @ weight, seen, activation)
    (rows, depth), width = d_out.shape, weight.shape[1]
    d = torch.empty_like(seen)
    tiles = tiles_of(_name(activation))
    tile, turn = tiles.rows, tiles.columns
    tall, wide = -(-rows // tile), -(-width // tile)
    parts = torch.empty((tall, width), dtype=torch.float32, device=d_out.device)
    square, of = [tile, tile], TensorDescriptor.from_tensor
    with on_device_of(d_out):
        _multiply[(tall * wide,)](
            of(d_out, [tile, turn]), of(weight, [turn, tile]), of(seen, square), of(d, square), parts, width, wide,
            ACTIVATION=KINDS[activation], K=depth, TILE=tile, DEPTH=turn, num_stages=tiles.stages, **options(tiles),
        )  # fmt: skip
    return d, totalled(parts)


def _name(activation: str) -> str:
    return f"product through {activation}"


def kernel_takes(d_out: Tensor, weight: Tensor, seen: Tensor, activation: str) -> bool:
    """Whether the kernel does it: 16-bit numbers that lie as the copy engine wants them, on a GPU that has one.

    Slopes that take too many registers beside a product (that of gelu, with erf) have no tiles.
    """
    if _name(activation) not in TILES or not runs_on(d_out) or TensorDescriptor is None or not len(d_out):
        return False
    if not INTERPRETED and (d_out.dtype.itemsize != 2 or not starts_early(d_out.device)):
        return False
    return all(
        t.is_contiguous() and t.shape[1] * t.element_size() % ALIGNED == 0 and t.data_ptr() % ALIGNED == 0
        for t in (d_out, weight, seen)
    )


@jit("wide")
def _multiply(
    d_out,
    weight,
    seen,
    d,
    parts,
    width,
    wide,
    ACTIVATION: tl.constexpr,
    K: tl.constexpr,
    TILE: tl.constexpr,
    DEPTH: tl.constexpr,
):
    row, column = tl.program_id(0) // wide * TILE, tl.program_id(0) % wide * TILE
    total = tl.zeros((TILE, TILE), tl.float32)
    for k in range(0, K, DEPTH):
        total = tl.dot(d_out.load([row, k]), weight.load([k, column]), total)
    total = through(total, seen.load([row, column]).to(tl.float32), ACTIVATION)
    d.store([row, column], total.to(d.dtype))
    cells = column + tl.arange(0, TILE)
    tl.store(parts + tl.program_id(0) // wide * width + cells, tl.sum(total, axis=0), mask=cells < width)
