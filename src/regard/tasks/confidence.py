"""Confidence: how probably a token is right and how good a translation is, calibrated on held-out text.

    token       σ(a logit p + b)                        p: the model's probability of the token
    sentence    σ(c₀ + c₁ mean log p + c₂ min log p)    over the translation's tokens and its end

A token counts as right where the model's likeliest token, given the reference so far, is the reference's; a sentence's goodness is
its chrF (0 to 1). Both are fitted by logistic regression, on every other sentence; how reliable they are is measured on the rest.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from regard.core.errors import CheckpointError
from regard.core.files import read_json, write_json
from regard.tasks.lines import Translation

FILE, FORMAT = "confidence.json", 1
BINS = 10
LEAST = 1e-6  # probabilities are kept so far from 0 and 1


@dataclasses.dataclass(frozen=True)
class Reliability:
    """Confidence beside truth, in bins of equal width; `error` is the mean distance of the two (ECE)."""

    count: int
    error: float
    bins: list[tuple[int, float, float]]  # how many, mean confidence, mean truth

    @staticmethod
    def of(confidences: Sequence[float], truths: Sequence[float]) -> Reliability:
        sums = [[0.0, 0.0, 0.0] for _ in range(BINS)]
        for confidence, truth in zip(confidences, truths, strict=True):
            one = sums[min(BINS - 1, max(0, int(confidence * BINS)))]
            one[0] += 1
            one[1] += confidence
            one[2] += truth
        bins = [(int(n), c / n if n else 0.0, t / n if n else 0.0) for n, c, t in sums]
        total = sum(n for n, _, _ in bins)
        error = sum(n * abs(c - t) for n, c, t in bins) / total if total else 0.0
        return Reliability(total, error, bins)


@dataclasses.dataclass(frozen=True)
class Calibration:
    """What turns probabilities into confidences."""

    token: tuple[float, float]
    sentence: tuple[float, float, float]
    measured: dict[str, Any] = dataclasses.field(default_factory=dict)  # how reliable, before and after

    def of_token(self, log_prob: float) -> float:
        return _sigmoid(self.token[0] * logit(log_prob) + self.token[1])

    def of_sentence(self, log_probs: Sequence[float]) -> float:
        first, mean, low = self.sentence
        values = features(log_probs)
        return _sigmoid(first + mean * values[0] + low * values[1])

    def add_to(self, one: Translation) -> Translation:
        """A translation with its confidences; without log-probabilities of tokens it has none."""
        if not one.token_log_probs:
            return one
        each = [self.of_token(log_prob) for log_prob in one.token_log_probs]
        return dataclasses.replace(one, confidence=self.of_sentence(one.token_log_probs), token_confidences=each)

    def save(self, folder: Path) -> None:
        write_json(folder / FILE, {"format": FORMAT, **dataclasses.asdict(self)})

    @staticmethod
    def load(folder: Path) -> Calibration | None:
        """What `regard calibrate` has left in a run folder; None where it has not been there."""
        path = folder / FILE
        if not path.is_file():
            return None
        found = read_json(path)
        try:
            if found["format"] != FORMAT:
                raise ValueError
            token, sentence = (tuple(float(value) for value in found[name]) for name in ("token", "sentence"))
            if (len(token), len(sentence)) != (2, 3) or not all(map(math.isfinite, (*token, *sentence))):
                raise ValueError
        except (KeyError, TypeError, ValueError):
            what = "it is not what `regard calibrate` writes"
            raise CheckpointError(path, what, "Delete it, or calibrate again") from None
        measured = found.get("measured")
        return Calibration(token, sentence, measured if isinstance(measured, dict) else {})  # type: ignore[arg-type]


def features(log_probs: Sequence[float]) -> tuple[float, float]:
    """The mean and the least log-probability of a text's tokens."""
    return math.fsum(log_probs) / len(log_probs), min(log_probs)


def fit(rows: Sequence[Sequence[float]], truths: Sequence[float]) -> list[float]:
    """Logistic regression with truths from 0 to 1: a constant, and a weight of each feature; by Newton's method."""
    import numpy as np

    x = np.column_stack([np.ones(len(rows)), np.asarray(rows, np.float64)])
    y, w = np.asarray(truths, np.float64), np.zeros(x.shape[1])
    ridge = 1e-4 * np.eye(x.shape[1])  # keeps weights finite where truth can be told without error
    for _ in range(50):
        p = 1 / (1 + np.exp(-np.clip(x @ w, -30, 30)))
        gradient = x.T @ (y - p) - ridge @ w
        curvature = (x * (p * (1 - p))[:, None]).T @ x + ridge
        step = np.linalg.solve(curvature, gradient)
        w += step * min(1.0, 5.0 / max(1e-12, float(np.abs(step).max())))
        if np.abs(step).max() < 1e-9:
            break
    return [float(value) for value in w]


def logit(log_prob: float) -> float:
    p = min(1 - LEAST, max(LEAST, math.exp(min(0.0, log_prob))))
    return math.log(p / (1 - p))


def _sigmoid(value: float) -> float:
    return 1 / (1 + math.exp(-max(-700.0, min(700.0, value))))
