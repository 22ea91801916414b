"""The cosine of the angle between query and key, q·k / (|q| |k|): always in [-1, 1]."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from regard.layers.attention.scores._base import SCORES, EqualWidths


@SCORES.register("cosine")
class Cosine(EqualWidths):
    """q·k / (|q| |k|). A zero vector has no direction: it scores 0 with everything."""

    def prepare(self, keys: Float[Tensor, "B S D"]) -> Float[Tensor, "B S D"]:
        return unit(keys)

    def forward(self, query: Float[Tensor, "B N D"], prepared: Float[Tensor, "B S D"]) -> Float[Tensor, "B N S"]:
        return super().forward(unit(query), prepared).clamp(-1, 1)  # rounding may lead just outside


def unit(x: Float[Tensor, "*B D"]) -> Float[Tensor, "*B D"]:
    """x / |x|; zero vectors stay zero, and their gradients finite.

    The largest number is divided out first, so that squares neither overflow nor vanish. The direction does not depend
    on it, so no gradient flows through it.
    """
    peak = x.detach().abs().amax(-1, keepdim=True)
    x = x / torch.where(peak > 0, peak, 1.0)
    return x * x.square().sum(-1, keepdim=True).clamp_min(0.5).rsqrt()  # at least 1, or 0 for a zero vector
