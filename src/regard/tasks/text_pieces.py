"""Text from tokens as they come: each piece is given out once it can no longer change."""

from __future__ import annotations

from collections.abc import Sequence

from regard.data.tokenizers import Tokenizer

UNDECIDED = "\N{REPLACEMENT CHARACTER}"  # at the end of a text: perhaps the first bytes of a character


class Pieces:
    """The text that tokens add to a text so far.

    What a token stands for depends on its neighbours: the space before the first word is not written, and a character may
    take several byte tokens. So each new token is decoded behind some of those before it, and a text that ends within a
    character waits for the next token.
    """

    def __init__(self, tokenizer: Tokenizer, before: Sequence[int] = ()):
        self._tokenizer = tokenizer
        self._ids = list(before)
        self._anchor = 0  # what is decoded begins here,
        self._given = len(self._ids)  # and all before this has been given out

    def add(self, token: int) -> str:
        """The text that is certain now that this token has come; perhaps none."""
        self._ids.append(token)
        text = self._waiting()
        return "" if text.endswith(UNDECIDED) else self._give(text)

    def end(self) -> str:
        """What is left when no more tokens come."""
        return self._give(self._waiting())

    def _waiting(self) -> str:
        before, both = self._tokenizer.decode([self._ids[self._anchor : self._given], self._ids[self._anchor :]])
        return both[len(before) :] if both.startswith(before) else ""

    def _give(self, text: str) -> str:
        if text.strip():  # otherwise there would be nothing behind which the next token is decoded
            self._anchor, self._given = self._given, len(self._ids)
        elif text:
            self._given = len(self._ids)
        return text


def text_after(tokenizer: Tokenizer, before: Sequence[int], tokens: Sequence[int]) -> str:
    """The text that tokens add to a text."""
    first, both = tokenizer.decode([list(before), [*before, *tokens]])
    return both[len(first) :] if both.startswith(first) else tokenizer.decode([list(tokens)])[0]
