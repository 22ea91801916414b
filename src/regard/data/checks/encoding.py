"""Damage that wrong encodings and careless programs leave in single lines."""

from __future__ import annotations

import re
import unicodedata

import numpy as np

from regard.data.checks import characters as kind
from regard.data.checks.block import Block
from regard.data.checks.scripts import JOINING, RIGHT_TO_LEFT

_RARE = (
    kind.NULL
    | kind.SURROGATE
    | kind.REPLACEMENT
    | kind.ORDER_MARK
    | kind.RETURN
    | kind.SEPARATOR
    | kind.CONTROL
    | kind.ZERO_WIDTH
    | kind.JOINER
    | kind.DIRECTION
    | kind.SOFT_HYPHEN
    | kind.SPECIAL_SPACE
)
_PLAIN = {
    "null-characters": kind.NULL,
    "replacement-characters": kind.REPLACEMENT,
    "byte-order-marks": kind.ORDER_MARK,
    "line-separators": kind.SEPARATOR,
    "control-characters": kind.CONTROL,
    "soft-hyphens": kind.SOFT_HYPHEN,
    "special-spaces": kind.SPECIAL_SPACE,
}
_ESCAPED_SURROGATE = re.compile("\udced[\udca0-\udcbf][\udc80-\udcbf]")
_ESCAPED = re.compile("[\udc80-\udcff]")
_SURROGATE = re.compile("[\ud800-\udc7f\udd00-\udfff]")
_INVISIBLE = re.compile(f"[{''.join(sorted(kind.ZERO_WIDTHS | kind.DIRECTIONS | kind.JOINERS))}]")
_RIGHT_TO_LEFT_LETTER = re.compile("[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]")


def encoding_flags(block: Block, script: str) -> dict[str, np.ndarray]:
    """The lines of each kind of damage; kinds without any are left out. `script` is the main one of this side."""
    flags = {"mojibake": mojibake_lines(block)}
    places = block.places(_RARE)
    if len(places):
        kinds, rows = block.kinds[places], block.line_at(places)
        for name, bits in _PLAIN.items():
            flags[name] = block.mask(rows[kinds & bits != 0])
        flags["not-utf8"], flags["lone-surrogates"] = _undecoded_lines(block, rows[kinds & kind.SURROGATE != 0])
        at_end = block.codes[np.minimum(places + 1, len(block.codes) - 1)] == ord("\n")
        returns = kinds & kind.RETURN != 0
        flags["crlf"] = block.mask(rows[returns & at_end])
        flags["control-characters"] |= block.mask(rows[returns & ~at_end])
        unseen = kinds & _suspicious(script) != 0
        flags["invisible-characters"] = _invisible_lines(block, rows[unseen])
    return {name: mask for name, mask in flags.items() if mask.any()}


def _undecoded_lines(block: Block, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The lines with bytes that are not UTF-8, and those with half of a UTF-16 pair, which some programs write."""
    not_utf8, surrogates = [], []
    for row in np.unique(rows).tolist():
        rest, halves = _ESCAPED_SURROGATE.subn("", block.lines[row])
        if halves or _SURROGATE.search(rest):
            surrogates.append(row)
        if _ESCAPED.search(rest):
            not_utf8.append(row)
    return block.mask(not_utf8), block.mask(surrogates)


def _suspicious(script: str) -> int:
    """The invisible characters that no text in a script needs."""
    bits = 0 if script in RIGHT_TO_LEFT else kind.DIRECTION
    return bits if script in JOINING else bits | kind.JOINER | kind.ZERO_WIDTH


def _invisible_lines(block: Block, rows: np.ndarray) -> np.ndarray:
    bad = [row for row in np.unique(rows).tolist() if _has_invisible(block.lines[row])]
    return block.mask(bad)


def _has_invisible(line: str) -> bool:
    """Whether an invisible character is neither part of an emoji nor next to text that runs from right to left."""
    backwards = _RIGHT_TO_LEFT_LETTER.search(line)
    for match in _INVISIBLE.finditer(line):
        bits = kind.kind_of(match.group())
        if bits & kind.DIRECTION and backwards:
            continue
        before = line[match.start() - 1] if match.start() else " "
        if not bits & kind.JOINER or unicodedata.category(before) not in ("So", "Sk", "Mn"):
            return True
    return False


# --- mojibake: UTF-8 that was read as Latin-1 or cp1252, and saved again ---

_FOLLOW = "".join(re.escape(c) for c in sorted(kind.FOLLOWERS))
_AFTER_WORDS = "‘’“”‚„«»‹›–—…•™°´¨\xa0"  # may stand after a capital letter in whole text: "CAFÉ…", "«MANHû"
_INSIDE = "".join(re.escape(c) for c in sorted(kind.FOLLOWERS - frozenset(_AFTER_WORDS)))
_MOJIBAKE = re.compile(
    rf"""
      [ÂÃ][{_INSIDE}]                                # Ã¤ Ã¼ Â°
    | (?<![A-ZÀ-ÖØ-Þ])[ÂÃ][{_AFTER_WORDS}]           # Ã– Â»
    | â[€\x80] | â[‚\x82]¬ | â[„\x84]¢               # quotation marks, dashes, the signs for euro and trade mark
    | ï»¿ | ï¿½ | ð[Ÿ\x9f][{_FOLLOW}]{{2}}           # order marks, replacement characters, emoji
    | (?<=[a-zß-ÿ])[Ä-ÖØ-Þ][{_FOLLOW}]               # byÅ‚: no capital stands after a small letter
    | [Ä-ÖØ-Þ](?![‘’“”«»…–—\xa0])[{_FOLLOW}](?=[a-z])
    | (?: [Ä-ß][{_FOLLOW}] | [à-ï][{_FOLLOW}]{{2}} | [ð-ô][{_FOLLOW}]{{3}} ){{2}}  # Ð¿Ñ€: other scripts
    """,
    re.VERBOSE,
)


def mojibake_lines(block: Block) -> np.ndarray:
    """True for the lines with UTF-8 that was read as Latin-1 or cp1252, once or several times over."""
    leads = block.places(kind.LEAD)
    if not len(leads):
        return np.zeros(len(block), dtype=bool)
    followed = leads[block.kinds[leads + 1] & kind.FOLLOWER != 0]
    rows = [row for row in np.unique(block.line_at(followed)).tolist() if _MOJIBAKE.search(block.lines[row])]
    return block.mask(rows)
