r"""Turns blocks of bytes into lines of text.

Only \n (or \r\n) ends a line: other Unicode line separators are text, or two aligned files would drift apart.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from pathlib import Path

from regard.core.errors import DataError
from regard.data.reading.files import EMPTY_TODO, ByteFile

MAX_LINE_BYTES = 16 << 20
MAX_WHOLE_BYTES = 8 << 30  # of a file that is read into a list
MAX_WAITING = 64 << 20  # characters of the lines that make a chunk
_LOOK = 1 << 16
_UTF_16_OFTEN, _UTF_16_SELDOM = 0.4, 0.05  # null bytes among the high and the low bytes of UTF-16 text


def read_lines(path: str | Path) -> list[str]:
    """Reads the lines of a UTF-8 file, decompressing .gz, .xz and .zst."""
    return [line for lines in line_blocks(ByteFile(path, limit=MAX_WHOLE_BYTES)) for line in lines]


def line_blocks(file: ByteFile, raw: bool = False, keep_returns: bool = False) -> Iterator[list[str]]:
    r"""The lines of a file, those of about 1 MiB at a time.

    Raw, undecodable bytes become lone surrogates (as Python's `surrogateescape` does) and a byte order mark and the \r
    before \n stay; otherwise the first are an error, and the others are taken off (the returns only without
    `keep_returns`).
    """
    carry: list[bytes] = []
    carried = number = offset = 0  # bytes in `carry`, lines and bytes before it
    first = True
    for block in file.blocks():
        if first:
            first = False
            refuse_other_encodings(file.name, block)
            if not raw and block.startswith(codecs.BOM_UTF8):
                block, offset = block[len(codecs.BOM_UTF8) :], len(codecs.BOM_UTF8)
        cut = block.rfind(b"\n") + 1
        if not cut or carried + block.find(b"\n") > MAX_LINE_BYTES:
            carried += len(block)
            carry.append(block)
            if carried > MAX_LINE_BYTES:
                raise DataError(
                    f"{file.name}, line {number + 1}",
                    f"the line is longer than {MAX_LINE_BYTES >> 20} MiB",
                    "Divide it, or check that a line feed ends each line",
                )
            continue
        data = b"".join((*carry, block[:cut]))
        carry = [block[cut:]]
        carried = len(carry[0])
        lines = decoded(file.name, data, raw, number, offset).split("\n")
        lines.pop()
        number, offset = number + len(lines), offset + len(data)
        yield lines if raw or keep_returns or b"\r" not in data else [line.removesuffix("\r") for line in lines]
    if carried:
        line = decoded(file.name, b"".join(carry), raw, number, offset)
        yield [line if raw or keep_returns else line.removesuffix("\r")]
    elif not number:
        raise DataError(file.name, "the file is empty", EMPTY_TODO)


class LineStream:
    """The lines of a file, taken a number at a time."""

    def __init__(self, file: ByteFile, raw: bool) -> None:
        self._blocks = line_blocks(file, raw)
        self._waiting: list[str] = []
        self.count = 0  # lines taken
        self.ended = False

    def __len__(self) -> int:
        """How many lines wait."""
        return len(self._waiting)

    def fill(self, size: int) -> None:
        """Lets `size` lines wait, or all that are left, or as many as the memory limit allows (at least one)."""
        room = MAX_WAITING - sum(map(len, self._waiting))
        while not self.ended and len(self._waiting) < size and (room > 0 or not self._waiting):
            lines = next(self._blocks, None)
            if lines is None:
                self.ended = True
                break
            self._waiting += lines
            room -= sum(map(len, lines))

    def take(self, size: int) -> list[str]:
        """The next lines, at most those that wait."""
        taken = self._waiting[:size]
        del self._waiting[:size]
        self.count += len(taken)
        return taken

    def count_all(self) -> int:
        """How many lines the file has; nothing can be taken afterwards."""
        self.count += len(self._waiting) + sum(map(len, self._blocks))
        self._waiting, self.ended = [], True
        return self.count


def decoded(name: str, data: bytes | bytearray, raw: bool, number: int, offset: int) -> str:
    try:
        return data.decode("utf-8", "surrogateescape" if raw else "strict")
    except UnicodeDecodeError as error:
        line = number + data.count(b"\n", 0, error.start) + 1
        raise DataError(
            f"{name}, line {line}",
            f"the text is not UTF-8 (byte 0x{data[error.start]:02x} at offset {offset + error.start})",
            "Convert it, for example with iconv -f ISO-8859-1 -t UTF-8",
        ) from None


def refuse_other_encodings(name: str, block: bytes) -> None:
    """Refuses what is no text in UTF-8 from beginning to end, and need not be read to know it."""
    found = _encoding(block)
    if found:
        raise DataError(
            f"{name}, line 1",
            "the text is not UTF-8",
            f"It looks like {found[:6]}: convert it, for example with iconv -f {found} -t UTF-8",
        )
    for magic, kind in ((b"PK\x03\x04", "a zip archive"), (b"BZh", "a bzip2 archive"), (b"PAR1", "a Parquet file")):
        if block.startswith(magic) and b"\0" in block:
            todo = "Name it as one file with the ending .parquet" if magic == b"PAR1" else "Unpack it first"
            raise DataError(name, f"it is not text but looks like {kind}", todo)


def _encoding(block: bytes) -> str:
    """The name that iconv knows for UTF-16 or UTF-32 text, else an empty string."""
    marks = (codecs.BOM_UTF32_LE, "UTF-32"), (codecs.BOM_UTF32_BE, "UTF-32")
    for mark, name in (*marks, (codecs.BOM_UTF16_LE, "UTF-16"), (codecs.BOM_UTF16_BE, "UTF-16")):
        if block.startswith(mark):
            return name
    head = block[:_LOOK]
    half = len(head) // 2
    if not half or b"\0" not in head:
        return ""
    even, odd = head[::2].count(b"\0") / half, head[1::2].count(b"\0") / half
    if odd >= _UTF_16_OFTEN and even <= _UTF_16_SELDOM:
        return "UTF-16LE"
    if even >= _UTF_16_OFTEN and odd <= _UTF_16_SELDOM:
        return "UTF-16BE"
    return ""
