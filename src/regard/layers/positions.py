"""Positions of tokens: the sinusoids of the Transformer (section 3.5) and learned vectors."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn


def sinusoids(positions: Int[Tensor, "*N"], width: int) -> Float[Tensor, "*N D"]:
    """PE(p, 2i) = sin(p / 10000^(2i/d)), PE(p, 2i+1) = cos(p / 10000^(2i/d)), computed in float32."""
    rates = torch.exp(torch.arange(0, width, 2, device=positions.device) * (-math.log(10000.0) / width))
    angles = positions[..., None].float() * rates
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(-2)


class SinusoidalPositions(nn.Module):
    """Fixed sinusoids, tabled for the usual lengths and computed beyond them."""

    TABLED = 1024
    limit = None

    def __init__(self, width: int):
        super().__init__()
        self.width = width
        self.register_buffer("table", sinusoids(torch.arange(self.TABLED, device="cpu"), width), persistent=False)

    def forward(self, positions: Int[Tensor, "*N"], longest: int) -> Float[Tensor, "*N D"]:
        if longest <= self.TABLED:
            return self.get_buffer("table")[positions]
        return sinusoids(positions, self.width)


class LearnedPositions(nn.Module):
    """One trained vector per position, up to a limit."""

    def __init__(self, width: int, limit: int):
        super().__init__()
        self.limit = limit
        self.table = nn.Embedding(limit, width)
        nn.init.normal_(self.table.weight, std=width**-0.5)

    def forward(self, positions: Int[Tensor, "*N"], longest: int) -> Float[Tensor, "*N D"]:
        return self.table(positions)
