"""Where in a file the lines with a finding are: counts for parts of it, whose number does not grow with the file."""

from __future__ import annotations

import numpy as np

_CELLS = 1 << 10


class Places:
    """Counts lines in cells of a size that doubles when the file is longer than all cells together."""

    def __init__(self) -> None:
        self._size = 1
        self._counts = np.zeros(_CELLS, dtype=np.int64)

    def add(self, lines: np.ndarray) -> None:
        """Adds lines, which count from 0."""
        if not len(lines):
            return
        self._reach(int(lines.max()) + 1)
        self._counts += np.bincount(lines // self._size, minlength=_CELLS)

    def add_stretch(self, begin: int, end: int) -> None:
        """Adds all lines from `begin` to before `end`."""
        for first in range(begin, end, 1 << 20):
            self.add(np.arange(first, min(first + (1 << 20), end)))

    def parts(self, lines: int, most: int = 200) -> list[int]:
        """The counts for equal parts of a file of so many lines: `most` of them, or fewer where it is short."""
        self._reach(lines)
        cells = -(-max(lines, 1) // self._size)
        groups = -(-cells // most)  # cells that make one part
        filled = np.zeros(-(-cells // groups) * groups, dtype=np.int64)
        filled[:cells] = self._counts[:cells]
        return filled.reshape(-1, groups).sum(axis=1).tolist()

    def _reach(self, lines: int) -> None:
        while lines > _CELLS * self._size:
            self._counts = np.append(self._counts.reshape(-1, 2).sum(axis=1), np.zeros(_CELLS // 2, dtype=np.int64))
            self._size *= 2
