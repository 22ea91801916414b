"""Where findings are in a file: no line is lost, and each is in its part."""

from __future__ import annotations

import numpy as np
import pytest

from regard.data.checks.places import Places


@pytest.mark.parametrize("lines", [1, 7, 199, 200, 201, 1024, 1025, 5000, 3_000_000])
def test_each_line_is_counted_in_its_part(lines: int) -> None:
    places = Places()
    chosen = np.unique(np.linspace(0, lines - 1, 60).astype(int))
    for begin in range(0, len(chosen), 7):
        places.add(chosen[begin : begin + 7])
    parts = places.parts(lines)
    assert sum(parts) == len(chosen)
    assert len(parts) <= 200
    assert len(parts) >= min(lines, 100)
    assert parts[0] > 0
    assert parts[-1] > 0
    expected = np.histogram(chosen, bins=np.linspace(0, lines, len(parts) + 1))[0]
    moved = np.abs(np.cumsum(parts) - np.cumsum(expected)).max()  # cells do not end exactly where parts do
    assert moved <= 1


def test_a_stretch_fills_its_part_of_the_file() -> None:
    places = Places()
    places.add_stretch(5_000, 10_000)
    parts = np.array(places.parts(10_000, most=10))
    assert parts.sum() == 5_000
    assert (parts[: len(parts) // 2 - 1] == 0).all()  # parts end where cells do
    assert (parts[len(parts) // 2 + 1 : -1] > 0).all()


def test_lines_at_the_beginning_of_a_long_file_stay_there() -> None:
    places = Places()
    places.add(np.array([500]))
    parts = places.parts(29_000)
    assert [i / len(parts) for i, count in enumerate(parts) if count] == [pytest.approx(500 / 29_000, abs=0.01)]


def test_no_lines_are_no_counts() -> None:
    places = Places()
    places.add(np.zeros(0, dtype=int))
    assert sum(places.parts(100)) == 0
    assert len(places.parts(0)) == 1
