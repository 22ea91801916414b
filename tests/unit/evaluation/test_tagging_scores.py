"""Scores of taggers: accuracy, chunks as CoNLL counts them, unknown words, intervals and the baseline."""

from __future__ import annotations

import random

import numpy as np
import pytest

from regard.core.errors import ConfigError, DataError
from regard.data.tagged import TaggedSentences
from regard.evaluation.tagging import MostFrequentTag, TagReport, chunk_f1, words_of

LABELS = ("B-NP", "B-VP", "I-NP", "I-VP", "O")


def random_tags(draw: random.Random, sentences: int) -> list[list[str]]:
    return [[draw.choice(LABELS) for _ in range(draw.randint(1, 9))] for _ in range(sentences)]


def plain_counts(gold: list[list[str]], given: list[list[str]]) -> tuple[int, int, int]:
    """Right, existing and found chunks, token by token with two flags, as the script of the shared task goes through a file."""
    right = exist = found = 0
    for has, got in zip(gold, given, strict=True):
        inside = False  # of a chunk that began on both sides at once, with one kind
        before = ("O", ""), ("O", "")
        for one, two in zip([*has, "O"], [*got, "O"], strict=True):
            now = tuple((tag[0], tag[2:]) for tag in (one, two))
            ends = [p[0] != "O" and (n[0] in "BO" or n[1] != p[1]) for p, n in zip(before, now, strict=True)]
            begins = [
                n[0] == "B" or (n[0] == "I" and (p[0] == "O" or p[1] != n[1])) for p, n in zip(before, now, strict=True)
            ]
            if inside and all(ends):
                right, inside = right + 1, False
            elif inside and any(ends):
                inside = False
            exist, found = exist + begins[0], found + begins[1]
            if all(begins) and now[0][1] == now[1][1]:
                inside = True
            before = now
    return right, exist, found


def test_chunks_are_counted_as_the_shared_task_does():
    draw = random.Random(0)
    seen = set()
    for _ in range(200):
        gold = random_tags(draw, 4)
        given = [[tag if draw.random() < 0.7 else draw.choice(LABELS) for tag in tags] for tags in gold]
        right, exist, found = plain_counts(gold, given)
        expected = 200 * right / (exist + found) if exist + found else 0.0
        assert chunk_f1(gold, given) == pytest.approx(expected)
        text = TaggedSentences([["x"] * len(tags) for tags in gold], gold)
        score = TagReport.of(text, given, LABELS).scores(0)["f1"]
        assert score.value == pytest.approx(expected)
        assert [score.details[name] for name in ("correct", "chunks", "found")] == [right, exist, found]
        seen.add(right)
    assert len(seen) > 5


def report() -> TagReport:
    text = TaggedSentences([["a", "b", "c"], ["a", "z"]], [["X", "Y", "X"], ["X", "Y"]])
    return TagReport.of(text, [["X", "Y", "Y"], ["X", "X"]], ("X", "Y"), known={"a", "b", "c"})


def test_accuracy_of_all_and_of_unknown_words():
    found = report()
    assert found.value("accuracy") == pytest.approx(60)
    assert found.value("unknown_accuracy") == 0
    scores = found.scores(0)
    assert scores["unknown_accuracy"].details == {"correct": 0, "words": 1}
    assert scores["accuracy"].details == {"correct": 3, "words": 5}
    assert scores["accuracy"].low is None
    assert "f1" not in scores  # the tags are no chunks
    rows = {score.label: score for score in found.per_tag()}
    assert (rows["X"].precision, rows["X"].recall, rows["X"].texts) == (
        pytest.approx(200 / 3),
        pytest.approx(200 / 3),
        3,
    )
    assert found.to_plain()["words"] == 5


def test_without_known_words_nothing_is_said_of_unknown_ones():
    text = TaggedSentences([["a"]], [["X"]])
    assert set(TagReport.of(text, [["X"]], ("X", "Y")).scores()) == {"accuracy"}


def test_kinds_of_chunks_have_rows_of_their_own():
    gold = [["B-NP", "I-NP", "B-VP"], ["O", "B-NP"]]
    text = TaggedSentences([["x"] * 3, ["x"] * 2], gold)
    rows = TagReport.of(text, [["B-NP", "B-NP", "B-VP"], ["O", "B-NP"]], LABELS).per_kind()
    assert [(row.label, row.texts) for row in rows] == [("NP", 2), ("VP", 1)]
    assert (rows[0].precision, rows[0].recall, rows[0].f1) == (pytest.approx(100 / 3), 50, pytest.approx(40))


def test_intervals_draw_sentences_not_words():
    """One sentence is all right, the other all wrong: half of the samples hold only one of them."""
    text = TaggedSentences([["x"] * 50, ["x"] * 50], [["X"] * 50, ["Y"] * 50])
    score = TagReport.of(text, [["X"] * 50, ["X"] * 50], ("X", "Y")).scores()["accuracy"]
    assert (score.low, score.value, score.high) == (0, 50, 100)
    again = TagReport.of(text, [["X"] * 50, ["X"] * 50], ("X", "Y")).scores()["accuracy"]
    assert score == again


def test_what_does_not_fit_together_is_refused():
    text = TaggedSentences([["a", "b"]], [["X", "Y"]])
    for given in ([], [["X"]], [["X", "Y"], ["X"]]):
        with pytest.raises(DataError, match="as many as words"):
            TagReport.of(text, given, ("X", "Y"))
    with pytest.raises(DataError, match="not among"):
        TagReport.of(text, [["X", "Q"]], ("X", "Y"))
    with pytest.raises(ConfigError, match="bootstrap"):
        TagReport.of(text, [["X", "Y"]], ("X", "Y")).scores(-1)


def test_the_baseline_takes_each_words_commonest_tag():
    text = TaggedSentences(
        [["run", "the", "run"], ["run", "cat", "dog"], ["sit", "the"]],
        [["VERB", "DET", "NOUN"], ["NOUN", "NOUN", "NOUN"], ["VERB", "DET"]],
    )
    simple = MostFrequentTag(text)
    # of the words that stand there once (cat, dog, sit), most are nouns; of all words, too, but so are determiners here
    assert simple.tag(["run", "the", "sit", "never", "The"]) == ["NOUN", "DET", "VERB", "NOUN", "NOUN"]
    assert words_of(text) == {"run", "the", "cat", "dog", "sit"}
    tie = MostFrequentTag(TaggedSentences([["a", "a"]], [["Y", "X"]]))
    assert tie.tag(["a", "b"]) == ["X", "X"]  # by letters; without words that come once, of all words


def test_the_baselines_unknown_words_are_like_rare_ones_not_like_all():
    text = TaggedSentences([["a", "a", "a", "b", "c"]], [["DET", "DET", "DET", "NOUN", "NOUN"]])
    assert MostFrequentTag(text).tag(["x"]) == ["NOUN"]


def test_rows_are_numbers_of_sentences():
    assert np.array_equal(report().rows[:, :4], [[2, 3, 0, 0], [1, 2, 0, 1]])
