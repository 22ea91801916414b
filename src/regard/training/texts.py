"""What is trained on, as streams of batches that can begin anywhere: sentence pairs, or one long text."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Protocol

import numpy as np

from regard.core.errors import ConfigError
from regard.data.batching import ALL, BatchPlan, BatchStream, Change, Drawn, Part, Place
from regard.data.store import TokenStore
from regard.data.token_stream import StreamBatches, StreamPlan, TokenStream
from regard.models.base import LanguageModel, Writer
from regard.training.config import TrainConfig

USUAL_WINDOW = 64  # tokens of a row, where neither settings nor the model say how many


class Batches(AbstractContextManager, Protocol):
    """Batches without end; closing ends the threads that prepare them."""

    def __iter__(self) -> Iterator[Drawn]: ...
    def __next__(self) -> Drawn: ...


class TrainingText(Protocol):
    """A text that a run goes through again and again."""

    def multiple(self, model: Writer, on_cuda: bool) -> int:
        """What the widths of batches are rounded up to. A run keeps its first answer: the order of batches depends on it."""
        ...

    def open(self, config: TrainConfig, place: Place, multiple: int, on_cuda: bool, part: Part = ALL) -> Batches:
        """The batches from a place on, or a worker's part of each."""
        ...


class PairText:
    """Sentence pairs. `change` is what augmentation does to batches, `growth` by how much they grow."""

    def __init__(self, store: TokenStore, change: Change | None = None, growth: float = 1.0):
        self.store, self.change, self.growth = store, change, growth

    def multiple(self, model: Writer, on_cuda: bool) -> int:
        """On CUDA few shapes, so that recordings can be replayed."""
        return 8 if on_cuda and all(n is None or n % 8 == 0 for n in model.limits) else 1

    def open(self, config: TrainConfig, place: Place, multiple: int, on_cuda: bool, part: Part = ALL) -> BatchStream:
        plan = BatchPlan.of(
            self.store,
            config.batch_tokens,
            config.seed,
            multiple=multiple,
            growth=self.growth,
            mixed=config.mixed_lengths,
        )
        return BatchStream(
            self.store,
            plan,
            place.epoch,
            place.position,
            workers=config.workers,
            multiple=multiple,
            fill=config.batch_tokens if on_cuda else 0,
            change=self.change,
            part=part,
        )


class LanguageText:
    """One long text: rows of `window` tokens each, carried on from batch to batch or drawn from all over it."""

    def __init__(self, stream: TokenStream, model: LanguageModel, config: TrainConfig):
        check_language_settings(config, model)
        window = window_of(config, model)
        self.stream, self.window = stream, window
        self.plan = StreamPlan(len(stream), rows_of(config, window), window, seed=config.seed, carried=model.carries)

    def multiple(self, model: Writer, on_cuda: bool) -> int:
        return 1

    def open(self, config: TrainConfig, place: Place, multiple: int, on_cuda: bool, part: Part = ALL) -> StreamBatches:
        return StreamBatches(self.stream, self.plan, place.epoch, place.position, part)


def lengths_of(text: TrainingText) -> list[int] | None:
    """How long the texts are that a model reads at a time, rounded up to powers of 2; None where that is not known."""
    if (window := getattr(text, "window", None)) is not None:
        return [window]
    if not isinstance(text, PairText):
        return None
    found = set()
    for side in (text.store.source.lengths, text.store.target.lengths):
        lengths = np.flatnonzero(np.bincount(side))  # each that there is: of 100 million, a sort would take seconds
        found |= {1 << int(np.ceil(length * text.growth)).bit_length() for length in lengths}
    return sorted(found)


def window_of(config: TrainConfig, model: Writer) -> int:
    """Tokens of a row."""
    limit = getattr(model.config, "context", None) or model.limits.target
    if limit is not None and config.window > limit:
        raise ConfigError(
            "setting train.window", f"{config.window} tokens are more than the model's context, {limit}", "Lower it"
        )
    return config.window or limit or USUAL_WINDOW


def rows_of(config: TrainConfig, window: int) -> int:
    """Rows of a batch."""
    if config.batch_tokens < window:
        raise ConfigError(
            "setting train.batch_tokens",
            f"{config.batch_tokens} tokens are less than one row of {window}",
            "Raise it, or lower train.window",
        )
    return config.batch_tokens // window


def check_language_settings(config: TrainConfig, model: LanguageModel) -> None:
    """Refuses settings that mean nothing for text without a source."""
    if config.best_by != "loss":
        raise ConfigError("setting train.best_by", "a language model has no BLEU", "Use train.best_by=loss")
    if config.consistency and model.carries:
        what = "its two readings of a text would have to carry two states"
        raise ConfigError("setting train.consistency", what, "Use 0 with this model")
