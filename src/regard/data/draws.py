"""Random numbers that depend only on what they are drawn for: no state, no order, the same on every machine.

All come from SplitMix64 (Steele, Lea and Flood, 2014): number n of a key is a mixture of key + (n + 1) * GAMMA.
"""

from __future__ import annotations

import numpy as np

GAMMA = 0x9E3779B97F4A7C15
_FACTORS = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_SHIFTS = 30, 27, 31
_WORD = (1 << 64) - 1


def row_keys(seed: int, purpose: int, epoch: int, rows: np.ndarray, copies: np.ndarray) -> np.ndarray:
    """One key for each copy of a row in an epoch, for one purpose."""
    keys = np.zeros(len(rows), dtype=np.uint64)
    for value in (seed, purpose, epoch):
        keys = _mixed(keys ^ np.uint64(value & _WORD))
    for values in (rows, copies):
        keys = _mixed(keys ^ values.astype(np.uint64))
    return keys


def shares(keys: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Numbers `places` of the keys, uniform in [0, 1)."""
    raw = _mixed(keys + places.astype(np.uint64) * np.uint64(GAMMA))
    return (raw >> np.uint64(11)) * 2.0**-53


def _mixed(values: np.ndarray) -> np.ndarray:
    values = values + np.uint64(GAMMA)
    for factor, shift in zip(_FACTORS, _SHIFTS[:2], strict=True):
        values = (values ^ (values >> np.uint64(shift))) * np.uint64(factor)
    return values ^ (values >> np.uint64(_SHIFTS[2]))


class Draws:
    """The numbers of one key, one after the other."""

    def __init__(self, key: int):
        self._state = key & _WORD

    def share(self) -> float:
        """Uniform in [0, 1)."""
        self._state = value = (self._state + GAMMA) & _WORD
        for factor, shift in zip(_FACTORS, _SHIFTS[:2], strict=True):
            value = ((value ^ (value >> shift)) * factor) & _WORD
        return ((value ^ (value >> _SHIFTS[2])) >> 11) * 2.0**-53

    def chosen(self, count: int, share: float) -> list[int]:
        """Which of so many things are drawn, each with the same chance; takes a number for each."""
        drawn = shares(np.full(count, self._state, dtype=np.uint64), np.arange(count))
        self._state = (self._state + count * GAMMA) & _WORD
        return np.flatnonzero(drawn < share).tolist()

    def below(self, end: int) -> int:
        """A whole number from 0 to end - 1."""
        return int(self.share() * end)
