"""How well two lines fit each other: log-ratio tables learned from a corpus, its pairs against far shifts of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from regard.data.checks.alignment_lexicon import Lexicon
from regard.data.checks.alignment_lines import MARKS, SideArrays
from regard.data.checks.alignment_path import best_path

_FAR = (50, 500)  # lines: so far off a given pair, two lines are together by chance
_FAR_DRAWS = 3  # for each pair
_PSEUDO_COUNT = 1.0  # of each cell, so that rare cells say little
_LENGTH_BINS, _LENGTH_CLASSES = 24, 4
_MOST_WEIGHED = 20_000  # pairs from which the weights of the tables are learned
_PRIOR_STRENGTH = 5.0  # how many pairs the belief is worth that the tables say different things
_SETTLED = 1e-3  # change of a weight
_MOST_NATS = 8.0  # that one pair of lines can say for or against itself
_PENALTY = 10.0  # nats for each change of the shift along a corpus


class Half(NamedTuple):
    """The lines of one side as they are compared."""

    lengths: np.ndarray
    marks: np.ndarray
    numbers: np.ndarray
    sets: np.ndarray  # of shared words, [64-bit words, lines]

    @property
    def lines(self) -> int:
        return self.lengths.size

    def at(self, lines: np.ndarray | slice) -> Half:
        return Half(self.lengths[lines], self.marks[lines], self.numbers[lines], self.sets[:, lines])


def halves(lexicon: Lexicon, source: SideArrays, target: SideArrays, folds: np.ndarray) -> tuple[Half, Half]:
    """Both sides with the sets that a lexicon makes of their words; `folds` are those of the target lines."""
    return (
        Half(source.lengths, source.marks, source.numbers, lexicon.source_sets(source)),
        Half(target.lengths, target.marks, target.numbers, lexicon.target_sets(target, folds)),
    )


class Evidence:
    """Log-ratios, in nats, of two lines belonging together against being together by chance."""

    def __init__(self, lexicon: Lexicon, tables: Sequence[np.ndarray], bias: float, information: float):
        self.lexicon = lexicon
        self.information = information  # nats between a pair that belongs together and one that does not, on average
        self._tables, self._bias = [table.astype(np.float32) for table in tables], bias

    @classmethod
    def learn(
        cls, lexicon: Lexicon, source: Half, target: Half, pairs: tuple[np.ndarray, np.ndarray], window: int
    ) -> Evidence:
        """Learns from the given pairs of lines against pairs far off; the lines are in windows of a given size."""
        far = far_pairs(pairs, target.lines, window)
        near_cells, far_cells = (_cells(source.at(ids), target.at(others), lexicon) for ids, others in (pairs, far))
        weight = pairs[0].size / max(1, far[0].size)
        tables = [_length_table(near_cells[0], far_cells[0], weight)]
        tables += [_table(near, other, weight) for near, other in zip(near_cells[1:], far_cells[1:], strict=True)]
        every = pairs[0].size // _MOST_WEIGHED + 1
        near, other = (
            np.stack([table[cells[::every]] for table, cells in zip(tables, which, strict=True)], axis=1)
            for which in (near_cells, far_cells)
        )
        weights, bias = _logistic(near, other, weight)
        known = near.size and other.size
        information = float((near.mean(axis=0) - other.mean(axis=0)) @ weights) if known else 0.0
        return cls(lexicon, [table * w for table, w in zip(tables, weights, strict=True)], bias, information)

    def nats(self, source: Half, target: Half) -> np.ndarray:
        """For each source line (or one for all), how much better than chance the target line of the same place fits."""
        total = np.full(target.lines, self._bias, dtype=np.float32)
        for table, cells in zip(self._tables, _cells(source, target, self.lexicon), strict=True):
            total += table[cells]
        return np.clip(total, -_MOST_NATS, _MOST_NATS)


class Comparison:
    """Two sides with the evidence by which their lines are compared."""

    def __init__(self, evidence: Evidence, source: Half, target: Half, weights: np.ndarray):
        self.evidence, self.source, self.target = evidence, source, target
        self.weights = weights  # of the source lines, as `independence` gives them

    def nats(self, begin: int, end: int, shift: int | None) -> np.ndarray:
        """How well source lines fit the target lines `shift` further on: 0 is chance, as where there is no such line."""
        fit = np.zeros(end - begin, dtype=np.float32)
        if shift is None:
            return fit
        low, high = max(begin, -shift), min(end, self.target.lines - shift)
        if low < high:
            source, target = self.source.at(slice(low, high)), self.target.at(slice(low + shift, high + shift))
            fit[low - begin : high - begin] = self.evidence.nats(source, target) * self.weights[low:high]
        return fit

    def path(self, shifts: Sequence[int | None]) -> np.ndarray:
        """Which of the shifts (an index) fits each source line in the likeliest course of the whole."""

        def emissions(begin: int, end: int) -> np.ndarray:
            return np.stack([self.nats(begin, end, shift) for shift in shifts], axis=1)

        return best_path(emissions, self.source.lines, len(shifts), _PENALTY)


def independence(source: SideArrays, target: SideArrays) -> np.ndarray:
    """A weight for each source line: equal lines one after the other, on either side, count as one together."""
    weights = np.ones(source.lines, dtype=np.float32)
    for side in (source, target):
        values = (side.prints, side.lengths, side.marks, side.numbers)
        differs = np.any([value[1:] != value[:-1] for value in values], axis=0)
        sizes = np.diff(np.flatnonzero(np.concatenate(([True], differs))), append=side.lines)
        shares = np.repeat(1 / sizes, sizes)[: source.lines].astype(np.float32)
        np.minimum(weights[: shares.size], shares, out=weights[: shares.size])
    return weights


def _cells(source: Half, target: Half, lexicon: Lexicon) -> list[np.ndarray]:
    """The cell of each table into which a pair of lines falls: below 65,536 for lengths, below 256 for all others."""
    one, two, both = (
        _sizes(bits[None], 3) for bits in (source.numbers, target.numbers, source.numbers & target.numbers)
    )
    cells = [
        source.lengths.astype(np.uint16) << np.uint16(8) | target.lengths,
        source.marks * np.uint8(MARKS) + target.marks,
        one << np.uint8(4) | two << np.uint8(2) | both,
    ]
    for begin, end in lexicon.slots:
        ours, theirs = source.sets[begin:end], target.sets[begin:end]
        cells.append(np.minimum(_sizes(ours, 7), _sizes(theirs, 7)) << np.uint8(3) | _sizes(ours & theirs, 7))
    return cells


def _sizes(sets: np.ndarray, most: int) -> np.ndarray:
    total = np.bitwise_count(sets[0])
    for bits in sets[1:]:
        total += np.bitwise_count(bits)
    return np.minimum(total, np.uint8(most))


def far_pairs(pairs: tuple[np.ndarray, np.ndarray], lines: int, window: int) -> tuple[np.ndarray, np.ndarray]:
    """The given source lines with target lines far from theirs, in the same window where there is room."""
    random = np.random.default_rng(0)
    least = min(_FAR[0], window // 8 + 1)
    most = max(least, min(_FAR[1], window // 2))
    ids, others = (np.tile(side, _FAR_DRAWS) for side in pairs)
    offsets = random.integers(least, most + 1, ids.size) * random.choice([-1, 1], ids.size)
    crosses = (others + offsets) // window != others // window
    others = others + np.where(crosses, -offsets, offsets)
    inside = (others >= 0) & (others < lines)
    return ids[inside], others[inside]


def _table(near: np.ndarray, far: np.ndarray, weight: float) -> np.ndarray:
    counts, by_chance = (np.bincount(cells, minlength=256) for cells in (near, far))
    return np.log((counts + _PSEUDO_COUNT) / (by_chance * weight + _PSEUDO_COUNT))


def _length_table(near: np.ndarray, far: np.ndarray, weight: float) -> np.ndarray:
    """A value for each pair of lengths, by their ratio (in quantiles) and the source's length (in quarters)."""
    grid = np.arange(1 << 16)
    length, ratio = grid >> 8, (grid & 255) - (grid >> 8)
    if not near.size:
        return np.zeros(grid.size)
    pooled = np.concatenate((ratio[near], ratio[far[: near.size]]))
    edges = np.unique(np.quantile(pooled, np.linspace(0, 1, _LENGTH_BINS + 1)[1:-1]))
    quarters = np.quantile(length[near], np.linspace(0, 1, _LENGTH_CLASSES + 1)[1:-1])
    bins = np.searchsorted(quarters, length, side="right") * _LENGTH_BINS
    bins += np.searchsorted(edges, ratio, side="right")
    return _table(bins[near], bins[far], weight)[bins]


def _logistic(near: np.ndarray, far: np.ndarray, weight: float) -> tuple[np.ndarray, float]:
    """Weights of the tables and a bias, by logistic regression: what two tables say alike is not counted twice."""
    rows = np.concatenate((near, far))
    rows = np.concatenate((rows, np.ones((len(rows), 1))), axis=1)
    belongs = np.arange(len(rows)) < len(near)
    importance = np.where(belongs, 1.0, weight)
    prior = np.append(np.ones(near.shape[1]), 0.0)

    def loss(weights: np.ndarray) -> float:
        wrong = np.logaddexp(0, np.where(belongs, -1.0, 1.0) * (rows @ weights))
        return float(importance @ wrong + _PRIOR_STRENGTH / 2 * np.square(weights - prior).sum())

    weights, least = prior, loss(prior)
    for _ in range(20):  # Newton's method, with steps that go down
        chance = 1 / (1 + np.exp(-np.clip(rows @ weights, -30, 30)))
        gradient = rows.T @ (importance * (belongs - chance)) - _PRIOR_STRENGTH * (weights - prior)
        curvature = (rows * (importance * chance * (1 - chance))[:, None]).T @ rows
        step = np.linalg.solve(curvature + _PRIOR_STRENGTH * np.eye(prior.size), gradient)
        reached = loss(weights + step)
        while reached > least and np.abs(step).max() > _SETTLED:
            step = step / 2
            reached = loss(weights + step)
        if np.abs(step).max() <= _SETTLED:
            break
        weights, least = weights + step, reached
    return np.clip(weights[:-1], 0.0, 2.0), float(weights[-1])
