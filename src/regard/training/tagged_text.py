"""Tagged text as a stream of batches that can begin anywhere: a sentence is the source, the tags of its words the target.

The decoder input of other batches is here the place of each word's first token.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from regard.core.types import PAD
from regard.data.batching import Batch
from regard.data.store import TokenRows, TokenStore
from regard.data.tagged import TaggedSentences
from regard.data.tagged_tokens import WordEncoder, WordRow, row_of
from regard.data.tokenizers import Tokenizer
from regard.training.labelled_text import Collate, LabelledText, padded_sources


class TaggedStore(TokenStore):
    """The tokens of sentences, the places of their words' first tokens, and the numbers of the words' labels, from 1 on.

    `cut` sentences lost words at their end.
    """

    def __init__(self, rows: Sequence[WordRow], labels: Sequence[Sequence[int]], cut: int = 0):
        texts = TokenRows.from_lists(row.tokens for row in rows)
        super().__init__(texts, TokenRows.from_lists(labels), np.arange(len(texts)))
        self.places = TokenRows.from_lists(row.places for row in rows)
        self.cut = cut

    @classmethod
    def of(cls, part: TaggedSentences, labels: Sequence[str], tokenizer: Tokenizer, most: int) -> TaggedStore:
        """The tokens of a part, at most `most` of each sentence."""
        numbers = {label: number for number, label in enumerate(labels, start=1)}
        rows = [row_of(pieces, most) for pieces in WordEncoder(tokenizer).encode(part.words)]
        kept = [[numbers[tag] for tag in tags[: len(row.places)]] for row, tags in zip(rows, part.tags, strict=True)]
        cut = sum(len(row.places) < len(tags) for row, tags in zip(rows, part.tags, strict=True))
        return cls(rows, kept, cut)


def collate_tagged(store: TaggedStore, rows: np.ndarray, multiple: int = 1, fill: int = 0, most: int = 0) -> Batch:
    """Puts sentences into one batch, as `padded_sources` does.

    Where shapes are to be few there is room for a label at every token, else for as many words as the longest sentence has.
    """
    source = padded_sources(store, rows, multiple, fill, most)
    count, width = source.tokens.shape
    words = width if fill else int(store.target.lengths[rows].max())
    places, labels = (_filled(part, rows, count, words) for part in (store.places, store.target))
    return Batch(source, places, labels, rows.tolist())


def _filled(part: TokenRows, rows: np.ndarray, count: int, width: int) -> Tensor:
    found = np.full((count, width), PAD, dtype=np.int64)
    taken, _ = part.pad(rows)
    found[: len(rows), : taken.shape[1] - 1] = taken[:, :-1]
    return torch.from_numpy(found)


class TaggedText(LabelledText):
    """Tagged sentences of at most `most` tokens (0: of any number)."""

    collate: Collate = staticmethod(collate_tagged)
