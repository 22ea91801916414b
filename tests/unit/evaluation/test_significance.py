"""Paired tests: sane at both ends, in agreement with sacreBLEU's, and calibrated."""

from __future__ import annotations

import random

import numpy as np
import pytest

from regard.core.errors import ConfigError, DataError
from regard.evaluation.metrics import Flavour, Statistics, resample
from regard.evaluation.significance import PairedResult, _p_value, _swapped_differences, paired_tests

WORDS = [f"w{i}" for i in range(40)]


def noisy(references: list[str], rate: float, seed: int) -> list[str]:
    rng = random.Random(seed)
    return [" ".join(rng.choice(WORDS) if rng.random() < rate else w for w in r.split()) for r in references]


@pytest.fixture(scope="module")
def references() -> list[str]:
    rng = random.Random(0)
    return [" ".join(rng.choices(WORDS, k=rng.randint(4, 15))) for _ in range(200)]


def test_a_system_against_itself(references: list[str]):
    same = noisy(references, 0.3, 1)
    for result in paired_tests(references, same, same, metrics=("bleu", "chrf", "ter"), trials=1000):
        assert (result.difference, result.bootstrap_p, result.randomisation_p, result.wins) == (0.0, 1.0, 1.0, 0.0)
        assert not result.significant()


def test_a_clearly_better_system(references: list[str]):
    worse, better = noisy(references, 0.4, 1), noisy(references, 0.15, 2)
    for result in paired_tests(references, worse, better, metrics=("bleu", "chrf", "ter"), trials=2000):
        assert (result.difference > 0) == (result.metric != "ter")
        assert max(result.bootstrap_p, result.randomisation_p) < 0.01
        assert result.significant(0.01)
        assert result.wins == 1.0
    backwards = paired_tests(references, better, worse, metrics=("bleu",), trials=2000)[0]
    assert backwards.wins == 0.0
    assert backwards.significant()
    assert "bleu" in str(backwards)
    assert PairedResult(**backwards.to_plain()) == backwards


def test_agrees_with_sacrebleu(references: list[str], monkeypatch: pytest.MonkeyPatch):
    from sacrebleu.metrics import BLEU, CHRF
    from sacrebleu.significance import PairedTest

    monkeypatch.setenv("SACREBLEU_SEED", "12345")
    first, second = noisy(references, 0.34, 1), noisy(references, 0.28, 4)
    metrics = {"bleu": BLEU(), "chrf": CHRF()}
    systems = [("a", first), ("b", second)]
    mine = paired_tests(references, first, second, trials=3000)
    theirs = {}
    for kind, samples in (("ar", 3000), ("bs", 1000)):
        _, scores = PairedTest(systems, metrics, [references], test_type=kind, n_samples=samples, n_jobs=1)()
        theirs[kind] = {name.lower().rstrip("2"): results[1] for name, results in scores.items() if name != "System"}
    for result in mine:
        randomised, bootstrapped = theirs["ar"][result.metric], theirs["bs"][result.metric]
        assert result.system == pytest.approx(randomised.score)
        assert result.randomisation_p == pytest.approx(randomised.p_value, abs=0.03)
        assert 0.005 < result.randomisation_p < 0.6  # a case with something to agree on
        assert result.bootstrap_p == pytest.approx(result.randomisation_p, abs=0.05)
        assert result.bootstrap_p / 2 == pytest.approx(bootstrapped.p_value, abs=0.03)  # theirs counts one tail


def test_p_values_are_calibrated(references: list[str]):
    """Of pairs that differ by chance alone, 5 % come out below 0.05; the system is random swaps of the same outputs."""
    flavour = Flavour()
    bleu = Statistics.of("bleu", noisy(references, 0.3, 1), references, flavour)
    first, second = bleu.rows, Statistics.of("bleu", noisy(references, 0.3, 2), references, flavour).rows
    rng = np.random.default_rng(0)
    p_values = []
    for _ in range(400):
        chosen = rng.choice(len(first), size=100, replace=False)
        swap = rng.integers(2, size=(100, 1)).astype(bool)
        old, new = np.where(swap, first[chosen], second[chosen]), np.where(swap, second[chosen], first[chosen])
        seen = float(np.diff(bleu.scores(np.stack([old.sum(0), new.sum(0)])))[0])
        drawn = bleu.scores(resample(new, 300, 1)) - bleu.scores(resample(old, 300, 1))
        swapped = _swapped_differences(*(Statistics("bleu", rows, bleu.measure) for rows in (old, new)), 300, 1)
        p_values.append([_p_value(drawn - drawn.mean(), seen), _p_value(swapped, seen)])
    rejected = (np.array(p_values) < 0.05).mean(0)
    assert np.all((rejected > 0.02) & (rejected < 0.09)), rejected  # 0.05 give or take 3 standard errors
    assert np.array(p_values).mean(0) == pytest.approx(0.5, abs=0.06)


def test_deterministic_and_chunked(references: list[str], monkeypatch: pytest.MonkeyPatch):
    first, second = noisy(references, 0.32, 1), noisy(references, 0.28, 3)
    whole = paired_tests(references, first, second, trials=500)
    assert paired_tests(references, first, second, trials=500) == whole
    monkeypatch.setattr("regard.evaluation.significance.CHUNK_CELLS", 200 * 64)
    assert paired_tests(references, first, second, trials=500) == whole
    assert paired_tests(references, first, second, trials=500, seed=1) != whole


def test_bad_input(references: list[str]):
    with pytest.raises(DataError, match="differ in length"):
        paired_tests(references, references, references[1:])
    with pytest.raises(ConfigError, match="too few"):
        paired_tests(references, references, references, samples=0)
