"""The largest values in an order that does not depend on the device: equal values rank by lower index."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

SLACK = 8
GROUP = 64  # neighbours whose maximum stands for them: one pass over long rows instead of the many of topk


def best(values: Float[Tensor, "*N C"], count: int) -> tuple[Float[Tensor, "*N k"], Int[Tensor, "*N k"]]:
    """The `count` largest values of each row (all, if there are fewer) and their indices, best first.

    `torch.topk` leaves open in which order equal values come and which of them it takes at the edge. Here they come by
    index, and the edge is taken SLACK places further out: only where more than SLACK + 1 values of one row tie exactly
    across the edge is the choice among those left to topk.
    """
    top, index = largest(values, count)
    if count == 1:
        return top, index
    index, order = index.sort(-1)
    top, order = top.gather(-1, order).sort(dim=-1, descending=True, stable=True)
    return top[..., :count], index.gather(-1, order)[..., :count]


def largest(
    values: Float[Tensor, "*N C"], count: int, maxima: Float[Tensor, "*N G"] | None = None
) -> tuple[Float[Tensor, "*N k"], Int[Tensor, "*N k"]]:
    """The values of `best` and up to SLACK more, in any order; of a single one, the first of equal values.

    `maxima` are those of every GROUP values that follow each other, if they are known.
    """
    wanted = count + SLACK if count > 1 else 1
    width = values.shape[-1]
    if width < 4 * GROUP * wanted:
        return _top(values, wanted)
    # What is among the n largest is in one of the n groups with the largest maxima.
    whole = width // GROUP * GROUP
    if maxima is None:
        maxima = values[..., :whole].unflatten(-1, (-1, GROUP)).amax(-1)
    chosen = _top(maxima, wanted)[1]
    places = (chosen[..., None] * GROUP + torch.arange(GROUP, device=values.device)).flatten(-2)
    if whole < width:  # the rest is looked at in any case
        rest = torch.arange(whole, width, device=values.device).expand(*places.shape[:-1], -1)
        places = torch.cat([places, rest], -1)
    top, order = _top(values.gather(-1, places), wanted)
    return top, places.gather(-1, order)


def _top(values: Float[Tensor, "*N C"], count: int) -> tuple[Float[Tensor, "*N k"], Int[Tensor, "*N k"]]:
    if count == 1:
        value, index = values.max(-1, keepdim=True)  # documented to give the first of equal values
        return value, index
    top, index = values.topk(min(count, values.shape[-1]), sorted=False)
    return top, index


def precise(device: torch.device) -> torch.dtype:
    """The type in which log-probabilities are summed: sums of many float32 tie and drift less in float64."""
    return torch.float32 if device.type == "mps" else torch.float64
