"""Whether one system is better than another: paired bootstrap resampling and approximate randomisation.

Both tests are two-sided and ask how often chance alone gives a difference at least as large as the one seen.
Where this departs from sacreBLEU's PairedTest: ties count as chance, so that a system against itself has p = 1 (there
1 / (n + 1)), and the bootstrap counts both tails of the centred differences (there one, so that its p is about half
of this one and a level of 5 % rejects about 10 % of the pairs that do not differ).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from regard.core.errors import ConfigError
from regard.evaluation.metrics import (
    CHUNK_CELLS,
    SEED,
    Flavour,
    Statistics,
    check_parallel,
    resample,
)

TESTED = ("bleu", "chrf")  # by what two systems are compared, unless it is said
ROUNDING = 1e-9  # scores that differ by less than this are equal


@dataclass(frozen=True)
class PairedResult:
    """A system against a baseline by one metric; `wins`: the share of bootstrap samples where it is better."""

    metric: str
    baseline: float
    system: float
    difference: float
    bootstrap_p: float
    randomisation_p: float
    wins: float

    def significant(self, level: float = 0.05) -> bool:
        """Whether both tests say so."""
        return max(self.bootstrap_p, self.randomisation_p) < level

    def __str__(self) -> str:
        return (
            f"{self.metric} {self.baseline:.2f} -> {self.system:.2f} ({self.difference:+.2f}), "
            f"bootstrap p = {self.bootstrap_p:.4f}, randomisation p = {self.randomisation_p:.4f}"
        )

    def to_plain(self) -> dict[str, Any]:
        return asdict(self)


def paired_tests(
    references: Sequence[str],
    baseline: Sequence[str],
    system: Sequence[str],
    flavour: Flavour = Flavour(),
    metrics: Sequence[str] = TESTED,
    samples: int = 1000,
    trials: int = 10000,
    seed: int = SEED,
) -> list[PairedResult]:
    """Compares two systems on the same sentences, with `samples` bootstrap samples and `trials` random swaps."""
    check_parallel(references=references, baseline=baseline, system=system)
    results = []
    for metric in metrics:
        old = Statistics.of(metric, baseline, references, flavour)
        new = Statistics.of(metric, system, references, flavour)
        results.append(pooled_test([old], [new], samples, trials, seed))
    return results


def pooled_test(
    baseline: Sequence[Statistics],
    system: Sequence[Statistics],
    samples: int = 1000,
    trials: int = 10000,
    seed: int = SEED,
) -> PairedResult:
    """Compares two systems, each by its runs with the same seeds, in one metric: the difference of their mean scores.

    The sentence is the unit: a sample takes, and a trial swaps, the translations of a sentence by all runs together. So
    more runs do not make more sentences of a test set, as they would if each translation counted for itself.
    """
    _check_runs(baseline, system, samples, trials)
    before, after = (float(np.mean([run.value() for run in runs])) for runs in (baseline, system))
    drawn = resampled_means(system, samples, seed) - resampled_means(baseline, samples, seed)
    swapped = np.mean(
        [
            _swapped_differences(old, new, trials, seed)  # the same coins for every seed
            for old, new in zip(baseline, system, strict=True)
        ],
        axis=0,
    )
    better = -drawn if system[0].measure.lower_is_better else drawn
    return PairedResult(
        metric=system[0].metric,
        baseline=before,
        system=after,
        difference=after - before,
        # The samples scatter around the difference seen; chance would scatter alike, around 0.
        bootstrap_p=_p_value(drawn - drawn.mean(), after - before),
        randomisation_p=_p_value(swapped, after - before),
        wins=float((better > ROUNDING).mean()),
    )


def resampled_means(runs: Sequence[Statistics], samples: int, seed: int = SEED) -> Float[np.ndarray, " R"]:
    """The mean score of several runs on each of `samples` bootstrap samples of the sentences that all have translated."""
    return np.mean([run.scores(resample(run.rows, samples, seed)) for run in runs], axis=0)


def mean_interval(runs: Sequence[Statistics], samples: int, seed: int = SEED) -> tuple[float, float]:
    """The 95 % interval of the mean score of several runs over samples of sentences; as `Statistics.score` of one run."""
    drawn = np.sort(resampled_means(runs, samples, seed))
    mean = float(np.mean([run.value() for run in runs]))
    tail = samples // 40
    return min(float(drawn[tail]), mean), max(float(drawn[-1 - tail]), mean)


def holm(p_values: Sequence[float]) -> list[float]:
    """p-values corrected for their number (Holm 1979): below 5 %, a false alarm among all of them is as rare as 5 %."""
    corrected = [1.0] * len(p_values)
    largest = 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[place]))
        corrected[place] = largest
    return corrected


def _check_runs(baseline: Sequence[Statistics], system: Sequence[Statistics], samples: int, trials: int) -> None:
    if min(samples, trials) < 1:
        raise ConfigError("paired tests", f"{samples} samples and {trials} trials are too few", "Give at least 1")
    if not baseline or len(baseline) != len(system):
        what = f"there are {len(baseline)} runs of the one and {len(system)} of the other"
        raise ConfigError("paired tests", what, "Give the same seeds of both")
    if len({(run.metric, len(run.rows)) for run in [*baseline, *system]}) > 1:
        what = "the runs differ in metric or in the number of sentences"
        raise ConfigError("paired tests", what, "Give statistics of the same test set")


def _swapped_differences(old: Statistics, new: Statistics, trials: int, seed: int) -> Float[np.ndarray, " R"]:
    """Differences of two pseudo-systems, in each of which every sentence comes from either system by a fair coin."""
    rng = np.random.default_rng(seed)
    count = len(old.rows)
    moved = old.rows - new.rows  # what `new` gains, and `old` loses, by swapping a sentence
    differences = np.empty(trials)
    step = max(1, CHUNK_CELLS // count)
    for start in range(0, trials, step):
        swap = rng.integers(2, size=(min(step, trials - start), count), dtype=np.uint8).astype(np.float64)
        change = swap @ moved
        first, second = new.scores(new.rows.sum(0) + change), old.scores(old.rows.sum(0) - change)
        differences[start : start + step] = first - second
    return differences


def _p_value(by_chance: Float[np.ndarray, " R"], seen: float) -> float:
    """The share of chance differences at least as large as the one seen, which itself counts as one of them."""
    as_large = int((np.abs(by_chance) >= abs(seen) - ROUNDING).sum())
    return (as_large + 1) / (len(by_chance) + 1)
