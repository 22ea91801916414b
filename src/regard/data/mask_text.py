"""Texts with hidden words, "I went to the [MASK] gym", as tokens; and which tokens may stand for a hidden word.

`[MASK]` and `<mask>` both stand for one token:

- of bpe, unigram, word and wordpiece: behind white space (or first in the text) one that begins a word, else one that goes on
  with the word before it ("play[MASK]"); of wordpiece, behind punctuation too, one that begins a word;
- of bytebpe: with the space before it;
- of space: a whole word, so that white space must stand around it;
- of char and byte: one character or byte, whichever.
"""

from __future__ import annotations

import json
import re
from typing import Literal, NamedTuple

import numpy as np

from regard.core.errors import DataError
from regard.core.specials import UNK
from regard.data.tokenizer_training import SPACE
from regard.data.tokenizers import Tokenizer
from regard.data.wordpiece import MASK

WRITTEN = re.compile(r"\[MASK\]|<mask>")
_BYTE_SPACE = "Ġ"  # how tokenizers of bytes write the space
_BEFORE = ","  # behind it, tokens go on without the mark of a space

Form = Literal["marked", "spaced", "pieces", "bytes", "letters"]


class MaskedRow(NamedTuple):
    """A text's tokens, the places of the masks, of each whether a token that begins a word stands there, and whether it stands
    right behind a letter or digit, or another mask."""

    ids: list[int]
    places: list[int]
    begins: list[bool]
    joined: list[bool]


class MaskReader:
    """Reads texts with masks, and says what stands for a mask."""

    def __init__(self, tokenizer: Tokenizer):
        self.tokenizer, self.mask = tokenizer, tokenizer.tag(MASK)
        about = json.loads(tokenizer.to_json())
        model = about.get("model") or {}
        self._prefix: str = model.get("continuing_subword_prefix") or "##"
        self.form = _form(about)
        pieces = tokenizer.pieces(range(tokenizer.size))
        special = {*range(UNK + 1), *tokenizer.tags.values()}
        empty = {"marked": SPACE, "bytes": _BYTE_SPACE}.get(self.form)  # a space alone is no word
        able = np.array([i not in special and piece != empty for i, piece in enumerate(pieces)])
        marks = np.array([self._is_beginning(piece) for piece in pieces])
        free = self.form == "letters"
        self._able = {begins: able & (free | (marks == begins)) for begins in (True, False)}

    def read(self, text: str, name: str = "text") -> MaskedRow:
        """The tokens of a text. Errors call it `name`; a text without a mask is one."""
        parts = WRITTEN.split(text)
        if len(parts) == 1:
            raise DataError(name, "no [MASK] stands in it", 'Write one for each hidden word: "the [MASK] sat"')
        ids: list[int] = []
        places: list[int] = []
        begins: list[bool] = []
        joined: list[bool] = []
        for number, part in enumerate(parts):
            last = number == len(parts) - 1
            self._check_around(part, number > 0, last, name)
            ids += self._encoded(part, number > 0, last)
            if not last:
                before = part[-1:] or ("x" if number else "")  # what a mask stands for is like a letter
                begins.append(self._begins(before))
                joined.append(before.isalnum())
                places.append(len(ids))
                ids.append(self.mask)
        return MaskedRow(ids, places, begins, joined)

    def candidates(self, begins: bool) -> np.ndarray:
        """Which tokens may stand for a mask, True or False for each."""
        return self._able[begins]

    def shown(self, token: int) -> str:
        """A token for eyes, without its mark."""
        piece = self.tokenizer.pieces([token])[0]
        if self.form in ("marked", "spaced"):
            return piece.removeprefix(SPACE)
        if self.form == "pieces":
            return piece.removeprefix(self._prefix)
        if self.form == "letters" and piece == SPACE:
            return " "
        return self.tokenizer.decode([[token]])[0].removeprefix(" ") or " "

    def _is_beginning(self, piece: str) -> bool:
        if self.form == "pieces":
            return not piece.startswith(self._prefix)
        return piece.startswith(_BYTE_SPACE if self.form == "bytes" else SPACE)

    def _begins(self, before: str) -> bool:
        if self.form == "pieces":
            return not before.isalnum()
        if self.form == "bytes":
            return before == " "
        return not before or before.isspace()

    def _check_around(self, part: str, behind: bool, last: bool, name: str) -> None:
        """Where words are what stands between white space, a mask is a whole one."""
        if self.form != "spaced":
            return
        glued = behind and not last and not part
        glued |= behind and part != "" and not part[0].isspace()
        glued |= not last and part != "" and not part[-1].isspace()
        if glued:
            what = "a mask stands for a whole word of this model, and something stands right beside it"
            raise DataError(name, what, "Put white space around [MASK]")

    def _encoded(self, part: str, behind: bool, last: bool) -> list[int]:
        """The tokens of what stands between two masks, or before the first, or behind the last."""
        encode = self.tokenizer.encode
        if self.form == "bytes" and not last:
            part = part.removesuffix(" ")
        if not part:
            return []
        if self.form == "marked" and behind and not part[0].isspace():
            mark, both = encode([_BEFORE, _BEFORE + part])
            if both[: len(mark)] == mark:
                return both[len(mark) :]
        ids = encode([part])[0]
        space = self.tokenizer.encode(["a a"])[0][1:-1] if self.form == "letters" else []
        if space and self.tokenizer.encode([" a"]) == self.tokenizer.encode(["a"]):  # letters lose the space around
            if not part.strip():
                return space if behind and not last else []
            ids = [*(space if behind and part[0].isspace() else []), *ids]
            ids += space if not last and part[-1].isspace() else []
        return ids


def _form(about: dict) -> Form:
    """How a tokenizer writes that a word begins, by its JSON."""
    if (about.get("model") or {}).get("type") == "WordPiece":
        return "pieces"
    cuts = about.get("pre_tokenizer") or {}
    steps = cuts.get("pretokenizers") or [cuts]
    if steps[0].get("type") == "ByteLevel":
        return "bytes" if (about.get("model") or {}).get("merges") else "letters"
    if steps[0].get("prepend_scheme") == "never":
        return "letters"
    return "spaced" if cuts.get("pretokenizers") and len(steps) == 1 else "marked"
