"""The tokens of a text in flat arrays: in memory, or in files that are mapped into it and shared by processes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np

from regard.core.errors import DataError
from regard.core.types import PAD
from regard.data.encoding_workers import cut_into_tokens
from regard.data.prepared import Shelf, read_plain, write_plain
from regard.data.split import PairStream
from regard.data.tokenizers import TokenizerPair

CHUNK = 10_000  # pairs encoded at once
SIDES = ("source", "target")


class TokenRows:
    """Many token sequences in one flat array: row i is `flat[offsets[i]:offsets[i + 1]]`."""

    def __init__(self, flat: np.ndarray, offsets: np.ndarray):
        self.flat, self.offsets = flat, offsets
        self.lengths = np.diff(offsets).astype(np.int32)

    @classmethod
    def from_lists(cls, rows: Iterable[Sequence[int]]) -> Self:
        arrays = [np.asarray(row, dtype=np.int32) for row in rows]
        offsets = np.zeros(len(arrays) + 1, dtype=np.int64)
        np.cumsum([len(array) for array in arrays], out=offsets[1:])
        return cls(np.concatenate(arrays) if arrays else np.zeros(0, dtype=np.int32), offsets)

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, row: int) -> list[int]:
        return self.flat[self.offsets[row] : self.offsets[row + 1]].tolist()

    def pad(self, rows: np.ndarray, multiple: int = 1) -> tuple[np.ndarray, np.ndarray]:
        """The given rows as a rectangle with room for one token more, and their lengths."""
        lengths = self.lengths[rows].astype(np.int64)
        width = -(-(int(lengths.max(initial=0)) + 1) // multiple) * multiple
        tokens = np.full((len(rows), width), PAD, dtype=np.int64)
        # place of each wanted token in `flat`: its row's offset plus its column, in the order in which a mask is filled
        begins = np.repeat(self.offsets[rows] - (np.cumsum(lengths) - lengths), lengths)
        tokens[np.arange(width) < lengths[:, None]] = self.flat[begins + np.arange(len(begins))]
        return tokens, lengths


class TokenStore:
    """The token sequences of a text, without the pairs that are too long."""

    def __init__(
        self,
        source: TokenRows,
        target: TokenRows,
        kept: np.ndarray,
        dropped: int = 0,
        weights: np.ndarray | None = None,
    ):
        self.source, self.target = source, target
        self.kept = kept  # row -> place of the pair in the text
        self.dropped = dropped  # pairs that were too long
        self.weights = weights  # how often each row comes in an epoch; None: once

    @classmethod
    def from_pairs(
        cls,
        pairs: PairStream,
        tokenizers: TokenizerPair,
        max_length: int = 0,
        name: str = "the tokenized text",
        weights: np.ndarray | None = None,
    ) -> Self:
        """Encodes pairs in memory, leaving out those longer than `max_length` tokens on either side (0: no limit)."""
        parts = list(_encoded(pairs, tokenizers, max_length))
        kept = np.concatenate([part.kept for part in parts]) if parts else np.zeros(0, dtype=np.int64)
        if not len(kept):
            raise _nothing_left(name, len(pairs), max_length)
        source, target = (_joined([getattr(part, side) for part in parts]) for side in SIDES)
        return cls(source, target, kept, len(pairs) - len(kept), None if weights is None else weights[kept])

    @classmethod
    def on_shelf(
        cls,
        shelf: Shelf,
        pairs: PairStream,
        tokenizers: TokenizerPair,
        max_length: int = 0,
        name: str = "the tokenized text",
        weights: np.ndarray | None = None,
        say: Callable[[str], None] | None = None,
    ) -> Self:
        """The same through files, which are made if no earlier run has made them."""
        detail = f"{tokenizers.source.fingerprint}\n{tokenizers.target.fingerprint}\n{max_length}"

        def fill(folder: Path) -> None:
            if say is not None:
                say(f"Preparing {len(pairs):,} pairs...")
            _write(folder, pairs, tokenizers, max_length, name)

        folder = shelf.made("tokens", detail, fill, say)
        return cls.open(folder, weights)

    @classmethod
    def open(cls, folder: Path, weights: np.ndarray | None = None) -> Self:
        """Maps the files of a prepared text into memory."""
        about = read_plain(folder / "store.json")

        def rows(side: str) -> TokenRows:
            flat = np.memmap(folder / f"{side}.tokens", dtype=about["dtype"], mode="r")
            return TokenRows(flat, np.load(folder / f"{side}.offsets.npy", mmap_mode="r", allow_pickle=False))

        kept = np.load(folder / "kept.npy", mmap_mode="r", allow_pickle=False)
        weights = None if weights is None else weights[kept]
        return cls(rows("source"), rows("target"), kept, about["dropped"], weights)

    def __len__(self) -> int:
        return len(self.source)


class _Encoded(NamedTuple):
    source: TokenRows
    target: TokenRows
    kept: np.ndarray


def _encoded(pairs: PairStream, tokenizers: TokenizerPair, max_length: int) -> Iterator[_Encoded]:
    begin = 0
    for chunk, (source, source_lengths), (target, target_lengths) in cut_into_tokens(
        pairs.chunks(CHUNK), tokenizers, len(pairs)
    ):
        if chunk.tags:
            source, source_lengths = _with_tags(source, source_lengths, chunk.tags, tokenizers)
        fits = np.ones(len(chunk), dtype=bool)
        if max_length:
            fits = np.maximum(source_lengths, target_lengths) <= max_length
        yield _Encoded(
            _kept(source, source_lengths, fits), _kept(target, target_lengths, fits), begin + np.flatnonzero(fits)
        )
        begin += len(chunk)


def _kept(flat: np.ndarray, lengths: np.ndarray, fits: np.ndarray) -> TokenRows:
    return TokenRows(flat[np.repeat(fits, lengths)], np.concatenate(([0], np.cumsum(lengths[fits]))))


def _with_tags(
    flat: np.ndarray, lengths: np.ndarray, tags: Sequence[str], tokenizers: TokenizerPair
) -> tuple[np.ndarray, np.ndarray]:
    """Each row with the token of its tag in front, where it has one."""
    of_tag = {tag: tokenizers.source.tag(tag) for tag in set(tags) if tag}
    tagged = np.asarray([bool(tag) for tag in tags])
    places = (np.cumsum(lengths) - lengths)[tagged]
    return np.insert(flat, places, [of_tag[tag] for tag in tags if tag]), lengths + tagged


def _joined(parts: list[TokenRows]) -> TokenRows:
    offsets = np.concatenate([[0], np.cumsum(np.concatenate([part.lengths for part in parts]), dtype=np.int64)])
    return TokenRows(np.concatenate([part.flat for part in parts]), offsets)


def _write(folder: Path, pairs: PairStream, tokenizers: TokenizerPair, max_length: int, name: str) -> None:
    """Encodes pairs into files, a chunk at a time."""
    dtype = np.dtype("<u2" if max(tokenizers.source.size, tokenizers.target.size) <= 1 << 16 else "<i4")
    lengths: dict[str, list[np.ndarray]] = {side: [] for side in SIDES}
    kept: list[np.ndarray] = []
    with contextlib.ExitStack() as stack:
        files = {side: stack.enter_context(open(folder / f"{side}.tokens", "wb")) for side in SIDES}
        for part in _encoded(pairs, tokenizers, max_length):
            for side in SIDES:
                rows: TokenRows = getattr(part, side)
                files[side].write(rows.flat.astype(dtype).tobytes())
                lengths[side].append(rows.lengths)
            kept.append(part.kept)
    places = np.concatenate(kept) if kept else np.zeros(0, dtype=np.int64)
    if not len(places):
        raise _nothing_left(name, len(pairs), max_length)
    for side in SIDES:
        offsets = np.zeros(len(places) + 1, dtype=np.int64)
        np.cumsum(np.concatenate(lengths[side]), out=offsets[1:])
        np.save(folder / f"{side}.offsets.npy", offsets, allow_pickle=False)
    np.save(folder / "kept.npy", places, allow_pickle=False)
    write_plain(folder / "store.json", {"dtype": dtype.str, "rows": len(places), "dropped": len(pairs) - len(places)})


def _nothing_left(name: str, count: int, max_length: int) -> DataError:
    what = f"all {count} pairs are longer than {max_length} tokens" if count else "there are no pairs"
    return DataError(
        name, what, "Raise train.max_tokens and, where they are lower, the model's own limits, or give shorter text"
    )
