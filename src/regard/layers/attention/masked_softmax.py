"""From scores to weights to contexts: the softmax over the keys that a query may see, and the sum that it weights."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def masked_softmax(
    scores: Float[Tensor, "*B N S"], keep: Bool[Tensor, "*#B #N S"] | None = None
) -> Float[Tensor, "*B N S"]:
    """Softmax over the keys with True in `keep`; the others get exactly 0, and so does every key of a row without any.

    The lowest finite number stands for a masked score: -inf would make rows without keys NaN, forwards and backwards.
    """
    if keep is None:
        return scores.softmax(-1)
    return torch.where(keep, scores, torch.finfo(scores.dtype).min).softmax(-1) * keep


def context(weights: Float[Tensor, "B N S"], values: Float[Tensor, "B S Dv"]) -> Float[Tensor, "B N Dv"]:
    """Σ_s weights[n, s] · values[s] for every query n."""
    return torch.bmm(weights, values)
