"""Pairs that stand in a corpus more than once, nearly the same pairs, and pairs of held-out text."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from regard.data.checks.block import Block, PairBlock, blocks_of
from regard.data.checks.characters import CHARACTERS
from regard.data.checks.hashes import HashSet, distinct, mixed
from regard.data.split import Pairs

_SKETCH = 16  # numbers that a pair is compared by
_BAND = 4  # of them must agree for two pairs to be compared at all
_AGREE = 13  # of all must agree for the pairs to count as similar: about three of four words are the same
_LEAST_WORDS = 16  # of both sides together; shorter pairs that differ by a word say something else
_MOST_PAIRS = 4_000_000  # that are compared with each other, for which 128 MB of memory are needed
_random = np.random.Generator(np.random.Philox(key=20))
_FACTORS = _random.integers(0, 1 << 32, _SKETCH, dtype=np.uint32) | np.uint32(1)
_ADDED = _random.integers(0, 1 << 32, _SKETCH, dtype=np.uint32)
_TARGET = np.uint32(0x5BD1E995)  # tells words of the target from those of the source


class SeenPairs:
    """Finds pairs that stood in a corpus before: exactly, or but for case, punctuation, digits and white space."""

    def __init__(self) -> None:
        self._exact, self._folded = HashSet(), HashSet()
        self._copies: list[np.ndarray] = []

    def add(self, chunk: Pairs) -> dict[str, np.ndarray]:
        """Which pairs of a chunk are "duplicates" or "near-duplicates" of earlier ones. Empty lines are neither."""
        parts = [self.add_block(block) for block in blocks_of(chunk)]
        return _joined(parts, ("duplicates", "near-duplicates"))

    def add_block(self, block: PairBlock) -> dict[str, np.ndarray]:
        whole = np.flatnonzero(block.whole)
        exact, near = np.zeros(len(block), dtype=bool), np.zeros(len(block), dtype=bool)
        hashes = block.exact[whole]
        exact[whole] = ~self._exact.add(hashes)
        near[whole] = ~self._folded.add(block.keys_without_digits[whole])
        self._copies.append(block.exact[exact])
        return {"duplicates": exact, "near-duplicates": near & ~exact}

    def most_copies(self) -> tuple[int, int]:
        """How many different pairs stand there more than once, and how often the most frequent one does."""
        copies = np.sort(np.concatenate([np.zeros(0, dtype=np.uint64), *self._copies]))
        if not len(copies):
            return 0, 0
        borders = np.flatnonzero(np.concatenate([[True], copies[1:] != copies[:-1], [True]]))
        return len(borders) - 1, int(np.diff(borders).max()) + 1


class SimilarPairs:
    """Finds long pairs that differ from an earlier one by few words, with MinHash sketches of 32 bytes."""

    def __init__(self, source_unspaced: bool = False, target_unspaced: bool = False):
        self._unspaced = (source_unspaced, target_unspaced)
        self._sketches: list[np.ndarray] = []
        self._rows: list[np.ndarray] = []
        self._compared = self.lines = 0

    def add(self, chunk: Pairs, without: np.ndarray | None = None) -> None:
        """Adds the pairs of a chunk, but for those of a mask (such as duplicates, which are found otherwise)."""
        begin = 0
        for block in blocks_of(chunk):
            end = begin + len(block)
            self.add_block(block, np.zeros(len(block), dtype=bool) if without is None else without[begin:end])
            begin = end

    def add_block(self, block: PairBlock, without: np.ndarray) -> None:
        begin, self.lines = self.lines, self.lines + len(block)
        if self._compared >= _MOST_PAIRS:
            return
        sides = [
            _words(side, unspaced) for side, unspaced in zip((block.source, block.target), self._unspaced, strict=True)
        ]
        counts = sides[0][1] + sides[1][1]
        rows = np.flatnonzero((counts >= _LEAST_WORDS) & block.whole & ~without)
        if not len(rows):
            return
        sketches = np.empty((_SKETCH, len(rows)), dtype=np.uint16)
        least = [_Least(words, counts, rows) for words, counts in sides]
        for i in range(_SKETCH):
            one, other = least[0](_FACTORS[i], _ADDED[i]), least[1](_FACTORS[i], _ADDED[i] ^ _TARGET)
            sketches[i] = np.minimum(one, other) >> np.uint32(8)  # minima have few high bits that differ
        self._sketches.append(np.ascontiguousarray(sketches.T))
        self._rows.append(begin + rows)
        self._compared += len(rows)

    @property
    def complete(self) -> bool:
        """Whether all pairs have been compared; beyond 4 million, only the first ones are."""
        return self._compared < _MOST_PAIRS

    def repeats(self) -> np.ndarray:
        """True for each pair, of all that were added, that is similar to an earlier one."""
        mask = np.zeros(self.lines, dtype=bool)
        if not self._rows:
            return mask
        sketches, rows = np.concatenate(self._sketches), np.concatenate(self._rows)
        for begin in range(0, _SKETCH, _BAND):
            keys = np.ascontiguousarray(sketches[:, begin : begin + _BAND]).view(np.uint64).ravel()
            order = np.argsort(keys, kind="stable")
            neighbours = np.flatnonzero(keys[order[1:]] == keys[order[:-1]])
            earlier, later = order[neighbours], order[neighbours + 1]
            for part in range(0, len(later), 1 << 18):
                some = slice(part, part + (1 << 18))
                agree = (sketches[earlier[some]] == sketches[later[some]]).sum(axis=1)
                mask[rows[later[some][agree >= _AGREE]]] = True
        return mask


class _Least:
    """The least hash of the words of each of some lines."""

    def __init__(self, words: np.ndarray, counts: np.ndarray, rows: np.ndarray):
        self._words = words
        filled = counts > 0
        self._starts = (np.cumsum(counts) - counts)[filled]
        self._rows = (np.cumsum(filled) - 1)[rows]
        self._none = ~filled[rows]

    def __call__(self, factor: np.uint32, added: np.uint32) -> np.ndarray:
        if not len(self._starts):
            return np.full(len(self._rows), 0xFFFFFFFF, dtype=np.uint32)
        least = np.minimum.reduceat((self._words ^ added) * factor, self._starts)[self._rows]
        least[self._none] = 0xFFFFFFFF
        return least


def _words(block: Block, unspaced: bool) -> tuple[np.ndarray, np.ndarray]:
    """Hashes of words, or of two neighbouring characters where words are not divided, and how many a line has."""
    if not unspaced:
        return (block.word_hashes >> np.uint64(32)).astype(np.uint32), block.words
    hashes = np.take(CHARACTERS.hashes, block.codes, mode="clip")
    pairs = mixed(hashes[:-1] * np.uint64(3) + hashes[1:])
    held = (hashes[:-1] != 0) & (hashes[1:] != 0)
    return (pairs[held] >> np.uint64(32)).astype(np.uint32), block.sums(np.concatenate([held, [False]]))


class HeldOutPairs:
    """The sentences of a held-out text, which training text must not have."""

    def __init__(self, chunks: Iterable[Pairs]):
        pairs, sources = [np.zeros(0, dtype=np.uint64)], [np.zeros(0, dtype=np.uint64)]
        self.counts = (0, 0)  # lines of the two sides
        for chunk in chunks:
            self.counts = (self.counts[0] + len(chunk.sources), self.counts[1] + len(chunk.targets))
            for block in blocks_of(chunk):
                pairs.append(block.keys[block.whole])
                sources.append(block.source.keys[block.whole])
        self._pairs, self._sources = _Watched(np.concatenate(pairs)), _Watched(np.concatenate(sources))
        self.lines = len(self._pairs)  # pairs with text on both sides

    def shared(self, other: HeldOutPairs) -> int:
        """How many of its pairs are in another held-out text as well."""
        return self._pairs.among(other._pairs)

    def add(self, chunk: Pairs) -> dict[str, np.ndarray]:
        """Which training pairs of a chunk are in the held-out text: "leaked-pairs", or with their source only."""
        return _joined([self.add_block(block) for block in blocks_of(chunk)], ("leaked-pairs", "leaked-sources"))

    def add_block(self, block: PairBlock) -> dict[str, np.ndarray]:
        pairs = self._pairs.find(block.keys) & block.whole
        return {"leaked-pairs": pairs, "leaked-sources": self._sources.find(block.source.keys) & block.whole & ~pairs}

    def leaked(self) -> dict[str, int]:
        """How many held-out lines have been found so far: as pairs, and by their sources (whatever their targets)."""
        return {"leaked-pairs": self._pairs.found(), "leaked-sources": self._sources.found()}


class _Watched:
    """Hashes that are watched for."""

    def __init__(self, hashes: np.ndarray):
        self._hashes = hashes
        self._ordered = distinct(hashes)
        self._seen = np.zeros(len(self._ordered), dtype=bool)

    def __len__(self) -> int:
        return len(self._hashes)

    def find(self, hashes: np.ndarray) -> np.ndarray:
        if not len(self._ordered):
            return np.zeros(len(hashes), dtype=bool)
        places = np.minimum(np.searchsorted(self._ordered, hashes), len(self._ordered) - 1)
        there = self._ordered[places] == hashes
        self._seen[places[there]] = True
        return there

    def found(self) -> int:
        """How many of the given hashes, with repetitions, have been found."""
        return int(np.isin(self._hashes, self._ordered[self._seen]).sum())

    def among(self, other: _Watched) -> int:
        """How many of the given hashes, with repetitions, are among others."""
        return int(np.isin(self._hashes, other._ordered).sum())


def _joined(parts: list[dict[str, np.ndarray]], names: tuple[str, ...]) -> dict[str, np.ndarray]:
    none = np.zeros(0, dtype=bool)
    return {name: np.concatenate([none, *(part[name] for part in parts)]) for name in names}
