"""Accuracy, F1 and the confusion matrix, against plain counting."""

from __future__ import annotations

import random

import numpy as np
import pytest

from regard.core.errors import ConfigError, DataError
from regard.evaluation.classification import LabelReport

LABELS = ("a", "b", "c", "never")


def drawn(count: int, seed: int = 0) -> tuple[list[str], list[str]]:
    draw = random.Random(seed)
    gold = [draw.choice("aaabbc") for _ in range(count)]
    return gold, [label if draw.random() < 0.7 else draw.choice("abc") for label in gold]


def by_hand(gold: list[str], given: list[str]) -> tuple[float, float]:
    """Accuracy and macro F1 by counting, label by label."""
    f1 = []
    for label in sorted({*gold, *given}):
        right = sum(g == label and h == label for g, h in zip(gold, given, strict=True))
        precision = right / given.count(label) if label in given else 0.0
        recall = right / gold.count(label) if label in gold else 0.0
        f1.append(2 * precision * recall / (precision + recall) if right else 0.0)
    accuracy = sum(g == h for g, h in zip(gold, given, strict=True)) / len(gold)
    return 100 * accuracy, 100 * sum(f1) / len(f1)


@pytest.mark.parametrize("seed", range(3))
def test_scores_are_those_of_counting(seed):
    gold, given = drawn(97, seed)
    report = LabelReport.of(gold, given, LABELS)
    assert (report.accuracy, report.macro_f1) == pytest.approx(by_hand(gold, given))
    assert report.texts == 97
    for i, one in enumerate(LABELS):
        for j, other in enumerate(LABELS):
            assert report.confusion[i, j] == sum(g == one and h == other for g, h in zip(gold, given, strict=True))


def test_each_label_has_its_own_scores():
    report = LabelReport.of(["a", "a", "a", "b"], ["a", "a", "b", "b"], LABELS)
    a, b, c, _ = report.per_label()
    assert (a.precision, a.recall, a.f1, a.texts) == pytest.approx((100, 200 / 3, 80, 3))
    assert (b.precision, b.recall, b.f1, b.texts) == pytest.approx((50, 100, 200 / 3, 1))
    assert (c.precision, c.recall, c.f1, c.texts) == (0, 0, 0, 0)
    assert report.macro_f1 == pytest.approx((80 + 200 / 3) / 2)  # labels that nothing has or got do not count


def test_a_label_that_only_the_model_gave_counts():
    assert LabelReport.of(["a", "a"], ["a", "b"], LABELS).macro_f1 == pytest.approx((200 / 3 + 0) / 2)


def test_intervals_are_those_of_resampled_texts():
    gold, given = drawn(120)
    scores = LabelReport.of(gold, given, LABELS).scores(bootstrap=2000)
    rng = np.random.default_rng(9)
    values = []
    for _ in range(2000):
        rows = rng.integers(0, 120, 120)
        values.append(by_hand([gold[i] for i in rows], [given[i] for i in rows]))
    for name, column in zip(("accuracy", "macro_f1"), np.array(values).T, strict=True):
        low, high = np.percentile(column, [2.5, 97.5])
        assert scores[name].low == pytest.approx(low, abs=1.2)
        assert scores[name].high == pytest.approx(high, abs=1.2)
        assert scores[name].low < scores[name].value < scores[name].high
    again = LabelReport.of(gold, given, LABELS).scores(bootstrap=2000)
    assert again == scores


def test_without_samples_there_is_no_interval():
    score = LabelReport.of(*drawn(20), LABELS).scores(bootstrap=0)["accuracy"]
    assert (score.low, score.high) == (None, None)
    with pytest.raises(ConfigError, match="bootstrap"):
        LabelReport.of(*drawn(20), LABELS).scores(bootstrap=-1)


def test_a_report_is_plain_data():
    plain = LabelReport.of(["a", "b"], ["a", "a"], ("a", "b")).to_plain()
    assert plain["confusion"] == [[1, 0], [1, 0]]
    assert plain["accuracy"] == 50
    assert [row["label"] for row in plain["labels"]] == ["a", "b"]


@pytest.mark.parametrize(
    ("gold", "given", "message"),
    [(["a"], [], "1 right labels and 0"), ([], [], "0 right labels"), (["x"], ["a"], "'x' is not among")],
)
def test_labels_that_do_not_fit_are_refused(gold, given, message):
    with pytest.raises(DataError, match=message):
        LabelReport.of(gold, given, LABELS)
