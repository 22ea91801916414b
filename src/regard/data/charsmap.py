"""The precompiled map of characters of a SentencePiece model, applied as SentencePiece does: the longest match at each place.

A map is the length of a trie (32 bits), the trie as a double array (darts-clone's units of 32 bits), and the texts that it
points to, each with a zero byte at its end. Hugging Face's `tokenizers` has the same map, but looks up whole graphemes and takes
the shortest match: some texts become others (decomposed kana and Hangul among them), so that regard does it itself.

A map comes from outside: a step that leaves the trie is no match, and what a match becomes is bounded.
"""

from __future__ import annotations

import array
import struct
import sys

from regard.core.errors import TokenizerError

MOST_BYTES = 16 << 20  # of a map; the largest of SentencePiece's own has 0.3 MB
MOST_KEPT = 1 << 17  # characters whose place is remembered
LONGEST = 256  # bytes that one match may become; Unicode's longest compatibility form has 33
_LEAF, _WIDE = 1 << 8, 1 << 9
_LABEL, _VALUE = (1 << 31) | 0xFF, (1 << 31) - 1
_TODO = "Restore the file from a copy"


class Charsmap:
    """Replaces characters, and sequences of them, in a text."""

    def __init__(self, content: bytes, where: object = "the map of characters"):
        self._where = where
        size = struct.unpack_from("<I", content)[0] if 4 <= len(content) <= MOST_BYTES else 0
        if not size or size % 4 or 4 + size > len(content):
            raise TokenizerError(where, "its map of characters is damaged", _TODO)
        self._units = array.array("I", content[4 : 4 + size])
        if sys.byteorder == "big":
            self._units.byteswap()
        self._texts = content[4 + size :]
        self._single: dict[str, str | None] = {}  # what a character becomes; None: it may begin something longer
        self._same: set[str] = set()  # those that stay as they are

    def __call__(self, text: str) -> str:
        if self._same.issuperset(text):
            return text
        found, at = [], 0
        while at < len(text):
            character = text[at]
            if character not in self._single:
                self._learn(character)
            becomes, taken = self._single[character], 1
            if becomes is None:
                becomes, taken = self._longest(text, at)
            found.append(becomes)
            at += taken
        return "".join(found)

    def _learn(self, character: str) -> None:
        """Looks a character up, once."""
        if len(self._single) >= MOST_KEPT:
            self._single.clear()
            self._same.clear()
        node, becomes = self._walk(_offset(self._units[0]), character)
        if node is None or not self._goes_on(node):
            self._single[character] = character if becomes is None else becomes
            if self._single[character] == character:
                self._same.add(character)
        else:
            self._single[character] = None

    def _longest(self, text: str, at: int) -> tuple[str, int]:
        """What the longest match at a place becomes, and how many characters it has; without one, the character itself."""
        node: int | None = _offset(self._units[0])
        best, taken = text[at], 1
        for i in range(at, len(text)):
            node, becomes = self._walk(node, text[i])
            if node is None:
                break
            if becomes is not None:
                best, taken = becomes, i + 1 - at
        return best, taken

    def _walk(self, node: int, character: str) -> tuple[int | None, str | None]:
        """Where the trie is after a character (None: nowhere), and what a match that ends there becomes."""
        units, unit = self._units, 0
        for byte in character.encode(errors="surrogatepass"):
            node ^= byte
            unit = units[node] if node < len(units) else 0xFFFFFFFF
            if unit & _LABEL != byte:
                return None, None
            node ^= _offset(unit)
        if unit & _LEAF and node < len(units):
            return node, self._text(units[node] & _VALUE)
        return node, None

    def _goes_on(self, node: int) -> bool:
        units = self._units
        return any((at := node ^ byte) < len(units) and units[at] & _LABEL == byte for byte in range(1, 256))

    def _text(self, start: int) -> str:
        end = self._texts.find(b"\0", start, start + LONGEST + 1)
        if not start < len(self._texts) or end < 0:
            raise TokenizerError(self._where, "its map of characters is damaged: a text has no end", _TODO)
        try:
            return self._texts[start:end].decode()
        except UnicodeDecodeError:
            raise TokenizerError(self._where, "its map of characters is damaged: it is not UTF-8", _TODO) from None


def _offset(unit: int) -> int:
    return (unit >> 10) << ((unit & _WIDE) >> 6)
