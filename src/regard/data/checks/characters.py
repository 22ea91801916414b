"""What each character is to the checks, learned from Python's Unicode tables when a character is first met."""

from __future__ import annotations

import unicodedata

import numpy as np

from regard.data.checks.hashes import mixed
from regard.data.checks.scripts import number_of, script_of

KNOWN = 1 << 0
SPACE = 1 << 1  # white space of any kind, and the end of a line
LETTER = 1 << 2
DIGIT = 1 << 3
SLOW = 1 << 4  # folds into several characters, or joins with its neighbours: its line is folded as a whole
NULL = 1 << 5
SURROGATE = 1 << 6  # half of a UTF-16 pair, or a byte that is not UTF-8 (kept as U+DC80 to U+DCFF)
REPLACEMENT = 1 << 7
ORDER_MARK = 1 << 8
RETURN = 1 << 9
SEPARATOR = 1 << 10  # ends a line for some programs, but not for others
CONTROL = 1 << 11
ZERO_WIDTH = 1 << 12
JOINER = 1 << 13
DIRECTION = 1 << 14
SOFT_HYPHEN = 1 << 15
SPECIAL_SPACE = 1 << 16
COMBINING = 1 << 17  # may join with the letter before it
COMPOSED = 1 << 18  # a letter and its mark in one character
LEAD = 1 << 19  # a byte that begins a UTF-8 sequence, read as Latin-1
FOLLOWER = 1 << 20  # a byte within a UTF-8 sequence, read as Latin-1 or cp1252
MARKUP = 1 << 21  # begins a tag or a placeholder
SCRIPT_SHIFT = 24
COMMON = KNOWN | SPACE | LETTER | COMPOSED
SPECIAL = ((1 << 22) - 1) & ~COMMON

_CODES = 0x110000
_SEPARATORS = frozenset("\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029")
ZERO_WIDTHS = frozenset("\u034f\u115f\u1160\u180e\u200b\u2060\u2061\u2062\u2063\u2064\ufff9\ufffa\ufffb")
DIRECTIONS = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
JOINERS = frozenset("\u200c\u200d")
# cp1252 with its five unused bytes as in Latin-1, which is what most programs read for "Latin-1"
WINDOWS = {bytes([byte]).decode("cp1252", "ignore") or chr(byte): byte for byte in range(0x80, 0x100)}
FOLLOWERS = frozenset(c for c, byte in WINDOWS.items() if byte < 0xC0) | {chr(byte) for byte in range(0x80, 0xC0)}
_ONE_OF_A_KIND = {
    "\0": NULL,
    "\ufffd": REPLACEMENT,
    "\ufeff": ORDER_MARK,
    "\r": RETURN,
    "\xad": SOFT_HYPHEN,
    "<": MARKUP,
    "{": MARKUP,
    "%": MARKUP,
}


class Characters:
    """Tables by code point: `kinds` (the bits above, and the number of the script), and `folded`.

    `folded` is what is left of a character that stands alone after `regard.data.split.sentence_key`: 0 for nothing.
    `hashes` are numbers at random, 0 for white space.
    """

    def __init__(self) -> None:
        self.kinds = np.zeros(_CODES, dtype=np.uint32)
        self.folded = np.zeros(_CODES, dtype=np.uint32)
        self.hashes = np.zeros(_CODES, dtype=np.uint64)

    def look_up(self, codes: np.ndarray) -> np.ndarray:
        """The kinds of some characters."""
        kinds = np.take(self.kinds, codes, mode="clip")
        if len(kinds) and not np.bitwise_and.reduce(kinds) & KNOWN:
            for code in np.flatnonzero(np.bincount(codes[kinds & KNOWN == 0])).tolist():
                self._learn(code)
            kinds = np.take(self.kinds, codes, mode="clip")
        return kinds

    def _learn(self, code: int) -> None:
        character = chr(code)
        kind, folded = kind_of(character), _fold(character)
        self.folded[code] = 0 if folded is None else folded
        self.hashes[code] = 0 if kind & SPACE else mixed(np.array([code + 1], dtype=np.uint64))[0]
        self.kinds[code] = kind | (SLOW if folded is None else 0) | number_of(script_of(character)) << SCRIPT_SHIFT


def kind_of(character: str) -> int:
    """The bits of a character, without its script and without SLOW."""
    category, code = unicodedata.category(character), ord(character)
    kind = KNOWN | _ONE_OF_A_KIND.get(character, 0)
    if character.isspace():
        kind |= SPACE
        if character not in " \t\n\r\u3000" and category == "Zs":
            kind |= SPECIAL_SPACE
    if category[0] == "L":
        kind |= LETTER
    if category == "Nd":
        kind |= DIGIT
    if category == "Cs":
        kind |= SURROGATE
    if character in _SEPARATORS:
        kind |= SEPARATOR
    elif (category == "Cc" and character not in "\0\t\n\r") or category == "Co" or _is_no_character(code):
        kind |= CONTROL
    if character in ZERO_WIDTHS:
        kind |= ZERO_WIDTH
    if character in JOINERS:
        kind |= JOINER
    if character in DIRECTIONS:
        kind |= DIRECTION
    if category[0] == "M" or 0x1161 <= code <= 0x11FF:
        kind |= COMBINING
    decomposed = unicodedata.normalize("NFD", character)
    if len(decomposed) > 1 and unicodedata.normalize("NFC", decomposed) == character:
        kind |= COMPOSED
    if 0xC2 <= code <= 0xF4:
        kind |= LEAD
    if character in FOLLOWERS:
        kind |= FOLLOWER
    return kind


def _is_no_character(code: int) -> bool:
    return code & 0xFFFE == 0xFFFE or 0xFDD0 <= code <= 0xFDEF


def _fold(character: str) -> int | None:
    """The code of the one character that is left, 0 where none is, None where more are or where neighbours matter."""
    if character == "\n":
        return ord("\n")  # goes on dividing the lines
    if character == "ß":
        return ord("ß")  # too frequent in German to be slow: whoever makes keys replaces it
    if unicodedata.category(character)[0] == "M" or 0x1100 <= ord(character) <= 0x11FF:
        return None
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", character).casefold())
    kept = [c for c in folded if unicodedata.category(c)[0] in "LNM"]
    if len(kept) > 1 or (kept and len(folded) > 1) or (kept and unicodedata.category(kept[0])[0] == "M"):
        return None
    return ord(kept[0]) if kept else 0


CHARACTERS = Characters()
