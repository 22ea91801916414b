"""Normalisation of states, chosen by name; all forms are called alike, with the tokens that count in a batch."""

from __future__ import annotations

from typing import Literal

from jaxtyping import Bool, Float
from torch import Tensor, nn

from regard.layers.batch_norm import BatchNorm

Normalise = Literal["layer", "rms", "batch"]
Counted = Bool[Tensor, "*N"] | None
EPSILON = 1e-5  # added to the variance


class LayerNorm(nn.LayerNorm):
    """Of each token over its features (Ba et al. 2016): no other token matters."""

    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, x: Float[Tensor, "*N D"], counted: Counted = None
    ) -> Float[Tensor, "*N D"]:
        return super().forward(x)


class RMSNorm(nn.RMSNorm):
    """Likewise, without mean and bias (Zhang and Sennrich 2019)."""

    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, x: Float[Tensor, "*N D"], counted: Counted = None
    ) -> Float[Tensor, "*N D"]:
        return super().forward(x)


class NoNorm(nn.Module):
    def forward(self, x: Float[Tensor, "*N D"], counted: Counted = None) -> Float[Tensor, "*N D"]:
        return x


def normaliser(kind: Normalise | None, width: int, epsilon: float = EPSILON) -> nn.Module:
    """A module of (x, counted); None leaves states as they are. Batch normalisation has an epsilon of its own."""
    if kind == "batch":
        return BatchNorm(width)
    if kind == "rms":
        return RMSNorm(width, eps=epsilon)
    return LayerNorm(width, eps=epsilon) if kind == "layer" else NoNorm()
