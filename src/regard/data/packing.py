"""Packed batches: sentence pairs one behind the other in rows of a fixed number of tokens, without padding between them.

Batches of like lengths are padded to few widths, so that a step that was recorded for one can be replayed for others; of text
of some thirty tokens a sentence that is a ninth of the work. Packed, all batches have the same number of tokens on both sides,
and few shapes: one for each of `ROOMS`, by the longest sentence. What is left over at the end are sentences of padding, from
which nothing is learnt.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from regard.core.errors import DataError
from regard.core.types import BOS, EOS, PAD, Packed, Spans
from regard.data.batching import Batch, BatchPlan, collate
from regard.data.store import TokenRows, TokenStore

ROOMS = (8, 16, 32, 64, 128)  # how long sentences may be
SHORTEST = (
    3  # tokens that sentences of the first have in the mean, at least; those of the others have half of its length
)


class PackedBatch(NamedTuple):
    """Sentence pairs ready for teacher forcing. Sources end with EOS, targets are shifted by one."""

    source: Packed
    target_in: Int[Tensor, "1 N"]
    target_out: Int[Tensor, "1 N"]
    rows: list[int]

    @property
    def shape(self) -> tuple:
        """What is the same for batches that a recording can be replayed for."""
        spans = self.source.spans
        return self.source.tokens.shape, self.target_in.shape, spans.sentences, spans.longest

    def tensors(self) -> list[Tensor]:
        tokens, *spans = self.source
        return [tokens, *(tensor for one in spans for tensor in one[:2]), self.target_in, self.target_out]

    def of(self, tensors: list[Tensor]) -> PackedBatch:
        """Made of these in the place of its own."""
        tokens, *of_spans, target_in, target_out = tensors
        longest = self.source.spans.longest
        source, target = (Spans(starts, places, longest) for starts, places in (of_spans[:2], of_spans[2:]))
        return PackedBatch(Packed(tokens, source, target), target_in, target_out, self.rows)

    def to(self, device: torch.device | str) -> PackedBatch:
        return self.of([tensor.to(device, non_blocking=True) for tensor in self.tensors()])

    def padded(self) -> Batch:
        """The same sentence pairs, each in a row of its own."""
        device, here = self.target_in.device, self.of([t.cpu() for t in self.tensors()])  # not sentence by sentence
        source, spans, target = here.source
        sides = [
            [tokens[0, a:b].tolist() for a, b in itertools.pairwise(starts[: len(self.rows) + 1].tolist())]
            for tokens, starts in ((source, spans.starts), (here.target_out, target.starts))
        ]
        read, written = (TokenRows.from_lists(row[:-1] for row in side) for side in sides)  # EOS is put there again
        return collate(read, written, np.arange(len(self.rows)))._replace(rows=self.rows).to(device)


def room_for(length: int) -> int:
    """The shortest of ROOMS in which a sentence of so many tokens fits."""
    return next(room for room in ROOMS if room >= length)


def places_for_sentences(room: int, tokens: int) -> int:
    """How many sentences a batch has at most, whether or not there are so many."""
    one_alone = 1 + -(-tokens // room)  # and sentences of padding behind it
    return max(one_alone, tokens // (SHORTEST if room == ROOMS[0] else room // 2))


class PackedPlan(BatchPlan):
    """Which rows form which batch: of pairs of up to `longest` tokens, as many as fill either side. Longer ones are padded.

    Sentences of a batch are of one of ROOMS, as attention to short ones is cheaper; within it, of any length.
    """

    def __init__(
        self,
        source_lengths: np.ndarray,
        target_lengths: np.ndarray,
        batch_tokens: int,
        seed: int,
        longest: int,
        multiple: int = 1,
        weights: np.ndarray | None = None,
    ):
        super().__init__(source_lengths, target_lengths, batch_tokens, seed, multiple=multiple, weights=weights)
        if not ROOMS[0] <= longest <= min(ROOMS[-1], batch_tokens):
            raise DataError("packed batches", f"sentences of {longest} tokens do not fit", "Raise train.batch_tokens")
        self._source, self._target = (np.asarray(x, dtype=np.int64) + 1 for x in (source_lengths, target_lengths))
        both = np.maximum(self._source, self._target)
        self._rooms = np.minimum(np.searchsorted(ROOMS, both), len(ROOMS) - 1)
        self._long = both > longest
        self._order = np.where(
            self._long, self._order | np.uint64(1 << 63), self._rooms.astype(np.uint64) << np.uint64(48)
        )

    def end(self, rows: np.ndarray, widths: np.ndarray, begin: int) -> int:
        if self._long[rows[begin]]:
            return super().end(rows, widths, begin)
        tokens, lengths = self.batch_tokens, np.asarray(ROOMS)
        within = rows[begin : begin + places_for_sentences(ROOMS[int(self._rooms[rows[begin]])], tokens)]
        source, target, rooms = np.cumsum(self._source[within]), np.cumsum(self._target[within]), self._rooms[within]
        most = np.asarray([places_for_sentences(room, tokens) for room in ROOMS])
        left = -(
            -(tokens - np.minimum(source, target)) // lengths[rooms]
        )  # sentences of padding that fill what is left
        fits = (np.maximum(source, target) <= tokens) & (np.arange(1, len(within) + 1) + left <= most[rooms])
        fits &= ~self._long[within]
        return begin + max(1, len(within) if fits.all() else int(np.argmin(fits)))


def packs(store: TokenStore, rows: np.ndarray, longest: int) -> bool:
    """Whether a batch of these rows is one that is packed."""
    both = np.maximum(store.source.lengths[rows], store.target.lengths[rows])
    return int(both.max()) < longest


def collate_packed(source_ids: TokenRows, target_ids: TokenRows, rows: np.ndarray, tokens: int) -> PackedBatch:
    """Puts rows into one packed batch of so many tokens on either side."""
    index = np.asarray(rows, dtype=np.int64)
    room = room_for(1 + int(max(source_ids.lengths[index].max(), target_ids.lengths[index].max())))
    count = places_for_sentences(room, tokens)
    (source, at), read = _laid(source_ids, index, tokens, room, count)
    source[at.ends] = EOS
    (target_out, at), written = _laid(target_ids, index, tokens, room, count)
    target_in = np.full_like(target_out, PAD)
    target_in[at.starts] = BOS
    target_in[at.tokens + 1] = target_out[at.tokens]
    target_out[at.ends] = EOS
    tokens_in, into, out = (torch.from_numpy(side)[None] for side in (source, target_in, target_out))
    return PackedBatch(Packed(tokens_in, read, written), into, out, index.tolist())


class _Into(NamedTuple):
    """Where a side's sentences start, where their tokens are, and where the place behind these."""

    starts: np.ndarray
    tokens: np.ndarray
    ends: np.ndarray


def _laid(
    ids: TokenRows, rows: np.ndarray, tokens: int, room: int, count: int
) -> tuple[tuple[np.ndarray, _Into], Spans]:
    """One side's tokens one behind the other, a place left behind each sentence; and what is left, as further sentences."""
    lengths = ids.lengths[rows].astype(np.int64)
    ends = np.cumsum(lengths + 1)
    first = ends - lengths - 1
    last = int(ends[-1])
    more = np.minimum(last + room * np.arange(1, count - len(rows) + 1), tokens)
    starts = np.concatenate([[0], ends, more])
    if starts[-1] != tokens or len(starts) != count + 1:
        what = f"{len(rows)} sentences of {last} tokens do not fill {tokens} with sentences of at most {room}"
        raise DataError("a packed batch", what, "Report this: the plan should have seen to it")
    within = np.arange(lengths.sum()) - np.repeat(
        np.cumsum(lengths) - lengths, lengths
    )  # a token's place in its sentence
    into = np.repeat(first, lengths) + within
    flat = np.full(tokens, PAD, dtype=np.int64)
    flat[into] = ids.flat[np.repeat(ids.offsets[rows], lengths) + within]
    places = np.arange(tokens) - np.repeat(starts[:-1], np.diff(starts))
    at, of_each = (torch.from_numpy(each.astype(np.int32)) for each in (starts, places))
    return (flat, _Into(first, into, ends - 1)), Spans(at, of_each, room)
