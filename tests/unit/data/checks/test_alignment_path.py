"""The likeliest course of states, against an exhaustive search and against one pass over everything."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from regard.data.checks.alignment_path import best_path


def value(path, emissions: np.ndarray, penalty: float) -> float:
    changes = np.count_nonzero(np.diff([0, *path]))
    return float(emissions[np.arange(len(path)), path].sum() - penalty * changes)


@pytest.mark.parametrize("seed", range(6))
def test_no_other_path_is_better(seed):
    emissions = np.random.default_rng(seed).normal(size=(7, 3)).astype(np.float32)
    path = best_path(lambda begin, end: emissions[begin:end], 7, 3, 1.0)
    best = max(value(other, emissions, 1.0) for other in itertools.product(range(3), repeat=7))
    assert value(path, emissions, 1.0) == pytest.approx(best, abs=1e-5)


def test_blocks_are_decided_as_one():
    lines, states = 80_000, 4
    random = np.random.default_rng(0)
    true = np.zeros(lines, dtype=np.int64)
    borders = [*range(2_040, 2_060, 9), 4_096, 10_000, 10_030, 65_536, 65_600, 79_980]
    for border in borders:
        true[border:] = random.integers(0, states)
    emissions = random.normal(size=(lines, states)).astype(np.float32)
    emissions[np.arange(lines), true] += 3.0
    path = best_path(lambda begin, end: emissions[begin:end], lines, states, 10.0)
    np.testing.assert_array_equal(path, one_pass(emissions, 10.0))


def one_pass(emissions: np.ndarray, penalty: float) -> np.ndarray:
    """The same by the textbook, line by line."""
    total = np.full(emissions.shape[1], -penalty, dtype=np.float64)
    total[0] = 0.0
    previous = []
    for row in emissions:
        best = int(total.argmax())
        previous.append(np.where(total >= total[best] - penalty, np.arange(total.size), best))
        total = np.maximum(total, total[best] - penalty) + row
    path = [int(total.argmax())]
    for back in previous[:0:-1]:
        path.append(int(back[path[-1]]))
    return np.array(path[::-1])


def test_first_state_is_free_and_others_cost():
    emissions = np.zeros((20, 2), dtype=np.float32)
    emissions[:, 1] = 0.4  # eight in all
    assert best_path(lambda begin, end: emissions[begin:end], 20, 2, 10.0).tolist() == [0] * 20
    assert best_path(lambda begin, end: emissions[begin:end], 20, 2, 7.0).tolist() == [1] * 20


def test_no_lines():
    assert best_path(lambda begin, end: np.zeros((end - begin, 2)), 0, 2, 1.0).size == 0
