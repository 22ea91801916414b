"""Trials of attention's kernels do not fail by rounding: what bfloat16 does to them is far below what is allowed."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from torch import Tensor

from regard.layers.training import trial

CPU, EXACT, LOW = torch.device("cpu"), torch.float32, torch.bfloat16


def rounded(x: Tensor) -> Tensor:
    return x.to(LOW).float()


def as_kernels_round(
    d_out: Tensor,
    q: Tensor,
    kv: Tensor,
    heads: int,
    keep: Tensor | None,
    causal: bool,
    summed_up: bool,
    spans: Any = None,
) -> tuple[Tensor, ...]:
    """Gradients sentence by sentence, with what kernels round: weights, gradients of scores, and what is written."""
    d_q, d_kv, sums = torch.zeros_like(q), torch.zeros_like(kv), []
    every = [(slice(None), slice(None))] * len(q)
    if spans is not None:
        sides = [[slice(a, b) for a, b in itertools.pairwise(one.starts.tolist())] for one in spans]
        every = list(zip(*sides, strict=True))
    for i, (asking, asked) in enumerate(every):
        row = 0 if spans is not None else i
        query, d = (x[row, asking].unflatten(-1, (heads, -1)).transpose(0, 1) for x in (q, d_out))
        key, value = kv[row, asked].unflatten(-1, (2, heads, -1)).permute(1, 2, 0, 3)
        scale = 1 / math.sqrt(query.shape[-1])
        seen = torch.ones(query.shape[1], key.shape[1], dtype=torch.bool)
        seen = (seen.tril() if causal else seen) & (True if keep is None else keep[i])
        scores = (scale * query @ key.transpose(-1, -2)).masked_fill(~seen, -torch.inf)
        weights = scores.softmax(-1).masked_fill(~seen, 0.0)
        d_weights = d @ value.transpose(-1, -2)
        d_scores = rounded(weights * (d_weights - (weights * d_weights).sum(-1, keepdim=True)) * scale)
        parts = d_scores.transpose(-1, -2) @ query, rounded(weights).transpose(-1, -2) @ d
        found = [
            (d_scores @ key).transpose(0, 1).flatten(1),
            torch.cat([x.transpose(0, 1).flatten(1) for x in parts], -1),
        ]
        d_q[row, asking], d_kv[row, asked] = found
        sums.append([x.sum(0) for x in found])
    of_sentences = [torch.stack(side) for side in zip(*sums, strict=True)] if summed_up else []
    return rounded(d_q), rounded(d_kv), *of_sentences


def farthest(pieces: Any, monkeypatch, kind: trial.Kind, tiles: tuple[int, ...]) -> float:
    made = []
    for gradients in (trial._attention_gradients, as_kernels_round):
        with monkeypatch.context() as patched:
            patched.setattr(trial, "_attention_gradients", gradients)
            made.append([piece() for piece in pieces(CPU, kind, EXACT, EXACT, of=LOW, tiles=tiles)])
    pairs = [(a, b) for one, other in zip(*made, strict=True) for a, b in zip(one, other, strict=True) if a.numel()]
    return max(float(((a - b).abs() / (1 + a.abs())).max()) for a, b in pairs)


@pytest.mark.parametrize("pieces", [trial.pieces, trial.packed_pieces])
@pytest.mark.parametrize("head", [16, 32, 64])
def test_rounding_is_far_below_what_is_allowed(monkeypatch, pieces: Any, head: int) -> None:
    found = [
        farthest(pieces, monkeypatch, trial.Kind(heads * head, heads), tiles)
        for heads, tiles in itertools.product((1, 7, 16), ((128,), (16, 32, 64, 128)))
    ]
    assert 1e-4 < max(found) < 0.75 * trial.MOST_APART
