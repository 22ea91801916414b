"""How word vectors are read from word2vec's text and binary formats."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from regard.core.errors import DataError
from regard.core.visible_text import visible
from regard.data.reading.files import ByteFile
from regard.data.reading.lines import line_blocks

MOST_WORDS = 50_000_000
MOST_WIDTH = 65_536
MOST_NUMBERS = 1 << 32  # 16 GiB
MOST_WORD_BYTES = 4096
_ROWS = 4096  # the first room for what is read
_FORMAT = "Give a file of word vectors: a word and its numbers on each line, or word2vec's binary format"
_AGAIN = "Get the file again: it is damaged or not whole"


class Header(NamedTuple):
    """What the beginning of a file tells of it."""

    words: int | None  # None: there is no header
    width: int
    binary: bool


class VectorTable:
    """The words and vectors that are kept, growing as they come."""

    def __init__(self, name: str, unit: str, width: int):
        self.name, self.unit, self.width = name, unit, width
        self.words: list[str] = []
        self.repeated = 0
        self._known: set[str] = set()
        self._matrix = np.empty((_ROWS if width < 1024 else 16, width), dtype=np.float32)

    def add(self, words: list[str], numbers: list[int], rows: Float[np.ndarray, "N D"]) -> None:
        """`numbers` are the lines or words of the file that they stand on."""
        finite = np.isfinite(rows).all(1)
        if not finite.all():
            number = numbers[int(finite.argmin())]
            raise DataError(f"{self.name}, {self.unit} {number}", "a value is no finite number of float32", _AGAIN)
        new: list[int] = []
        for i, word in enumerate(words):
            if word in self._known:
                self.repeated += 1
            else:
                self._known.add(word)
                new.append(i)
        size = len(self.words) + len(new)
        if size > MOST_WORDS or size * self.width > MOST_NUMBERS:
            raise DataError(self.name, f"it holds more than {size:,} words", "Give a smaller file")
        if size > len(self._matrix):
            self._matrix.resize((max(size, 2 * len(self._matrix)), self.width), refcheck=False)
        self._matrix[len(self.words) : size] = rows[new] if len(new) < len(words) else rows
        self.words += [words[i] for i in new]

    def whole(self) -> Float[np.ndarray, "N D"]:
        self._matrix.resize((len(self.words), self.width), refcheck=False)
        return self._matrix


def read_header(file: ByteFile) -> Header:
    """What the first bytes tell of a file."""
    head = next(iter(file.blocks()))
    first, _, rest = head.removeprefix(b"\xef\xbb\xbf").partition(b"\n")
    fields = first.rstrip(b"\r ").replace(b"\t", b" ").split(b" ")
    fields = [field for field in fields if field]
    if len(fields) != 2 or not all(field.isdigit() and len(field) < 12 for field in fields):
        if not (1 <= len(fields) - 1 <= MOST_WIDTH):
            what = f"a word and {len(fields) - 1} numbers stand there" if fields else "nothing stands there"
            raise DataError(f"{file.name}, line 1", what, _FORMAT)
        # words may have spaces: the numbers are those at the end
        numbers = len(list(itertools.takewhile(_is_number, reversed(fields[1:]))))
        return Header(None, numbers or len(fields) - 1, False)
    count, width = int(fields[0]), int(fields[1])
    most = f"more than {MOST_WORDS:,} words, {MOST_WIDTH:,} numbers for each, or {MOST_NUMBERS:,} in all"
    if not count or not width:
        raise DataError(f"{file.name}, line 1", f"the header says {count} words of width {width}", _FORMAT)
    if count > MOST_WORDS or width > MOST_WIDTH or count * width > MOST_NUMBERS:
        raise DataError(f"{file.name}, line 1", f"the header says {count} words of width {width}: {most}", _FORMAT)
    return Header(count, width, _is_binary(rest, width))


def _is_binary(rest: bytes, width: int) -> bool:
    """Whether bytes after a header are of the binary format: no numbers on the first line, and no text after its word."""
    line = [field for field in rest.split(b"\n", 1)[0].split(b" ")[1:] if field.strip()]
    if line and all(map(_is_number, line)):
        return False
    piece = rest.partition(b" ")[2][: 4 * width]
    if any(byte < 0x20 and byte not in b"\t\n\r" for byte in piece):
        return True
    try:
        piece[:-3].decode()
    except UnicodeDecodeError as error:
        return error.reason != "unexpected end of data"
    return False


def _is_number(field: bytes | str) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True


def read_text(file: ByteFile, header: Header, wanted: frozenset[str] | None, table: VectorTable) -> None:
    width, seen, blank = header.width, 0, 0
    number = 0
    for block in line_blocks(file):
        words: list[str] = []
        numbers: list[int] = []
        values: list[str] = []
        for line in block:
            number += 1
            if number == 1 and header.words is not None:
                continue
            if "\t" in line:
                line = line.replace("\t", " ")
            word, _, rest = line.partition(" ")
            rest = rest.rstrip(" ")
            if not word or rest.count(" ") + 1 != width or not rest:
                if not line.strip(" "):
                    blank = blank or number
                    continue
                word, rest = _odd_line(f"{file.name}, line {number}", line, header)
            if blank:
                raise DataError(f"{file.name}, line {blank}", "nothing stands there", "Take the line out")
            seen += 1
            if header.words is not None and seen > header.words:
                what = f"the header says {header.words:,} words, and more follow"
                raise DataError(f"{file.name}, line {number}", what, "Mend the header, or get the file again")
            if wanted is None or word in wanted:
                if len(word) * 4 > MOST_WORD_BYTES and len(word.encode()) > MOST_WORD_BYTES:
                    raise DataError(f"{file.name}, line {number}", f"the word has {len(word):,} characters", _FORMAT)
                words.append(word)
                numbers.append(number)
                values.append(rest)
        if words:
            table.add(words, numbers, _parsed(file.name, numbers, values, width))
    if header.words is not None and seen < header.words:
        what = f"the file ends after {seen:,} words, and its header says {header.words:,}"
        raise DataError(f"{file.name}, line {number}", what, _AGAIN)


def _odd_line(where: str, line: str, header: Header) -> tuple[str, str]:
    """A line that is not one word, a space, and numbers with single spaces between: more spaces, or an error."""
    fields = [field for field in line.split(" ") if field]
    surplus = len(fields) - 1 - header.width
    if surplus < 0 or any(_is_number(field) for field in fields[1 : 1 + surplus]):
        says = "the header says" if header.words is not None else "line 1 has"
        what = f"{len(fields) - 1} numbers stand after the word {visible(fields[0], 40)!r}, and {says} {header.width}"
        raise DataError(where, what, "All vectors of a file have one width: mend the line, or get the file again")
    return " ".join(fields[: surplus + 1]), " ".join(fields[surplus + 1 :])


def _parsed(name: str, numbers: list[int], values: list[str], width: int) -> Float[np.ndarray, "N D"]:
    joined = " ".join(values)
    try:
        if "_" in joined:  # float takes 1_0 for 10
            raise ValueError
        with np.errstate(over="ignore"):
            return np.array(list(map(float, joined.split(" "))), dtype=np.float32).reshape(-1, width)
    except ValueError:
        pass
    for number, value in zip(numbers, values, strict=True):
        for field in value.split(" "):
            if "_" in field or not _is_number(field):
                what = f"{visible(field, 40)!r} stands where a number is expected"
                raise DataError(f"{name}, line {number}", what, _FORMAT)
    raise AssertionError("one of the fields is no number")


def read_binary(file: ByteFile, header: Header, wanted: frozenset[str] | None, table: VectorTable) -> None:
    assert header.words is not None
    size = 4 * header.width
    least = header.words * (size + 2)  # a letter and a space
    if not file.kind and file.size < least:
        what = f"it has {file.size:,} bytes, and {header.words:,} words of width {header.width} take at least {least:,}"
        raise DataError(file.name, what, _AGAIN)
    keys = None if wanted is None else {word.encode(errors="surrogatepass") for word in wanted}
    words: list[str] = []
    numbers: list[int] = []
    values: list[bytes] = []

    def keep() -> None:
        if words:
            table.add(words, numbers, np.frombuffer(b"".join(values), dtype="<f4").reshape(-1, header.width))
            for part in (words, numbers, values):
                part.clear()

    blocks = file.blocks()
    buffer, place = next(blocks).partition(b"\n")[2], 0
    for number in range(1, header.words + 1):
        while True:
            end = buffer.find(b" ", place, place + MOST_WORD_BYTES + 2)
            if end >= 0 and len(buffer) - end - 1 >= size:
                break
            if end < 0 and len(buffer) - place > MOST_WORD_BYTES + 1:
                raise _no_word(file.name, number, header.width)
            keep()
            block = next(blocks, None)
            if block is None:
                what = f"the file ends there, and its header says {header.words:,} words"
                raise DataError(f"{file.name}, word {number}", what, _AGAIN)
            buffer, place = buffer[place:] + block, 0
        raw = buffer[place:end].lstrip(b"\n")
        place = end + 1 + size
        if keys is None or raw in keys:
            try:
                words.append(raw.decode())
            except UnicodeDecodeError:
                raise _no_word(file.name, number, header.width) from None
            if not raw or b"\n" in raw or b"\0" in raw:
                raise _no_word(file.name, number, header.width)
            numbers.append(number)
            values.append(buffer[end + 1 : place])
    keep()
    if _rest(itertools.chain([buffer[place:]], blocks)):
        what = f"more follows after the {header.words:,} words that the header says"
        raise DataError(file.name, what, _AGAIN)


def _rest(blocks: Iterable[bytes]) -> bool:
    """Whether there is more than the ends of lines. Goes through to the end, where the file is compared with its first look."""
    found = False
    for block in blocks:
        found = found or bool(block.strip(b"\r\n"))
    return found


def _no_word(name: str, number: int, width: int) -> DataError:
    what = f"no word in UTF-8 stands there: the file is damaged, or its vectors do not have the width {width}"
    return DataError(f"{name}, word {number}", what, "Get the file again, or convert its words to UTF-8")
