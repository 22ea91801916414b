"""The size of a corpus and the shape of its lines, gathered while it is read."""

from __future__ import annotations

import numpy as np

from regard.data.checks.block import Block, PairBlock
from regard.data.checks.characters import CHARACTERS
from regard.data.checks.hashes import DistinctCount
from regard.data.checks.lines import Profile
from regard.data.checks.report import Distribution, Statistics

_LENGTH_BINS = 60
_WIDEST_RATIO, _RATIO_BINS = 16.0, 64  # between 1/16 and 16; what is beyond goes to two outer bins


class Tally:
    """Counts pairs, words and characters; 4 bytes are kept for each line and unit that it is measured in."""

    def __init__(self, profile: Profile):
        self._profile = profile
        self._unspaced = (profile.source.unspaced, profile.target.unspaced)
        units = [{"characters" if unspaced else "words", self.ratio_unit} for unspaced in self._unspaced]
        self._measured = [{unit: [np.zeros(0, dtype=np.uint32)] for unit in sorted(side)} for side in units]
        self._totals = [{"words": 0, "characters": 0} for _ in units]
        self._vocabulary = (DistinctCount(), DistinctCount())
        self._pairs = 0

    def add(self, block: PairBlock) -> None:
        self._pairs += len(block)
        for i, side in enumerate((block.source, block.target)):
            for unit in ("words", "characters"):
                counts: np.ndarray = getattr(side, unit)
                self._totals[i][unit] += int(counts.sum())
                if unit in self._measured[i]:
                    self._measured[i][unit].append(counts.astype(np.uint32))
            self._vocabulary[i].add(_characters_of(side) if self._unspaced[i] else side.word_hashes)

    def statistics(self) -> Statistics:
        source, target = (np.concatenate(side[self.ratio_unit]) for side in self._measured)
        filled = (source > 0) & (target > 0)
        ratios = _ratios(target[filled] / source[filled])
        lengths = [
            np.concatenate(side["characters" if unspaced else "words"])
            for side, unspaced in zip(self._measured, self._unspaced, strict=True)
        ]
        return Statistics(
            pairs=self._pairs,
            source_words=self._totals[0]["words"],
            target_words=self._totals[1]["words"],
            source_characters=self._totals[0]["characters"],
            target_characters=self._totals[1]["characters"],
            source_vocabulary=len(self._vocabulary[0]),
            target_vocabulary=len(self._vocabulary[1]),
            source_script=self._profile.source.script,
            target_script=self._profile.target.script,
            source_lengths=_distribution(lengths[0], _length_edges(lengths[0])),
            target_lengths=_distribution(lengths[1], _length_edges(lengths[1])),
            ratios=ratios,
        )

    @property
    def ratio_unit(self) -> str:
        """What the ratios of lengths are counted in."""
        return "characters" if any(self._unspaced) else "words"


def _characters_of(block: Block) -> np.ndarray:
    hashes = np.take(CHARACTERS.hashes, block.codes, mode="clip")
    return hashes[hashes != 0]


def _length_edges(lengths: np.ndarray) -> np.ndarray:
    """Whole numbers: evenly up to where nearly all lines end, then one bin for all that are longer."""
    if not len(lengths):
        return np.array([0.0, 1.0])
    most = int(lengths.max()) + 1
    usual = min(most, int(np.percentile(lengths, 99)) + 2)
    edges = np.unique(np.linspace(0, usual, min(_LENGTH_BINS, usual) + 1).round())
    return edges if most <= usual else np.append(edges, most)


def _ratios(ratios: np.ndarray) -> Distribution:
    edges = np.geomspace(1 / _WIDEST_RATIO, _WIDEST_RATIO, _RATIO_BINS + 1)
    if len(ratios) and ratios.min() < edges[0]:
        edges = np.append(ratios.min(), edges)
    if len(ratios) and ratios.max() > edges[-1]:
        edges = np.append(edges, ratios.max())
    return _distribution(ratios, edges)


def _distribution(values: np.ndarray, edges: np.ndarray) -> Distribution:
    counts = np.histogram(values, edges)[0]
    if not len(values):
        return Distribution(tuple(edges.tolist()), tuple(counts.tolist()), 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    low, middle, high = np.percentile(values, [1, 50, 99]).tolist()
    return Distribution(
        edges=tuple(edges.tolist()),
        counts=tuple(counts.tolist()),
        mean=float(values.mean()),
        median=middle,
        percentile_1=low,
        percentile_99=high,
        least=float(values.min()),
        most=float(values.max()),
    )
