"""From states of very many rows to logits, by a product that looks at its logits.

A library's product writes logits that another kernel then reads only for their maxima and their normaliser, which takes more than
half as long as the product. Here a program that has multiplied a tile looks at it before it writes it. Tiles come by the copy
engine of Hopper and later GPUs, of 16-bit numbers.
"""

# pyright: reportMissingImports=false, reportOptionalMemberAccess=false, reportInvalidTypeForm=false, reportPossiblyUnboundVariable=false
from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.layers.decoding.products import Linear
from regard.layers.decoding.triton_here import engine_copies, in_tiles, jit, launch, ready, tl
from regard.layers.decoding.vocabulary import APART, GROUP, Logits

WIDEST = 512  # states; wider ones were not measured


class Tiles(NamedTuple):
    """How the product is cut: rows and columns of a tile, how deep a turn of its loop is, and how many turns are in flight."""

    rows: int = 128
    columns: int = 128
    depth: int = 32
    warps: int = 4
    stages: int = 4


def takes(x: Tensor, linear: Linear) -> bool:
    """Whether a kernel multiplies these. The wider the states, the more a library's product gains on ours."""
    return x.shape[1] <= WIDEST and engine_copies(x, linear.weight)


def logits(
    x: Float[Tensor, "M D"],
    linear: Linear,
    banned: Int[Tensor, "M n"],
    specials: int,
    also: int,
    tiles: Tiles = Tiles(),
) -> Logits:
    """Of x, which is normalised, in its own type, where `takes` says yes; see `vocabulary.logits` for what is forbidden."""
    weight, bias = linear
    (rows, _), vocabulary = x.shape, len(weight)
    tall, blocks, groups = -(-rows // tiles.rows), -(-vocabulary // tiles.columns), -(-vocabulary // GROUP)
    values = x.new_empty((rows, -(-vocabulary // APART) * APART))[:, :vocabulary]
    maxima = x.new_empty((rows, groups), dtype=torch.float32)
    highest, sums = (x.new_empty((rows, blocks), dtype=torch.float32) for _ in range(2))
    launch(
        _multiply_and_look,
        (tall * blocks,),
        weight if bias is None else bias,
        in_tiles(x, tiles.rows, tiles.depth),
        in_tiles(weight, tiles.columns, tiles.depth),
        in_tiles(values, tiles.rows, tiles.columns),
        banned,
        maxima,
        highest,
        sums,
        rows,
        tall,
        INPUTS=x.shape[1],
        OUTPUTS=vocabulary,
        BIAS=bias is not None,
        SPECIALS=specials,
        ALSO=also,
        BANNED=banned.shape[1],
        GROUP=GROUP,
        BLOCKS=blocks,
        ALL_GROUPS=groups,
        TILE=tiles.rows,
        COLUMNS=tiles.columns,
        DEPTH=tiles.depth,
        num_warps=tiles.warps,
        num_stages=tiles.stages,
    )
    return Logits(values, maxima, highest, sums, GROUP)


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
