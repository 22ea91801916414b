"""Kernels: how much two points have to do with one another, a non-negative number that falls with their distance.

    u = |q - k| / bandwidth
    gaussian      exp(-u²/2)
    boxcar        1 where u <= 1, else 0             approximate match: all keys within the bandwidth count alike
    triangular    1 - u where u < 1, else 0          a straight slope
    epanechnikov  ¾ (1 - u²) where u < 1, else 0     a parabola
    exact         1 where q = k, else 0              an ordinary database query
    average       1                                  all keys count alike

The last two take no bandwidth. Lectures often draw or write max(0, 1 - u) under the name of Epanechnikov: that is the
triangular kernel. Constant factors such as ¾ cancel when weights are divided by their sum, so the Gaussian has none here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from regard.layers.attention.masked_softmax import masked_softmax

Query = Float[Tensor, "B N D"]
Keys = Float[Tensor, "B S D"]
Bandwidth = float | Float[Tensor, "#B #N #S"]  # broadcast over sentences, queries and keys
Weights = Float[Tensor, "B N S"]


class Kernel(NamedTuple):
    """A kernel of queries and keys."""

    weights: Callable[[Tensor, Tensor, float | Tensor], Tensor]
    compact: bool  # it is 0 from some distance on, so that a query may be left without a neighbour
    compares: bool = True  # it reads query and key, which must then have one width
    # K / Σ K over the keys to keep, where that can be had although all K vanish in floating point
    normalised: Callable[[Tensor, Tensor, float | Tensor, Tensor], Tensor] | None = None


def distance(query: Query, keys: Keys) -> Weights:
    """|q - k|, from differences: the expansion |q|² - 2q·k + |k|² is not exact at zero."""
    precise = torch.promote_types(query.dtype, torch.float32)  # there are no distances of 16-bit numbers on a CPU
    apart = torch.cdist(query.to(precise), keys.to(precise), compute_mode="donot_use_mm_for_euclid_dist")
    return apart.to(query.dtype)


def gaussian(query: Query, keys: Keys, bandwidth: Bandwidth) -> Weights:
    return (-(distance(query, keys) / bandwidth).square() / 2).exp()


def normalised_gaussian(
    query: Query, keys: Keys, bandwidth: Bandwidth, keep: Bool[Tensor, "B N S"]
) -> Float[Tensor, "B N S"]:
    """The softmax of -u²/2, taken as -(u² - m²)/2 = -(u - m)(u + m)/2 with m that of the nearest key.

    The shift cancels in the softmax; without it, a small bandwidth would make all squares overflow.
    """
    u = distance(query, keys) / bandwidth
    m = u.detach().where(keep, torch.inf).amin(-1, keepdim=True)
    m = m.where(m.isfinite(), 0.0)  # nothing to keep
    logarithms = (-(u - m) * (u + m) / 2).clamp_min(torch.finfo(u.dtype).min)
    return masked_softmax(logarithms, keep)


def boxcar(query: Query, keys: Keys, bandwidth: Bandwidth) -> Weights:
    return (distance(query, keys) / bandwidth <= 1).to(query.dtype)


def triangular(query: Query, keys: Keys, bandwidth: Bandwidth) -> Weights:
    return (1 - distance(query, keys) / bandwidth).relu()


def epanechnikov(query: Query, keys: Keys, bandwidth: Bandwidth) -> Weights:
    return 0.75 * (1 - (distance(query, keys) / bandwidth).square()).relu()


def exact(query: Query, keys: Keys, bandwidth: Bandwidth) -> Weights:
    apart = torch.cdist(
        query.detach().double(), keys.detach().double(), p=float("inf")
    )  # of the number that differs most
    return (apart == 0).to(query.dtype)


def average(
    query: Float[Tensor, "B N Dq"], keys: Float[Tensor, "B S Dk"], bandwidth: Bandwidth
) -> Float[Tensor, "B N S"]:
    return query.new_ones(*query.shape[:2], keys.shape[1])


KERNELS = {
    "gaussian": Kernel(gaussian, compact=False, normalised=normalised_gaussian),
    "boxcar": Kernel(boxcar, compact=True),
    "triangular": Kernel(triangular, compact=True),
    "epanechnikov": Kernel(epanechnikov, compact=True),
    "exact": Kernel(exact, compact=True),
    "average": Kernel(average, compact=False, compares=False),
}
