"""Text in shards as batches for language models: a buffer of lines at a time is cut into rows of one length.

Where a run is, is a few whole numbers; a run's progress has room for two, an epoch and a position in it, so the rest is packed into
the position. What is left over of a buffer when it is cut is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple, Self

import numpy as np
import torch

from regard.core.errors import ConfigError, DataError
from regard.core.types import EOS, Padded
from regard.data.batching import ALL, Batch, Drawn, Part, Place
from regard.data.draws import row_keys
from regard.data.shards import Block, ShardPlace, ShardStream
from regard.data.token_stream import TokenStream
from regard.data.tokenizers import Tokenizer
from regard.models.base import LanguageModel, Writer
from regard.training.config import TrainConfig
from regard.training.texts import check_language_settings, rows_of, window_of

BUFFER_LINES = 1 << 14
_WINDOWS = 0x77696E64  # the purpose of random numbers
_BITS = (20, 40, 32, 32)  # of shard, line, block, given


def packed(place: ShardPlace) -> Place:
    """Position 0 is the beginning of an epoch."""
    position = 0
    for value, bits in zip(place[1:], _BITS, strict=True):
        position = position << bits | value
    return Place(place.epoch, position)


def unpacked(place: Place) -> ShardPlace:
    values, position = [], place.position
    for bits in reversed(_BITS):
        values.append(position & ((1 << bits) - 1))
        position >>= bits
    return ShardPlace(place.epoch, *reversed(values))


class ShardedText:
    """A text that is never held as a whole, for language models that do not carry their state."""

    def __init__(self, shards: Sequence[str], tokenizer: Tokenizer, model: LanguageModel, config: TrainConfig):
        check_language_settings(config, model)
        if model.carries:
            what = "its state goes on through the text, and shards are shuffled"
            raise ConfigError("setting model.name", what, "Use gpt or nplm, or text in one file")
        self.shards, self.tokenizer, self.window = shards, tokenizer, window_of(config, model)
        self.rows = rows_of(config, self.window)

    def multiple(self, model: Writer, on_cuda: bool) -> int:
        return 1

    def open(self, config: TrainConfig, place: Place, multiple: int, on_cuda: bool, part: Part = ALL) -> ShardedBatches:
        return ShardedBatches(self, config.seed, unpacked(place), part)


class _Cut(NamedTuple):
    """A block as tokens, and where the windows of its batches begin, [batches, rows]."""

    block: Block
    stream: TokenStream
    begins: np.ndarray


class ShardedBatches:
    """Batches without end. One thread reads and cuts the block after the one that is being given out."""

    def __init__(self, text: ShardedText, seed: int, place: ShardPlace, part: Part):
        if text.rows < part.size:
            what = f"a batch has {text.rows} rows, and there are {part.size} workers"
            raise ConfigError("setting train.batch_tokens", what, "Raise it, or use fewer workers")
        self._text, self._seed, self._part = text, seed, part
        self._shards = ShardStream(text.shards, seed=seed, buffer=BUFFER_LINES)
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="shards")
        self._blocks = self._walk(place)
        self._waiting: Future[_Cut] = self._pool.submit(self._next_cut)
        self._batches = self._give()
        ends = torch.full((len(part.slots(text.rows)), 1), EOS)
        self._source = Padded(ends, torch.ones_like(ends, dtype=torch.bool))

    def _walk(self, place: ShardPlace) -> Iterator[Block]:
        while True:
            yield from self._shards.blocks(place)
            place = ShardPlace(place.epoch + 1)

    def _next_cut(self) -> _Cut:
        """The next block that is enough for a batch."""
        epoch = None
        for block in self._blocks:
            epoch = block.place.epoch if epoch is None else epoch
            stream = TokenStream.from_documents([line for line in block.lines if line.strip()], self._text.tokenizer)
            windows = len(stream) // self._text.window
            if windows >= self._text.rows:
                keys = row_keys(
                    self._seed, _WINDOWS, block.place.epoch, np.arange(windows), np.full(windows, block.place.block)
                )
                order = np.argsort(keys, kind="stable")[: windows // self._text.rows * self._text.rows]
                return _Cut(block, stream, self._text.window * order.reshape(-1, self._text.rows))
            if block.place.epoch > epoch + 1:
                break
        what = f"{BUFFER_LINES:,} lines of the shards are less than a batch of {self._text.rows} x {self._text.window} tokens"
        raise DataError("the training text", what, "Give more text, or lower train.batch_tokens or train.window")

    def _give(self) -> Iterator[Drawn]:
        while True:
            block, stream, begins = self._waiting.result()
            self._waiting = self._pool.submit(self._next_cut)
            for number in range(block.place.given, len(begins)):
                own = self._part.of(begins[number])
                target_in, target_out = map(torch.from_numpy, stream.windows(own, self._text.window))
                last = number + 1 == len(begins)
                after = block.after if last else block.place._replace(given=number + 1)
                batch = Batch(self._source, target_in, target_out, own.tolist())
                yield Drawn(batch, block.place.epoch, packed(after))

    def __iter__(self) -> Iterator[Drawn]:
        return self

    def __next__(self) -> Drawn:
        return next(self._batches)

    def close(self) -> None:
        self._batches.close()  # type: ignore[attr-defined]
        self._pool.shutdown(wait=True, cancel_futures=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
