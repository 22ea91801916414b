"""Trains a unigram vocabulary (Kudo 2018, "Subword Regularization"), giving the same pieces every time.

The trainer of Hugging Face `tokenizers` sums in the order of a randomly seeded hash table, so that two runs over one
text differ. Here all words are segmented at once over flat arrays of lattice edges, in one fixed order.

Departs: words beyond the `MAX_WORDS` most frequent ones are not looked at, and longer ones than `MAX_WORD` characters
are cut there; the loss of removing a piece leaves out the change of the normaliser.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

MAX_WORDS = 200_000
MAX_WORD = 64
MAX_PIECE = 16
_SEEDS_PER_PIECE = 10
_SHRINK = 0.75  # share of the pieces that a round of pruning keeps
_ROUNDS_OF_EM = 2
_LEAST_EXPECTED = 0.5


def train_unigram(words: Mapping[str, int], size: int) -> list[tuple[str, float]]:
    """At most `size` pieces with their log-probabilities, likeliest first. Every character stays a piece if it can."""
    cut: Counter[str] = Counter()
    for word, count in words.items():
        for begin in range(0, len(word), MAX_WORD):
            cut[word[begin : begin + MAX_WORD]] += count
    short = sorted(cut.items(), key=lambda item: (-item[1], item[0]))[:MAX_WORDS]
    characters = _characters(words, size)
    pieces, scores = _seeds(short, characters, size)
    text = _Lattice([word for word, _ in short], pieces)
    counts = np.array([count for _, count in short], dtype=np.float64)
    required = len(characters)  # these come first in `pieces`, and are never removed
    goal = max(required, min(len(pieces), math.ceil(size * 1.1)))
    expected = np.zeros(len(pieces))
    while True:
        for _ in range(_ROUNDS_OF_EM):
            expected = text.expected(scores, counts)
            alive = expected >= _LEAST_EXPECTED
            alive[:required] = True
            pieces, expected = [piece for piece, keep in zip(pieces, alive, strict=True) if keep], expected[alive]
            text.keep(alive)
            expected = np.maximum(expected, _LEAST_EXPECTED)
            scores = _digamma(expected) - _digamma(expected.sum(keepdims=True))
        if len(pieces) <= goal:
            break
        lost = expected * (scores - _Lattice(pieces, pieces).best(scores))
        lost[:required] = np.inf
        count = max(goal, int(len(pieces) * _SHRINK))
        alive = np.zeros(len(pieces), dtype=bool)
        alive[np.argsort(-lost, kind="stable")[:count]] = True
        pieces, scores = [piece for piece, keep in zip(pieces, alive, strict=True) if keep], scores[alive]
        text.keep(alive)
    order = np.argsort(-scores, kind="stable")
    chosen = sorted([*range(required), *[i for i in order if i >= required][: max(0, size - required)]])
    rounded = [(pieces[i], round(float(scores[i]), 6)) for i in chosen]
    return sorted(rounded, key=lambda item: (-item[1], item[0]))


def _characters(words: Mapping[str, int], size: int) -> list[str]:
    """The most frequent characters, as many as may stand in the vocabulary."""
    counts: dict[str, int] = {}
    for word, count in words.items():
        for character in word:
            counts[character] = counts.get(character, 0) + count
    return sorted(counts, key=lambda character: (-counts[character], character))[:size]


def _seeds(words: Sequence[tuple[str, int]], characters: Sequence[str], size: int) -> tuple[list[str], np.ndarray]:
    """The characters and the substrings that cover most text, scored by frequency."""
    counts: dict[str, int] = {}
    for word, count in words:
        for begin in range(len(word)):
            for end in range(begin + 1, min(len(word), begin + MAX_PIECE) + 1):
                piece = word[begin:end]
                counts[piece] = counts.get(piece, 0) + count
    known = set(characters)
    longer = [piece for piece, count in counts.items() if len(piece) > 1 and count > 1 and known.issuperset(piece)]
    longer.sort(key=lambda piece: (-counts[piece] * len(piece), piece))
    pieces = [*characters, *longer[: size * _SEEDS_PER_PIECE]]
    weights = np.array([counts.get(piece, 1) for piece in pieces], dtype=np.float64)
    return pieces, np.log(weights / weights.sum())


class _Lattice:
    """All ways to cut many strings into pieces, as edges (string, begin, end, piece)."""

    def __init__(self, strings: Sequence[str], pieces: Sequence[str]):
        ids = {piece: i for i, piece in enumerate(pieces)}
        longest = max(map(len, pieces))
        edges: list[tuple[int, int, int, int]] = []
        for number, string in enumerate(strings):
            for begin in range(len(string)):
                for end in range(begin + 1, min(len(string), begin + longest) + 1):
                    piece = ids.get(string[begin:end])
                    if piece is not None:
                        edges.append((number, begin, end, piece))
        self.lengths = np.array([len(string) for string in strings])
        self.edges = np.array(edges, dtype=np.int32).reshape(-1, 4)

    def keep(self, alive: np.ndarray) -> None:
        """Removes the pieces that are not alive, and renumbers the others."""
        edges = self.edges[alive[self.edges[:, 3]]]
        edges[:, 3] = (np.cumsum(alive) - 1)[edges[:, 3]]
        self.edges = edges

    def expected(self, scores: np.ndarray, counts: np.ndarray) -> np.ndarray:
        """How often each piece is expected in strings that occur `counts` times, over all ways to cut them."""
        number, begin, end, piece = self.edges.T
        weights = scores[piece]
        forward = self._sweep(begin, end, weights, range(1, int(self.lengths.max()) + 1), starts=0)
        backward = self._sweep(end, begin, weights, range(int(self.lengths.max()) - 1, -1, -1), starts=self.lengths)
        totals = forward[np.arange(len(self.lengths)), self.lengths]
        totals[~np.isfinite(totals)] = np.inf  # a string with a character outside the vocabulary counts nothing
        share = forward[number, begin] + weights + backward[number, end] - totals[number]
        return np.bincount(piece, np.exp(share) * counts[number], minlength=len(scores))

    def best(self, scores: np.ndarray) -> np.ndarray:
        """The score of the best way to cut each string into two or more pieces (very low where there is none)."""
        number, begin, end, piece = self.edges.T
        several = (end - begin) < self.lengths[number]
        weights = np.where(several, scores[piece], -np.inf)
        best = self._sweep(begin, end, weights, range(1, int(self.lengths.max()) + 1), starts=0, largest=True)
        return np.maximum(best[np.arange(len(self.lengths)), self.lengths], -1e9)

    def _sweep(
        self,
        near: np.ndarray,
        far: np.ndarray,
        weights: np.ndarray,
        stops: range,
        starts: int | np.ndarray,
        largest: bool = False,
    ) -> np.ndarray:
        """Log-sum (or largest) over all paths from `starts` to each position of each string."""
        number = self.edges[:, 0]
        table = np.full((len(self.lengths), int(self.lengths.max()) + 1), -np.inf)
        table[np.arange(len(self.lengths)), starts] = 0.0
        order = np.lexsort((number, far))
        borders = np.searchsorted(far[order], np.arange(int(self.lengths.max()) + 2))
        for stop in stops:
            arriving = order[borders[stop] : borders[stop + 1]]
            if not len(arriving):
                continue
            strings = number[arriving]
            values = table[strings, near[arriving]] + weights[arriving]
            firsts = np.flatnonzero(np.diff(strings, prepend=-1))
            top = np.maximum.reduceat(values, firsts)
            if not largest:
                safe = np.where(np.isfinite(top), top, 0.0)
                sizes = np.diff(firsts, append=len(values))
                with np.errstate(divide="ignore"):
                    top = safe + np.log(np.add.reduceat(np.exp(values - np.repeat(safe, sizes)), firsts))
            table[strings[firsts], stop] = top
        return table


def _digamma(x: np.ndarray) -> np.ndarray:
    """The derivative of log-gamma: EM with it favours few, frequent pieces (a sparse Dirichlet prior)."""
    shifted, result = x.astype(np.float64), np.zeros(x.shape)
    for _ in range(7):
        result -= 1.0 / shifted
        shifted = shifted + 1.0
    square = 1.0 / (shifted * shifted)
    return result + np.log(shifted) - 0.5 / shifted - square * (1 / 12 - square * (1 / 120 - square / 252))
