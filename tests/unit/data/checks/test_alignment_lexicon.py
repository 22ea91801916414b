"""Shared words and learned translations."""

from __future__ import annotations

import random

import numpy as np

from regard.data.checks.alignment_lexicon import SAME_SLOTS, Lexicon
from regard.data.checks.alignment_lines import SideArrays, SideFeatures


def arrays(lines: list[str]) -> SideArrays:
    side = SideFeatures()
    side.add(lines)
    return side.arrays()


def shared(one: np.ndarray, other: np.ndarray, slots: slice) -> np.ndarray:
    """How many bits each source line shares with the target line of the same place."""
    return np.bitwise_count(one[slots] & other[slots]).sum(axis=0)


SAME = slice(SAME_SLOTS[0][0], SAME_SLOTS[-1][1])
TRANSLATED = slice(SAME_SLOTS[-1][1], None)


def test_words_written_alike_are_shared():
    names = [f"{a}{b}{c}" for a in "bdfgk" for b in "aeiou" for c in "lmnrst"]
    source, target = arrays([f"with {name} there" for name in names]), arrays([f"mit {name} dort" for name in names])
    lexicon = Lexicon.same_words(source, target, folds=2)
    folds = np.zeros(len(names), dtype=np.uint8)
    ours, theirs = lexicon.source_sets(source), lexicon.target_sets(target, folds)
    assert shared(ours, theirs, SAME).tolist() == [1] * len(names)
    assert shared(ours, np.roll(theirs, 1, axis=1), SAME).mean() < 0.1
    assert not ours[TRANSLATED].any()


def test_words_much_more_frequent_on_one_side_are_not_shared():
    source = arrays(["man and hat", *["other words here"] * 99])
    target = arrays(["man hat", *["man sagt etwas"] * 50, *["nichts"] * 49])
    lexicon = Lexicon.same_words(source, target, folds=2)
    ours, theirs = lexicon.source_sets(source), lexicon.target_sets(target, np.zeros(100, dtype=np.uint8))
    assert shared(ours, theirs, SAME)[0] == 1  # the hat, not the man


def test_translations_are_learned():
    rng = random.Random(1)
    words = [a + b for a in ("ka", "lo", "mi", "tu", "ne") for b in ("rad", "sol", "pim", "vek")]
    others = [a + b for a in ("zh", "qu", "st", "pf", "ch") for b in ("ay", "oom", "ith", "ulp")]
    rows = [rng.choices(range(20), k=3) for _ in range(600)]
    source = arrays([" ".join(words[i] for i in row) for row in rows])
    target = arrays([" ".join(others[i] for i in reversed(row)) for row in rows])
    folds = (np.arange(600) // 100 % 2).astype(np.uint8)
    ids = np.arange(600)
    lexicon = Lexicon.same_words(source, target, folds=2).with_translations(source, target, (ids, ids), folds)
    ours, theirs = lexicon.source_sets(source), lexicon.target_sets(target, folds)
    expected = np.array([len(set(row)) for row in rows])
    assert (shared(ours, theirs, TRANSLATED) >= expected).mean() > 0.95
    assert shared(ours, np.roll(theirs, 7, axis=1), TRANSLATED).mean() < 0.6 * expected.mean()


def test_no_pair_is_judged_by_what_it_taught():
    """Every pair of words stands in two pairs of lines, both in one fold: known to the other fold only."""
    numbers = [f"{i:03}".translate(str.maketrans("0123456789", "abcdefghij")) for i in range(1_000)]
    lines = [(f"ko{numbers[i // 2]}", f"zu{numbers[999 - i // 2]}") for i in range(1_000)]
    source, target = arrays([one for one, _ in lines]), arrays([other for _, other in lines])
    folds = (np.arange(1_000) // 100 % 2).astype(np.uint8)
    ids = np.arange(1_000)
    lexicon = Lexicon.same_words(source, target, folds=2).with_translations(source, target, (ids, ids), folds)
    ours = lexicon.source_sets(source)
    assert shared(ours, lexicon.target_sets(target, folds), TRANSLATED).mean() < 0.05
    assert shared(ours, lexicon.target_sets(target, 1 - folds), TRANSLATED).mean() > 0.9


def test_empty_lines_share_nothing():
    others = ["something else"] * 96
    source, target = arrays([*others, "", "ab cd", "", ""]), arrays([*others, "ab", "", "", "cd"])
    lexicon = Lexicon.same_words(source, target, folds=1)
    folds = np.zeros(100, dtype=np.uint8)
    lexicon = lexicon.with_translations(source, target, (np.arange(0), np.arange(0)), folds)
    ours, theirs = lexicon.source_sets(source), lexicon.target_sets(target, folds)
    assert ours.any(axis=0)[96:].tolist() == [False, True, False, False]
    assert theirs.any(axis=0)[96:].tolist() == [True, False, False, True]
