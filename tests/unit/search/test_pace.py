"""How far sentences are is counted right, whenever each of them began and ends."""

from __future__ import annotations

import numpy as np
import pytest

from regard.search.pace import Pace


@pytest.mark.parametrize("seed", range(5))
def test_as_if_each_was_counted_by_itself(seed: int) -> None:
    generator = np.random.default_rng(seed)
    count, first = int(generator.integers(1, 9)), 7
    begun = first - generator.integers(0, 6, count)
    limit, forced = generator.integers(1, 20, count), generator.integers(0, 9, count)
    pace, found = Pace(begun, limit, forced), []
    for step in range(first, first + 30):
        at = step - begun
        still = at <= limit
        expected = (at[still].max(), bool((at < forced)[still].any())) if still.any() else None
        found.append(pace.at(step))
        assert found[-1] == expected
    assert found[0] is not None or (begun + limit < first).all()
    assert found[-1] is None


def test_nobody_is_there() -> None:
    nothing = np.zeros(0, np.int64)
    assert Pace(nothing, nothing, nothing).at(0) is None
