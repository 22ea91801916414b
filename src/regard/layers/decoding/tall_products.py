"""Products of very many rows with a matrix: those of layers, and that with the vocabulary, which looks at its logits.

A library's product writes logits that another kernel then reads only for their maxima and their normaliser, which takes more than
half as long as the product. Here a program that has multiplied a tile looks at it before it writes it. Products of layers are too
small for the large tiles that a library likes: 2,048 x 512 are 64 tiles of 128 x 128 for 132 multiprocessors; here they can be cut
finer. Tiles come by the copy engine of Hopper and later GPUs, of 16-bit numbers.
"""

# pyright: reportMissingImports=false, reportOptionalMemberAccess=false, reportInvalidTypeForm=false, reportPossiblyUnboundVariable=false
from __future__ import annotations

from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.layers.decoding.products import KINDS, Linear, activated
from regard.layers.decoding.triton_here import COPIED, engine_copies, in_tiles, jit, launch, ready, tl
from regard.layers.decoding.vocabulary import APART, GROUP, Logits


class Tiles(NamedTuple):
    """How a product is cut: rows and columns of a tile, how deep a turn of its loop is, and how many turns are in flight."""

    rows: int = 128
    columns: int = 128
    depth: int = 64
    warps: int = 4
    stages: int = 3


ENOUGH = 128  # tiles: about as many as there are multiprocessors
TILES = (Tiles(), Tiles(rows=64), Tiles(rows=64, columns=64))  # of layers; from the largest to the smallest
LOOKING = (Tiles(), Tiles(rows=64))  # of the vocabulary's, for more rows than a small tile has and for fewer


def takes(x: Tensor, linear: Linear) -> bool:
    """Whether a kernel multiplies these."""
    return engine_copies(x, linear.weight)


def writes(x: Tensor, linear: Linear) -> bool:
    """Whether `product` has a kernel for these: rows of what it writes are to lie well, too."""
    return takes(x, linear) and len(linear.weight) * x.element_size() % COPIED == 0


def tiles_for(rows: int, outputs: int) -> Tiles:
    """Of a layer's product: the largest of which there are enough for all multiprocessors, or the smallest."""
    for tiles in TILES:
        if -(-rows // tiles.rows) * -(-outputs // tiles.columns) >= ENOUGH:
            return tiles
    return TILES[-1]


def product(
    x: Float[Tensor, "M K"], linear: Linear, activation: str | None = None, tiles: Tiles | None = None
) -> Float[Tensor, "M N"]:
    """f(x Wᵀ + b), where `writes` says yes."""
    weight, bias = linear
    tiles = tiles or tiles_for(len(x), len(weight))
    out = x.new_empty((len(x), len(weight)))
    launch(
        _multiply,
        _grid(x, weight, tiles),
        weight if bias is None else bias,
        in_tiles(x, tiles.rows, tiles.depth),
        in_tiles(weight, tiles.columns, tiles.depth),
        in_tiles(out, tiles.rows, tiles.columns),
        **_sizes(x, linear, tiles),
        ACTIVATION=KINDS[activation] if activation else 0,
    )
    return out


def logits(
    x: Float[Tensor, "M D"],
    linear: Linear,
    banned: Int[Tensor, "M n"],
    specials: int,
    also: int,
    tiles: Tiles | None = None,
) -> Logits:
    """Of x, which is normalised, in its own type, where `takes` says yes; see `vocabulary.logits` for what is forbidden."""
    weight, bias = linear
    tiles = tiles or LOOKING[len(x) <= LOOKING[1].rows]
    (rows, _), vocabulary = x.shape, len(weight)
    blocks, groups = -(-vocabulary // tiles.columns), -(-vocabulary // GROUP)
    values = x.new_empty((rows, -(-vocabulary // APART) * APART))[:, :vocabulary]
    maxima = x.new_empty((rows, groups), dtype=torch.float32)
    highest, sums = (x.new_empty((rows, blocks), dtype=torch.float32) for _ in range(2))
    launch(
        _multiply_and_look,
        _grid(x, weight, tiles),
        weight if bias is None else bias,
        in_tiles(x, tiles.rows, tiles.depth),
        in_tiles(weight, tiles.columns, tiles.depth),
        in_tiles(values, tiles.rows, tiles.columns),
        banned,
        maxima,
        highest,
        sums,
        rows,
        **_sizes(x, linear, tiles),
        SPECIALS=specials,
        ALSO=also,
        BANNED=banned.shape[1],
        GROUP=GROUP,
        BLOCKS=blocks,
        ALL_GROUPS=groups,
    )
    return Logits(values, maxima, highest, sums, GROUP)


def _grid(x: Tensor, weight: Tensor, tiles: Tiles) -> tuple[int]:
    return (-(-len(x) // tiles.rows) * -(-len(weight) // tiles.columns),)


def _sizes(x: Tensor, linear: Linear, tiles: Tiles) -> dict[str, Any]:
    return {
        "tall": -(-len(x) // tiles.rows),
        "INPUTS": x.shape[1],
        "OUTPUTS": len(linear.weight),
        "BIAS": linear.bias is not None,
        "TILE": tiles.rows,
        "COLUMNS": tiles.columns,
        "DEPTH": tiles.depth,
        "num_warps": tiles.warps,
        "num_stages": tiles.stages,
    }


@jit
def _tile(
    bias, x, weight, row, column,
    INPUTS: tl.constexpr, OUTPUTS: tl.constexpr, BIAS: tl.constexpr,
    TILE: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    """A tile of x Wᵀ + b, in float32."""
    total = tl.zeros((TILE, COLUMNS), tl.float32)
    for k in range(0, INPUTS, DEPTH):
        total = tl.dot(x.load([row, k]), tl.trans(weight.load([column, k])), total, input_precision="ieee")
    if BIAS:
        place = column + tl.arange(0, COLUMNS)
        total += tl.load(bias + place, mask=place < OUTPUTS, other=0.0).to(tl.float32)[None, :]
    return total


@jit
def _multiply(
    bias, x, weight, out, tall,
    INPUTS: tl.constexpr, OUTPUTS: tl.constexpr, BIAS: tl.constexpr, ACTIVATION: tl.constexpr,
    TILE: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    row, column = tl.program_id(0) % tall * TILE, tl.program_id(0) // tall * COLUMNS
    ready(EARLY)
    y = _tile(bias, x, weight, row, column, INPUTS, OUTPUTS, BIAS, TILE, COLUMNS, DEPTH)
    out.store([row, column], activated(y, ACTIVATION).to(out.dtype))


@jit
def _multiply_and_look(
    bias, x, weight, values, banned, maxima, highest, sums, rows, tall,
    INPUTS: tl.constexpr, OUTPUTS: tl.constexpr, BIAS: tl.constexpr,
    SPECIALS: tl.constexpr, ALSO: tl.constexpr, BANNED: tl.constexpr,
    GROUP: tl.constexpr, BLOCKS: tl.constexpr, ALL_GROUPS: tl.constexpr,
    TILE: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    row, block = tl.program_id(0) % tall * TILE, tl.program_id(0) // tall
    column = block * COLUMNS
    ready(EARLY)
    y = _tile(bias, x, weight, row, column, INPUTS, OUTPUTS, BIAS, TILE, COLUMNS, DEPTH)
    y = y.to(values.dtype).to(tl.float32)  # as whoever reads them finds them
    line, token = row + tl.arange(0, TILE), column + tl.arange(0, COLUMNS)
    present = line < rows
    y = tl.where((token < OUTPUTS)[None, :], y, float("-inf"))
    top = tl.max(y, axis=1)
    total = tl.sum(tl.exp(y - tl.maximum(top, -1e30)[:, None]), axis=1)
    at = line.to(tl.int64) * BLOCKS + block
    tl.store(highest + at, top, mask=present)
    tl.store(sums + at, total, mask=present)
    some = (column < SPECIALS) | ((column <= ALSO) & (column + COLUMNS > ALSO))
    for i in tl.static_range(BANNED):
        one = tl.load(banned + line * BANNED + i, mask=present, other=-1)
        some = some | (tl.max(((one >= column) & (one < column + COLUMNS)).to(tl.int32), axis=0) > 0)
    if some:  # most programs have nothing that is forbidden
        gone = ((token < SPECIALS) | (token == ALSO))[None, :] & (line >= 0)[:, None]
        for i in tl.static_range(BANNED):
            one = tl.load(banned + line * BANNED + i, mask=present, other=-1)
            gone = gone | (token[None, :] == one[:, None])
        y = tl.where(gone, float("-inf"), y)
    values.store([row, column], y.to(values.dtype))
    largest = tl.max(tl.reshape(y, (TILE, COLUMNS // GROUP, GROUP)), axis=2)
    group = block * (COLUMNS // GROUP) + tl.arange(0, COLUMNS // GROUP)
    place = line.to(tl.int64)[:, None] * ALL_GROUPS + group[None, :]
    tl.store(maxima + place, largest, mask=present[:, None] & (group < ALL_GROUPS)[None, :])
