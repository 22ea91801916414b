"""Counts and distributions, against plain Python."""

from __future__ import annotations

import statistics as plain

import numpy as np
import pytest
from invented_corpus import invented

from regard.data.checks.block import blocks_of
from regard.data.checks.lines import Profile
from regard.data.checks.report import Statistics
from regard.data.checks.statistics import Tally
from regard.data.split import Pairs


def _statistics(pairs: Pairs) -> Statistics:
    tally = Tally(Profile.learn(pairs))
    for block in blocks_of(pairs):
        tally.add(block)
    return tally.statistics()


def test_counts_are_those_of_python():
    pairs = invented(2_500)
    found = _statistics(pairs)
    assert found.pairs == 2_500
    for side, lines in (("source", pairs.sources), ("target", pairs.targets)):
        words = [word for line in lines for word in line.split()]
        assert getattr(found, f"{side}_words") == len(words)
        assert getattr(found, f"{side}_characters") == sum(map(len, lines))
        assert getattr(found, f"{side}_vocabulary") == len(set(words))
        assert getattr(found, f"{side}_script") == "Latin"
        lengths = [len(line.split()) for line in lines]
        shape = getattr(found, f"{side}_lengths")
        assert sum(shape.counts) == 2_500
        assert (shape.least, shape.most) == (min(lengths), max(lengths))
        assert shape.mean == pytest.approx(plain.mean(lengths))
        assert shape.median == plain.median(lengths)
        assert len(shape.edges) == len(shape.counts) + 1
        for low, high, count in zip(shape.edges[:-2], shape.edges[1:-1], shape.counts[:-1], strict=True):
            assert count == sum(low <= length < high for length in lengths)


def test_ratios_are_those_of_the_lengths():
    pairs = Pairs(["a b"] * 98 + ["a", "", "a b"], ["a b c"] * 98 + ["b " * 50, "x", ""])
    ratios = _statistics(pairs).ratios
    assert sum(ratios.counts) == 99  # without the pairs that have an empty side
    assert (ratios.least, ratios.most, ratios.median) == (1.5, 50.0, 1.5)
    assert ratios.edges[-1] == 50.0
    assert ratios.percentile_99 > ratios.percentile_1 == 1.5


def test_one_very_long_line_does_not_widen_all_bins():
    pairs = Pairs(["a b c"] * 999 + ["a " * 5000], ["x"] * 1000)
    lengths = _statistics(pairs).source_lengths
    assert lengths.edges[-1] == 5001
    assert lengths.counts[-1] == 1
    assert max(np.diff(lengths.edges[:-1])) <= 1


def test_text_without_spaces_is_counted_in_characters():
    pairs = Pairs(["the captain has sold the boat"] * 50, ["船长把船卖掉了"] * 50)
    found = _statistics(pairs)
    assert found.target_lengths.median == 7
    assert found.source_lengths.median == 6
    assert found.target_vocabulary == 6  # 船 stands there twice
    assert found.ratios.median == pytest.approx(7 / 29)
    assert found.target_script == "Han"


def test_lines_of_nothing_have_lengths_of_nothing():
    found = _statistics(Pairs(["", " "], ["", ""]))
    assert (found.pairs, found.source_words, found.source_vocabulary, found.source_script) == (2, 0, 0, "")
    assert (found.source_lengths.most, sum(found.source_lengths.counts), sum(found.ratios.counts)) == (0, 2, 0)
