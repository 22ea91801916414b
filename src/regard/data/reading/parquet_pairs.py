"""Reads two text columns of a Parquet file, batch by batch."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

from regard.core.errors import DataError
from regard.data.reading.archives import BOMB_BYTES, BOMB_RATIO
from regard.data.reading.columns import check_two, choose_fields
from regard.data.reading.files import ByteFile
from regard.data.reading.lines import MAX_LINE_BYTES, MAX_WAITING
from regard.data.reading.reader import Batch, RowReader, one_line

_BATCH = 4096
_BUFFER = 1 << 20


class ParquetPairs(RowReader):
    """One pair in each row; columns are names, with dots into nested columns (`translation.en`)."""

    def __init__(self, file: ByteFile, columns: Sequence[str | int] = ()) -> None:
        super().__init__([file])
        self._columns = check_two(file.name, columns)
        self._arrow, self._parquet, self._compute = _import_arrow(file.name)

    def _batches(self, raw: bool) -> Iterator[Batch]:
        with self.files[0].opened() as file:
            try:
                yield from self._read(file)
            except (self._arrow.ArrowException, OSError) as error:
                reason = str(error).partition("\n")[0][:200].rstrip(".")
                raise DataError(
                    self.names[0], f"the file is not valid Parquet ({reason})", "Download or write it again"
                ) from None

    def _read(self, file: BinaryIO) -> Iterator[Batch]:
        content = self._parquet.ParquetFile(file, buffer_size=_BUFFER)
        kinds = {column.name: self._sample(column.type) for column in content.schema_arrow}
        fields = choose_fields(self.names[0], kinds, self._columns)
        before = 0
        for group in range(content.metadata.num_row_groups):
            rows = self._rows_at_once(file, content.metadata.row_group(group), group, fields)
            for batch in content.iter_batches(batch_size=rows, row_groups=[group], columns=list(fields)):
                source, target = (self._texts(batch, field, before) for field in fields)
                before += batch.num_rows
                yield source, target

    def _sample(self, kind: Any) -> object:
        """A value of a column's kind, as far as it matters where the texts are."""
        types = self._arrow.types
        if types.is_dictionary(kind):
            kind = kind.value_type
        if types.is_struct(kind):
            return {inner.name: self._sample(inner.type) for inner in kind}
        return "" if types.is_string(kind) or types.is_large_string(kind) else None

    def _rows_at_once(self, file: BinaryIO, group: Any, number: int, fields: Sequence[str]) -> int:
        """How many rows of a row group fit into memory, since a few bytes may stand for a long text many times."""
        rows = _BATCH
        for place in range(group.num_columns):
            column = group.column(place)
            name, size = column.path_in_schema, column.total_uncompressed_size
            if name not in fields:
                continue
            if size > max(BOMB_BYTES, BOMB_RATIO * column.total_compressed_size):
                raise DataError(
                    self.names[0],
                    f"column {name} grows to more than {BOMB_RATIO} times its size, as a bomb does",
                    "Write the file again without compression if you trust it",
                )
            longest = size // max(1, column.num_values)
            if any("DICTIONARY" in encoding for encoding in column.encodings):
                longest = max(longest, self._longest_in_dictionary(file, number, name))
            if "DELTA_BYTE_ARRAY" in column.encodings:  # each text may repeat the one before
                longest = max(longest, min(size, MAX_WAITING >> 4))
            rows = min(rows, max(1, MAX_WAITING // max(1, longest)))
        return rows

    def _longest_in_dictionary(self, file: BinaryIO, group: int, name: str) -> int:
        content = self._parquet.ParquetFile(file, read_dictionary=[name], buffer_size=_BUFFER)
        batch = next(content.iter_batches(batch_size=1, row_groups=[group], columns=[name]), None)
        if batch is None:
            return 0
        column = batch.column(0)
        while self._arrow.types.is_struct(column.type):
            column = column.field(0)
        if not self._arrow.types.is_dictionary(column.type):
            return 0
        return self._compute.max(self._compute.binary_length(column.dictionary)).as_py() or 0

    def _texts(self, batch: Any, field: str, before: int) -> list[str]:
        column = batch
        path = field
        while True:  # down to the text, noting the rows that are null on the way
            names = batch.schema.names if column is batch else [inner.name for inner in column.type]
            name = path if path in names else path.partition(".")[0]
            column = column.column(name) if column is batch else column.field(name)
            if column.null_count:
                row = before + column.is_null().index(True).as_py() + 1
                raise DataError(
                    f"{self.names[0]}, row {row}", f"column {field} holds no text (null)", "Mend or remove that row"
                )
            if name == path:
                break
            path = path.partition(".")[2]
        try:
            return self._strings(column, field, before)
        except UnicodeDecodeError as error:
            raise DataError(
                self.names[0],
                f"a text of column {field} within rows {before + 1} to {before + len(column)} is not UTF-8 ({error.reason})",
                "Write the file again",
            ) from None

    def _strings(self, column: Any, field: str, before: int) -> list[str]:
        if self._arrow.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        lengths = self._compute.binary_length(column)
        longest = self._compute.max(lengths).as_py() or 0
        if longest > MAX_LINE_BYTES:
            raise DataError(
                f"{self.names[0]}, row {before + lengths.index(longest).as_py() + 1}",
                f"column {field} holds more than {MAX_LINE_BYTES >> 20} MiB of text",
                "Divide or remove that row",
            )
        return [one_line(text) for text in column.to_pylist()]


def _import_arrow(name: str) -> Sequence[Any]:
    try:
        return [importlib.import_module(module) for module in ("pyarrow", "pyarrow.parquet", "pyarrow.compute")]
    except ImportError:
        raise DataError(
            name, "reading Parquet needs the package pyarrow", 'Install it with pip install "regard[data]"'
        ) from None
