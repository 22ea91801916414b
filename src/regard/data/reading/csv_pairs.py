"""Reads two columns of a CSV file: comma, semicolon or tab, with strict quoting rules."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence

from regard.core.errors import DataError
from regard.data.reading.columns import as_numbers, check_two, find_in_header, in_header
from regard.data.reading.files import ByteFile
from regard.data.reading.lines import MAX_LINE_BYTES, line_blocks
from regard.data.reading.reader import Batch, RowReader, one_line

_DELIMITERS = {",": "comma", ";": "semicolon", "\t": "tab"}
_BATCH = 1000


class CsvPairs(RowReader):
    """One pair in each row; columns are numbers from 0, or names in the header.

    Without columns, a header is recognised by its names (source and target, src and tgt, or two languages); a file
    without such a header must have exactly two columns. The first row alone decides on the delimiter.
    """

    def __init__(self, file: ByteFile, columns: Sequence[str | int] = ()) -> None:
        super().__init__([file])
        self._columns = check_two(file.name, columns)

    def _batches(self, raw: bool) -> Iterator[Batch]:
        name = self.names[0]
        lines = _Lines(self.files[0])
        delimiter, first = self._first_row(lines)
        places, with_header = self._places(first)
        width, (source, target) = len(first), places
        sources: list[str] = [] if with_header else [one_line(first[source])]
        targets: list[str] = [] if with_header else [one_line(first[target])]
        rows = csv.reader(lines, delimiter=delimiter, strict=True)
        while True:
            begin = lines.begin_row()
            try:
                row = next(rows, None)
            except csv.Error as error:
                raise _not_csv(name, begin, error) from None
            if row is None:
                break
            if not row:
                self.skipped += 1
                continue
            if len(row) != width:
                raise DataError(
                    f"{name}, line {begin}",
                    f"the row has {len(row)} columns and the first row {width}",
                    f"Mend that row: text that holds a {_DELIMITERS[delimiter]} must stand in quotation marks",
                )
            sources.append(one_line(row[source]))
            targets.append(one_line(row[target]))
            if len(sources) == _BATCH:
                yield sources, targets
                sources, targets = [], []
        if sources:
            yield sources, targets

    def _first_row(self, lines: _Lines) -> tuple[str, list[str]]:
        """The delimiter and the cells of the first row."""
        where = f"{self.names[0]}, line 1"
        found: dict[str, list[str]] = {}
        problem: csv.Error | None = None
        for delimiter in _DELIMITERS:
            lines.rewind()
            try:
                row = next(csv.reader(lines, delimiter=delimiter, strict=True), [])
            except csv.Error as error:
                problem = error
                continue
            if len(row) > 1:
                found[delimiter] = row
        if not found and problem:
            raise _not_csv(self.names[0], 1, problem)
        if not found:
            raise DataError(
                where, "the first row has only one column", "Separate the columns with commas, semicolons or tabs"
            )
        for fits in (self._is_header, lambda row: len(found) == 1, self._has_the_columns):
            fitting = [delimiter for delimiter, row in found.items() if fits(row)]
            if len(fitting) == 1:
                lines.rewind()  # another delimiter may have read further
                return fitting[0], next(csv.reader(lines, delimiter=fitting[0], strict=True))
        listed = " and ".join(_DELIMITERS[delimiter] for delimiter in found)
        raise DataError(
            where,
            f"the delimiter is unclear, since the first row holds {listed}",
            "Begin the file with a header such as source,target",
        )

    def _is_header(self, row: list[str]) -> bool:
        if self._columns and not as_numbers(self._columns):
            return set(self._columns) <= {cell.strip() for cell in row}
        return in_header(row) is not None

    def _has_the_columns(self, row: list[str]) -> bool:
        numbers = as_numbers(self._columns)
        return len(row) > max(numbers) if numbers else len(row) == 2

    def _places(self, first: list[str]) -> tuple[tuple[int, int], bool]:
        """The places of source and target, and whether the first row is a header."""
        where, known = f"{self.names[0]}, line 1", in_header(first)
        numbers = as_numbers(self._columns)
        if numbers is not None:
            if max(numbers) >= len(first):
                raise DataError(
                    where, f"there is no column {max(numbers)}, since the row has {len(first)}", "Count columns from 0"
                )
            return numbers, known is not None
        if self._columns:
            return find_in_header(where, first, self._columns), True
        if known is not None:
            return known, True
        if len(first) > 2:
            raise DataError(
                where,
                f"there are {len(first)} columns and no header with known names (such as source,target or en,de)",
                "Choose two with columns, by name or by number from 0",
            )
        return (0, 1), False


class _Lines:
    """Feeds the lines of a file to Python's csv reader, and knows where a row began."""

    def __init__(self, file: ByteFile) -> None:
        self._name = file.name
        self._lines = (line for lines in line_blocks(file, keep_returns=True) for line in lines)
        self._again: list[str] = []  # lines of the first row, to be read again
        self._recent: list[str] | None = []  # the lines of the first row as they are read
        self._number = self._size = 0
        self._begin = 1

    def __iter__(self) -> _Lines:
        return self

    def __next__(self) -> str:
        line = self._again.pop() if self._again else next(self._lines)
        if self._recent is not None:
            self._recent.append(line)
        self._number += 1
        self._size += len(line)
        if self._size > MAX_LINE_BYTES:
            raise DataError(
                f"{self._name}, line {self._begin}",
                f"the row is longer than {MAX_LINE_BYTES >> 20} MiB",
                "Check that each quotation mark is closed",
            )
        return line + "\n"

    def rewind(self) -> None:
        """Goes back to the beginning of the file, as long as no other row has been begun."""
        assert self._recent is not None
        self._again += reversed(self._recent)
        self._recent = []
        self._number = self._size = 0

    def begin_row(self) -> int:
        """The number of the line at which the next row begins."""
        self._recent, self._size = None, 0
        self._begin = self._number + 1
        return self._begin


def _not_csv(name: str, line: int, error: csv.Error) -> DataError:
    return DataError(
        f"{name}, line {line}",
        f"the row that begins here is not valid CSV ({error})",
        "Close each quotation mark, and double those inside quoted text",
    )
