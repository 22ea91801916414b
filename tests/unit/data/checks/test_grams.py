"""Which language a line looks like, by tables learned from the two sides."""

from __future__ import annotations

import numpy as np
import pytest
from invented_corpus import SENTENCES, invented

from regard.data.checks.block import Block
from regard.data.checks.grams import learn_tables


def _blocks(lines: list[str]) -> list[Block]:
    return [Block(lines[i : i + 500]) for i in range(0, len(lines), 500)]


@pytest.fixture(scope="module")
def tables():
    pairs = invented(3_000)
    learned = learn_tables(_blocks(pairs.sources), _blocks(pairs.targets))
    assert learned is not None
    return learned


def test_lines_of_the_other_language_are_told_from_a_sides_own(tables):
    pairs = invented(400, seed=9)
    source, target = Block(pairs.sources), Block(pairs.targets)
    for table, own, other in ((tables[0], source, target), (tables[1], target, source)):
        like_other, like_neither = table.judge(own)
        assert not like_other.any()
        assert not like_neither.any()
        like_other, like_neither = table.judge(other)
        assert like_other.mean() > 0.99
        assert not (like_other & like_neither).any()


@pytest.mark.parametrize("code", ["fi", "pl", "hu", "tr", "es"])
def test_lines_of_a_third_language_look_like_neither(tables, code):
    line = SENTENCES[code]
    for table in tables:
        like_other, like_neither = table.judge(Block(["", line, "A."]))
        assert (like_other | like_neither).tolist() == [False, True, False]
    assert tables[1].judge(Block([line]))[1].any() or tables[0].judge(Block([line]))[1].any()


def test_short_lines_are_not_judged(tables):
    for line in ("Ja.", "Hello!", "Kyllä", "", "12 34"):
        for table in tables:
            assert not np.any(table.judge(Block([line])))


def test_a_small_sample_teaches_nothing():
    pairs = invented(40)
    assert learn_tables(_blocks(pairs.sources), _blocks(pairs.targets)) is None
    assert learn_tables([], []) is None


def test_two_sides_of_one_language_cannot_be_told_apart():
    one, other = invented(3_000).sources, invented(3_000, seed=2).sources
    learned = learn_tables(_blocks(one), _blocks(other))
    assert learned is not None
    block = Block([*invented(200, seed=3).sources, SENTENCES["fi"]])
    for table in learned:
        assert not np.any(table.judge(block))


def test_a_side_that_is_partly_in_the_wrong_language_still_teaches():
    pairs = invented(3_000)
    mixed = [
        source if i % 4 == 0 else target
        for i, (source, target) in enumerate(zip(pairs.sources, pairs.targets, strict=True))
    ]
    learned = learn_tables(_blocks(pairs.sources), _blocks(mixed))
    assert learned is not None
    found = learned[1].judge(Block(mixed))[0]
    wrong = np.arange(3_000) % 4 == 0
    assert found[wrong].mean() > 0.8
    assert not found[~wrong].any()
