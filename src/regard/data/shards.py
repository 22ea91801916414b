"""A text in many files (shards) that is never held as a whole: lines in a shuffled order, exactly resumable.

The shards are gone through in an order drawn from (seed, epoch). Lines are taken into a buffer, a block at a time, and given out in
an order drawn from (seed, epoch, number of the block). So all that has to be remembered is where the block began and how many of
its lines were given out: a few whole numbers (`ShardPlace`), from which a new stream goes on exactly. It reads again at most one
shard up to that place, and one block.

Shards are paths (.gz, .xz and .zst too), or any address that fsspec knows (s3://, gs://, https://, ...), where that is installed.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple, Self

import numpy as np

from regard.core.errors import ConfigError, DataError
from regard.data.batching import ALL, Part
from regard.data.draws import row_keys
from regard.data.reading.files import BLOCK, MAX_TEXT_BYTES, ByteFile
from regard.data.reading.lines import line_blocks

MOST_SHARDS, MOST_LINES = 1 << 20, 1 << 24  # of a text, and of a buffer
_ORDER, _BLOCK = 0x73686172, 0x626C6F63  # purposes of random numbers


class ShardPlace(NamedTuple):
    """A place in the stream: with the shards and the seed, all that going on needs."""

    epoch: int = 0
    shard: int = 0  # where the block began: in which shard of the epoch's order,
    line: int = 0  # after how many of its lines
    block: int = 0  # its number in the epoch
    given: int = 0  # lines of it that were given out


class Block(NamedTuple):
    """Lines that are shuffled together, in the order in which they are given out; where they begin, and what comes after."""

    lines: list[str]
    place: ShardPlace
    after: ShardPlace


class _Remote:
    """As much of a `ByteFile` as lines are read from, at an address of fsspec."""

    def __init__(self, address: str):
        self.name = address

    def blocks(self) -> Iterator[bytes]:
        total = 0
        try:
            with _fsspec(self.name).open(self.name, "rb", compression="infer") as file:
                while block := file.read(BLOCK):
                    total += len(block)
                    if total > MAX_TEXT_BYTES:
                        raise DataError(self.name, "it is too long to be a shard", "Divide it")
                    yield block
        except (OSError, ValueError) as error:
            raise DataError(
                self.name, f"it cannot be read ({error})", "Check the address and the right to it"
            ) from None


def _fsspec(address: str) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import fsspec
    except ImportError:
        todo = "Install fsspec (and what it needs for such an address), or give a path"
        raise DataError(address, "it is no path, and fsspec, which could read it, is not installed", todo) from None
    return fsspec


def open_shard(address: str) -> Any:
    """What lines are read from."""
    return _Remote(address) if "://" in address else ByteFile(address)


class ShardStream:
    """The lines of shards without end. Of several workers, each gets every so manieth line of the same stream."""

    def __init__(
        self,
        shards: Sequence[str],
        *,
        seed: int,
        buffer: int = 1 << 16,
        place: ShardPlace = ShardPlace(),
        part: Part = ALL,
        opening: Callable[[str], Any] = open_shard,
    ):
        """`buffer` is how many lines are shuffled at a time; 1 keeps the order within shards."""
        if not 1 <= len(shards) <= MOST_SHARDS or len(set(shards)) < len(shards):
            raise ConfigError(
                "shards", f"{len(shards)} addresses, {len(set(shards))} of them different", "Give each once"
            )
        if not 1 <= buffer <= MOST_LINES:
            raise ConfigError("buffer", f"{buffer} lines", f"Give 1 to {MOST_LINES:,}")
        if min(place) < 0 or place.shard >= len(shards) or place.given > buffer:
            raise DataError("shards", f"there is no place {tuple(place)} in them", "Go on with the shards of the run")
        self.shards, self.seed, self.buffer, self.part = tuple(shards), seed, buffer, part
        self._open, self._place = opening, place
        self._lines = self._walk(place)

    @property
    def place(self) -> ShardPlace:
        """Where a new stream would go on with the line after the last one that was given out."""
        return self._place

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> str:
        line, self._place = next(self._lines)
        return line

    def _walk(self, place: ShardPlace) -> Iterator[tuple[str, ShardPlace]]:
        while True:
            yield from self._epoch(place)
            place = ShardPlace(place.epoch + 1)

    def _epoch(self, place: ShardPlace) -> Iterator[tuple[str, ShardPlace]]:
        for block in self.blocks(place):
            for i in range(block.place.given, len(block.lines)):
                if i % self.part.size == self.part.rank:
                    after = block.place._replace(given=i + 1) if i + 1 < len(block.lines) else block.after
                    yield block.lines[i], after

    def blocks(self, place: ShardPlace) -> Iterator[Block]:
        """The rest of an epoch, a buffer at a time."""
        reading = self._read(place)
        while taken := list(islice(reading, self.buffer)):
            order = np.argsort(self._keys(_BLOCK, place.epoch, place.block, len(taken)), kind="stable")
            _, shard, line = taken[-1]
            after = ShardPlace(place.epoch, shard, line + 1, place.block + 1)
            yield Block([taken[i][0] for i in order], place, after)
            place = after

    def _read(self, place: ShardPlace) -> Iterator[tuple[str, int, int]]:
        """Lines in the order of shards, from where a block begins: each with its shard's place in the order and its number."""
        order = np.argsort(self._keys(_ORDER, place.epoch, 0, len(self.shards)), kind="stable")
        for number in range(place.shard, len(self.shards)):
            skipped = place.line if number == place.shard else 0
            lines = (line for part in line_blocks(self._open(self.shards[order[number]])) for line in part)
            for at, line in enumerate(lines):
                if at >= skipped:
                    yield line, number, at

    def _keys(self, purpose: int, epoch: int, block: int, count: int) -> np.ndarray:
        return row_keys(self.seed, purpose, epoch, np.arange(count), np.full(count, block))
