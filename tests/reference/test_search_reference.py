"""Beam search against independent code: exhaustive enumeration, and a plain-Python beam search on narrow beams.

Whole n-best lists are compared, with scores: state that is not reordered and duplicate starting beams show in the
exhaustive comparison, too few candidates per step only in the narrow one, wrong stopping only below the first place.
"""

from __future__ import annotations

import dataclasses
import itertools
import math

import pytest
import torch
from plain_beam import Found, Oracle, allowed, plain_beam, plain_limit, plain_score, sources_of
from toy_writer import ToyWriter, toy_source

from regard.core.types import EOS, UNK
from regard.search import Hypothesis, SearchConfig, search

torch.set_num_threads(1)

NARROW = {
    "gnmt": {},
    "gnmt strong": {"alpha": 2.0},
    "plain": {"length_norm": "plain", "alpha": 1.0},
    "none": {"length_norm": "none"},
    "coverage": {"coverage": 0.7},
    "coverage plain": {"coverage": 2.0, "length_norm": "plain", "alpha": 0.5},
    "no repeat": {"no_repeat_ngram": 2},
    "no token twice": {"no_repeat_ngram": 1},
    "loop guard": {"max_repeat": 1},
    "loose loop guard": {"max_repeat": 2, "max_extra": 12},
    "minimum": {"min_length": 3},
    "unknown": {"ban_unknown": False},
    "cut": {"max_ratio": 0.5, "max_extra": 1},
    "dead ends": {"no_repeat_ngram": 1, "min_length": 8, "max_extra": 12},
}


def agree(found: list[Hypothesis], expected: list[Found]) -> None:
    assert [(tuple(h.tokens), h.finished) for h in found] == [(e.tokens, e.finished) for e in expected]
    for h, e in zip(found, expected, strict=True):
        assert h.score == pytest.approx(e.score, abs=1e-5)
        assert h.log_prob == pytest.approx(math.fsum(e.log_probs), abs=1e-5)
        assert h.token_log_probs == pytest.approx(list(e.log_probs), abs=1e-5)


@pytest.mark.parametrize("stop", ["full", "exact"])
@pytest.mark.parametrize("case", NARROW)
def test_narrow_beams_equal_the_plain_beam(case: str, stop: str) -> None:
    for seed in range(8):
        beam = 1 + seed % 4
        settings = {"max_ratio": 1.0, "max_extra": 4, **NARROW[case]}
        config = SearchConfig(beam=beam, nbest=beam, stop=stop, **settings)  # type: ignore[arg-type]
        model, source = ToyWriter(seed), toy_source(seed, 5)
        prefix = [[], [5], [], [6, 6], [UNK, 4]] if seed % 2 else [[]] * 5
        if case == "cut":
            prefix = [tokens[: plain_limit(config, s)] for tokens, s in zip(prefix, sources_of(source), strict=True)]
        found = search(model, source, config, prefix)
        for hypotheses, tokens, forced in zip(found, sources_of(source), prefix, strict=True):
            agree(hypotheses, plain_beam(model, tokens, config, forced))


@pytest.mark.parametrize("seed", range(6))
def test_wide_vocabulary_and_long_texts_equal_the_plain_beam(seed: int) -> None:
    """More tokens than candidates and slack, slow endings, and batches that shrink while the search goes on."""
    model, source = ToyWriter(seed, vocabulary=40, hurry=0.25), toy_source(seed, 9, vocabulary=40)
    config = SearchConfig(beam=3, nbest=3, max_ratio=2.0, max_extra=6, stop="exact" if seed % 2 else "full")
    for hypotheses, tokens in zip(search(model, source, config), sources_of(source), strict=True):
        agree(hypotheses, plain_beam(model, tokens, config, []))


def enumerate_all(model: ToyWriter, source: list[int], config: SearchConfig, prefix: list[int]) -> list[Found]:
    """Every text up to the maximum length, best first."""
    oracle, results = Oracle(model, source), []
    for length in range(plain_limit(config, source) + 1):
        for text in itertools.product(sorted({*range(model.output.vocabulary)} - {EOS}), repeat=length):
            if not all(allowed(config, text[:i], token, prefix) for i, token in enumerate((*text, EOS))):
                continue
            log_probs = tuple(oracle(text[:i])[0][token] for i, token in enumerate((*text, EOS)))
            results.append(Found(text, plain_score(config, log_probs, oracle(text)[1]), log_probs, True))
    return sorted(results, key=lambda found: -found.score)


EXHAUSTIVE = {
    "gnmt": {},
    "plain": {"length_norm": "plain", "alpha": 1.0},
    "none": {"length_norm": "none"},
    "coverage": {"coverage": 0.5},
    "exact": {"stop": "exact"},
    "no repeat": {"no_repeat_ngram": 2},
    "loop guard": {"max_repeat": 1},
    "minimum": {"min_length": 2},
}


@pytest.mark.parametrize("case", EXHAUSTIVE)
def test_a_wide_beam_finds_all_there_is(case: str) -> None:
    """Two text tokens, at most four of them: 48 continuations at the last step, so a beam of 48 loses nothing."""
    for seed in range(3):
        model, source = ToyWriter(seed, vocabulary=6), toy_source(seed, 3, vocabulary=6)
        config = SearchConfig(beam=48, nbest=31, max_length=4, max_ratio=0.0, max_extra=4, **EXHAUSTIVE[case])  # type: ignore[arg-type]
        prefix = [[], [4], []]
        found = search(model, source, config, prefix)
        for hypotheses, tokens, forced in zip(found, sources_of(source), prefix, strict=True):
            everything = enumerate_all(model, tokens, config, forced)
            free = case in ("gnmt", "plain", "none", "coverage", "exact")
            assert len(everything) == (15 if forced else 31) if free else len(everything) >= 3
            agree([h for h in hypotheses if h.finished], everything)


def test_exact_stopping_finds_what_full_stopping_may_miss() -> None:
    better = 0
    for seed in range(10):
        model, source = ToyWriter(seed), toy_source(seed, 4)
        full = SearchConfig(beam=2, nbest=2, length_norm="plain", alpha=1.0, max_extra=6)
        exact = dataclasses.replace(full, stop="exact")
        for a, b in zip(search(model, source, full), search(model, source, exact), strict=True):
            assert b[0].score >= a[0].score - 1e-6
            better += b[0].score > a[0].score + 1e-6
    assert better > 3


def test_equal_scores_rank_by_lower_token() -> None:
    model, source = ToyWriter(0, vocabulary=9), toy_source(0, 2)
    with torch.no_grad():
        for parameter in model.output.parameters():
            parameter.zero_()  # every continuation is equally likely
    config = SearchConfig(beam=3, nbest=3, max_extra=2, max_ratio=0.0)
    for hypotheses, tokens in zip(search(model, source, config), sources_of(source), strict=True):
        agree(hypotheses, plain_beam(model, tokens, config, []))
