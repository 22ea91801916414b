"""Labelled text as a stream of batches that can begin anywhere: a text is the source, its label the one target token."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from regard.core.types import EOS, PAD, Padded
from regard.data.batching import Batch, BatchPlan, BatchStream, Place
from regard.data.labelled import Labelled
from regard.data.labelled_tokens import token_rows
from regard.data.store import TokenRows, TokenStore
from regard.data.tokenizers import Tokenizer
from regard.models.base import Writer
from regard.training.config import TrainConfig


class LabelledStore(TokenStore):
    """The tokens of labelled texts and the numbers of their labels, from 1 on; `cut` texts lost their end."""

    def __init__(self, rows: Sequence[Sequence[int]], labels: Sequence[int], cut: int = 0):
        texts = TokenRows.from_lists(rows)
        super().__init__(texts, TokenRows.from_lists([label] for label in labels), np.arange(len(texts)))
        self.cut = cut

    @classmethod
    def of(cls, part: Labelled, labels: Sequence[str], tokenizer: Tokenizer, most: int, name: str) -> LabelledStore:
        """The tokens of a part, at most `most` of each text; errors call them `name` and their number."""
        rows, cut = token_rows(tokenizer, part.texts, part.seconds, most, name)
        numbers = {label: number for number, label in enumerate(labels, start=1)}
        return cls(rows, [numbers[label] for label in part.labels], cut)


def collate_labelled(store: LabelledStore, rows: np.ndarray, multiple: int = 1, fill: int = 0, most: int = 0) -> Batch:
    """Puts texts into one batch, its width rounded up to a multiple, but never beyond `most`.

    With `fill`, empty rows (EOS alone, without a label) are added up to that many tokens, so that all batches of one width
    have one shape.
    """
    texts, lengths = store.source.pad(rows)
    longest = texts.shape[1] - 1
    width = min(-(-longest // multiple) * multiple, most or 1 << 62)
    count = max(len(rows), fill // width)
    source = np.full((count, width), PAD, dtype=np.int64)
    source[: len(rows), :longest] = texts[:, :longest]
    source[len(rows) :, 0] = EOS  # attention must have something to look at
    every = np.concatenate([lengths, np.ones(count - len(rows), dtype=np.int64)])
    labels = np.full((count, 1), PAD, dtype=np.int64)
    labels[: len(rows), 0] = store.target.flat[store.target.offsets[rows]]
    keep = np.arange(width) < every[:, None]
    target = torch.from_numpy(labels)
    return Batch(
        Padded(torch.from_numpy(source), torch.from_numpy(keep)), torch.full_like(target, PAD), target, rows.tolist()
    )


class LabelledBatches(BatchStream):
    """Batches of labelled texts without end, from any place."""

    def __init__(
        self, store: LabelledStore, plan: BatchPlan, place: Place, *, workers: int, multiple: int, fill: int, most: int
    ):
        self._labelled, self._most = store, most
        super().__init__(store, plan, place.epoch, place.position, workers, multiple, fill)

    def _collate(self, rows: np.ndarray, place: Place) -> Batch:
        return collate_labelled(self._labelled, rows, self._multiple, self._fill, self._most)


class LabelledText:
    """Labelled texts of at most `most` tokens (0: of any number)."""

    def __init__(self, store: LabelledStore, most: int):
        self.store, self.most = store, most

    def multiple(self, model: Writer, on_cuda: bool) -> int:
        """On CUDA few shapes, so that recordings can be replayed."""
        return 8 if on_cuda else 1

    def open(self, config: TrainConfig, place: Place, multiple: int, on_cuda: bool) -> LabelledBatches:
        lengths = self.store.source.lengths - 1  # a plan counts one token more on each side
        plan = BatchPlan(lengths, np.zeros_like(lengths), config.batch_tokens, config.seed, multiple=multiple)
        return LabelledBatches(
            self.store,
            plan,
            place,
            workers=config.workers,
            multiple=multiple,
            fill=config.batch_tokens if on_cuda else 0,
            most=self.most,
        )
