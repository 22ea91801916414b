"""Labelled text as a stream of batches that can begin anywhere: a text is the source, its label the one target token."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import torch

from regard.core.types import EOS, PAD, Padded
from regard.data.batching import ALL, Batch, BatchPlan, BatchStream, Part, Place
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


def padded_sources(store: TokenStore, rows: np.ndarray, multiple: int = 1, fill: int = 0, most: int = 0) -> Padded:
    """Texts as one rectangle, its width rounded up to a multiple, but never beyond `most`.

    With `fill`, empty rows (EOS alone) are added up to that many tokens, so that all batches of one width have one shape.
    """
    texts, lengths = store.source.pad(rows)
    longest = texts.shape[1] - 1
    width = min(-(-longest // multiple) * multiple, most or 1 << 62)
    count = max(len(rows), fill // width)
    source = np.full((count, width), PAD, dtype=np.int64)
    source[: len(rows), :longest] = texts[:, :longest]
    source[len(rows) :, 0] = EOS  # attention must have something to look at
    every = np.concatenate([lengths, np.ones(count - len(rows), dtype=np.int64)])
    return Padded(torch.from_numpy(source), torch.from_numpy(np.arange(width) < every[:, None]))


def collate_labelled(store: LabelledStore, rows: np.ndarray, multiple: int = 1, fill: int = 0, most: int = 0) -> Batch:
    """Puts texts into one batch, as `padded_sources` does. Rows that only fill it up have no label."""
    source = padded_sources(store, rows, multiple, fill, most)
    target = torch.full((len(source.tokens), 1), PAD)
    target[: len(rows), 0] = torch.from_numpy(store.target.flat[store.target.offsets[rows]].astype(np.int64))
    return Batch(source, torch.full_like(target, PAD), target, rows.tolist())


class Collate(Protocol):
    """Puts rows of a store into one batch: see `padded_sources`."""

    def __call__(self, store: Any, rows: np.ndarray, multiple: int = 1, fill: int = 0, most: int = 0) -> Batch: ...


class LabelledBatches(BatchStream):
    """Batches of labelled texts without end, from any place."""

    def __init__(
        self,
        store: TokenStore,
        plan: BatchPlan,
        place: Place,
        *,
        collate: Collate,
        workers: int,
        multiple: int,
        fill: int,
        most: int,
        part: Part = ALL,
    ):
        self._put_together, self._most = collate, most
        super().__init__(store, plan, place.epoch, place.position, workers, multiple, fill, part=part)

    def _collate(self, rows: np.ndarray, place: Place, slots: Sequence[int]) -> Batch:
        return self._put_together(self._store, rows, self._multiple, self._fill, self._most)


class LabelledText:
    """Labelled texts of at most `most` tokens (0: of any number)."""

    collate: Collate = staticmethod(collate_labelled)

    def __init__(self, store: TokenStore, most: int):
        self.store, self.most = store, most

    def multiple(self, model: Writer, on_cuda: bool) -> int:
        """On CUDA few shapes, so that recordings can be replayed."""
        return 8 if on_cuda else 1

    def open(
        self, config: TrainConfig, place: Place, multiple: int, on_cuda: bool, part: Part = ALL
    ) -> LabelledBatches:
        lengths = self.store.source.lengths - 1  # a plan counts one token more on each side
        none = np.zeros_like(lengths)
        mixed = config.mixed_lengths
        plan = BatchPlan(lengths, none, config.batch_tokens, config.seed, multiple=multiple, mixed=mixed)
        return LabelledBatches(
            self.store,
            plan,
            place,
            collate=self.collate,
            workers=config.workers,
            multiple=multiple,
            fill=config.batch_tokens if on_cuda else 0,
            most=self.most,
            part=part,
        )
