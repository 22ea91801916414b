"""64-bit hashes of text, and sets of them that work on whole arrays."""

from __future__ import annotations

from collections.abc import Hashable, Iterable

import numpy as np

_MIX = np.uint64(0xD6E8FEB86659FD93)
_SMALLEST = 1 << 10
_FULL = 0.7
_WAITING = 500_000


def mixed(values: np.ndarray) -> np.ndarray:
    """64-bit numbers with every bit of each spread over all of its bits."""
    values = values ^ (values >> np.uint64(32))
    values *= _MIX
    values ^= values >> np.uint64(32)
    values *= _MIX
    values ^= values >> np.uint64(32)
    return values


def hashes_of(values: Iterable[Hashable]) -> np.ndarray:
    """The hashes of texts, or of tuples of them: the same for equal ones as long as the program runs."""
    return np.fromiter(map(hash, values), dtype=np.int64).view(np.uint64)


def distinct(hashes: np.ndarray) -> np.ndarray:
    """Each number once, in rising order."""
    ordered = np.sort(hashes)  # much faster than np.unique
    return ordered[_firsts(ordered)]


class HashSet:
    """A set of 64-bit hashes in one array: 8 bytes for each and at most as much again that is free."""

    def __init__(self) -> None:
        self._table = np.zeros(_SMALLEST, dtype=np.uint64)  # 0 is a free place
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def values(self) -> np.ndarray:
        return self._table[self._table != 0]

    def add(self, hashes: np.ndarray) -> np.ndarray:
        """Adds all; True for those that were new, each of them once."""
        hashes = np.maximum(hashes, np.uint64(1))
        order = np.argsort(hashes, kind="stable")
        ordered = hashes[order]
        firsts = _firsts(ordered)
        new = np.zeros(len(hashes), dtype=bool)
        new[order[firsts]] = self._add_distinct(ordered[firsts])
        return new

    def _add_distinct(self, hashes: np.ndarray) -> np.ndarray:
        if self._count + len(hashes) > _FULL * len(self._table):
            self._grow(self._count + len(hashes))
        new = self._place(hashes)
        self._count += int(new.sum())
        return new

    def _grow(self, needed: int) -> None:
        held = self.values()
        size = len(self._table)
        while needed > _FULL * size:
            size *= 2
        self._table = np.zeros(size, dtype=np.uint64)
        for begin in range(0, len(held), 1 << 20):
            self._place(held[begin : begin + (1 << 20)])

    def _place(self, hashes: np.ndarray) -> np.ndarray:
        """Writes different hashes into the table: to the first free place, in steps of their own."""
        table, last = self._table, np.uint64(len(self._table) - 1)
        new = np.zeros(len(hashes), dtype=bool)
        rows = np.arange(len(hashes))
        places = mixed(hashes) & last
        steps = (hashes >> np.uint64(20)) | np.uint64(1)  # odd: they come by every place
        while len(rows):
            wanted, found = hashes[rows], table[places]
            free = found == 0
            table[places[free]] = wanted[free]  # where several want one place, one of them gets it
            placed = free & (table[places] == wanted)
            new[rows[placed]] = True
            going_on = ~placed & (found != wanted)
            rows = rows[going_on]
            places = (places[going_on] + steps[rows]) & last
        return new


class DistinctCount:
    """How many different hashes there were: exact up to a number, then estimated from a share of them."""

    def __init__(self, most: int = 4_000_000):
        self._most, self._halvings, self._held = most, 0, HashSet()
        self._waiting: list[np.ndarray] = []
        self._room = _WAITING

    def add(self, hashes: np.ndarray) -> None:
        self._waiting.append(hashes)  # the same few come again and again: most fall away when many are sorted at once
        self._room -= len(hashes)
        if self._room <= 0:
            self._take_in()

    def __len__(self) -> int:
        self._take_in()
        return len(self._held) << self._halvings

    def _take_in(self) -> None:
        if not self._waiting:
            return
        hashes, self._waiting, self._room = np.concatenate(self._waiting), [], _WAITING
        self._held.add(self._sampled(distinct(hashes)))
        while len(self._held) > self._most:
            self._halvings += 1
            kept = self._sampled(self._held.values())
            self._held = HashSet()
            self._held.add(kept)

    def _sampled(self, hashes: np.ndarray) -> np.ndarray:
        return hashes[hashes >> np.uint64(64 - self._halvings) == 0] if self._halvings else hashes


def _firsts(ordered: np.ndarray) -> np.ndarray:
    """True for the first of each run of equal numbers."""
    firsts = np.ones(len(ordered), dtype=bool)
    firsts[1:] = ordered[1:] != ordered[:-1]
    return firsts
