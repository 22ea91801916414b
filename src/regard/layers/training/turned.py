"""Rotary positions between packed projections: queries and keys are turned where they lie, and their gradients turned back."""

# pyright: reportOptionalMemberAccess=false, reportInvalidTypeForm=false, reportPossiblyUnboundVariable=false
from __future__ import annotations

from typing import NamedTuple

from jaxtyping import Float, Int
from torch import Tensor

from regard.layers.attention.relative import Layout
from regard.layers.attention.relative.rotary import Rotary, Turns, rotate
from regard.layers.decoding.triton_here import power_of_2, runs_on, tl
from regard.layers.training.tiles import jit, on_device_of, tile_rows
from regard.layers.training.tiling import options, tiles_of


class Turning(NamedTuple):
    """How the queries and keys of a sentence are turned by their places: the same for all sentences.

    Of sentences that are packed, `places` are those of all tokens.
    """

    turns: Turns
    layout: Layout
    places: Int[Tensor, "N"] | None = None

    @staticmethod
    def of(scheme: Rotary, turns: Turns, places: Tensor | None = None) -> Turning:
        return Turning(turns, scheme.layout, places)

    def __call__(self, x: Float[Tensor, "B H T Dh"]) -> Float[Tensor, "B H T Dh"]:
        turns = self.turns if self.places is None else Turns(*(each[:, :, self.places] for each in self.turns))
        return rotate(x, turns, self.layout)

    @property
    def back(self) -> Turning:
        return self._replace(turns=Turns(self.turns.cos, -self.turns.sin))


def turn_queries_and_keys(packed: Float[Tensor, "B T D3"], heads: int, turning: Turning) -> None:
    """In place. What is packed are queries, keys and values, each head by head; values stay as they are."""
    (batch, length, width), turns = packed.shape, turning.turns
    if not runs_on(packed) or not packed.is_contiguous():
        parts = packed.unflatten(-1, (3, heads, -1))[:, :, :2].flatten(2, 3)
        parts.copy_(turning(parts.transpose(1, 2)).transpose(1, 2))
        return
    two, head = width // 3 * 2, width // 3 // heads
    tiles = tiles_of("turned")
    pairs = min(tiles.columns, power_of_2(two)) // 2
    tile = tile_rows(2 * pairs, tiles)
    with on_device_of(packed):
        _turn[(-(-batch * length // tile), -(-two // (2 * pairs)))](
            packed, turns.cos.contiguous(), turns.sin.contiguous(), turns.cos if turning.places is None else turning.places,
            batch * length, length, WIDTH=width, TWO=two, HEAD=head, NEIGHBOURS=turning.layout == "interleaved",
            PLACES=turning.places is not None, ROWS=tile, PAIRS=pairs, **options(tiles),
        )  # fmt: skip


@jit("rows", "length")
def _turn(
    packed,
    cos,
    sin,
    places,
    rows,
    length,
    WIDTH: tl.constexpr,
    TWO: tl.constexpr,
    HEAD: tl.constexpr,
    NEIGHBOURS: tl.constexpr,
    PLACES: tl.constexpr,
    ROWS: tl.constexpr,
    PAIRS: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    pair = tl.program_id(1) * PAIRS + tl.arange(0, PAIRS)[None, :]
    there = (row < rows) & (2 * pair < TWO)
    token = row % length
    if PLACES:
        token = tl.load(places + row, mask=row < rows, other=0).to(tl.int64)
    at = token * (HEAD // 2) + pair % (HEAD // 2)
    c = tl.load(cos + at, mask=there, other=1.0)
    s = tl.load(sin + at, mask=there, other=0.0)
    if NEIGHBOURS:
        cell = tl.program_id(1) * 2 * PAIRS + tl.arange(0, 2 * PAIRS)[None, :]
        place = packed + row * WIDTH + cell
        both = (row < rows) & (cell < TWO)
        z = tl.load(place, mask=both, other=0.0)
        a, b = tl.split(tl.reshape(z.to(tl.float32), (ROWS, PAIRS, 2)))
        turned = tl.reshape(tl.join(a * c - b * s, a * s + b * c), (ROWS, 2 * PAIRS))
        tl.store(place, turned.to(z.dtype), mask=both)
    else:
        place = packed + row * WIDTH + (pair // (HEAD // 2)) * HEAD + pair % (HEAD // 2)
        a = tl.load(place, mask=there, other=0.0)
        b = tl.load(place + HEAD // 2, mask=there, other=0.0)
        x, y = a.to(tl.float32), b.to(tl.float32)
        tl.store(place, (x * c - y * s).to(a.dtype), mask=there)
        tl.store(place + HEAD // 2, (x * s + y * c).to(b.dtype), mask=there)
