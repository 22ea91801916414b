"""Targets from the last word to the first, for models that write from right to left."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from regard.data.reading.reader import PairReader
from regard.data.split import Pairs
from regard.data.word_order import backwards


class Backwards(PairReader):
    """Another reader's pairs, with their targets backwards. Raw text, which checks look at, stays as it is."""

    def __init__(self, inner: PairReader) -> None:
        super().__init__(inner.files, inner.names)
        self.inner = inner

    def _chunks(self, size: int, raw: bool) -> Iterator[Pairs]:
        for chunk in self.inner.chunks(size, raw):
            yield chunk if raw else dataclasses.replace(chunk, targets=[backwards(text) for text in chunk.targets])
        self.skipped = self.inner.skipped

    def content_hash(self) -> str:
        return self.inner.content_hash()

    def size_on_disk(self) -> int:
        return self.inner.size_on_disk()
