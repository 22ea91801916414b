"""Rotary positions in a decoding step: the next queries and keys are turned where they lie, before they are compared and cached."""

# pyright: reportOptionalMemberAccess=false, reportInvalidTypeForm=false, reportPossiblyUnboundVariable=false
from __future__ import annotations

import math
from typing import NamedTuple

from jaxtyping import Float, Int
from torch import Tensor

from regard.layers.attention.relative import Layout
from regard.layers.attention.relative.rotary import rotate, turns
from regard.layers.decoding.triton_here import jit, launch, power_of_2, ready, runs_on, tl

MOST_PAIRS = 1024  # of one program


class Turned(NamedTuple):
    """How a model turns its queries and keys."""

    head_width: int
    base: float
    layout: Layout

    def __call__(
        self, projected: Float[Tensor, "N W"], positions: Int[Tensor, "B"], heads: int
    ) -> Float[Tensor, "N W"]:
        """In place, of the N = B K next tokens. Behind queries and keys are as many values as keys."""
        if not runs_on(projected):
            return self.plainly(projected, positions, heads)
        (rows, width), (beams, turned) = projected.shape, self._sizes(projected, positions, heads)
        pairs = min(MOST_PAIRS, power_of_2(turned // 2))
        launch(
            _turn,
            (rows, -(-turned // 2 // pairs)),
            projected,
            positions,
            -math.log(self.base) / self.head_width,
            BEAMS=beams,
            ROW=width,
            TURNED=turned,
            HEAD=self.head_width,
            NEIGHBOURS=self.layout == "interleaved",
            PAIRS=pairs,
            num_warps=4,
        )
        return projected

    def plainly(self, projected: Float[Tensor, "N W"], positions: Int[Tensor, "B"], heads: int) -> Float[Tensor, "N W"]:
        """The reference, in place as well."""
        beams, turned = self._sizes(projected, positions, heads)
        by = turns(positions.repeat_interleave(beams)[:, None], self.head_width, self.base)
        parts = projected[:, :turned].unflatten(1, (-1, self.head_width))
        parts.copy_(rotate(parts[:, :, None], by, self.layout)[:, :, 0])
        return projected

    def _sizes(self, projected: Tensor, positions: Tensor, heads: int) -> tuple[int, int]:
        """Hypotheses of a text, and how many numbers of a row are turned."""
        rows, width = projected.shape
        return rows // len(positions), (width + heads * self.head_width) // 2


@jit
def _turn(
    projected,
    positions,
    slower,
    BEAMS: tl.constexpr,
    ROW: tl.constexpr,
    TURNED: tl.constexpr,
    HEAD: tl.constexpr,
    NEIGHBOURS: tl.constexpr,
    PAIRS: tl.constexpr,
    EARLY: tl.constexpr,
):
    ready(EARLY)
    row = tl.program_id(0).to(tl.int64)
    pair = tl.program_id(1) * PAIRS + tl.arange(0, PAIRS)
    there, i = 2 * pair < TURNED, pair % (HEAD // 2)
    angle = tl.load(positions + row // BEAMS).to(tl.float32) * tl.exp((2 * i).to(tl.float32) * slower)
    c, s = tl.cos(angle), tl.sin(angle)
    if NEIGHBOURS:
        first, further = projected + row * ROW + 2 * pair, 1
    else:
        first, further = projected + row * ROW + pair // (HEAD // 2) * HEAD + i, HEAD // 2
    a = tl.load(first, mask=there, other=0.0).to(tl.float32)
    b = tl.load(first + further, mask=there, other=0.0).to(tl.float32)
    tl.store(first, (a * c - b * s).to(projected.dtype.element_ty), mask=there)
    tl.store(first + further, (a * s + b * c).to(projected.dtype.element_ty), mask=there)
