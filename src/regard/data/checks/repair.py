"""Which pairs of lines to keep of a misaligned corpus, and how to pair them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from regard.data.checks.alignment_verdict import AlignmentVerdict, Misaligned

_SPARE = 1  # lines left out on either side of where a border may lie


@dataclass(frozen=True)
class Piece:
    """Source lines in a row and the target lines that belong to them, both from 0."""

    source_begin: int
    target_begin: int
    length: int


def repair(verdict: AlignmentVerdict, source_lines: int, target_lines: int) -> list[Piece]:
    """The pairs to keep: misaligned lines paired anew, without unrelated lines and those at uncertain borders.

    Target lines that two source lines would claim are left out. Doubtful stretches stay as they are.
    """
    pieces = [
        (begin, begin + shift, end - begin)
        for begin, end, shift in _certain(verdict.damage, source_lines)
        for begin, end in [(max(begin, -shift), min(end, target_lines - shift))]
        if begin < end
    ]
    claims = np.zeros(target_lines + 1, dtype=np.int64)
    for _, target, length in pieces:
        claims[target] += 1
        claims[target + length] -= 1
    once = np.cumsum(claims) == 1
    kept = []
    for source, target, length in pieces:
        changes = np.diff(once[target : target + length].astype(np.int8), prepend=0, append=0)
        begins, ends = np.flatnonzero(changes == 1).tolist(), np.flatnonzero(changes == -1).tolist()
        kept += [Piece(source + begin, target + begin, end - begin) for begin, end in zip(begins, ends, strict=True)]
    return kept


def _certain(damage: tuple[Misaligned, ...], lines: int) -> Iterator[tuple[int, int, int]]:
    """The stretches of source lines with a shift, damaged or not, less their uncertain borders."""
    shifts: list[int | None] = [0]
    borders = [(0, 0)]  # the first and the last line before which each stretch may begin
    last_end = 0
    for one in damage:
        if one.begin == last_end:  # nothing is between them
            shifts[-1] = one.shift
        else:
            shifts.append(one.shift)
            borders.append(one.begin_range)
        shifts.append(0)
        borders.append(one.end_range)
        last_end = one.end
    borders.append((lines, lines))
    for shift, (left, right) in zip(shifts, pairwise(borders), strict=True):
        begin = left[1] + _SPARE if left[1] > 0 else 0
        end = right[0] - _SPARE if right[0] < lines else lines
        if shift is not None and begin < end:
            yield begin, end, shift
