"""Lines in another language than the rest of their side, recognised by the small words of the languages known here.

Tables of letters (grams.py) take for usual what a side has much of; small words also find a language that is in a
tenth of the lines.
"""

from __future__ import annotations

from collections import Counter
from functools import cache

import numpy as np

from regard.data.checks.block import Block
from regard.data.checks.function_words import ALIKE, FUNCTION_WORDS

_LEAST_FOREIGN = 3  # small words of another language,
_FOREIGN_SHARE = 0.3  # which are such a share of the line,
_TIMES_OWN = 3  # and so many times as many as those of its own language
_TABLE_BITS = 16


class ForeignWords:
    """Finds the lines of a side whose small words are those of another language than the side's own."""

    def __init__(self, own: str):
        """`own` is the code of the side's language, which must be one of FUNCTION_WORDS."""
        self._own = FUNCTION_WORDS[own]
        close = frozenset().union(*(alike for alike in ALIKE if own in alike), {own})
        self._languages: dict[int, frozenset[str]] = {}  # hash of a word -> its languages, none of them close to ours
        for code, words in FUNCTION_WORDS.items():
            for word in words - self._own if code not in close else ():
                if not any(word in FUNCTION_WORDS[other] for other in close):
                    for number in _hashes_of(word):
                        self._languages[number] = self._languages.get(number, frozenset()) | {code}
        self._hashes = np.array(sorted(self._languages), dtype=np.uint64)
        self._own_hashes = frozenset(number for word in self._own for number in _hashes_of(word))
        self._table = np.zeros(1 << _TABLE_BITS, dtype=bool)
        self._table[self._hashes >> np.uint64(64 - _TABLE_BITS)] = True

    def find(self, block: Block) -> dict[int, str]:
        """The lines (by their place in a block) that are in another language, with its code."""
        hashes = block.word_hashes
        places = np.flatnonzero(np.take(self._table, hashes >> np.uint64(64 - _TABLE_BITS)))
        if not len(places):
            return {}
        nearest = np.minimum(np.searchsorted(self._hashes, hashes[places]), len(self._hashes) - 1)
        places = places[self._hashes[nearest] == hashes[places]]
        ends = np.cumsum(block.words)
        matches = np.bincount(np.searchsorted(ends, places, side="right"), minlength=len(block))
        many = (matches >= _LEAST_FOREIGN) & (matches >= _FOREIGN_SHARE * block.words)
        found = {}
        for row in np.flatnonzero(many).tolist():
            code = self._foreign(hashes[ends[row] - block.words[row] : ends[row]].tolist())
            if code:
                found[row] = code
        return found

    def _foreign(self, hashes: list[int]) -> str:
        votes = Counter(code for number in hashes for code in self._languages.get(number, ()))
        (code, most), *_ = votes.most_common(1)
        own = sum(number in self._own_hashes for number in hashes)
        enough = most >= max(_LEAST_FOREIGN, _FOREIGN_SHARE * len(hashes), _TIMES_OWN * own)
        return code if enough else ""


@cache
def _hashes_of(word: str) -> tuple[int, ...]:
    """The hashes of a word as it stands in a line: small, at the beginning of a sentence, and before a comma."""
    forms = [word, word.capitalize(), f"{word},", f"{word}."]
    return tuple(Block([" ".join(forms)]).word_hashes.tolist())
