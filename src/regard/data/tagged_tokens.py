"""Words to be tagged as tokens: each word by itself, as it stands in a sentence, and its first token at a known place.

A word is encoded without its neighbours, so that no token reaches from one word into the next. It looks as it does after a
space: tokenizers of words and pieces put "▁" before every word, the first too; those of bytes get a space before all words but
the first, those of characters the token "▁". A word that has no token is unknown (UNK).
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from regard.core.specials import UNK
from regard.data.tokenizers import SPACE, Tokenizer

Pieces = list[list[int]]  # of a sentence: the tokens of each word


class WordEncoder:
    """Turns the words of sentences into tokens."""

    def __init__(self, tokenizer: Tokenizer):
        self._tokenizer = tokenizer
        about: dict[str, Any] = json.loads(tokenizer.to_json())
        cuts = about.get("pre_tokenizer") or {}
        self._space = " " if cuts.get("type") == "ByteLevel" and not cuts.get("add_prefix_space") else ""
        self._between: list[int] = []
        if cuts.get("type") == "Metaspace" and cuts.get("prepend_scheme") == "never":
            space = ((about.get("model") or {}).get("vocab") or {}).get(SPACE)
            self._between = [space] if isinstance(space, int) else []

    def encode(self, sentences: Sequence[Sequence[str]]) -> list[Pieces]:
        """The tokens of each word, one at least."""
        first = self._known(sentence[0] for sentence in sentences if sentence)
        inner = self._known((self._space + word for sentence in sentences for word in sentence[1:]), self._between)
        return [
            [inner[self._space + word] if place else first[word] for place, word in enumerate(sentence)]
            for sentence in sentences
        ]

    def _known(self, words: Iterable[str], before: Sequence[int] = ()) -> dict[str, list[int]]:
        different = sorted(set(words))
        return {
            word: [*before, *(ids or [UNK])]
            for word, ids in zip(different, self._tokenizer.encode(different), strict=True)
        }


class WordRow(NamedTuple):
    """A sentence's tokens, and the place of each word's first one."""

    tokens: list[int]
    places: list[int]


def row_of(pieces: Pieces, most: int = 0) -> WordRow:
    """The words of a sentence one after the other. Of at most `most` tokens (0: any number), as many whole words as fit.

    Of a first word that is longer than that, the beginning is taken.
    """
    tokens: list[int] = []
    places: list[int] = []
    for word in pieces:
        if most and places and len(tokens) + len(word) > most:
            break
        places.append(len(tokens))
        tokens += word
    return WordRow(tokens[:most] if most else tokens, places)


class Window(NamedTuple):
    """Words from `begin` to before `end` are read together, and those from `first` to before `last` get their tags so."""

    begin: int
    end: int
    first: int
    last: int


def windows_of(pieces: Pieces, most: int = 0) -> list[Window]:
    """A sentence as windows of at most `most` tokens, which overlap by up to a half; each word counts in one of them.

    A word in two windows counts where more stands around it. Only a word of more than `most` tokens has a longer window.
    """
    lengths, count = [len(word) for word in pieces], len(pieces)
    spans: list[tuple[int, int]] = []
    begin, end, room = 0, 0, 0
    while end < count:
        while end < count and (end == begin or not most or room + lengths[end] <= most):
            room += lengths[end]
            end += 1
        spans.append((begin, end))
        while end < count and begin < end and (room > most // 2 or room + lengths[end] > most):
            room -= lengths[begin]
            begin += 1
    borders = [0, *((following[0] + span[1]) // 2 for span, following in itertools.pairwise(spans)), count]
    return [Window(*span, *borders[i : i + 2]) for i, span in enumerate(spans)]
