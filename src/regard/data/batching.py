"""Batches by token budget, in an order that is a pure function of (seed, epoch, position)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple, Protocol, Self

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from regard.core.errors import ConfigError, DataError
from regard.core.types import BOS, EOS, PAD, Padded
from regard.data.store import TokenRows, TokenStore

if TYPE_CHECKING:
    from regard.data.packing import PackedBatch

_LOOK_AHEAD = 4  # batches prepared ahead, per worker


class Batch(NamedTuple):
    """Sentence pairs ready for teacher forcing. The source ends with EOS, the target is shifted by one."""

    source: Padded
    target_in: Int[Tensor, "B T"]  # BOS, tokens
    target_out: Int[Tensor, "B T"]  # tokens, EOS
    rows: list[int]

    @property
    def shape(self) -> tuple:
        """What is the same for batches that a recording can be replayed for."""
        return self.source.tokens.shape, self.target_in.shape, type(self.source)

    def tensors(self) -> list[Tensor]:
        return [*self.source, self.target_in, self.target_out]

    def of(self, tensors: list[Tensor]) -> Batch:
        """Made of these in the place of its own."""
        tokens, keep, target_in, target_out = tensors
        return Batch(type(self.source)(tokens, keep), target_in, target_out, self.rows)

    def to(self, device: torch.device | str) -> Batch:
        return self.of([tensor.to(device, non_blocking=True) for tensor in self.tensors()])


class Part(NamedTuple):
    """One worker's part of every batch, of all workers' parts: row i of a batch is worker i mod `size`'s.

    Batches are of like lengths, so the parts are, too.
    """

    rank: int = 0
    size: int = 1

    def of(self, rows: np.ndarray) -> np.ndarray:
        """The rows of a batch that are this worker's; the first row, where there are too few for all: see `emptied`."""
        return rows[self.rank :: self.size] if self.rank < len(rows) else rows[:1]

    def slots(self, rows: int) -> range:
        """Where this worker's rows stand in a batch of so many."""
        return range(self.rank, rows, self.size) if self.rank < rows else range(1)

    def cut(self, batch: Batch, rows: int) -> Batch:
        """The batch that was made of this worker's rows: an empty one, if it has none of its own."""
        return batch if self.rank < rows else emptied(batch)

    def share(self, count: int) -> int:
        """The most that this worker has of so many."""
        return -(-count // self.size)


ALL = Part()


def emptied(batch: Batch) -> Batch:
    """A batch of the same shape in which nothing is to be learnt: its loss is 0, and so are its gradients."""
    tokens, keep = torch.full_like(batch.source.tokens, PAD), torch.zeros_like(batch.source.keep)
    tokens[:, 0], keep[:, 0] = EOS, True  # attention must have something to look at
    target_in, target_out = (torch.full_like(tensor, PAD) for tensor in (batch.target_in, batch.target_out))
    return Batch(Padded(tokens, keep), target_in, target_out, [])


def collate(
    source_ids: TokenRows, target_ids: TokenRows, rows: Sequence[int] | np.ndarray, multiple: int = 1, fill: int = 0
) -> Batch:
    """Puts rows into one batch, its widths rounded up to a multiple.

    With `fill`, empty rows (a source of EOS alone, a target of padding) are added up to that many tokens, so that all
    batches of one width have one shape.
    """
    index = np.asarray(rows, dtype=np.int64)
    every = np.arange(len(index))
    source, lengths = source_ids.pad(index, multiple)
    source[every, lengths] = EOS
    keep = np.arange(source.shape[1]) <= lengths[:, None]
    target_out, lengths = target_ids.pad(index, multiple)
    target_in = np.full_like(target_out, PAD)
    target_in[:, 0] = BOS
    target_in[:, 1:] = target_out[:, :-1]
    target_out[every, lengths] = EOS
    empty = fill // max(source.shape[1], target_out.shape[1]) - len(index)
    if empty > 0:
        source, target_in, target_out = (
            np.concatenate([part, np.full((empty, part.shape[1]), PAD)]) for part in (source, target_in, target_out)
        )
        source[len(index) :, 0] = EOS  # attention must have something to look at
        keep = np.concatenate([keep, np.arange(keep.shape[1]) < np.ones((empty, 1))])
    return Batch(
        Padded(torch.from_numpy(source), torch.from_numpy(keep)),
        torch.from_numpy(target_in),
        torch.from_numpy(target_out),
        index.tolist(),
    )


class BatchPlan:
    """Which rows form which batch, in every epoch. Lengths are in tokens, without BOS and EOS.

    With weights, a row comes floor(weight) times in an epoch, and once more with the probability of the rest.
    """

    def __init__(
        self,
        source_lengths: np.ndarray,
        target_lengths: np.ndarray,
        batch_tokens: int,
        seed: int,
        max_rows: int = 0,
        multiple: int = 1,
        weights: np.ndarray | None = None,
        mixed: bool = False,
    ):
        if batch_tokens < 1 or max_rows < 0:
            name, got = ("batch_tokens", batch_tokens) if batch_tokens < 1 else ("max_rows", max_rows)
            raise ConfigError(name, f"the size of a batch is expected, got {got}", "Use a positive number")
        source, target = (np.asarray(lengths, dtype=np.int64) for lengths in (source_lengths, target_lengths))
        if not len(source) or len(source) != len(target):
            what = f"{len(source)} sources and {len(target)} targets are given"
            raise DataError("batches", what, "Give as many of both, and at least one")
        self.batch_tokens, self.seed, self.max_rows = batch_tokens, seed, max_rows
        widths = np.maximum(source, target) + 1  # each side gets one special token
        self._widths = -(-widths // multiple) * multiple
        self._order = np.zeros(len(source), dtype=np.uint64) if mixed else _sort_key(source, target)
        self._weights = weights

    @classmethod
    def of(
        cls,
        store: TokenStore,
        batch_tokens: int,
        seed: int,
        max_rows: int = 0,
        multiple: int = 1,
        growth: float = 1.0,
        mixed: bool = False,
    ) -> Self:
        """The order in which the rows of a store are trained on, if each grows by a factor on the way."""
        source, target = store.source.lengths, store.target.lengths
        if growth != 1.0:
            source, target = np.ceil(source * growth), np.ceil(target * growth)
        return cls(source, target, batch_tokens, seed, max_rows, multiple, store.weights, mixed)

    def epoch(self, epoch: int) -> list[np.ndarray]:
        """The batches of an epoch, as arrays of row numbers. Without weights, every row stands in exactly one."""
        # raw draws, since NumPy promises that these never change between its versions
        random = np.random.Philox(key=np.array([self.seed % (1 << 64), epoch], dtype=np.uint64))
        order, drawn = self._order, None
        if self._weights is not None:
            drawn = _draw(self._weights, random.random_raw(len(order)))
            order = order[drawn]
        ties = random.random_raw(len(order)) >> np.uint64(32)
        rows = np.argsort(order | ties, kind="stable")
        if drawn is not None:
            rows = drawn[rows]
        widths = self._widths[rows]
        batches: list[np.ndarray] = []
        begin = 0
        while begin < len(rows):
            end = self.end(rows, widths, begin)
            batches.append(rows[begin:end])
            begin = end
        shuffled = np.argsort(random.random_raw(len(batches)), kind="stable")
        return [batches[i] for i in shuffled]

    def end(self, rows: np.ndarray, widths: np.ndarray, begin: int) -> int:
        """Where the batch ends that begins there; `widths` are those of the rows, in their order."""
        most = max(1, self.batch_tokens // int(widths[begin]))
        if self.max_rows:
            most = min(most, self.max_rows)
        window = np.maximum.accumulate(widths[begin : begin + most])
        fitting = np.searchsorted(window * np.arange(1, len(window) + 1), self.batch_tokens, side="right")
        return begin + max(1, int(fitting))


def _draw(weights: np.ndarray, random: np.ndarray) -> np.ndarray:
    """The rows of an epoch, each as often as its weight says."""
    chance = (random >> np.uint64(11)) * 2.0**-53
    times = np.floor(weights + chance).astype(np.int64)
    if not times.any():  # weights so small that nothing was drawn
        times[np.argmax(weights + chance)] = 1
    return np.repeat(np.arange(len(weights)), times)


def _sort_key(source: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Sorts by the longer side, then by how much the sides differ; the low 32 bits stay free for random ties.

    Every second length runs backwards, so that neighbours at its border are alike on both sides.
    """
    width = np.minimum(np.maximum(source, target), 0xFFFF)
    half = 0x7FFF
    differ = np.clip(source - target, -half, half)
    differ = half + np.where(width % 2, -differ, differ)
    return width.astype(np.uint64) << np.uint64(48) | differ.astype(np.uint64) << np.uint64(32)


class Place(NamedTuple):
    """A place in the stream of batches: with the seed, all that resuming needs."""

    epoch: int = 0
    position: int = 0


class Change(Protocol):
    """Changes the tokens of rows on their way: a pure function of the rows, their slots in the batch, the text and the place."""

    def __call__(
        self, sources: list[list[int]], targets: list[list[int]], rows: list[int], place: Place, slots: Sequence[int]
    ) -> tuple[list[list[int]], list[list[int]]]: ...


class Drawn(NamedTuple):
    """A batch, the epoch it belongs to, and the place from which a new stream would go on."""

    batch: Batch | PackedBatch
    epoch: int
    next: Place


class BatchStream:
    """Batches without end, from any place; threads may prepare them ahead, which never changes the stream."""

    def __init__(
        self,
        store: TokenStore,
        plan: BatchPlan,
        epoch: int = 0,
        position: int = 0,
        workers: int = 0,
        multiple: int = 1,
        fill: int = 0,
        change: Change | None = None,
        part: Part = ALL,
    ):
        self._store, self._plan, self._multiple, self._change = store, plan, multiple, change
        self._fill, self._part = part.share(fill), part
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="batches") if workers > 0 else None
        self._ahead = workers * _LOOK_AHEAD
        self._queue: deque[tuple[Future[Batch | PackedBatch], int, Place]] = deque()
        self._closed = False
        try:
            self._places = self._walk(Place(epoch, position))
        except BaseException:
            self.close()
            raise

    def __iter__(self) -> Iterator[Drawn]:
        return self

    def __next__(self) -> Drawn:
        if self._closed:
            raise StopIteration
        if self._pool is None:
            rows, place, after = next(self._places)
            return Drawn(self._own(rows, place), place.epoch, after)
        while len(self._queue) <= self._ahead:
            rows, place, after = next(self._places)
            self._queue.append((self._pool.submit(self._own, rows, place), place.epoch, after))
        batch, epoch, after = self._queue.popleft()
        return Drawn(batch.result(), epoch, after)

    def _own(self, rows: np.ndarray, place: Place) -> Batch | PackedBatch:
        """This worker's rows: the others' are not even read."""
        return self._part.cut(self._collate(self._part.of(rows), place, self._part.slots(len(rows))), len(rows))

    def _collate(self, rows: np.ndarray, place: Place, slots: Sequence[int]) -> Batch:
        if self._change is None:
            return collate(self._store.source, self._store.target, rows, self._multiple, self._fill)
        sources, targets = ([side[row] for row in rows] for side in (self._store.source, self._store.target))
        sides = self._change(sources, targets, rows.tolist(), place, slots)
        source, target = (TokenRows.from_lists(side) for side in sides)
        batch = collate(source, target, np.arange(len(rows)), self._multiple, self._fill)
        return batch._replace(rows=rows.tolist())

    def _walk(self, place: Place) -> Iterator[tuple[np.ndarray, Place, Place]]:
        """The rows of every batch from a place on. Where there are threads, one of them plans the next epoch."""
        batches = self._plan.epoch(place.epoch)
        if not 0 <= place.position <= len(batches):
            raise DataError(
                f"epoch {place.epoch}, position {place.position}",
                f"an epoch of this text has {len(batches)} batches",
                "Resume with the text and the batch size that the run began with",
            )
        return self._walk_on(place, batches)

    def _walk_on(self, place: Place, batches: list[np.ndarray]) -> Iterator[tuple[np.ndarray, Place, Place]]:
        epoch, position = place
        while True:
            following = self._pool.submit(self._plan.epoch, epoch + 1) if self._pool else None
            while position < len(batches):
                rows, place = batches[position], Place(epoch, position)
                position += 1
                yield rows, place, Place(epoch, position) if position < len(batches) else Place(epoch + 1, 0)
            epoch, position = epoch + 1, 0
            batches = following.result() if following else self._plan.epoch(epoch)

    def close(self) -> None:
        """Ends the threads. The stream then yields nothing more."""
        self._closed = True
        self._queue.clear()
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
