"""What every metric keeps to, whatever it measures; new ones come in by themselves."""

from __future__ import annotations

import random

import numpy as np
import pytest

from regard.core.errors import ConfigError
from regard.evaluation.metrics import METRICS, Flavour, Metric, Statistics, corpus_scores, named_metrics, resample
from regard.evaluation.significance import paired_tests

WORDS = ["the", "cat", "dog", "sat", "on", "mat", "ran", "to", "a", "house", "and", "then", "it", "slept"]


def text(size: int, seed: int = 0) -> list[str]:
    rng = random.Random(seed)
    return [" ".join(rng.choices(WORDS, k=rng.randint(4, 12))) for _ in range(size)]


def spoilt(references: list[str], share: float) -> list[str]:
    rng = random.Random(7)
    return [" ".join("zzz" if rng.random() < share else word for word in line.split()) for line in references]


@pytest.fixture(params=METRICS.names())
def name(request: pytest.FixtureRequest) -> str:
    return request.param


def test_a_row_for_each_sentence_and_any_order(name: str):
    references = text(30)
    hypotheses = spoilt(references, 0.2)
    whole = Statistics.of(name, hypotheses, references, Flavour())
    assert len(whole.rows) == 30
    order = random.Random(1).sample(range(30), 30)
    mixed = Statistics.of(name, [hypotheses[i] for i in order], [references[i] for i in order], Flavour())
    np.testing.assert_array_equal(mixed.rows, whole.rows[order])
    halves = [Statistics.of(name, hypotheses[part], references[part], Flavour()) for part in (slice(11), slice(11, 30))]
    np.testing.assert_array_equal(np.concatenate([half.rows for half in halves]), whole.rows)


def test_many_sums_at_once_are_scored_as_one_by_one(name: str):
    references = text(25)
    measured = Statistics.of(name, spoilt(references, 0.3), references, Flavour())
    sums = resample(measured.rows, 40, seed=3)
    np.testing.assert_allclose(measured.scores(sums), [measured.measure.score(row) for row in sums], atol=1e-9)
    assert measured.value() == pytest.approx(measured.score(0).value, abs=1e-9)


def test_a_perfect_text_scores_best_and_less_damage_better(name: str):
    references = text(80)
    values = [
        corpus_scores(hypotheses, references, metrics=(name,), confidence=False)[name].value
        for hypotheses in (references, spoilt(references, 0.1), spoilt(references, 0.5))
    ]
    assert values == sorted(values, reverse=not METRICS.get(name).lower_is_better)
    assert len(set(values)) == 3
    perfect, worse = references, spoilt(references, 0.3)
    test = paired_tests(references, worse, perfect, metrics=(name,), samples=100, trials=200)[0]
    assert test.wins == 1.0
    assert test.significant()


def test_a_score_has_a_name_a_signature_and_an_interval(name: str):
    references = text(40)
    score = corpus_scores(spoilt(references, 0.2), references, metrics=(name,))[name]
    assert score.name == METRICS.get(name).label
    assert "bs:1000" in score.signature
    assert "seed:12345" in score.signature
    assert score.low is not None
    assert score.high is not None
    assert score.low < score.value < score.high
    plain = corpus_scores(references, references, metrics=(name,), confidence=False)[name]
    assert "bs:" not in plain.signature
    assert plain.low is None


def test_a_metric_with_a_wrong_number_of_rows_is_refused(monkeypatch: pytest.MonkeyPatch):
    class Wrong(Metric):
        label = "wrong"

        def statistics(self, hypotheses, references):
            return np.ones((1, 2))

        def scores(self, sums):
            return sums[:, 0]

    METRICS.names()
    monkeypatch.setitem(METRICS._members, "wrong", Wrong)
    with pytest.raises(ConfigError, match=r"metric 'wrong': its statistics of 2 sentences have the shape \(1, 2\)"):
        corpus_scores(["a", "b"], ["a", "b"], metrics=("wrong",))


def test_names():
    assert named_metrics("ter, bleu,ter") == ("ter", "bleu")
    assert named_metrics(["chrf"]) == ("chrf",)
    with pytest.raises(ConfigError, match=r"there is no 'blue'\. Perhaps you mean 'bleu'; known are bleu, chrf, ter"):
        named_metrics("blue")
    with pytest.raises(ConfigError, match="setting x: there is no ''"):
        named_metrics("bleu,", "setting x")
