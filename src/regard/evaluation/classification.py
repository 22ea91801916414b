"""How well texts are classified: accuracy, precision, recall and F1 of each label, macro F1, and who is taken for whom."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from regard.core.errors import ConfigError, DataError
from regard.data.labelled import read_labelled
from regard.evaluation.metrics import SEED, Score
from regard.tasks.classification import TextClassifier

BOOTSTRAP = 1000


@dataclass(frozen=True)
class LabelScore:
    """One label against all others, in percent; `texts` is how many texts have it."""

    label: str
    precision: float
    recall: float
    f1: float
    texts: int


@dataclass(frozen=True, eq=False)
class LabelReport:
    """The labels that texts have, beside those that they got.

    `confusion[i, j]` texts have label i and got label j. Where nothing is to be divided by, precision, recall and F1 are 0.
    """

    labels: tuple[str, ...]
    confusion: Int[np.ndarray, "L L"]

    @classmethod
    def of(cls, gold: Sequence[str], given: Sequence[str], labels: Sequence[str]) -> LabelReport:
        """A report on texts whose labels are `gold` and which got `given`; both are among `labels`."""
        if len(gold) != len(given) or not gold:
            what = f"{len(gold)} right labels and {len(given)} given ones"
            raise DataError("labels", what, "Give as many of both, and at least one")
        places = {label: i for i, label in enumerate(labels)}
        for label in (*gold, *given):
            if label not in places:
                raise DataError("labels", f"{label!r} is not among {', '.join(map(repr, labels[:10]))}", "Mend it")
        confusion = np.zeros((len(labels), len(labels)), dtype=np.int64)
        np.add.at(confusion, ([places[label] for label in gold], [places[label] for label in given]), 1)
        return cls(tuple(labels), confusion)

    @property
    def texts(self) -> int:
        return int(self.confusion.sum())

    @property
    def accuracy(self) -> float:
        """How many of 100 texts got their label."""
        return 100 * int(np.trace(self.confusion)) / self.texts

    @property
    def macro_f1(self) -> float:
        """The mean F1 of all labels that texts have or got: a rare label counts as much as a frequent one."""
        return float(_macro_f1(np.diag(self.confusion), self.confusion.sum(1), self.confusion.sum(0)))

    def per_label(self) -> list[LabelScore]:
        right, has, got = np.diag(self.confusion), self.confusion.sum(1), self.confusion.sum(0)
        precision, recall, f1 = (
            100 * part for part in (_part(right, got), _part(right, has), _part(2 * right, has + got))
        )
        return [
            LabelScore(label, float(precision[i]), float(recall[i]), float(f1[i]), int(has[i]))
            for i, label in enumerate(self.labels)
        ]

    def to_plain(self) -> dict[str, Any]:
        return {
            "texts": self.texts,
            "accuracy": self.accuracy,
            "macro_f1": self.macro_f1,
            "labels": [vars(score) for score in self.per_label()],
            "confusion": self.confusion.tolist(),
        }

    def scores(self, bootstrap: int = BOOTSTRAP) -> dict[str, Score]:
        """Accuracy and macro F1 with the 95 % intervals of a bootstrap over texts; 0 samples give none."""
        if bootstrap < 0:
            raise ConfigError("setting bootstrap", f"it is {bootstrap}", "Give a number of samples, or 0")
        values = {"accuracy": self.accuracy, "macro_f1": self.macro_f1}
        intervals = self._intervals(bootstrap) if bootstrap else {}
        signature = f"labels:{len(self.labels)}|texts:{self.texts}" + (
            f"|bs:{bootstrap}|seed:{SEED}" if bootstrap else ""
        )
        right = {"correct": int(np.trace(self.confusion)), "texts": self.texts}
        details = {"accuracy": right, "macro_f1": {s.label: round(s.f1, 4) for s in self.per_label()}}
        names = {"accuracy": "accuracy", "macro_f1": "macro F1"}
        return {
            key: Score(names[key], value, *intervals.get(key, (None, None)), signature, details[key])
            for key, value in values.items()
        }

    def _intervals(self, samples: int) -> dict[str, tuple[float, float]]:
        """A bootstrap draws texts with replacement: of each cell of the confusion matrix, a multinomial number."""
        right, has, got = np.nonzero(self.confusion)[0] == np.nonzero(self.confusion)[1], *np.nonzero(self.confusion)
        cells = self.confusion[has, got]
        rng = np.random.default_rng(SEED)
        drawn: dict[str, list[float]] = {"accuracy": [], "macro_f1": []}
        size = len(self.labels)
        for _ in range(samples):
            counts = rng.multinomial(self.texts, cells / self.texts)
            hits = np.bincount(has[right], counts[right], size)
            drawn["accuracy"].append(100 * hits.sum() / self.texts)
            drawn["macro_f1"].append(_macro_f1(hits, np.bincount(has, counts, size), np.bincount(got, counts, size)))
        tail = samples // 40  # 2.5 % on each side
        found = {"accuracy": self.accuracy, "macro_f1": self.macro_f1}
        ordered = {name: np.sort(values) for name, values in drawn.items()}
        return {
            name: (min(float(ordered[name][tail]), value), max(float(ordered[name][-1 - tail]), value))
            for name, value in found.items()
        }


def evaluate_classifier(classifier: TextClassifier, labelled: str | Path) -> LabelReport:
    """A classifier's report on a file of labelled text, in the format that is trained on."""
    found = read_labelled(labelled)
    part, known = found.part, set(classifier.labels)
    for number, label in zip(found.lines, part.labels, strict=True):
        if label not in known:
            what = f"the model does not know the label {label!r}"
            raise DataError(
                f"{labelled}, line {number}", what, "Mend the label, or take a model that was trained with it"
            )
    given = [guess.label for guess in classifier.classify(part.texts, part.seconds or None)]
    return LabelReport.of(part.labels, given, classifier.labels)


def _part(count: Float[np.ndarray, " L"], whole: Float[np.ndarray, " L"]) -> Float[np.ndarray, " L"]:
    return np.divide(count, whole, out=np.zeros(len(whole)), where=whole > 0)


def _macro_f1(right: np.ndarray, has: np.ndarray, got: np.ndarray) -> float:
    counted = has + got > 0
    return 100 * float(_part(2.0 * right, has + got).sum() / counted.sum())
