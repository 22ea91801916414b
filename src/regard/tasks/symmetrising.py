"""One word alignment from those of two directions: intersection, union, or grow-diag-final-and between the two.

grow-diag-final-and is the refined method of Och & Ney 2003 in the form of Koehn et al. 2003, which Moses and fast_align
have under this name.
"""

from __future__ import annotations

import difflib
from bisect import bisect_right, insort

from regard.core.errors import ConfigError

Link = tuple[int, int]

METHODS = ("intersection", "union", "grow-diag-final-and")
# Neighbours in the order in which they are tried: beside and above first, then across.
_AROUND = ((-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1))


def check_method(method: str) -> None:
    if method not in METHODS:
        near = difflib.get_close_matches(method, METHODS, n=1)
        todo = f"Did you mean {near[0]}? " if near else ""
        raise ConfigError(f"symmetrise {method!r}", "there is no such method", f"{todo}Known: {', '.join(METHODS)}")


def symmetrise(forward: list[Link], backward: list[Link], method: str) -> list[Link]:
    """The links of both directions as one alignment. Both are given as (source word, target word)."""
    check_method(method)
    both, either = set(forward) & set(backward), set(forward) | set(backward)
    if method == "intersection":
        return sorted(both)
    if method == "union":
        return sorted(either)
    return _grow_diag_final_and(both, either, (forward, backward))


def _grow_diag_final_and(both: set[Link], either: set[Link], directions: tuple[list[Link], list[Link]]) -> list[Link]:
    # Links are gone through target word by target word, those that are added on the way as well: (target, source) here.
    links = sorted((j, i) for i, j in both)
    sources, targets = {i for i, _ in both}, {j for _, j in both}

    def add(i: int, j: int) -> None:
        insort(links, (j, i))
        sources.add(i)
        targets.add(j)

    grown = True
    while grown:  # grow-diag: a neighbour in the union joins if it links a word that has no link yet
        grown, place = False, 0
        while place < len(links):
            link = links[place]
            for down, right in _AROUND:
                j, i = link[0] + down, link[1] + right
                if (i, j) in either and (i not in sources or j not in targets):
                    add(i, j)
                    grown = True
            place = bisect_right(links, link)
    for direction in directions:  # final-and: what links two words that have no link yet
        for j, i in sorted((j, i) for i, j in direction):
            if i not in sources and j not in targets:
                add(i, j)
    return sorted((i, j) for j, i in links)
