"""Reads two fields of each line of a JSON Lines file."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence

from regard.core.errors import DataError
from regard.data.reading.columns import check_two, choose_fields, field
from regard.data.reading.files import ByteFile
from regard.data.reading.lines import line_blocks
from regard.data.reading.reader import Batch, RowReader, one_line

_KINDS = {dict: "an object", list: "a list", bool: "true or false", int: "a number", float: "a number", str: "a text"}


class JsonlPairs(RowReader):
    """One object on each line. The first one decides which fields are read, unless they are named."""

    def __init__(self, file: ByteFile, columns: Sequence[str | int] = ()) -> None:
        super().__init__([file])
        self._columns = check_two(file.name, columns)

    def _batches(self, raw: bool) -> Iterator[Batch]:
        name, before = self.names[0], 0
        fields: tuple[str, str] | None = None
        decode = json.JSONDecoder(object_pairs_hook=_object).decode
        for lines in line_blocks(self.files[0]):
            texts: Batch = ([], [])
            for number, line in enumerate(lines, before + 1):
                if not line or line.isspace():
                    self.skipped += 1
                    continue
                try:
                    record = decode(line)
                except (ValueError, RecursionError) as error:
                    raise _not_json(f"{name}, line {number}", error) from None
                if not isinstance(record, dict):
                    raise DataError(
                        f"{name}, line {number}",
                        f"a JSON object is expected, got {_kind(record)}",
                        'Write lines such as {"src": "…", "tgt": "…"}',
                    )
                if fields is None:
                    fields = choose_fields(f"{name}, line {number}", record, self._columns)
                for side, key in zip(texts, fields, strict=True):
                    text = record.get(key)
                    if type(text) is not str:
                        text = field(record, key)
                        if not isinstance(text, str):
                            raise DataError(
                                f"{name}, line {number}",
                                f"the value of {key} is not a text but {_kind(text)}",
                                "Mend that line, or choose other columns",
                            )
                    side.append(one_line(text))
                if not raw and "\\u" in line:
                    for side, key in zip(texts, fields, strict=True):
                        _refuse_surrogates(f"{name}, line {number}", key, side[-1])
            before += len(lines)
            yield texts


def _object(members: list[tuple[str, object]]) -> dict[str, object]:
    record = dict(members)
    if len(record) != len(members):
        twice = Counter(key for key, _ in members).most_common(1)[0][0]
        raise ValueError(f"the key {twice[:40]} stands twice in one object")
    return record


def _kind(value: object) -> str:
    return "null or missing" if value is None else _KINDS.get(type(value), type(value).__name__)


def _not_json(where: str, error: Exception) -> DataError:
    if isinstance(error, RecursionError):
        return DataError(where, "the line is nested too deeply", "Write one flat JSON object on each line")
    reason = f"{error.msg} at column {error.colno}" if isinstance(error, json.JSONDecodeError) else str(error)
    return DataError(where, f"the line is not valid JSON ({reason})", "Write one JSON object on each line")


def _refuse_surrogates(where: str, key: str, text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise DataError(
            where,
            f"the text of {key} holds half a character (\\u{ord(text[error.start]):04x}, a lone surrogate)",
            "Mend or remove that line",
        ) from None
