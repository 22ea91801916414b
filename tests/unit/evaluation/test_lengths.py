"""Bins of source length: every sentence in one of them, none too small, scores those of their sentences."""

from __future__ import annotations

import json
import random

import pytest

from regard.core.errors import ConfigError, DataError
from regard.evaluation.lengths import by_source_length, count_words, table
from regard.evaluation.metrics import Flavour, corpus_scores

FLAVOUR = Flavour(bootstrap=50)


def lines(lengths: list[int]) -> tuple[list[str], list[str]]:
    rng = random.Random(0)
    sources = [" ".join(rng.choices("abcdefgh", k=length)) for length in lengths]
    return sources, [" ".join(w if rng.random() < 0.8 else "x" for w in source.split()) for source in sources]


def test_bins_hold_their_sentences():
    lengths = [n for n in range(1, 81) for _ in range(3)]
    sources, hypotheses = lines(lengths)
    bins = by_source_length(sources, hypotheses, sources, FLAVOUR)
    assert [b.label for b in bins] == ["1-5", "6-10", "11-15", "16-20", "21-30", "31-40", "41-60", "61+"]
    assert [b.sentences for b in bins] == [15, 15, 15, 15, 30, 30, 60, 60]
    chosen = [i for i, n in enumerate(lengths) if 21 <= n <= 30]
    alone = corpus_scores([hypotheses[i] for i in chosen], [sources[i] for i in chosen], FLAVOUR)
    assert bins[4].bleu == alone["bleu"]
    assert bins[4].chrf == alone["chrf"]


def test_small_bins_join_a_neighbour():
    sources, hypotheses = lines([3] * 4 + [8] * 30 + [13] * 12 + [18] * 3 + [25] * 9 + [70] * 2)
    bins = by_source_length(sources, hypotheses, sources, FLAVOUR)
    assert [(b.label, b.sentences) for b in bins] == [("1-10", 34), ("11-15", 12), ("16+", 14)]


def test_the_last_bin_is_closed_where_the_data_end():
    sources, hypotheses = lines([3] * 12 + [9] * 20)
    assert [b.label for b in by_source_length(sources, hypotheses, sources, FLAVOUR)] == ["1-5", "6-10"]


def test_few_sentences_make_one_bin():
    sources, hypotheses = lines([0, 3, 12, 40])
    bins = by_source_length(sources, hypotheses, sources, FLAVOUR)
    assert [(b.label, b.sentences) for b in bins] == [("0-40", 4)]


def test_given_edges_are_kept():
    sources, hypotheses = lines([1, 2, 2, 3, 9])
    bins = by_source_length(sources, hypotheses, sources, FLAVOUR, edges=(1, 2, 5, 7))
    assert [(b.label, b.sentences) for b in bins] == [("1", 1), ("2", 2), ("3-5", 1), ("8+", 1)]
    rows = json.loads(json.dumps(table(bins)))
    assert [row["words"] for row in rows] == ["1", "2", "3-5", "8+"]
    assert rows[0]["bleu_low"] <= rows[0]["bleu"] <= rows[0]["bleu_high"]


def test_words_of_scripts_without_spaces():
    assert count_words("  two  words ") == 2
    assert count_words("我喜欢 PyTorch") == 4
    assert count_words("") == 0


def test_bad_input():
    with pytest.raises(DataError, match="differ in length"):
        by_source_length(["a"], ["a", "b"], ["a", "b"])
    with pytest.raises(ConfigError, match="do not rise"):
        by_source_length(["a"], ["a"], ["a"], edges=(10, 5))
