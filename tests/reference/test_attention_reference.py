"""Scores, kernels, normalisations and windows of attention against float64 NumPy loops written from the equations."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from regard.layers.attention.masked_softmax import context, masked_softmax
from regard.layers.attention.nadaraya_watson import nadaraya_watson
from regard.layers.attention.pooling import attend
from regard.layers.attention.scores import SCORES, make_score
from regard.layers.attention.scores._base import EqualWidths
from regard.layers.attention.windows import PredictedCentre, causal_keep, gaussian, window_keep

B, N, S, DQ, DK, A, LIMIT = 2, 3, 5, 4, 6, 7, 9


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape)


def tensors(*arrays: np.ndarray) -> list[torch.Tensor]:
    return [torch.from_numpy(array) for array in arrays]


def array(tensor: torch.Tensor) -> np.ndarray:
    return tensor.detach().numpy()


def plain_score(name: str, weights: dict[str, np.ndarray], q: np.ndarray, k: np.ndarray, s: int) -> float:
    """One query, the key at position s: the equations as the papers write them."""
    if name == "dot":
        return sum(a * b for a, b in zip(q, k, strict=True))
    if name == "scaled_dot":
        return sum(a * b for a, b in zip(q, k, strict=True)) / math.sqrt(len(q))
    if name == "cosine":
        lengths = math.sqrt(sum(a * a for a in q)) * math.sqrt(sum(b * b for b in k))
        return sum(a * b for a, b in zip(q, k, strict=True)) / lengths
    if name == "bilinear":
        return sum(q[i] * weights["key.weight"][i, j] * k[j] for i in range(len(q)) for j in range(len(k)))
    if name == "additive":
        hidden = [math.tanh(weights["query.weight"][a] @ q + weights["key.weight"][a] @ k) for a in range(A)]
        return sum(v * h for v, h in zip(weights["v"], hidden, strict=True))
    if name == "concat":
        matrix = np.concatenate((weights["query.weight"], weights["key.weight"]), axis=1)  # W_a, and [h_t; h_s] below
        return sum(weights["v"][a] * math.tanh(matrix[a] @ np.concatenate((q, k))) for a in range(A))
    if name == "location":
        return weights["positions.weight"][s] @ q
    raise AssertionError(f"no reference for the score {name}: write one")


@pytest.mark.parametrize("name", SCORES.names())
def test_scores_are_their_equations(name):
    wide = not issubclass(SCORES.get(name), EqualWidths)  # widths may differ wherever the equation allows
    query, keys = numbers(B, N, DQ, seed=1), numbers(B, S, DK if wide else DQ, seed=2)
    torch.manual_seed(0)
    score = make_score(name, query_width=DQ, key_width=keys.shape[-1], width=A, limit=LIMIT).double()
    weights = {n: array(p) for n, p in score.named_parameters()}
    expected = np.zeros((B, N, S))
    for b, n, s in np.ndindex(B, N, S):
        expected[b, n, s] = plain_score(name, weights, query[b, n], keys[b, s], s)
    q, k = tensors(query, keys)
    np.testing.assert_allclose(array(score(q, score.prepare(k))), expected, atol=1e-12)
    one_by_one = torch.cat([score(q[:, n : n + 1], score.prepare(k)) for n in range(N)], dim=1)  # as a decoder asks
    np.testing.assert_allclose(array(one_by_one), expected, atol=1e-12)


def plain_softmax(scores: np.ndarray, keep: np.ndarray) -> np.ndarray:
    weights = np.zeros_like(scores)
    for place in np.ndindex(*scores.shape[:-1]):
        total = sum(math.exp(a) for a, ok in zip(scores[place], keep[place], strict=True) if ok)
        for s in range(scores.shape[-1]):
            if keep[place][s]:
                weights[place][s] = math.exp(scores[place][s]) / total
    return weights


def test_masked_softmax_and_context_are_their_equations():
    scores, values = numbers(B, N, S), numbers(B, S, 4, seed=1)
    keep = np.random.default_rng(3).random((B, 1, S)) > 0.4
    keep[0] = False  # nothing to see
    expected = plain_softmax(scores, np.broadcast_to(keep, scores.shape))
    weights = masked_softmax(*tensors(scores, keep))
    np.testing.assert_allclose(array(weights), expected, atol=1e-14)
    mixed = np.zeros((B, N, 4))
    for b, n, s in np.ndindex(B, N, S):
        mixed[b, n] += expected[b, n, s] * values[b, s]
    np.testing.assert_allclose(array(context(weights, *tensors(values))), mixed, atol=1e-14)
    everything = plain_softmax(scores, np.ones_like(scores, dtype=bool))
    np.testing.assert_allclose(array(masked_softmax(*tensors(scores))), everything, atol=1e-14)


def plain_kernel(name: str, q: np.ndarray, k: np.ndarray, bandwidth: float) -> float:
    u = math.sqrt(sum((a - b) ** 2 for a, b in zip(q, k, strict=True))) / bandwidth
    return {
        "gaussian": math.exp(-u * u / 2),
        "boxcar": 1.0 if u <= 1 else 0.0,
        "triangular": max(0.0, 1 - u),
        "epanechnikov": max(0.0, 0.75 * (1 - u * u)),
        "exact": 1.0 if all(a == b for a, b in zip(q, k, strict=True)) else 0.0,
        "average": 1.0,
    }[name]


SCORE_NAMES = ("dot", "scaled_dot", "cosine")
KERNEL_NAMES = ("gaussian", "boxcar", "triangular", "epanechnikov", "exact", "average")


@pytest.mark.parametrize("normalise", ["none", "sum", "softmax"])
@pytest.mark.parametrize("name", SCORE_NAMES + KERNEL_NAMES)
def test_pooling_is_the_equation(name, normalise):
    """Every score and kernel under every normalisation, with a mask; each query sees a key that it equals."""
    query, keys, values = numbers(B, N, 2, seed=1), numbers(B, 8, 2, seed=2), numbers(B, 8, 3, seed=3)
    keys[:, 2] = query[:, 0]
    keys[:, 5:7] = query[:, 1:3]
    keep = np.random.default_rng(4).random((B, N, 8)) > 0.3
    keep[:, :, [2, 5, 6]] = True
    bandwidth = 0.9
    kernel = name in KERNEL_NAMES
    expected_weights, expected = np.zeros((B, N, 8)), np.zeros((B, N, 3))
    for b, n in np.ndindex(B, N):
        compared = [
            plain_kernel(name, query[b, n], keys[b, s], bandwidth)
            if kernel
            else plain_score(name, {}, query[b, n], keys[b, s], s)
            for s in range(8)
        ]
        alpha = compared if kernel and normalise != "softmax" else [math.exp(a) for a in compared]
        alpha = [a if ok else 0.0 for a, ok in zip(alpha, keep[b, n], strict=True)]
        total = 1.0 if normalise == "none" else sum(alpha)
        for s in range(8):
            expected_weights[b, n, s] = alpha[s] / total
            expected[b, n] += alpha[s] / total * values[b, s]
    q, k, v, mask = tensors(query, keys, values, keep)
    settings = {"bandwidth": bandwidth} if kernel else {}
    found = attend(q, k, v, score=name, mask=mask, normalise=normalise, **settings)
    np.testing.assert_allclose(array(found.weights), expected_weights, atol=1e-12)
    np.testing.assert_allclose(array(found.values), expected, atol=1e-12)
    if kernel and name not in ("gaussian", "average") and normalise != "softmax":
        assert (expected_weights[keep] == 0).any()  # the compact kernels were really cut off somewhere
    unsaid = attend(q, k, v, score=name, mask=mask, **settings)
    usual = attend(q, k, v, score=name, mask=mask, normalise="sum" if kernel else "softmax", **settings)
    assert torch.equal(unsaid.weights, usual.weights)


@pytest.mark.parametrize("name", KERNEL_NAMES[:4])
def test_nadaraya_watson_is_the_equation(name):
    x, x_train, y_train = numbers(6, seed=1), numbers(20, seed=2), numbers(20, seed=3)
    expected = []
    for point in x:
        weights = [plain_kernel(name, np.array([point]), np.array([other]), 0.7) for other in x_train]
        expected.append(sum(w * y for w, y in zip(weights, y_train, strict=True)) / sum(weights))
    np.testing.assert_allclose(
        array(nadaraya_watson(*tensors(x, x_train, y_train), kernel=name, bandwidth=0.7)), expected, atol=1e-12
    )


def test_a_predicted_centre_is_the_equation():
    torch.manual_seed(0)
    module = PredictedCentre(DQ, A).double()
    query, lengths = numbers(B, N, DQ), [5, 3]
    w, v = array(module.hidden.weight), array(module.v)
    expected = np.zeros((B, N))
    for b, n in np.ndindex(B, N):
        inner = sum(v[a] * math.tanh(w[a] @ query[b, n]) for a in range(A))
        expected[b, n] = lengths[b] / (1 + math.exp(-inner))
    np.testing.assert_allclose(array(module(*tensors(query), torch.tensor(lengths))), expected, atol=1e-12)


def test_local_p_is_the_equation():
    """a_t(s) = softmax over the window [p_t - D, p_t + D], times exp(-(s - p_t)² / 2σ²), σ = D/2, not renormalised."""
    half, sigma, lengths = 3, 1.5, [9, 4]
    scores = numbers(B, N, 9)
    centres = np.array([[0.2, 4.49, 8.7], [0.0, 3.99, 2.5]])
    keep = np.arange(9) < np.array(lengths)[:, None]
    expected = np.zeros((B, N, 9))
    for b, n in np.ndindex(B, N):
        window = [s for s in range(lengths[b]) if centres[b, n] - half <= s <= centres[b, n] + half]
        total = sum(math.exp(scores[b, n, s]) for s in window)
        for s in window:
            share = math.exp(scores[b, n, s]) / total
            expected[b, n, s] = share * math.exp(-((s - centres[b, n]) ** 2) / (2 * sigma**2))
    p, a, k = tensors(centres, scores, keep)
    weights = masked_softmax(a, window_keep(p, 9, half, k)) * gaussian(p, 9, sigma)
    np.testing.assert_allclose(array(weights), expected, atol=1e-12)
    assert (weights.sum(-1) < 1).all()


def test_local_m_is_the_equation():
    lengths = [7, 3]
    keep = np.arange(7) < np.array(lengths)[:, None]
    for half in (0, 1, 3):
        expected = np.zeros((B, 10, 7), dtype=bool)
        for b, t, s in np.ndindex(B, 10, 7):
            centre = min(t, lengths[b] - 1)  # beyond the end: the last word
            expected[b, t, s] = s < lengths[b] and abs(s - centre) <= half
        steps = torch.arange(10).expand(B, 10)
        assert np.array_equal(array(window_keep(steps, 7, half, *tensors(keep))), expected)


def test_a_causal_mask_hides_the_future():
    assert causal_keep(4).tolist() == [[s <= t for s in range(4)] for t in range(4)]
