"""Texts to be classified as rows of tokens: one text, or two with EOS between them, cut where they are too long."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from regard.core.errors import DataError
from regard.core.specials import EOS
from regard.data.tokenizers import Tokenizer


class TextRows(NamedTuple):
    """The tokens of each text, and how many texts were cut."""

    rows: list[list[int]]
    cut: int


def token_rows(
    tokenizer: Tokenizer, texts: Sequence[str], seconds: Sequence[str], most: int, name: str = "text", first: int = 1
) -> TextRows:
    """Rows of at most `most` tokens (0: any number); `seconds` are the second texts, if there are any.

    Of a text that is longer, the beginning stays; of two, the longer one loses first. A text without tokens is an error that
    gives its number, counted from `first`, behind `name`.
    """
    columns = [tokenizer.encode_many(texts)]
    if seconds:
        columns.append(tokenizer.encode_many(seconds))
    rows: list[list[int]] = []
    cut = 0
    for number, parts in enumerate(zip(*columns, strict=True), start=first):
        for which, part in zip(("", "the second ") if seconds else ("",), parts, strict=False):
            if not part:
                raise DataError(f"{which}{name} {number}", "nothing stands in it", "Give a text with a word in it")
        whole = sum(map(len, parts)) + len(parts) - 1
        if most and whole > most:
            parts, cut = _fitted(parts, most - (len(parts) - 1)), cut + 1
        rows.append(parts[0] if len(parts) == 1 else [*parts[0], EOS, *parts[1]])
    tokenizer.forget_words()
    return TextRows(rows, cut)


def _fitted(parts: Sequence[list[int]], room: int) -> Sequence[list[int]]:
    if len(parts) == 1:
        return [parts[0][:room]]
    first, second = parts
    kept = min(len(second), max(room // 2, room - len(first)))
    return [first[: room - kept], second[:kept]]
