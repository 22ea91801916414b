"""The largest values in an order that does not depend on the device: equal values rank by lower index."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

SLACK = 8


def best(values: Float[Tensor, "*N C"], count: int) -> tuple[Float[Tensor, "*N k"], Int[Tensor, "*N k"]]:
    """The `count` largest values of each row (all, if there are fewer) and their indices, best first.

    `torch.topk` leaves open in which order equal values come and which of them it takes at the edge. Here they come by
    index, and the edge is taken SLACK places further out: only where more than SLACK + 1 values of one row tie exactly
    across the edge is the choice among those left to topk.
    """
    if count == 1:
        value, index = values.max(-1, keepdim=True)  # documented to give the first of equal values
        return value, index
    top, index = values.topk(min(count + SLACK, values.shape[-1]), sorted=False)
    index, order = index.sort(-1)
    top, order = top.gather(-1, order).sort(dim=-1, descending=True, stable=True)
    return top[..., :count], index.gather(-1, order)[..., :count]


def precise(device: torch.device) -> torch.dtype:
    """The type in which log-probabilities are summed: sums of many float32 tie and drift less in float64."""
    return torch.float32 if device.type == "mps" else torch.float64
