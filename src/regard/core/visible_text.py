"""Text of unknown origin made safe to look at: nothing in it moves a cursor, hides, or runs on without end."""

from __future__ import annotations

import unicodedata

_JOINERS = "\u200c\u200d"
_MOST_MARKS = 4  # combining marks on one letter that are shown; some text stacks hundreds


def visible(text: str, longest: int = 160) -> str:
    """The text on one line, cut where it is long, with names for the characters that cannot be seen.

    A control character is its picture (U+2400 and on), an undecodable byte ⟨E4⟩, anything else that is unseen ⟨U+200B⟩.
    """
    shown: list[str] = []
    marks = 0
    for c in text[: longest + 1]:
        marks = marks + 1 if unicodedata.combining(c) else 0
        if marks <= _MOST_MARKS:
            shown.append(c if c.isprintable() or c in _JOINERS else _named(c))
    cut = len(text) > longest
    return "".join(shown[:longest]) + "…" if cut else "".join(shown)


def _named(c: str) -> str:
    code = ord(c)
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "\N{SYMBOL FOR DELETE}"
    if 0xDC80 <= code <= 0xDCFF:  # what is left of a byte that is not UTF-8
        return f"⟨{code - 0xDC00:02X}⟩"
    return f"⟨U+{code:04X}⟩"
