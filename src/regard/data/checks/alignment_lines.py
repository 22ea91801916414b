"""What the alignment check knows of each line, in few bytes: length, last mark, numbers and hashed words."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

BUCKETS = 1 << 16  # of hashed words
MARKS = 16  # classes of a line's end
_MOST_WORDS = 255  # of one line; what follows is not looked at
_LONG_LINE = 4_000  # characters; of a longer line the beginning and the end are looked at
_PIECE = 1 << 20  # characters worked on at once, so that the work stays in a processor's cache
_SETTLED = 4_096  # lines after which it is known which words are too common to be kept
_TOO_COMMON = 0.25  # share of the lines

# classes of the last mark; a quotation mark or a bracket after it adds _CLOSED
_FULL_STOP, _QUESTION, _EXCLAMATION, _COLON, _SEMICOLON, _COMMA, _TRAILING, _CLOSED = range(1, 9)
_LAST_MARKS = {
    _FULL_STOP: ".。．｡।॥۔።။។։",
    _QUESTION: "?？؟\u037e՞፧⁇‽",
    _EXCLAMATION: "!！՜‼",
    _COLON: ":：፡",
    _SEMICOLON: ";；؛፤",
    _COMMA: ",，、،､፣",
    _TRAILING: "…-–—―‥〜",
    _CLOSED: "\"'”’“‘‚„«»‹›)]}）］｝」』】〉》〕＂＇",
}
# digits of other scripts: a byte without which a text has none of them, and the first of the ten
_OTHER_DIGITS = ((b"\xef", "０"), (b"\xd9", "٠"), (b"\xdb", "۰"), (b"\xe0", "०"), (b"\xe0", "০"))


def _mark_table() -> tuple[np.ndarray, np.ndarray]:
    """The UTF-8 bytes of each known mark as one number, in order, and the classes of the marks."""
    known = {int.from_bytes(char.encode(), "big"): mark for mark, chars in _LAST_MARKS.items() for char in chars}
    codes = sorted(known)
    return np.array(codes, dtype=np.int64), np.array([known[code] for code in codes], dtype=np.uint8)


def _prefix_masks() -> np.ndarray:
    """By a word's first byte: which bytes from there on make its prefix, five letters or one or two signs."""
    sizes = [5] * 256
    sizes[0xC6:0xE0] = [8] * 26  # alphabets with two bytes a letter, such as Greek, Cyrillic and Arabic
    sizes[0xE0:0xF0] = [6] * 16
    sizes[0xE4:0xEA] = [3] * 6  # one Chinese sign says enough
    sizes[0xF0:] = [4] * 16
    return np.array([(1 << (8 * size)) - 1 for size in sizes], dtype=np.uint64)


_MARK_CODES, _MARK_CLASSES = _mark_table()
_PREFIX_MASKS = _prefix_masks()
# letters in lower case; everything else is a zero, which ends a word (digits too: they are judged on their own)
_WORD_BYTES = bytes(byte if byte >= 0x80 or chr(byte).isalpha() else 0 for byte in bytes(range(256)).lower())
# scripts without spaces beside Chinese and kana: Thai, Lao, Khmer, Burmese, by their first two bytes
_UNSPACED = np.array([0xE0B8, 0xE0B9, 0xE0BA, 0xE0BB, 0xE19E, 0xE19F, 0xE180, 0xE181], dtype=np.int64)

_ONES = np.uint64(0x0101010101010101)
_HIGH = np.uint64(0x8080808080808080)
_ZEROS = np.uint64(0x3030303030303030)  # the digit 0, eight times
_HASH = np.uint64(0x9E3779B97F4A7C15)
_PADDING = 4
_DTYPES = (np.uint8, np.uint8, np.uint32, np.uint32, np.uint8, np.uint16)  # of SideArrays


class SideArrays(NamedTuple):
    """One side of a corpus: an entry per line, and the hashed words of all lines one after the other."""

    lengths: np.ndarray  # uint8: characters on a logarithmic scale, 16 steps double the length
    marks: np.ndarray  # uint8: the class of the last mark, below MARKS
    numbers: np.ndarray  # uint32: the groups of digits as a set of 32 bits
    prints: np.ndarray  # uint32: equal where lines have the same words
    counts: np.ndarray  # uint8: kept words
    words: np.ndarray  # uint16: the kept words of all lines, their first letters hashed to one of BUCKETS

    @property
    def lines(self) -> int:
        return self.lengths.size

    def head(self, lines: int) -> SideArrays:
        """The first lines."""
        counts = self.counts[:lines]
        lengths, marks, numbers, prints = (values[:lines] for values in self[:4])
        return SideArrays(lengths, marks, numbers, prints, counts, self.words[: counts.sum(dtype=np.int64)])


class SideFeatures:
    """One side of a corpus while it is read."""

    def __init__(self) -> None:
        self._buffers = [bytearray() for _ in SideArrays._fields]
        self._common: np.ndarray | None = None  # bucket -> too common to be kept; None until that is known

    def __len__(self) -> int:
        return len(self._buffers[0])

    def arrays(self) -> SideArrays:
        """Views of what has been read. While one is held, no lines can be added."""
        return SideArrays(
            *(np.frombuffer(buffer, dtype=dtype) for buffer, dtype in zip(self._buffers, _DTYPES, strict=True))
        )

    def add(self, lines: Sequence[str]) -> None:
        for piece in _pieces(lines):
            seen = _look(piece)
            if self._common is not None:
                seen = _without(self._common, seen)
            for buffer, values in zip(self._buffers, seen, strict=True):
                buffer += values.tobytes()
            if self._common is None and len(self) >= _SETTLED:
                self._settle()

    def drop(self, lines: int) -> None:
        """Forgets the first lines."""
        sizes = [values.nbytes for values in self.arrays().head(lines)]
        for buffer, size in zip(self._buffers, sizes, strict=True):
            del buffer[:size]

    def _settle(self) -> None:
        arrays = self.arrays()
        self._common = np.bincount(arrays.words, minlength=BUCKETS) > _TOO_COMMON * len(self)
        self._buffers = [bytearray(values.tobytes()) for values in _without(self._common, arrays)]


def _pieces(lines: Sequence[str]) -> Iterator[Sequence[str]]:
    sizes = np.minimum(np.fromiter(map(len, lines), dtype=np.int64, count=len(lines)), _LONG_LINE)
    number = np.cumsum(sizes) // _PIECE  # of the piece to which a line belongs
    borders = (np.flatnonzero(np.diff(number)) + 1).tolist()
    for begin, end in zip([0, *borders], [*borders, len(lines)], strict=True):
        if begin < end:
            yield lines[begin:end]


def _without(common: np.ndarray, arrays: SideArrays) -> SideArrays:
    """The same lines without the words that are too common."""
    kept = ~common[arrays.words]
    before = np.concatenate(([0], np.cumsum(kept)))
    ends = np.cumsum(arrays.counts, dtype=np.int64)
    counts = np.diff(before[ends], prepend=0).astype(np.uint8)
    return arrays._replace(counts=counts, words=arrays.words[kept])


def _look(lines: Sequence[str]) -> SideArrays:
    """What there is to know of some lines, by whole-array operations on their bytes."""
    characters = np.fromiter(map(len, lines), dtype=np.int64, count=len(lines))
    if characters.max(initial=0) > _LONG_LINE:
        lines = [line if len(line) <= _LONG_LINE else f"{line[: _LONG_LINE - 50]} {line[-49:]}" for line in lines]
    joined = "\n".join(lines)
    if joined.count("\n") != len(lines) - 1:
        joined = "\n".join(line.replace("\n", " ") for line in lines)
    # the ends are padded, since bytes are looked up before and after each place
    text = b"\n" * _PADDING + joined.encode("utf-8", "surrogatepass") + b"\n" + bytes(8)
    if not text.isascii():
        text = _plain_digits(text)
    raw = np.frombuffer(text, dtype=np.uint8)
    ends = np.flatnonzero(raw == 10)[_PADDING:]
    lengths = np.minimum(np.rint(16 * np.log2(characters + 1.0)), 255).astype(np.uint8)
    return SideArrays(lengths, _last_marks(raw, ends), _numbers(raw, ends), *_words(text, raw, ends))


def _plain_digits(text: bytes) -> bytes:
    for sign, zero in _OTHER_DIGITS:
        if sign in text:
            for digit in range(10):
                text = text.replace(chr(ord(zero) + digit).encode(), b"%d" % digit)
    return text


def _eight_bytes(raw: np.ndarray, places: np.ndarray) -> np.ndarray:
    """The eight bytes from each place on as one number, the first byte the lowest."""
    overlapping = np.ndarray(len(raw) - 7, dtype="<u8", buffer=raw, strides=(1,))
    values = overlapping[places]
    return values if sys.byteorder == "little" else values.astype(np.uint64)


def _below(flags: np.ndarray) -> np.ndarray:
    """A mask of all bytes before the first byte whose high bit is set."""
    return ((flags & (~flags + np.uint64(1))) >> np.uint64(7)) - np.uint64(1)


def _words(text: bytes, raw: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The prints, word counts and words of the lines."""
    letters = np.frombuffer(bytearray(text.translate(_WORD_BYTES)), dtype=np.uint8)
    unspaced = None if text.isascii() else _separate_signs(text, raw, letters)
    inside = letters != 0
    first = inside[1:] & ~inside[:-1]
    if unspaced is not None:
        first |= unspaced[1:]
    starts = np.flatnonzero(first) + 1
    values = _eight_bytes(letters, starts)
    over = (values - _ONES) & ~values & _HIGH  # marks the first zero byte, and some after it
    if unspaced is not None:
        # a Latin word is not continued by the signs that follow it without a space
        over |= np.where(values & np.uint64(0x80), np.uint64(0), values & _HIGH)
    values &= _below(over)
    values &= _PREFIX_MASKS[values & np.uint64(0xFF)]
    values *= _HASH
    words = (values >> np.uint64(48)).astype(np.uint16)
    begins = np.searchsorted(starts, ends)
    counts = np.diff(begins, prepend=0)
    sums = np.concatenate((np.zeros(1, dtype=np.uint64), np.cumsum(values >> np.uint64(16))))
    prints = np.diff(sums[begins], prepend=np.uint64(0)).astype(np.uint32)
    if counts.max(initial=0) > _MOST_WORDS:
        rank = np.arange(len(words)) - np.repeat(np.cumsum(counts) - counts, counts)
        words, counts = words[rank < _MOST_WORDS], np.minimum(counts, _MOST_WORDS)
    return prints, counts.astype(np.uint8), words


def _separate_signs(text: bytes, raw: np.ndarray, letters: np.ndarray) -> np.ndarray | None:
    """Blanks punctuation beyond ASCII; returns where the signs of scripts without spaces begin, if there are any."""
    for lead, size, second in ((0xC2, 2, None), (0xE2, 3, None), (0xE3, 3, (0x80,)), (0xEF, 3, (0xBC, 0xBD))):
        places = np.flatnonzero(raw == lead)
        if second is not None:
            places = places[np.isin(raw[places + 1], second)]
        for k in range(size):
            letters[places + k] = 0
    unspaced = ((raw - np.uint8(0xE3)) <= 6) & (letters != 0)
    if b"\xe0" in text or b"\xe1" in text:
        places = np.flatnonzero((raw == 0xE0) | (raw == 0xE1))
        pairs = raw[places].astype(np.int64) << 8 | raw[places + 1]
        unspaced[places[np.isin(pairs, _UNSPACED)]] = True
    return unspaced if unspaced.any() else None


def _numbers(raw: np.ndarray, ends: np.ndarray) -> np.ndarray:
    digit = (raw - np.uint8(48)) <= 9
    starts = np.flatnonzero(digit[1:] & ~digit[:-1]) + 1
    values = _eight_bytes(raw, starts)
    offset = values ^ _ZEROS  # a digit's byte is now its value
    other = (((offset & ~_HIGH) + np.uint64(0x7676767676767676)) | offset) & _HIGH  # above 9
    values &= _below(other)
    bits = np.uint32(1) << ((values * _HASH) >> np.uint64(59)).astype(np.uint32)
    numbers = np.zeros(len(ends), dtype=np.uint32)
    np.bitwise_or.at(numbers, np.searchsorted(ends, starts), bits)
    return numbers


def _last_marks(raw: np.ndarray, ends: np.ndarray) -> np.ndarray:
    begins = np.concatenate(([_PADDING], ends[:-1] + 1))
    last = _before_spaces(raw, ends - 1, begins)
    marks, size = _mark_at(raw, last, begins)
    closed = np.flatnonzero(marks == _CLOSED)
    inner, _ = _mark_at(raw, _before_spaces(raw, last[closed] - size[closed], begins[closed]), begins[closed])
    marks[closed] += np.where(inner == _CLOSED, 0, inner)
    return marks


def _before_spaces(raw: np.ndarray, last: np.ndarray, begins: np.ndarray) -> np.ndarray:
    for _ in range(3):
        last = last - ((raw[last] <= 32) & (last >= begins))
    return last


def _mark_at(raw: np.ndarray, last: np.ndarray, begins: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The class of the character that ends at each place, 0 where the line has none there, and its bytes."""
    one, two, three = (raw[last - k].astype(np.int64) for k in range(3))
    size = np.where(one < 0x80, 1, np.where(two >= 0xC0, 2, 3))
    code = np.choose(size - 1, (one, two << 8 | one, three << 16 | two << 8 | one))
    found = np.minimum(np.searchsorted(_MARK_CODES, code), len(_MARK_CODES) - 1)
    known = (_MARK_CODES[found] == code) & (last >= begins)
    return np.where(known, _MARK_CLASSES[found], 0).astype(np.uint8), size
