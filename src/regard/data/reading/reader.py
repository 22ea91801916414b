"""What every reader of pairs has in common: chunks of a given size, the hash and the size of its files."""

from __future__ import annotations

import hashlib
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence

from regard.core.errors import DataError
from regard.data.reading.files import ByteFile
from regard.data.reading.lines import MAX_WAITING
from regard.data.split import Pairs

Batch = tuple[list[str], list[str]]  # sources and targets, as many as the reader found at once
_BREAK = re.compile(r"\r\n?|\n")


class PairReader(ABC):
    """Pairs of sentences in files, read from the beginning at every call of `chunks`."""

    def __init__(self, files: Sequence[ByteFile], names: Sequence[str] = ()) -> None:
        self.files = tuple(files)
        self.names = tuple(names) or tuple(file.name for file in files)  # for messages
        self.skipped = 0  # rows of the latest reading without text: blank ones, units that lack a language

    def chunks(self, size: int = 10_000, raw: bool = False) -> Iterator[Pairs]:
        r"""The pairs in chunks of `size`, fewer in the last one and where lines are very long.

        Strict, the text must be UTF-8, a byte order mark at the beginning and the \r before \n are taken off, and two
        files must have as many lines; lone surrogates are an error. Raw, undecodable bytes become lone surrogates
        (`surrogateescape`), mark and \r stay (text and TSV only), and the sides of the last chunks differ in length
        where the files do.
        """
        if size < 1:
            raise ValueError(f"a chunk of {size} pairs is asked for")
        self.skipped = 0
        try:
            yield from self._chunks(size, raw)
        except DataError:
            for file in self.files:  # a file that changed is the better explanation
                file.refuse_change()
            raise

    def read(self) -> Pairs:
        """All pairs at once."""
        pairs = Pairs()
        for chunk in self.chunks():
            pairs.sources += chunk.sources
            pairs.targets += chunk.targets
        return pairs

    def content_hash(self) -> str:
        """SHA-256 of the files as they are on the disk, with their number and sizes."""
        digest = hashlib.sha256(f"{len(self.files)} files\n".encode())
        for file in self.files:
            digest.update(f"{file.size}\n".encode())
            for block in file.packed():
                digest.update(block)
        return digest.hexdigest()

    def size_on_disk(self) -> int:
        """The bytes of all files, as they are on the disk."""
        return sum(file.size for file in self.files)

    @abstractmethod
    def _chunks(self, size: int, raw: bool) -> Iterator[Pairs]: ...


class RowReader(PairReader):
    """A file whose rows hold both sides."""

    def _chunks(self, size: int, raw: bool) -> Iterator[Pairs]:
        sources: list[str] = []
        targets: list[str] = []
        weight, empty = 0, True
        for more_sources, more_targets in self._batches(raw):
            sources += more_sources
            targets += more_targets
            weight += sum(map(len, more_sources)) + sum(map(len, more_targets))
            end = len(sources) if weight > MAX_WAITING else len(sources) - len(sources) % size
            for begin in range(0, end, size):
                yield Pairs(sources[begin : min(begin + size, end)], targets[begin : min(begin + size, end)])
                empty = False
            if end:
                del sources[:end], targets[:end]
                weight = sum(map(len, sources)) + sum(map(len, targets))
        if sources:
            yield Pairs(sources, targets)
        elif empty:
            raise self._without_pairs()

    @abstractmethod
    def _batches(self, raw: bool) -> Iterator[Batch]:
        """All pairs, in batches of any size that fits into memory."""

    def _without_pairs(self) -> DataError:
        return DataError(" and ".join(self.names), "it holds no pairs of text", "Give a file with some")


def one_line(text: str) -> str:
    """The text of a cell without line breaks: those at its ends are dropped, the others become a space."""
    if "\n" not in text and "\r" not in text:
        return text
    return _BREAK.sub(" ", text.strip("\r\n"))
