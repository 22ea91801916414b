"""Texts as the page shows them: their tokens, and which tokens are one word."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from regard.data.tokenizers import SPACE, Tokenizer

CONTINUES = "##"  # WordPiece's mark


@dataclasses.dataclass(frozen=True)
class ShownText:
    """A text, its tokens with the marks that the model adds, and its words as begin and end of their tokens."""

    text: str
    tokens: list[str]
    special: list[bool]  # marks that are no text: BOS, EOS, tags
    words: list[tuple[int, int]]
    log_probs: list[float] | None = None  # of each token, where the model wrote it

    def to_plain(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @staticmethod
    def of(
        tokenizer: Tokenizer,
        text: str,
        ids: Sequence[int],
        before: Sequence[str] = (),
        after: Sequence[str] = (),
        log_probs: Sequence[float] | None = None,
    ) -> ShownText:
        """`before` and `after` are marks that stand around the text."""
        tags = {*range(3), *tokenizer.tags.values()}  # an unknown word is text
        tokens = [*before, *tokenizer.pieces(ids), *after]
        special = [True] * len(before) + [i in tags for i in ids] + [True] * len(after)
        spans = word_spans(tokens, special, begins_marked(tokenizer))
        return ShownText(text, tokens, special, spans, None if log_probs is None else list(log_probs))


def begins_marked(tokenizer: Tokenizer) -> bool | None:
    """Whether tokens show where words begin (True), where they go on (False); None: every token is a word."""
    some = tokenizer.pieces(range(min(tokenizer.size, 4096)))
    if any(len(piece) > 1 and piece.startswith(SPACE) for piece in some):
        return True
    return False if any(len(piece) > 2 and piece.startswith(CONTINUES) for piece in some) else None


def word_spans(tokens: Sequence[str], special: Sequence[bool], marked: bool | None) -> list[tuple[int, int]]:
    """Begin and end of each word. Marks stand alone, and so does punctuation around a word, but not inside of it (didn't)."""
    begins: list[int] = []
    for i, token in enumerate(tokens):
        first = i == 0 or special[i] or special[i - 1] or marked is None
        if marked is True:
            first = first or token.startswith(SPACE)
        elif marked is False:
            first = first or not token.startswith(CONTINUES)
        if first:
            begins.append(i)
    found: list[tuple[int, int]] = []
    for begin, end in itertools.pairwise([*begins, len(tokens)]):
        found += _without_punctuation(tokens, begin, end)
    return found


def _without_punctuation(tokens: Sequence[str], begin: int, end: int) -> list[tuple[int, int]]:
    """A word by itself, and every sign before and behind it likewise."""
    signs = [bool(text := token.removeprefix(SPACE)) and not any(map(str.isalnum, text)) for token in tokens[begin:end]]
    if all(signs):
        return [(i, i + 1) for i in range(begin, end)]
    first, last = begin + signs.index(False), end - signs[::-1].index(False)
    around = [(i, i + 1) for i in (*range(begin, first), *range(last, end))]
    return sorted([(first, last), *around])


def words_of(text: ShownText) -> list[str]:
    """Each word as it is read: its pieces together, without the marks of spaces and of going on."""
    found = []
    for begin, end in text.words:
        first, *rest = text.tokens[begin:end]
        joined = first.removeprefix(SPACE) + "".join(piece.removeprefix(CONTINUES) for piece in rest)
        found.append(joined if joined else first)
    return found


def merge_words(weights: np.ndarray, rows: ShownText, columns: ShownText) -> np.ndarray:
    """Weights between words: the sum over the tokens of a column's word, the mean over those of a row's."""
    by_column = np.add.reduceat(weights, [begin for begin, _ in columns.words], axis=1)
    sums = np.add.reduceat(by_column, [begin for begin, _ in rows.words], axis=0)
    return sums / np.asarray([end - begin for begin, end in rows.words])[:, None]
