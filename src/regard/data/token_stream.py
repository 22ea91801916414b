"""A text as one stream of tokens, and batches of it in an order that is a pure function of (seed, epoch, position).

Targets y are the tokens of all documents, each followed by EOS. What a model reads is the token before, EOS read as BOS:
x_t = y_{t-1}, x_0 = BOS.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple, Self

import numpy as np
import torch

from regard.core.errors import ConfigError, DataError
from regard.core.types import BOS, EOS, Padded
from regard.data.batching import ALL, Batch, Drawn, Part, Place
from regard.data.long_texts import CHUNK, chunks_of
from regard.data.tokenizers import Tokenizer


class TokenStream:
    """The tokens of documents in one flat array, each document followed by EOS."""

    def __init__(self, tokens: np.ndarray):
        self.tokens = tokens

    @classmethod
    def from_documents(cls, documents: Iterable[str], tokenizer: Tokenizer) -> Self:
        """Encodes documents, a little text at a time. The array has two bytes for a token where the vocabulary allows."""
        dtype = np.dtype(np.uint16 if tokenizer.size <= 1 << 16 else np.int32)
        parts: list[np.ndarray] = []
        end = np.array([EOS], dtype=dtype)
        for chunk in chunks_of(documents):
            if len(chunk) == 1 and len(chunk[0]) > CHUNK:
                parts += [np.array(ids, dtype=dtype) for ids in tokenizer.encode_long(chunk[0])]
                parts.append(end)
            else:
                parts.append(np.array([i for ids in tokenizer.encode_many(chunk) for i in (*ids, EOS)], dtype=dtype))
        tokenizer.forget_words()
        return cls(np.concatenate(parts) if parts else end[:0])

    def __len__(self) -> int:
        return len(self.tokens)

    def windows(self, begins: np.ndarray, width: int) -> tuple[np.ndarray, np.ndarray]:
        """What is read and what is to be written in windows of one width: two arrays [windows, width] of 64 bits."""
        places = np.asarray(begins, dtype=np.int64)[:, None] + np.arange(width)
        target_out = self.tokens[places].astype(np.int64)
        target_in = np.empty_like(target_out)
        target_in[:, 1:] = target_out[:, :-1]
        target_in[:, 0] = np.where(places[:, 0] > 0, self.tokens[places[:, 0] - 1], BOS)
        target_in[target_in == EOS] = BOS
        return target_in, target_out


class StreamPlan:
    """Where the windows of every batch begin, in every epoch.

    Carried, a batch's rows are lanes through the stream, of one length: each row goes on where the same row of the batch
    before has ended, and the first batch of an epoch begins anew. Otherwise windows come from all over the stream, in
    random order, each once in an epoch.

    Every epoch but the first begins at another token of the first window, so that other tokens are left over at the end of
    the lanes, or of the stream. A batch is always whole: the windows that are left over in an epoch are left out.
    """

    def __init__(self, length: int, rows: int, window: int, *, seed: int, carried: bool):
        for name, value in (("rows", rows), ("window", window)):
            if value < 1:
                raise ConfigError(name, f"the size of a batch is expected, got {value}", "Use a positive number")
        if length < rows * window:
            raise DataError(
                "the training text",
                f"it has {length:,} tokens, and a batch takes {rows * window:,} ({rows:,} rows of {window:,})",
                "Give more text, or lower train.batch_tokens or train.window",
            )
        self.length, self.rows, self.window, self.seed, self.carried = length, rows, window, seed, carried

    def epoch(self, epoch: int) -> np.ndarray:
        """The beginnings of the windows of an epoch, [batches, rows]."""
        # raw draws, since NumPy promises that these never change between its versions
        random = np.random.Philox(key=np.array([self.seed % (1 << 64), epoch], dtype=np.uint64))
        choices = min(self.window, self.length - self.rows * self.window + 1)
        offset = int(random.random_raw()) % choices if epoch else 0
        rest = self.length - offset
        if self.carried:
            lane = rest // self.rows
            starts = offset + lane * np.arange(self.rows)
            return starts + self.window * np.arange(lane // self.window)[:, None]
        count = rest // self.window
        batches = count // self.rows
        order = np.argsort(random.random_raw(count), kind="stable")[: batches * self.rows]
        return (offset + self.window * order).reshape(batches, self.rows)


class StreamBatches:
    """Batches of a stream without end, from any place. Its rows are the places in the stream where they begin."""

    def __init__(self, stream: TokenStream, plan: StreamPlan, epoch: int = 0, position: int = 0, part: Part = ALL):
        if len(stream) != plan.length:
            what = f"the plan is for {plan.length:,} tokens, and the stream has {len(stream):,}"
            raise DataError("batches", what, "Make the plan for this stream")
        if plan.rows < part.size:
            what = f"a batch has {plan.rows} rows, and there are {part.size} workers"
            raise ConfigError("setting train.batch_tokens", what, "Raise it, or use fewer workers")
        self._stream, self._plan, self._part = stream, plan, part
        self._place, self._begins = Place(epoch, position), plan.epoch(epoch)
        self._closed = False
        # All batches share one source: a single EOS for each row, which says how many rows there are.
        ends = torch.full((len(part.slots(plan.rows)), 1), EOS)
        self._source = Padded(ends, torch.ones_like(ends, dtype=torch.bool))
        if not 0 <= position <= len(self._begins):
            raise DataError(
                f"epoch {epoch}, position {position}",
                f"an epoch of this text has {len(self._begins)} batches",
                "Resume with the text and the batch size that the run began with",
            )

    def __iter__(self) -> Iterator[Drawn]:
        return self

    def __next__(self) -> Drawn:
        if self._closed:
            raise StopIteration
        if self._place.position == len(self._begins):
            self._place = Place(self._place.epoch + 1, 0)
            self._begins = self._plan.epoch(self._place.epoch)
        epoch, position = self._place
        begins = self._part.of(self._begins[position])
        target_in, target_out = map(torch.from_numpy, self._stream.windows(begins, self._plan.window))
        self._place = Place(epoch, position + 1)
        after = self._place if position + 1 < len(self._begins) else Place(epoch + 1, 0)
        return Drawn(Batch(self._source, target_in, target_out, begins.tolist()), epoch, after)

    def close(self) -> None:
        """Ends the stream: it then yields nothing more."""
        self._closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class ScoringWindow(NamedTuple):
    """Positions begin .. end - 1 are read, and of these first .. end - 1 are scored."""

    begin: int
    end: int
    first: int


def scoring_windows(length: int, context: int, stride: int) -> Iterator[ScoringWindow]:
    """Windows of at most `context` positions that score each position of a stream exactly once.

    Those of the first window have what stands before them, all others at least context - stride positions.
    """
    if not 1 <= stride <= context:
        raise ConfigError("stride", f"{stride} is not from 1 to the context, {context}", "Use half of the context")
    end = 0
    while end < length:
        first, end = end, min(end + stride if end else context, length)
        yield ScoringWindow(max(0, end - context), end, first)
