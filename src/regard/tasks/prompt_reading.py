"""Prompts as tokens, with a warning of what a language model does not know."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Sequence
from typing import Any

from regard.core.errors import DataError
from regard.core.specials import SPECIALS, UNK
from regard.data.tokenizers import Tokenizer
from regard.tasks.text_pieces import Pieces

MAX_PROMPT_CHARACTERS = 1_000_000
UNKNOWN = SPECIALS[UNK]
WORDS = ("word", "space")  # kinds of tokenizers whose tokens are words
SHOWN = 8  # unknown words or characters that a warning names


class PromptReader:
    """A model's tokenizer, and what its run says of the tokens that it was trained on."""

    def __init__(self, tokenizer: Tokenizer, config: dict[str, Any]):
        self.tokenizer, self._config = tokenizer, config

    @functools.cached_property
    def _unseen(self) -> frozenset[int]:
        """Tokens with a byte or character that the training text did not have; of words, those that it did not have.

        A run's config.json lists tokens that were never read. Some of them are only parts of words that were, and are left
        out here. Imported models have no such list.
        """
        listed = self._config.get("unseen_tokens")
        unread = set(listed if isinstance(listed, list) else ())
        kind = self._config.get("tokenizer")
        if not unread or (isinstance(kind, dict) and kind.get("kind") in WORDS):
            return frozenset(unread)
        pieces = self.tokenizer.pieces(range(self.tokenizer.size))
        seen = {letter for i, piece in enumerate(pieces) if i > UNK and i not in unread for letter in piece}
        return frozenset(i for i, piece in enumerate(pieces) if i in unread and not seen.issuperset(piece))

    def read(self, prompt: str) -> list[int]:
        """The tokens of a prompt. Parts that are not in the vocabulary, or not in the training text, are named in a warning."""
        if not isinstance(prompt, str):
            raise DataError("prompt", "it is not a text", "Give a str")
        if len(prompt) > MAX_PROMPT_CHARACTERS:
            what = f"it has {len(prompt):,} characters, more than {MAX_PROMPT_CHARACTERS:,}"
            raise DataError("prompt", what, "Give its end only")
        (ids,) = self.tokenizer.encode([prompt])
        if UNK not in ids and self._unseen.isdisjoint(ids):
            return ids
        unseen, known = self._trained_on(ids)
        unknown = self._unknown(prompt) if UNK in ids else []
        if not known and (unknown or unseen):
            what = f"all of it is unknown to the model ({_names([*unknown, *unseen])})"
            raise DataError("prompt", what, "Use words like those it was trained on")
        said = "The prompt has what the model has never seen"
        if unknown:
            warnings.warn(f"{said}, and reads as {UNKNOWN}: {_names(unknown)}.", stacklevel=3)
        if unseen:
            warnings.warn(f"{said}: {_names(unseen)}.", stacklevel=3)
        return ids

    def _trained_on(self, ids: list[int]) -> tuple[list[str], bool]:
        """Text whose tokens were never trained on, characters as wholes; and whether there is any other. UNK is neither."""
        pieces, found, known, strange = Pieces(self.tokenizer), dict[str, None](), False, False
        tokens = [i for i in ids if i != UNK]
        left = sum(i in self._unseen for i in tokens)
        for number, token in enumerate(tokens, start=1):
            strange, left = strange or token in self._unseen, left - (token in self._unseen)
            text = pieces.add(token) or (pieces.end() if number == len(tokens) else "")
            if text and strange:
                found[text.strip() or text] = None
                strange = False
            elif text.strip():
                known = True
            if known and (len(found) > SHOWN or not (left or strange)):
                break
        return list(found), known

    def _unknown(self, text: str) -> list[str]:
        """The words or characters that have no token of their own; not the word <unk>, where the tokenizer reads it as such."""
        found: dict[str, None] = {}
        meant = {UNKNOWN} if self.tokenizer.decode([[UNK]]) == [UNKNOWN] else set()
        for word in dict.fromkeys(text.split()):
            (ids,) = self.tokenizer.encode([word])
            if UNK not in ids or word in meant:
                continue
            single = dict.fromkeys(word)
            letters = [c for c, one in zip(single, self.tokenizer.encode(list(single)), strict=True) if UNK in one]
            found |= dict.fromkeys(letters if letters and (ids != [UNK] or len(word) == 1) else [word[:40]])
            if len(found) > SHOWN:
                break
        return list(found)


def _names(parts: Sequence[str]) -> str:
    return ", ".join(map(repr, parts[:SHOWN])) + (", ..." if len(parts) > SHOWN else "")
