"""One side of some pairs as arrays of characters and words, which all checks of lines share."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import cached_property

import numpy as np

from regard.data.checks.characters import CHARACTERS, COMBINING, COMMON, DIGIT, LETTER, SLOW, SPACE, SPECIAL
from regard.data.checks.hashes import hashes_of, mixed
from regard.data.split import Pairs, sentence_key

_MOST_LINES = 1000  # arrays that stay in the processor's cache are several times as fast
_MOST_CHARACTERS = 150_000
_BREAK = ord("\n")
_DIGITS = re.compile(r"\d+")
_LETTERS_BESIDE_DIGITS = 10
_BASE = 0x9E3779B97F4A7C15  # odd, so that its powers have inverses
_powers = np.ones(1, dtype=np.uint64)
_inverses = np.ones(1, dtype=np.uint64)


class Block:
    """Lines of text as one array of code points, each line ended by a line break."""

    def __init__(self, lines: list[str]):
        text = "\n".join(lines) + "\n" if lines else ""
        if text.count("\n") != len(lines):  # a cell of a CSV or JSON file may hold some
            lines = [line.replace("\n", "\u2028") for line in lines]
            text = "\n".join(lines) + "\n"
        self.lines = lines
        self.text = text
        self.codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")
        self.kinds = CHARACTERS.look_up(self.codes)
        self.ends = np.flatnonzero(self.codes == _BREAK)
        self.borders = np.concatenate([[0], self.ends + 1])  # line i is borders[i] : borders[i + 1] - 1

    def __len__(self) -> int:
        return len(self.lines)

    def places(self, kinds: int) -> np.ndarray:
        """Where the characters of any of these kinds stand."""
        if kinds & COMMON:
            return np.flatnonzero((self.kinds & np.uint32(kinds)) != 0)
        places, special = self._special
        return places[(special & np.uint32(kinds)) != 0]

    @cached_property
    def _special(self) -> tuple[np.ndarray, np.ndarray]:
        """Where the characters stand of which a text has few, and their kinds."""
        places = np.flatnonzero((self.kinds & np.uint32(SPECIAL)) != 0)
        return places, self.kinds[places]

    def per_line(self, places: np.ndarray) -> np.ndarray:
        """How many of some places (in rising order) are in each line."""
        return np.diff(np.searchsorted(places, self.borders))

    def sums(self, mask: np.ndarray) -> np.ndarray:
        """How many characters of each line a mask over all of them takes."""
        return np.add.reduceat(mask, self.borders[:-1], dtype=np.int64) if len(self) else np.zeros(0, dtype=np.int64)

    def line_at(self, places: np.ndarray) -> np.ndarray:
        """The lines in which some places are."""
        return np.searchsorted(self.ends, places)

    def mask(self, rows: np.ndarray | list[int]) -> np.ndarray:
        """True for some lines, given by their numbers."""
        mask = np.zeros(len(self), dtype=bool)
        mask[rows] = True
        return mask

    def having(self, kinds: int) -> np.ndarray:
        """True for the lines with a character of any of these kinds."""
        return self.mask(self.line_at(self.places(kinds)))

    @cached_property
    def characters(self) -> np.ndarray:
        """Characters of each line."""
        return np.diff(self.borders) - 1

    @cached_property
    def letters(self) -> np.ndarray:
        """Letters of each line."""
        return self.sums((self.kinds & np.uint32(LETTER)) != 0)

    @cached_property
    def digits(self) -> np.ndarray:
        """True for the lines with a digit."""
        return self.having(DIGIT)

    @cached_property
    def _spaces(self) -> np.ndarray:
        return (self.kinds & np.uint32(SPACE)) != 0

    @cached_property
    def word_starts(self) -> np.ndarray:
        """Where the words begin, which white space divides."""
        spaces = self._spaces
        starts = ~spaces
        starts[1:] &= spaces[:-1]
        return np.flatnonzero(starts)

    @cached_property
    def words(self) -> np.ndarray:
        """Words of each line."""
        return self.per_line(self.word_starts)

    @cached_property
    def empty(self) -> np.ndarray:
        """True for the lines of nothing but white space."""
        return self.words == 0

    @cached_property
    def word_hashes(self) -> np.ndarray:
        """A 64-bit hash of each word, in their order."""
        starts = self.word_starts
        if not len(starts):
            return np.zeros(0, dtype=np.uint64)
        powers, inverses = _powers_up_to(len(self.codes))
        values = np.take(CHARACTERS.hashes, self.codes, mode="clip")
        values *= powers[: len(values)]
        return mixed(np.add.reduceat(values, starts) * inverses[starts])

    @cached_property
    def folded(self) -> np.ndarray:
        """Every character without its case, 0 where it is no letter, mark or digit."""
        return np.take(CHARACTERS.folded, self.codes, mode="clip")

    @cached_property
    def keys(self) -> np.ndarray:
        """A 64-bit hash of each line's `regard.data.split.sentence_key`."""
        return hashes_of(self.folded_lines)

    @cached_property
    def folded_lines(self) -> list[str]:
        """The `regard.data.split.sentence_key` of each line, all at once."""
        kept = self.folded[self.folded != 0].tobytes().decode("utf-32-le", "surrogatepass")
        keys = kept.replace("ß", "ss").split("\n")[:-1]
        for row in np.flatnonzero(self.having(SLOW)).tolist():
            keys[row] = sentence_key(self.lines[row])
        for row in [row for row, key in enumerate(keys) if not key]:
            keys[row] = sentence_key(self.lines[row])
        return keys

    @cached_property
    def keys_without_digits(self) -> np.ndarray:
        """The keys of lines in which all numbers are taken for the same. Lines of few letters keep their key."""
        keys = self.keys.copy()
        for row in np.flatnonzero(self.digits & (self.letters >= _LETTERS_BESIDE_DIGITS)).tolist():
            keys[row] = hash(_DIGITS.sub("0", self.folded_lines[row])) & 0xFFFFFFFFFFFFFFFF
        return keys

    @cached_property
    def decomposed(self) -> np.ndarray:
        """True for the lines in which a letter and its mark are two characters, though one stands for both."""
        rows = np.flatnonzero(self.having(COMBINING)).tolist()
        return self.mask([row for row in rows if _is_decomposed(self.lines[row])])


class PairBlock:
    """Both sides of some pairs."""

    def __init__(self, sources: list[str], targets: list[str]):
        self.source, self.target = Block(sources), Block(targets)

    def __len__(self) -> int:
        return len(self.source)

    @cached_property
    def exact(self) -> np.ndarray:
        """A 64-bit hash of each pair."""
        return hashes_of(zip(self.source.lines, self.target.lines, strict=True))

    @cached_property
    def keys(self) -> np.ndarray:
        """A 64-bit hash of each pair without case, punctuation and white space."""
        return mixed(mixed(self.source.keys) ^ ~self.target.keys)

    @cached_property
    def keys_without_digits(self) -> np.ndarray:
        """The same with all numbers taken for the same."""
        return mixed(mixed(self.source.keys_without_digits) ^ ~self.target.keys_without_digits)

    @cached_property
    def digits(self) -> np.ndarray:
        """True for the pairs with a digit on either side."""
        return self.source.digits | self.target.digits

    @cached_property
    def whole(self) -> np.ndarray:
        """True for the pairs that have text on both sides."""
        return ~(self.source.empty | self.target.empty)


def blocks_of(chunk: Pairs) -> Iterator[PairBlock]:
    """The pairs of a chunk in blocks of a size that is fast to work on. Lines without a partner are left out."""
    begin, held = 0, 0
    end = min(len(chunk.sources), len(chunk.targets))
    for i in range(end):
        held += len(chunk.sources[i]) + len(chunk.targets[i])
        if held > _MOST_CHARACTERS or i + 1 - begin == _MOST_LINES or i + 1 == end:
            yield PairBlock(chunk.sources[begin : i + 1], chunk.targets[begin : i + 1])
            begin, held = i + 1, 0


def _powers_up_to(length: int) -> tuple[np.ndarray, np.ndarray]:
    """The powers of the base, and their inverses modulo 2 ** 64."""
    global _powers, _inverses
    if len(_powers) < length:
        size = max(length, 2 * len(_powers), 4 * _MOST_CHARACTERS)
        _powers, _inverses = (_powers_of(base, size) for base in (_BASE, pow(_BASE, -1, 1 << 64)))
    return _powers, _inverses


def _powers_of(base: int, size: int) -> np.ndarray:
    factors = np.full(size, base, dtype=np.uint64)
    factors[0] = 1
    return np.cumprod(factors, dtype=np.uint64)


def _is_decomposed(line: str) -> bool:
    return not unicodedata.is_normalized("NFC", line) and len(unicodedata.normalize("NFC", line)) < len(line)
