"""Pooling over time: of texts of several lengths, the largest value or the largest few. Shapes follow from shapes alone."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor


def max_over_time(x: Float[Tensor, "B T M"], counts: Int[Tensor, "B"]) -> Float[Tensor, "B M"]:
    """The largest of each text's first values; what lies beyond can never win. Every count is at least 1."""
    beyond = torch.arange(x.shape[1], device=x.device) >= counts[:, None]
    return x.masked_fill(beyond[..., None], float("-inf")).amax(1)


def k_max(
    x: Float[Tensor, "B *N T"], counts: Int[Tensor, "B"], k: Int[Tensor, "B"], most: int
) -> tuple[Float[Tensor, "B *N K"], Int[Tensor, "B"]]:
    """The k largest of each text's first values, in the order in which they stand, then zeros; and how many they are.

    Each text has its own k, at most `most`. Where a text has fewer values than its k, all are taken. Of equal values the
    earlier goes before, so that neither padding nor the device changes what is taken.
    """
    length, most = x.shape[-1], min(most, x.shape[-1])
    between = (1,) * (x.dim() - 1)
    taken = torch.minimum(k, counts).clamp(max=most)
    beyond = torch.arange(length, device=x.device) >= counts.view(-1, *between)
    by_size = x.detach().masked_fill(beyond, float("-inf")).sort(dim=-1, descending=True, stable=True).indices
    left_out = torch.arange(most, device=x.device) >= taken.view(-1, *between)
    places = by_size[..., :most].masked_fill(left_out, length).sort(dim=-1).values  # in their order again
    return x.gather(-1, places.clamp(max=length - 1)).masked_fill(left_out, 0.0), taken
