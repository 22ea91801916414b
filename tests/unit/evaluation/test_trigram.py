"""The interpolated trigram: against plain counting, as a distribution, and as what EM makes of it."""

from __future__ import annotations

import math
import time
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest

from regard.core.errors import DataError
from regard.core.types import EOS
from regard.evaluation import trigram as module
from regard.evaluation.trigram import Trigram
from regard.search.text_scores import mix

V = 12


def text(count: int, seed: int, vocabulary: int = V) -> np.ndarray:
    """Words that depend on the two before them, and an end now and then."""
    rng = np.random.default_rng(seed)
    tokens = [5, 6]
    while len(tokens) < count:
        guess = (2 * tokens[-1] + tokens[-2]) % (vocabulary - 4) + 4
        tokens.append(int(rng.choice([guess, int(rng.integers(4, vocabulary)), EOS], p=[0.6, 0.35, 0.05])))
    return np.array(tokens)


def plainly(train: list[int], weights: np.ndarray, u: int, v: int, w: int, vocabulary: int = V) -> float:
    """P(w | u v) by counting with dictionaries."""
    padded = [EOS, EOS, *train]
    threes = Counter(zip(padded, padded[1:], padded[2:], strict=False))
    contexts, pairs, before = Counter(pairwise(padded[:-1])), Counter(pairwise(padded[1:])), Counter(padded[1:-1])
    p1 = train.count(w) / len(train)
    p2 = pairs[v, w] / before[v] if before[v] else p1
    p3 = threes[u, v, w] / contexts[u, v] if contexts[u, v] else p2
    alpha = weights[max(0, math.ceil(-math.log((1 + contexts[u, v]) / len(train))))]
    return float(alpha @ [1 / vocabulary, p1, p2, p3])


def random_weights(model: Trigram) -> np.ndarray:
    return np.random.default_rng(3).dirichlet(np.ones(4), len(model.weights))


def test_probabilities_are_those_of_plain_counting():
    train, other = text(300, 0).tolist(), text(60, 1).tolist()
    model = Trigram.count(train, V)
    model.weights = random_weights(model)
    found = model.log_probs(other)
    assert found.dtype == np.float64
    padded = [EOS, EOS, *other]
    for i, log_p in enumerate(found):
        expected = plainly(train, model.weights, *padded[i : i + 3])
        assert log_p == pytest.approx(math.log(expected), abs=1e-12), i


@pytest.mark.parametrize("train", [text(300, 0), text(8, 2), np.array([7])])
def test_they_add_up_to_one_after_every_context(train):
    """Also after contexts, and words, that were never seen."""
    model = Trigram.count(train, V)
    model.weights = random_weights(model)
    for u in range(V):
        for v in range(V):
            total = sum(math.exp(model.log_probs([u, v, w])[-1]) for w in range(V))
            assert total == pytest.approx(1, abs=1e-12), (u, v)


def test_weights_depend_on_how_often_the_context_was_seen():
    train = text(4000, 0)
    model = Trigram.count(train, V)
    assert model.weights.shape == (math.ceil(math.log(4000)) + 1, 4)  # a context never seen is in the last bin
    model.fit(text(1000, 1))
    parts, bins = model._parts(np.array([5, 6, 7]))
    seen = Counter(pairwise(train[:-1].tolist()))[5, 6]
    assert bins[-1] == math.ceil(-math.log((1 + seen) / 4000))
    assert parts[-1, 0] == 1 / V


def test_every_round_raises_the_likelihood():
    model = Trigram.count(text(500, 0), V)
    held_out = text(300, 1)
    gained = model.fit(held_out, rounds=30)
    assert 3 < len(gained) <= 31
    assert all(later >= earlier for earlier, later in pairwise(gained))
    assert gained[-1] > gained[0] + 0.01
    plain = Trigram.count(text(500, 0), V)
    assert model.log_probs(held_out).mean() > plain.log_probs(held_out).mean() + 0.01
    bins = len(set(model._parts(held_out)[1].tolist()))
    expected = (plain.log_probs(held_out).sum() + bins * math.log(0.25)) / (300 + bins)
    assert gained[0] == pytest.approx(expected, abs=1e-12)
    np.testing.assert_allclose(model.weights.sum(1), 1, rtol=0, atol=1e-12)


def test_no_word_becomes_impossible():
    """However sure the text held out is: after 5 6, which it has seven come."""
    model = Trigram.count([5, 6, 7] * 200, V)
    model.fit([5, 6, 7] * 50, rounds=1000)
    assert model.weights.min() > 1e-4
    sure, odd = (math.exp(model.log_probs([5, 6, w])[-1]) for w in (7, 9))
    assert sure > 0.95
    assert odd > 1e-5


def test_em_finds_the_weights_that_nothing_near_is_better_than():
    model = Trigram.count(text(2000, 0), V)
    held_out = text(2000, 1)
    model.fit(held_out, rounds=2000)
    best = model.log_probs(held_out).mean()
    rng = np.random.default_rng(0)
    found = model.weights
    for _ in range(20):
        model.weights = 0.9 * found + 0.1 * rng.dirichlet(np.ones(4), len(found))
        assert model.log_probs(held_out).mean() < best


def test_rounds_are_as_many_as_asked_for():
    model = Trigram.count(text(500, 0), V)
    assert len(model.fit(text(300, 1), rounds=5)) == 6
    assert len(model.fit(text(300, 1), rounds=0)) == 1
    assert (model.weights == 0.25).all()


def test_bins_without_text_get_the_weights_of_all():
    model = Trigram.count(text(4000, 0), V)
    held_out = np.array([4, 4, 4, 4])
    model.fit(held_out)
    _, bins = model._parts(held_out)
    unseen = sorted(set(range(len(model.weights))) - set(bins.tolist()))
    assert unseen
    assert not (model.weights[unseen] == 0.25).all()
    assert (model.weights[unseen] == model.weights[unseen[0]]).all()


def test_blocks_change_nothing(monkeypatch):
    model = Trigram.count(text(500, 0), V)
    model.weights = random_weights(model)
    whole = model.log_probs(text(200, 1))
    for block in (1, 2, 3, 7, 199, 200):
        monkeypatch.setattr(module, "BLOCK", block)
        np.testing.assert_array_equal(model.log_probs(text(200, 1)), whole)


def test_a_text_with_a_pattern_is_known_better_than_by_its_words_alone():
    model = Trigram.count(text(20_000, 0), V)
    model.fit(text(2000, 1))
    other = text(2000, 2)
    alone = model.weights
    model.weights = np.tile([0.0, 1.0, 0.0, 0.0], (len(alone), 1))
    words = model.log_probs(other).mean()
    model.weights = alone
    assert model.log_probs(other).mean() > words + 0.5


def test_large_texts_take_seconds():
    rng = np.random.default_rng(0)
    tokens = (rng.zipf(1.2, 500_000) % 9_998 + 2).astype(np.uint16)
    began = time.perf_counter()
    model = Trigram.count(tokens, 10_002)
    model.fit(tokens[:40_000], rounds=10)
    assert np.isfinite(model.log_probs(tokens[:50_000])).all()
    assert time.perf_counter() - began < 10


def test_large_vocabularies_do_not_overflow():
    top = module.MOST_WORDS - 1
    model = Trigram.count([top, top - 1, top, top - 1], module.MOST_WORDS)
    found = model.log_probs([top, top - 1, top])
    assert math.exp(found[2]) == pytest.approx(0.25 * (1 / module.MOST_WORDS + 0.5 + 1 + 1), rel=1e-9)


def test_mixtures():
    neural, other = np.log([0.5, 0.01]), np.log([0.1, 0.3])
    np.testing.assert_allclose(np.exp(mix(neural, other)), [0.3, 0.155], rtol=1e-12)
    np.testing.assert_allclose(np.exp(mix(neural, other, 0.9)), [0.46, 0.039], rtol=1e-12)
    np.testing.assert_array_equal(mix(neural, other, 1), neural)
    np.testing.assert_array_equal(mix(neural, other, 0), other)
    assert np.isfinite(mix(np.array([-2000.0]), np.array([-3000.0]))).all()
    assert mix(neural.astype(np.float32), other).dtype == np.float64


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Trigram.count([], V), "the training text: it has no tokens"),
        (lambda: Trigram.count([4, 12], V), "token 12 is not one of a vocabulary of 12"),
        (lambda: Trigram.count([-1, 4], V), "token -1"),
        (lambda: Trigram.count(np.array([0.5]), V), "float64"),
        (lambda: Trigram.count([1], 1 << 40), "a vocabulary of 1,099,511,627,776"),
        (lambda: Trigram.count([4, 5], V).fit([]), "the text held out: it has no tokens"),
        (lambda: Trigram.count([4, 5], V).log_probs(np.array([[4, 5]])), "flat list"),
        (lambda: mix(np.zeros(2), np.zeros(3)), "of 2 and of 3 tokens"),
        (lambda: mix(np.zeros(2), np.zeros(2), 1.5), "weight of 1.5"),
    ],
)
def test_what_cannot_be(call, message):
    with pytest.raises(DataError, match=message):
        call()
