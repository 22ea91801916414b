"""Attention pooling: a database of (key, value) pairs, read with a query: Σ_i α(q, k_i) v_i.

The weights α come from a score a(q, k), any real number, or from a kernel K(q, k) >= 0 (`scores/`, `kernels.py`):

    normalise    score                       kernel
    "none"       exp(a)                      K                  non-negative: the result lies in the cone of the values
    "sum"        exp(a) / Σ exp(a)           K / Σ K            convex: weights sum to one, the result lies among the values
    "softmax"    exp(a) / Σ exp(a)           exp(K) / Σ exp(K)  convex: the kernel is taken as a score

For scores, "sum" and "softmax" are one thing, and computed in one way that does not overflow; "none" may overflow, as exp
does. For kernels they differ: the softmax gives weight even to keys for which K = 0. All sums go over the unmasked keys.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple, get_args

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from regard.layers.attention.kernels import Kernel, distance
from regard.layers.attention.masked_softmax import context, masked_softmax
from regard.layers.attention.pooling_checks import (
    check_bandwidth,
    check_choice,
    check_tensors,
    check_widths,
    leading,
    rule_of,
)
from regard.layers.attention.scores import Score

Normalise = Literal["none", "sum", "softmax"]
Empty = Literal["zero", "nan", "mean", "nearest"]


class Attended(NamedTuple):
    """What each query gets: the weighted sum of the values, and the weights themselves."""

    values: Float[Tensor, "*B Dv"]
    weights: Float[Tensor, "*B S"]


def attend(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    *,
    score: str | Score = "scaled_dot",
    mask: Tensor | None = None,
    normalise: Normalise | None = None,
    bandwidth: float | Tensor = 1.0,
    empty: Empty = "zero",
) -> Attended:
    """Reads the values whose keys match the query: query [.. N Dq] (or one alone, [Dq]), keys [.. S Dk], values [.. S Dv].

    Leading dimensions are broadcast. The result has values [.. N Dv] and weights [.. N S].

    score: dot, scaled_dot or cosine; or a kernel: gaussian, boxcar, triangular, epanechnikov, exact, average; or a module
        with weights of its own, such as `Additive(query_width, key_width, width)`.
    mask: True where a query may see a key, broadcast to [.. N S]. A pair that no query sees is never read: it may hold NaN.
    normalise: none, sum or softmax, as the table above says; softmax for scores and sum for kernels unless told.
    bandwidth: of kernels, above 0; a tensor may be learned, and is broadcast to [.. N S]. (On a GPU its sign is not
        checked: that would wait for the device.)
    empty: what a query gets that has no neighbour under a compact kernel, or no unmasked key at all: weights and value of
        zero; nan; the mean of the unmasked values; or the value of the nearest unmasked key. Without any unmasked key, mean
        and nearest give zero too.
    """
    rule = rule_of(score)
    normalise = normalise or ("sum" if isinstance(rule, Kernel) else "softmax")
    check_choice("normalise", normalise, get_args(Normalise))
    check_choice("empty", empty, get_args(Empty))
    check_tensors(query, keys, values, mask)
    check_widths(rule, query.shape[-1], keys.shape[-1])
    check_bandwidth(rule, bandwidth)
    alone = query.dim() == 1
    q = query[None] if alone else query
    lead = leading(q, keys, values, mask, bandwidth)
    size, last = math.prod(lead), (q.shape[-2], keys.shape[-2])

    def flat(x: Tensor, shape: tuple[int, ...]) -> Tensor:
        return x.expand(*lead, *shape).reshape(size, *shape)

    found, weights = _pool(
        flat(q, q.shape[-2:]),
        flat(keys, keys.shape[-2:]),
        flat(values, values.shape[-2:]),
        q.new_ones(size, *last, dtype=torch.bool) if mask is None else flat(mask, last),
        rule,
        normalise,
        flat(bandwidth, last).to(q.dtype) if isinstance(bandwidth, Tensor) else float(bandwidth),
        empty,
    )
    found, weights = found.reshape(*lead, *found.shape[1:]), weights.reshape(*lead, *weights.shape[1:])
    return Attended(found.squeeze(-2), weights.squeeze(-2)) if alone else Attended(found, weights)


def _pool(
    query: Float[Tensor, "B N Dq"],
    keys: Float[Tensor, "B S Dk"],
    values: Float[Tensor, "B S Dv"],
    keep: Bool[Tensor, "B N S"],
    rule: Score | Kernel,
    normalise: Normalise,
    bandwidth: float | Float[Tensor, "B N S"],
    empty: Empty,
) -> tuple[Float[Tensor, "B N Dv"], Float[Tensor, "B N S"]]:
    if not keys.shape[1]:
        fill = torch.nan if empty == "nan" else 0.0
        return values.new_full((*query.shape[:2], values.shape[2]), fill), query.new_zeros(keep.shape)
    seen = keep.any(1)[:, :, None]  # what is hidden from all may be NaN, and 0 · NaN would be NaN
    keys, values = keys.where(seen, 0.0), values.where(seen, 0.0)
    neighbours = keep
    if isinstance(rule, Score):
        scores = rule(query, rule.prepare(keys))
        weights = scores.where(keep, -torch.inf).exp() if normalise == "none" else masked_softmax(scores, keep)
    elif normalise == "sum" and rule.normalised is not None:
        weights = rule.normalised(query, keys, bandwidth, keep)
    else:
        alpha = rule.weights(query, keys, bandwidth)
        if normalise == "softmax":
            weights = masked_softmax(alpha, keep)
        else:
            weights = alpha.where(keep, 0.0)
            if rule.compact:
                neighbours = weights > 0
            if normalise == "sum":
                total = weights.sum(-1, keepdim=True)
                weights = weights / total.where(total > 0, 1.0)

    isolated = ~neighbours.any(-1, keepdim=True)  # B N 1
    if empty == "mean":
        weights = (keep / keep.sum(-1, keepdim=True).clamp_min(1)).to(weights.dtype).where(isolated, weights)
    if empty == "nearest" and neighbours is not keep:
        nearest = distance(query, keys).where(keep, torch.inf).argmin(-1, keepdim=True)
        chosen = torch.zeros_like(weights).scatter(-1, nearest, 1.0) * keep
        weights = chosen.where(isolated, weights)
    found = context(weights, values)
    if empty == "nan":  # afterwards, so that a loss that leaves these rows out has a clean gradient
        weights, found = weights.masked_fill(isolated, torch.nan), found.masked_fill(isolated, torch.nan)
    return found, weights
