"""The interpolated trigram that Bengio et al. 2003 (section 4) compare and mix their network with (Jelinek and Mercer 1980).

    P(w | u v) = α0 p0 + α1 p1(w) + α2 p2(w | v) + α3 p3(w | u v)

p0 is 1 / V, and p1, p2, p3 are relative frequencies in the training text. The weights α depend on how often the context u v
was seen there: contexts of x occurrences in T words share those of bin ⌈-log((1 + x) / T)⌉. They are learnt by EM on text held
out, to which each bin adds one imagined token, a quarter of it from each p: so no weight becomes 0, and with it no probability.

Tokens are a stream in which EOS ends every document. A context goes on over EOS as over any word, and before the first token
there are two EOS. Where a context was never seen, the relative frequencies after it are those after the shorter one: so
P always adds up to 1 over the vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from regard.core.errors import DataError
from regard.core.types import EOS

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]

MOST_WORDS = 2_000_000  # three of which fit one number of 64 bits
BLOCK = 1 << 20  # tokens looked up at once
IMAGINED = 0.25  # of a token, for each bin and p
ENOUGH = 1e-7  # a round that gains less per token, in nats, is the last


class Trigram:
    """Counts of one to three words, and the weights that they are mixed by: equal ones until `fit`."""

    def __init__(self, tokens: Integers, vocabulary: int):
        self.vocabulary, self.tokens = vocabulary, len(tokens)
        u, v, w = _threes(tokens)
        pairs = (u * vocabulary + v, v * vocabulary + w)
        self._words = np.bincount(w, minlength=vocabulary)
        self._contexts = np.bincount(v, minlength=vocabulary)  # as a word before a word
        self._context_pairs = _Counts(pairs[0])
        self._pairs = _Counts(pairs[1])
        self._threes = _Counts(pairs[0] * vocabulary + w)
        self.weights: Floats = np.full((self._bin(0) + 1, 4), 0.25)  # α: bins x p0 .. p3

    @classmethod
    def count(cls, tokens: Sequence[int] | NDArray[Any], vocabulary: int) -> Self:
        """Counts a training text."""
        if not 0 < vocabulary <= MOST_WORDS:
            what = f"a vocabulary of {vocabulary:,} words"
            raise DataError("trigram", what, f"Give one of 1 to {MOST_WORDS:,}")
        return cls(_checked(tokens, vocabulary, "the training text"), vocabulary)

    def fit(self, tokens: Sequence[int] | NDArray[Any], rounds: int = 100) -> list[float]:
        """Learns the weights from text held out, by EM.

        Gives what EM raises, before each round and at last: the mean log-probability of a token, the imagined ones included.
        Bins that this text has no token of get the weights of all tokens together.
        """
        parts, bins = self._parts(_checked(tokens, self.vocabulary, "the text held out"))
        weights = np.full_like(self.weights, 0.25)
        counts = np.bincount(bins, minlength=len(weights))
        seen = counts > 0
        gained: list[float] = []
        while True:
            mixed = weights[bins] * parts
            total = mixed.sum(1)
            imagined = IMAGINED * np.log(weights[seen]).sum()
            gained.append(float((np.log(total).sum() + imagined) / (len(total) + 4 * IMAGINED * seen.sum())))
            if len(gained) > rounds or (len(gained) > 1 and gained[-1] - gained[-2] < ENOUGH):
                break
            owed = mixed / total[:, None]  # P(the word came from p_i): the E step
            sums = np.stack([np.bincount(bins, owed[:, i], minlength=len(weights)) for i in range(4)], 1) + IMAGINED
            weights = np.where(seen[:, None], sums, sums.sum(0))
            weights /= weights.sum(1, keepdims=True)
        self.weights = weights
        return gained

    def log_probs(self, tokens: Sequence[int] | NDArray[Any]) -> Floats:
        """The natural logarithm of the probability of every token, each after the two before it."""
        checked = _checked(tokens, self.vocabulary, "the text")
        blocks = []
        for begin in range(0, len(checked), BLOCK):
            parts, bins = self._parts(checked[max(0, begin - 2) : begin + BLOCK])
            blocks.append(np.log((self.weights[bins] * parts).sum(1))[min(begin, 2) :])
        return np.concatenate(blocks)

    def _parts(self, tokens: Integers) -> tuple[Floats, Integers]:
        """p0 .. p3 of every token, and the bin of its context."""
        u, v, w = _threes(tokens)
        before = u * self.vocabulary + v
        p1 = self._words[w] / self.tokens
        p2 = _ratio(self._pairs[v * self.vocabulary + w], self._contexts[v], p1)
        contexts = self._context_pairs[before]
        p3 = _ratio(self._threes[before * self.vocabulary + w], contexts, p2)
        parts = np.stack([np.full(len(w), 1 / self.vocabulary), p1, p2, p3], 1)
        return parts, self._bin(contexts)

    def _bin(self, seen: Any) -> Any:
        """⌈-log((1 + x) / T)⌉: 0 for the most frequent contexts, the more the rarer."""
        return np.maximum(0, np.ceil(-np.log((1 + seen) / self.tokens))).astype(np.int64)


class _Counts:
    """How often each key of a list is in it, looked up for many keys at once."""

    def __init__(self, keys: Integers):
        self._keys, self._counts = np.unique(keys, return_counts=True)

    def __getitem__(self, keys: Integers) -> Integers:
        places = np.searchsorted(self._keys, keys).clip(max=len(self._keys) - 1)
        return np.where(self._keys[places] == keys, self._counts[places], 0)


def _threes(tokens: Integers) -> tuple[Integers, Integers, Integers]:
    """Each token, and before it the two before it."""
    padded = np.concatenate([np.full(2, EOS, dtype=np.int64), tokens])
    return padded[:-2], padded[1:-1], padded[2:]


def _ratio(count: Integers, of: Integers, otherwise: Floats) -> Floats:
    return np.where(of > 0, count / np.maximum(of, 1), otherwise)


def _checked(tokens: Sequence[int] | NDArray[Any], vocabulary: int, what: str) -> Integers:
    array = np.asarray(tokens)
    if array.ndim != 1 or not len(array):
        raise DataError(f"trigram, {what}", "it has no tokens", "Give a flat list of at least one token")
    if array.dtype.kind not in "iu":
        raise DataError(f"trigram, {what}", f"its tokens are {array.dtype}", "Give token ids, which are integers")
    if array.min() < 0 or array.max() >= vocabulary:
        wrong = int(array.min()) if array.min() < 0 else int(array.max())
        raise DataError(
            f"trigram, {what}",
            f"token {wrong} is not one of a vocabulary of {vocabulary:,}",
            "Give text of the tokenizer that the training text was encoded with",
        )
    return array.astype(np.int64)
