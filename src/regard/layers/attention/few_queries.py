"""Attention of few queries to few keys on a CPU, as in a step of a beam and in training: two batched products and a softmax.

torch's fused kernel calls a matrix product for every head of every sentence, and two threads take longer for that than one. Of a
single query for each sentence, and of few sentences, it is as fast or faster. Forward and backward, over short sentences, batched
products take a third to a half of its time, and over up to 128 tokens no more (docs/lab/2026-11-training-cpu.md).
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

FEWEST_SENTENCES = 8
FEWEST_QUERIES, MOST_QUERIES = 2, 16  # of a sentence
MOST_KEYS = 512  # beyond, scores take more memory traffic than the fused kernel saves
HIDDEN = -1e30  # added to a score; exp of it is 0
MOST_TRAINED = 128  # queries and keys of a sentence


def is_few(query: Float[Tensor, "B H T Dh"], key: Float[Tensor, "B H S Dh"], value: Float[Tensor, "B H S Dv"]) -> bool:
    """Whether `attend_few` is the faster way: nothing is learned, and the heads of keys and values lie evenly in memory."""
    return (
        query.device.type == "cpu"
        and not torch.compiler.is_compiling()  # nor exporting: a graph is for any number of sentences
        and query.shape[0] >= FEWEST_SENTENCES
        and FEWEST_QUERIES <= query.shape[2] <= MOST_QUERIES
        and key.shape[2] <= MOST_KEYS
        and query.dtype == torch.float32
        and not torch.is_grad_enabled()
        and _even(key)
        and _even(value)
    )


def is_short(query: Float[Tensor, "B H T Dh"], key: Float[Tensor, "B H S Dh"]) -> bool:
    """Whether `attend_few` is the faster way where gradients are wanted."""
    return (
        query.device.type == "cpu"
        and torch.is_grad_enabled()
        and not torch.compiler.is_compiling()
        and max(query.shape[2], key.shape[2]) <= MOST_TRAINED
        and query.dtype == key.dtype == torch.float32
        and not torch.is_autocast_enabled("cpu")
    )


def attend_few(
    query: Float[Tensor, "B H T Dh"],
    key: Float[Tensor, "B H S Dh"],
    value: Float[Tensor, "B H S Dv"],
    keep: Bool[Tensor, "B #H #T S"] | Float[Tensor, "B #H #T S"] | None,
    *,
    causal: bool = False,
    dropout: float = 0.0,
) -> Float[Tensor, "B H T Dv"]:
    """softmax(Q Kᵀ / √d) V. `keep` as a mask or, the faster, as what is added to scores."""
    rows = query.shape[:2]
    scores = torch.bmm((query * (1 / math.sqrt(query.shape[-1]))).flatten(0, 1), key.flatten(0, 1).transpose(1, 2))
    if keep is not None:
        added = keep if keep.is_floating_point() else keep.to(scores.dtype).log_()
        if torch.is_grad_enabled():
            added = added.clamp_min(HIDDEN)  # where all keys are hidden, nothing becomes NaN, nor its gradient
            scores = scores + added.expand(*rows, *added.shape[2:]).flatten(0, 1)
        else:
            scores.unflatten(0, rows).add_(added)
    if causal:
        scores += torch.full(scores.shape[1:], float("-inf"), device=scores.device).triu_(1)
    weights = F.dropout(scores.softmax(-1), dropout) if dropout else scores.softmax(-1)
    return torch.bmm(weights, value.flatten(0, 1)).unflatten(0, rows)


def _even(heads: Float[Tensor, "B H S D"]) -> bool:
    """Whether all heads of all sentences are equally far apart, so that they are one batch without being copied."""
    return heads.stride(0) == heads.shape[1] * heads.stride(1) and heads.stride(3) == 1
