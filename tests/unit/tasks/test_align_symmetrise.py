"""Two alignments as one: against the pseudo-code of Moses, written out plainly."""

from __future__ import annotations

import random

import pytest

from regard.core.errors import ConfigError
from regard.tasks.symmetrising import METHODS, symmetrise


def plain_grow_diag_final_and(forward: set, backward: set, sources: int, targets: int) -> list:
    """Koehn's pseudo-code, cell by cell of the whole table. Cells are (source, target)."""
    alignment = forward & backward

    def is_source_linked(i: int) -> bool:
        return any(link[0] == i for link in alignment)

    def is_target_linked(j: int) -> bool:
        return any(link[1] == j for link in alignment)

    neighbours = [(-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1)]  # of (target, source)
    while True:
        before = len(alignment)
        for j in range(targets):
            for i in range(sources):
                if (i, j) in alignment:
                    for dj, di in neighbours:
                        new = (i + di, j + dj)
                        lonely = not is_source_linked(new[0]) or not is_target_linked(new[1])
                        if lonely and new in forward | backward:
                            alignment.add(new)
        if len(alignment) == before:
            break
    for direction in (forward, backward):
        for j in range(targets):
            for i in range(sources):
                if not is_source_linked(i) and not is_target_linked(j) and (i, j) in direction:
                    alignment.add((i, j))
    return sorted(alignment)


def drawn(draw: random.Random, sources: int, targets: int, density: float) -> list[tuple[int, int]]:
    return [(i, j) for i in range(sources) for j in range(targets) if draw.random() < density]


def test_grow_diag_final_and_is_that_of_the_pseudo_code() -> None:
    draw = random.Random(1)
    differs = 0
    for _ in range(400):
        sources, targets, density = draw.randint(1, 7), draw.randint(1, 7), draw.choice([0.15, 0.3, 0.5])
        a, b = drawn(draw, sources, targets, density), drawn(draw, sources, targets, density)
        draw.shuffle(a)
        found = symmetrise(a, b, "grow-diag-final-and")
        assert found == plain_grow_diag_final_and(set(a), set(b), sources, targets), (a, b)
        differs += found not in (symmetrise(a, b, "union"), symmetrise(a, b, "intersection"))
    assert differs > 100


def test_by_hand() -> None:
    forward, backward = [(0, 0), (1, 1), (2, 1), (4, 4)], [(0, 0), (1, 1), (1, 2), (3, 5)]
    assert symmetrise(forward, backward, "intersection") == [(0, 0), (1, 1)]
    assert symmetrise(forward, backward, "union") == [(0, 0), (1, 1), (1, 2), (2, 1), (3, 5), (4, 4)]
    # 2-1 and 1-2 touch 1-1 and link a new word each; 4-4 and 3-5 stand alone and come last.
    assert symmetrise(forward, backward, "grow-diag-final-and") == [(0, 0), (1, 1), (1, 2), (2, 1), (3, 5), (4, 4)]
    # 0-1 touches a link, but both its words have one already.
    assert symmetrise([(0, 0), (1, 1), (0, 1)], [(0, 0), (1, 1)], "grow-diag-final-and") == [(0, 0), (1, 1)]
    # What is final must link two new words, not one: 0-3 links only the new target word.
    assert symmetrise([(0, 0), (0, 3)], [(0, 0)], "grow-diag-final-and") == [(0, 0)]


@pytest.mark.parametrize("method", METHODS)
def test_nothing_and_equals(method: str) -> None:
    assert symmetrise([], [], method) == []
    assert symmetrise([(2, 0), (0, 1)], [(0, 1), (2, 0)], method) == [(0, 1), (2, 0)]


def test_unknown_methods() -> None:
    with pytest.raises(
        ConfigError, match=r"'grow-diag-final': there is no such method\. Did you mean grow-diag-final-and"
    ):
        symmetrise([], [], "grow-diag-final")
