"""Tables of the letters that follow each other on the two sides of a corpus: which language does a line look like?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from regard.data.checks.block import Block

_BITS = 16
_FACTORS = tuple(np.uint32(factor) for factor in (0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D))
_LAST_FACTOR = np.uint32(0x2C1B3C6D)
_SMOOTHING = 0.1
_MOST = 4.0  # nats that one group of letters may count

_LEAST_LEARNED = 5_000  # groups of letters of a side, below which nothing is judged
_LIKE_OTHER = -25.0  # nats for a line's own language, below which it is in the other side's
_LEAST_NEITHER = 50_000  # groups of letters that must have been learned to judge what is like neither side
_LEAST_IN_LINE = 30
_LEAST_APART = 1.2  # nats for each group of letters between the languages of the two sides
_HOW_FAR = 0.8  # of the way from a side's own language to the other one's
_SLACK = 2.0  # more for short lines, over the square root of their length


@dataclass(frozen=True)
class _Usual:
    """How likely the groups of letters are, by the table of a side, in its own lines and in those of the other side."""

    own: float  # log-probability of one of them
    other: float

    def unlike(self, logs: np.ndarray, counts: np.ndarray) -> np.ndarray:
        """The lines that are too unlikely to be in the language of the side; short ones are not judged."""
        apart = self.own - self.other
        if apart < _LEAST_APART:
            return np.zeros(len(logs), dtype=bool)
        limits = self.own - _HOW_FAR * apart - _SLACK / np.sqrt(np.maximum(counts, 1))
        return (counts >= _LEAST_IN_LINE) & (logs < limits * counts)


@dataclass(frozen=True)
class SideTable:
    """For each hashed group of three letters: nats for its own against the other side, and its log-probability."""

    both: np.ndarray  # complex: the first is the real part, the second the imaginary one, so that one pass sums both
    usual: _Usual | None  # of this side, and of the other one; None where too little was learned for it
    usual_other: _Usual | None

    def judge(self, block: Block) -> tuple[np.ndarray, np.ndarray]:
        """The lines that look like the other side's language, and those that look like neither."""
        nats, logs, counts = _sums(block, self.both)
        like_other = nats < _LIKE_OTHER
        if self.usual is None or self.usual_other is None:
            return like_other, np.zeros_like(like_other)
        like_other &= ~self.usual_other.unlike(logs - nats, counts)
        return like_other, self.usual.unlike(logs, counts) & ~like_other


def learn_tables(sources: Sequence[Block], targets: Sequence[Block]) -> tuple[SideTable, SideTable] | None:
    """Tables from a sample, or None where it is too small. Every second block teaches, the others set the limits."""
    sides = (sources, targets)
    counts = [_count(side[::2]) for side in sides]
    if min(count.sum() for count in counts) < _LEAST_LEARNED:
        return None
    logs = [np.log((count + _SMOOTHING) / (count.sum() + _SMOOTHING * len(count))) for count in counts]
    tables: list[np.ndarray] = []
    for own, other in (0, 1), (1, 0):
        both = np.clip(logs[own] - logs[other], -_MOST, _MOST) + 1j * logs[own]
        both[0] = 0
        tables.append(both.astype(np.complex64))
    usual: list[_Usual | None] = [None, None]
    if min(count.sum() for count in counts) >= _LEAST_NEITHER:
        rest = [side[1::2] or side for side in sides]
        usual = [_Usual(_usual(rest[i], tables[i]), _usual(rest[1 - i], tables[i])) for i in (0, 1)]
    return SideTable(tables[0], usual[0], usual[1]), SideTable(tables[1], usual[1], usual[0])


def _usual(blocks: Sequence[Block], both: np.ndarray) -> float:
    means = []
    for block in blocks:
        _, logs, counts = _sums(block, both)
        long = counts >= _LEAST_IN_LINE
        means.append(logs[long] / counts[long])
    every = np.concatenate(means)
    return float(np.median(every)) if len(every) else 0.0


def _sums(block: Block, both: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of each line: nats for its own side, log-probability, and how many groups of letters it has."""
    groups = _groups(block)
    sums = np.add.reduceat(np.take(both, groups, mode="clip"), block.borders[:-1])
    return np.real(sums), np.imag(sums), block.sums(groups != 0)


def _count(blocks: Sequence[Block]) -> np.ndarray:
    counts = np.zeros(1 << _BITS)
    for block in blocks:
        counts += np.bincount(_groups(block), minlength=1 << _BITS)
    counts[0] = 0
    return counts


def _groups(block: Block) -> np.ndarray:
    """At each letter or digit, the hash of it and its neighbours (whatever is neither counts as a space); else 0."""
    folded = block.folded
    groups = np.zeros(len(folded), dtype=np.uint32)
    if len(folded) > 2:
        inner = groups[1:-1]
        np.multiply(folded[:-2], _FACTORS[0], out=inner)
        inner += folded[1:-1] * _FACTORS[1]
        inner += folded[2:] * _FACTORS[2]
        inner ^= inner >> np.uint32(15)
        inner *= _LAST_FACTOR
        inner >>= np.uint32(32 - _BITS)
        inner *= folded[1:-1] > ord("\n")
    return groups
