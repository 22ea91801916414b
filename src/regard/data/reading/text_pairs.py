"""Reads two plain-text files whose lines belong together."""

from __future__ import annotations

from collections.abc import Iterator

from regard.core.errors import DataError
from regard.data.reading.lines import LineStream
from regard.data.reading.reader import PairReader
from regard.data.split import Pairs


class TextPairs(PairReader):
    """Two files: line n of one is the translation of line n of the other."""

    def _chunks(self, size: int, raw: bool) -> Iterator[Pairs]:
        source, target = (LineStream(file, raw) for file in self.files)
        while True:
            source.fill(size)
            target.fill(size)
            if source.ended and target.ended and not len(source) and not len(target):
                return
            ready = min(size, max(len(source), len(target)))
            ready = min([ready, *(len(side) for side in (source, target) if not side.ended)])
            if not raw and (len(source) < ready or len(target) < ready):
                raise DataError(
                    " and ".join(self.names),
                    f"the files are not aligned, the first has {source.count_all()} lines "
                    f"and the second {target.count_all()}",
                    "Give files in which line n of one is the translation of line n of the other",
                )
            yield Pairs(source.take(ready), target.take(ready))
