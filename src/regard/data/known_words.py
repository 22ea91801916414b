"""Long texts into tokens by way of their words: each word is cut into tokens once, and lines are put together from arrays."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from regard.data.tokenizers import MOST_WORDS, Tokenizer


class KnownWords:
    """The tokens of the words met so far, one after another in one array: what `Tokenizer.encode` gives, as flat arrays."""

    def __init__(self, tokenizer: Tokenizer):
        self._tokenizer = tokenizer
        self._forget()

    def _forget(self) -> None:
        self._number: dict[str, int] = {}
        self._flat = np.zeros(0, dtype=np.int32)
        self._ends = np.zeros(1, dtype=np.int64)  # of word i's tokens: ends[i] to ends[i + 1]

    def rows(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """The token ids of all texts, and how many are each text's."""
        if not self._tokenizer.cuts_words(texts):
            ids = self._tokenizer.encode(texts)
            return _flat(ids), _lengths(ids)
        if len(self._number) > MOST_WORDS:
            self._forget()
        lines = [text.split() for text in texts]
        words = list(itertools.chain.from_iterable(lines))
        self._learn(list(set(words).difference(self._number)))
        at = np.fromiter(map(self._number.__getitem__, words), dtype=np.int64, count=len(words))
        begins, lengths = self._ends[at], np.diff(self._ends)[at]
        ends = np.concatenate(([0], np.cumsum(lengths)))
        flat = self._flat[np.repeat(begins - ends[:-1], lengths) + np.arange(ends[-1])]
        return flat, np.diff(ends[np.concatenate(([0], np.cumsum(_lengths(lines))))])

    def _learn(self, words: list[str]) -> None:
        if not words:
            return
        ids = self._tokenizer.encode(words)
        self._number.update(zip(words, itertools.count(len(self._number))))
        self._flat = np.concatenate((self._flat, _flat(ids)))
        self._ends = np.concatenate((self._ends, self._ends[-1] + np.cumsum(_lengths(ids))))


def _lengths(rows: Sequence[Sequence]) -> np.ndarray:
    return np.fromiter(map(len, rows), dtype=np.int64, count=len(rows))


def _flat(ids: Sequence[Sequence[int]]) -> np.ndarray:
    return np.fromiter(itertools.chain.from_iterable(ids), dtype=np.int32)
