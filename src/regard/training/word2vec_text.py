"""A text as word2vec reads it: the words of documents one after the other, in batches, and how often each occurs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Self

import numpy as np
import torch

from regard.core.errors import DataError
from regard.core.types import EOS, PAD, UNK, Padded
from regard.data.batching import ALL, Batch, Drawn, Part, Place
from regard.data.token_stream import TokenStream
from regard.data.token_words import first_tokens
from regard.data.tokenizers import Tokenizer
from regard.training.config import TrainConfig


class WordText:
    """Words in one flat array, PAD between documents. Words that the vocabulary lacks are not there at all.

    Tokens that are the same word, with the mark of a space and without it, are one: the first of them.
    """

    whole = True  # every worker reads all of a batch: they share out columns

    def __init__(self, words: np.ndarray):
        self.words = words

    @classmethod
    def from_documents(cls, documents: Iterable[str], tokenizer: Tokenizer) -> Self:
        tokens = TokenStream.from_documents(documents, tokenizer).tokens
        words = np.array(first_tokens(tokenizer), dtype=tokens.dtype)[tokens]
        words = words[words != UNK]
        words[words == EOS] = PAD
        twice = np.zeros(len(words), dtype=bool)  # ends of documents without a word
        twice[:1], twice[1:] = words[:1] == PAD, (words[1:] == PAD) & (words[:-1] == PAD)
        words = words[~twice]
        return cls(words[:-1] if len(words) and words[-1] == PAD else words)  # so that a batch of one place is a word

    def __len__(self) -> int:
        """Words, without the ends of documents."""
        return int(np.count_nonzero(self.words))

    def has_pairs(self) -> bool:
        """Whether two words of a document stand side by side anywhere."""
        return bool(((self.words[1:] != PAD) & (self.words[:-1] != PAD)).any())

    def counts(self, vocabulary: int) -> np.ndarray:
        """How often each word of the vocabulary occurs."""
        counts = np.bincount(self.words, minlength=vocabulary)
        counts[PAD] = 0
        return counts

    def multiple(self, model: Any, on_cuda: bool) -> int:
        return 1

    def open(self, config: TrainConfig, place: Place, multiple: int, on_cuda: bool, part: Part = ALL) -> WordBatches:
        """All of a batch, whichever worker this is."""
        return WordBatches(self, config.batch_tokens, config.seed, place)


class WordBatches:
    """Pieces of a text without end, each once in an epoch and in random order: all of it, the last piece may be shorter.

    A batch's `target_out` is one row of words, with PAD where documents end, so that words are what is counted.
    """

    def __init__(self, text: WordText, size: int, seed: int, place: Place):
        self._text, self._size, self._seed, self._place = text, size, seed, place
        self._count = -(-len(text.words) // size)
        self._closed = False
        if not 0 <= place.position <= self._count:
            raise DataError(
                f"epoch {place.epoch}, position {place.position}",
                f"an epoch of this text has {self._count} batches",
                "Resume with the text and the batch size that the run began with",
            )
        self._order = self._epoch(place.epoch)
        none = torch.full((1, 1), EOS)
        self._source = Padded(none, torch.ones_like(none, dtype=torch.bool))

    def _epoch(self, epoch: int) -> np.ndarray:
        # raw draws, since NumPy promises that these never change between its versions
        random = np.random.Philox(key=np.array([self._seed % (1 << 64), epoch], dtype=np.uint64))
        return np.argsort(random.random_raw(self._count), kind="stable")

    def __iter__(self) -> Iterator[Drawn]:
        return self

    def __next__(self) -> Drawn:
        if self._closed:
            raise StopIteration
        if self._place.position == self._count:
            self._place = Place(self._place.epoch + 1, 0)
            self._order = self._epoch(self._place.epoch)
        epoch, position = self._place
        begin = int(self._order[position]) * self._size
        words = torch.from_numpy(self._text.words[begin : begin + self._size].astype(np.int64))[None]
        self._place = Place(epoch, position + 1)
        after = self._place if position + 1 < self._count else Place(epoch + 1, 0)
        return Drawn(Batch(self._source, words, words, [begin]), epoch, after)

    def close(self) -> None:
        self._closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
