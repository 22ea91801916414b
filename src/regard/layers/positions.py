"""Absolute positions, as vectors added to embeddings: the Transformer's sinusoids (section 3.5), and others to compare."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

Absolute = Literal["none", "sinusoidal", "sinusoidal-halves", "sine", "fraction", "learned"]


def sinusoids(positions: Int[Tensor, "*N"], width: int) -> Float[Tensor, "*N D"]:
    """PE(p, 2i) = sin(p / 10000^(2i/d)), PE(p, 2i+1) = cos(p / 10000^(2i/d)), computed in float32."""
    rates = torch.exp(torch.arange(0, width, 2, device=positions.device) * (-math.log(10000.0) / width))
    angles = positions[..., None].float() * rates
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(-2)


def sinusoids_in_halves(positions: Int[Tensor, "*N"], width: int) -> Float[Tensor, "*N D"]:
    """PE(p, i) = sin(p / 10000^(i/(d/2-1))) and PE(p, d/2+i) the cosine, i < d/2: the layout of the authors' Tensor2Tensor.

    The rates differ a little from the paper's, too: the slowest is 1/10000 itself.
    """
    half = width // 2
    rates = torch.exp(torch.arange(half, device=positions.device) * (-math.log(10000.0) / max(half - 1, 1)))
    angles = positions[..., None].float() * rates
    return torch.cat((angles.sin(), angles.cos()), dim=-1)


def sines(positions: Int[Tensor, "*N"], width: int) -> Float[Tensor, "*N D"]:
    """p_t = [sin(t/c_1), sin(t/c_2), ..] with c_i = 10000^((i-1)/d): no cosines."""
    rates = torch.exp(torch.arange(width, device=positions.device) * (-math.log(10000.0) / width))
    return (positions[..., None].float() * rates).sin()


class Positions(nn.Module, ABC):
    """Vectors of positions. `limit` is the longest sequence that has them, None where any has."""

    limit: int | None = None

    @abstractmethod
    def forward(
        self, positions: Int[Tensor, "*N"], longest: int, keep: Bool[Tensor, "B S"] | None = None
    ) -> Float[Tensor, "*M #D"]:
        """The vectors at these positions, all below `longest`. `keep` is that of the source, for those who ask its length."""


class NoPositions(Positions):
    """Nothing: order is seen by relative positions, or not at all."""

    def forward(
        self, positions: Int[Tensor, "*N"], longest: int, keep: Bool[Tensor, "B S"] | None = None
    ) -> Float[Tensor, "*N 1"]:
        return torch.zeros((*positions.shape, 1), device=positions.device)


class SinusoidalPositions(Positions):
    """Fixed waves, tabled for the usual lengths and computed beyond them."""

    TABLED = 1024

    def __init__(self, width: int, wave: Callable[[Tensor, int], Tensor] = sinusoids):
        super().__init__()
        self.width, self.wave = width, wave
        self.register_buffer("table", wave(torch.arange(self.TABLED, device="cpu"), width), persistent=False)

    def forward(
        self, positions: Int[Tensor, "*N"], longest: int, keep: Bool[Tensor, "B S"] | None = None
    ) -> Float[Tensor, "*N D"]:
        table = self.get_buffer("table")
        return table[positions] if longest <= self.TABLED else self.wave(positions, self.width).to(table.dtype)


class FractionPositions(Positions):
    """One number, i/(N-1), added to all dimensions, where N is the length of the source on both sides.

    Kept to show why it fails. Neighbours differ by 1/(N-1): the same distance is another number in every sentence, and next to
    embeddings of size 1 a small one. And layer normalisation takes what is added to all dimensions away again: with
    `norm="pre"` the model sees nothing of it.

    N of the target is not known before it is written. The source's is, and stands for it: beyond, numbers exceed 1.
    """

    def forward(
        self, positions: Int[Tensor, "*N"], longest: int, keep: Bool[Tensor, "B S"] | None = None
    ) -> Float[Tensor, "B N 1"]:
        assert keep is not None
        lengths = keep.sum(1)[:, None]
        return (positions / (lengths - 1).clamp(min=1))[..., None]


class LearnedPositions(Positions):
    """One trained vector per position, up to a limit."""

    def __init__(self, width: int, limit: int):
        super().__init__()
        self.limit = limit
        self.table = nn.Embedding(limit, width)
        nn.init.normal_(self.table.weight, std=width**-0.5)

    def forward(
        self, positions: Int[Tensor, "*N"], longest: int, keep: Bool[Tensor, "B S"] | None = None
    ) -> Float[Tensor, "*N D"]:
        return self.table(positions)


WAVES: dict[str, Any] = {"sinusoidal": sinusoids, "sinusoidal-halves": sinusoids_in_halves, "sine": sines}


def make_positions(kind: Absolute, width: int, limit: int) -> Positions:
    """Absolute positions of a kind; `limit` is that of learned ones."""
    if kind == "none":
        return NoPositions()
    if kind == "fraction":
        return FractionPositions()
    if kind == "learned":
        return LearnedPositions(width, limit)
    return SinusoidalPositions(width, WAVES[kind])
