"""Sets of hashes, against Python's own."""

from __future__ import annotations

import numpy as np
import pytest

from regard.data.checks.hashes import DistinctCount, HashSet, distinct, hashes_of, mixed


def _numbers(size: int, below: int, seed: int = 3) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, below, size, dtype=np.uint64)


@pytest.mark.parametrize("below", [50, 3_000, 1 << 63])
@pytest.mark.parametrize("at_once", [1, 7, 1000])
def test_a_set_says_what_was_new_as_pythons_does(below, at_once):
    numbers = _numbers(3_000, below)
    ours, theirs = HashSet(), set()
    for begin in range(0, len(numbers), at_once):
        part = numbers[begin : begin + at_once]
        new = ours.add(part)
        for number, was_new in zip(part.tolist(), new.tolist(), strict=True):
            number = max(number, 1)  # 0 is not kept apart from 1
            assert was_new == (number not in theirs)
            theirs.add(number)
    assert len(ours) == len(theirs)
    assert sorted(ours.values().tolist()) == sorted(theirs)


def test_hashes_that_want_the_same_place_are_all_kept():
    numbers = (np.arange(1, 600, dtype=np.uint64) << np.uint64(50)) | np.uint64(5)
    held = HashSet()
    assert held.add(numbers).all()
    assert not held.add(numbers[::-1]).any()


def test_a_set_takes_nothing():
    assert HashSet().add(np.zeros(0, dtype=np.uint64)).tolist() == []


def test_distinct_numbers_are_each_there_once():
    assert distinct(np.array([5, 3, 5, 5, 9, 3], dtype=np.uint64)).tolist() == [3, 5, 9]
    assert distinct(np.zeros(0, dtype=np.uint64)).tolist() == []


def test_counting_is_exact_up_to_a_number_and_near_beyond():
    numbers = mixed(np.arange(60_000, dtype=np.uint64))
    exact, near = DistinctCount(most=100_000), DistinctCount(most=4_000)
    for begin in range(0, 60_000, 1_000):
        for count in (exact, near):
            count.add(numbers[begin : begin + 1_000])
            count.add(numbers[:1_000])
    assert len(exact) == 60_000
    assert len(near) != 60_000
    assert abs(len(near) - 60_000) < 6_000


def test_counting_goes_on_while_more_hashes_wait_than_are_kept_waiting():
    numbers = mixed(np.arange(700_000, dtype=np.uint64))
    count = DistinctCount()
    count.add(numbers)
    count.add(numbers[:10])
    assert len(count) == 700_000


def test_mixing_loses_nothing_and_changes_many_bits():
    numbers = np.arange(20_000, dtype=np.uint64)
    assert len(set(mixed(numbers).tolist())) == 20_000
    changed = [
        bin(int(a) ^ int(b)).count("1") for a, b in zip(mixed(numbers), mixed(numbers + np.uint64(1)), strict=True)
    ]
    assert 30 < np.mean(changed) < 34
    assert numbers[:3].tolist() == [0, 1, 2]  # not changed in place


def test_equal_texts_and_tuples_have_equal_hashes():
    texts = ["one", "two", "".join(["o", "ne"])]
    assert hashes_of(texts)[0] == hashes_of(texts)[2] != hashes_of(texts)[1]
    assert hashes_of([("a", "b"), ("ab", "")])[0] != hashes_of([("a", "b"), ("ab", "")])[1]
