"""Reads two columns of a tab-separated file, without any quoting rules."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from regard.core.errors import DataError
from regard.data.reading.columns import as_numbers, check_two, find_in_header
from regard.data.reading.files import ByteFile
from regard.data.reading.lines import line_blocks
from regard.data.reading.reader import Batch, RowReader


class TsvPairs(RowReader):
    """One pair on each line; columns are numbers from 0, or names that stand in the first line."""

    def __init__(self, file: ByteFile, columns: Sequence[str | int] = ()) -> None:
        super().__init__([file])
        self._columns = check_two(file.name, columns) or ("0", "1")

    def _batches(self, raw: bool) -> Iterator[Batch]:
        name, places, number = self.names[0], as_numbers(self._columns), 0
        for lines in line_blocks(self.files[0], raw):
            if places is None:
                header = [cell.removeprefix("\ufeff").removesuffix("\r") for cell in lines[0].split("\t")]
                places = find_in_header(f"{name}, line 1", header, self._columns)
                del lines[0]
                number = 1
            source, target = places
            needed = max(places) + 1
            rows = [line.split("\t", needed) for line in lines]
            try:
                yield [row[source] for row in rows], [row[target] for row in rows]
            except IndexError:
                short = next(i for i, row in enumerate(rows) if len(row) < needed)
                raise DataError(
                    f"{name}, line {number + short + 1}",
                    f"{needed} tab-separated columns are expected, got {len(rows[short])}",
                    "Mend that line, or choose other columns",
                ) from None
            number += len(rows)
