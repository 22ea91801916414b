"""Corpus scores by any metric, with confidence intervals: resampling of the rows that a metric gives for sentences."""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from regard.core.errors import ConfigError
from regard.evaluation.metrics._base import METRICS, USUAL, Metric
from regard.evaluation.metrics._flavour import Flavour
from regard.evaluation.metrics._score import SEED, Score, check_parallel

TOKENISED_LINES = 100  # translations that end in " .": from so many on, as in sacreBLEU, text looks tokenised
CHUNK_CELLS = 4_000_000  # how many numbers a resampling step may hold at once


@dataclass(frozen=True, eq=False)
class Statistics:
    """The sufficient statistics of one metric, a row per sentence, and the metric that made them."""

    metric: str
    rows: Float[np.ndarray, "N F"]
    measure: Metric

    @classmethod
    def of(cls, metric: str, hypotheses: Sequence[str], references: Sequence[str], flavour: Flavour) -> Statistics:
        measure = METRICS.get(metric)(flavour)
        rows = np.asarray(measure.statistics(list(hypotheses), list(references)), dtype=np.float64)
        if rows.ndim != 2 or len(rows) != len(hypotheses) or not np.isfinite(rows).all():
            what = f"its statistics of {len(hypotheses)} sentences have the shape {rows.shape}, or are not finite"
            raise ConfigError(f"metric {metric!r}", what, "Give one row of numbers for each sentence")
        return cls(metric, rows, measure)

    def take(self, rows: Int[np.ndarray, " M"]) -> Statistics:
        return Statistics(self.metric, self.rows[rows], self.measure)

    def scores(self, sums: Float[np.ndarray, "R F"]) -> Float[np.ndarray, " R"]:
        """The scores of summed rows, all at once."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return self.measure.scores(sums)

    def value(self) -> float:
        return float(self.scores(self.rows.sum(0, keepdims=True))[0])

    def score(self, bootstrap: int) -> Score:
        """The score of all rows, signed, and the interval of its bootstrap."""
        sums = self.rows.sum(0)
        value = self.measure.score(sums)
        low = high = None
        if bootstrap:
            samples = np.sort(self.scores(resample(self.rows, bootstrap, SEED)))
            tail = bootstrap // 40  # 2.5 % on each side
            # A statistic as biased as the BLEU of five sentences can fall outside the percentiles of its own bootstrap.
            low, high = min(float(samples[tail]), value), max(float(samples[-1 - tail]), value)
        signature = self.measure.signature(bootstrap, SEED)
        return Score(self.measure.label, value, low, high, signature, self.measure.details(sums))


def corpus_scores(
    hypotheses: Sequence[str],
    references: Sequence[str],
    flavour: Flavour = Flavour(),
    metrics: Sequence[str] = USUAL,
    confidence: bool = True,
) -> dict[str, Score]:
    """Scores a corpus of hypotheses, one reference each. The same text gives the same scores and intervals."""
    check_parallel(hypotheses=hypotheses, references=references)
    if "bleu" in metrics and flavour.tokenizer != "none":
        _warn_if_tokenised(hypotheses)
    bootstrap = flavour.bootstrap if confidence else 0
    return {metric: Statistics.of(metric, hypotheses, references, flavour).score(bootstrap) for metric in metrics}


def named_metrics(names: str | Sequence[str], where: str = "metrics", also: Sequence[str] = ()) -> tuple[str, ...]:
    """The names of metrics, each once, from a list or from a text with commas. `also` are names that go as well."""
    listed = [name.strip() for name in (names.split(",") if isinstance(names, str) else names)]
    known = [*also, *METRICS.names()]
    for name in listed:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            advice = f"Perhaps you mean {near[0]!r}; known are" if near else "Use one of"
            raise ConfigError(where, f"there is no {name!r}", f"{advice} {', '.join(known)}")
    return tuple(dict.fromkeys(listed))


def _warn_if_tokenised(hypotheses: Sequence[str]) -> None:
    if sum(text.endswith(" .") for text in hypotheses) >= TOKENISED_LINES:
        # without numbers, so that validation after validation says it once
        warnings.warn(
            'Many translations end in " .": the text looks tokenised, and its BLEU is not that of plain text. '
            "Give plain text, or measure with `regard evaluate --tokenized`.",
            stacklevel=3,
        )


def resample(rows: Float[np.ndarray, "N F"], samples: int, seed: int) -> Float[np.ndarray, "R F"]:
    """Sums of the statistics of `samples` bootstrap samples; a seed draws the same sentences for every system."""
    count = len(rows)
    rng = np.random.default_rng(seed)
    sums = np.empty((samples, rows.shape[1]))
    step = max(1, CHUNK_CELLS // count)
    for start in range(0, samples, step):
        drawn = rng.choice(count, size=(min(step, samples - start), count), replace=True)
        weights = np.stack([np.bincount(sample, minlength=count) for sample in drawn])
        sums[start : start + step] = weights.astype(np.float64) @ rows
    return sums
