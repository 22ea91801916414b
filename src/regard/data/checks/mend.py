"""Mends of a line of text: each has a name, is certain, and is counted."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from itertools import pairwise

MENDS: dict[str, str] = {
    "byte-order-marks": "byte order marks are removed",
    "crlf": "a carriage return at the end of a line is removed",
    "mojibake": "UTF-8 that was read as cp1252 or Latin-1 is read as UTF-8, where going back gives the same text",
    "line-separators": "characters that end a line for some programs become a space",
    "null-characters": "null characters are removed",
    "control-characters": "other control characters are removed",
    "invisible-characters": "characters without width are removed, except where a script is written with them",
    "soft-hyphens": "soft hyphens are removed",
    "mixed-normal-forms": "characters are composed (Unicode NFC)",
    "white-space": "white space at the ends is removed, and a run of it becomes one space",
}
# These change nothing that can be seen, often on every line: they are counted, not listed.
UNLISTED = frozenset({"byte-order-marks", "crlf", "white-space"})

# cp1252 with its five unused bytes as in Latin-1: what browsers and Windows read for "Latin-1".
_WINDOWS = {
    bytes([byte]).decode("cp1252", "ignore") or chr(byte): byte for byte in range(0x80, 0x100)
}  # character -> byte
_LATIN = {chr(byte): byte for byte in range(0x80, 0x100)}
_FOLLOWERS = "".join(sorted({c for table in (_WINDOWS, _LATIN) for c, byte in table.items() if byte < 0xC0}))
_FOLLOWER = f"[{re.escape(_FOLLOWERS)}]"
_SEQUENCE = re.compile(f"[\xc2-\xdf]{_FOLLOWER}|[\xe0-\xef]{_FOLLOWER}{{2}}|[\xf0-\xf4]{_FOLLOWER}{{3}}")
_MAYBE_MOJIBAKE = re.compile(f"[\xc2-\xf4]{_FOLLOWER}|[\x80-\x84\x86-\x9f]")
_LATIN_CONTROL = re.compile("[\x80-\x9f]")
_LAYERS = 3  # text is seldom damaged more than twice
# What may stand after a capital letter at the end of a word in whole text: "«CAFÉ»", "MANHÃ…"
_AFTER_WORDS = frozenset("‘’“”‚„«»‹›–—…•™°´¨\xa0")

_SEPARATOR = re.compile("[\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029]+")
_CONTROL = re.compile("[\x01-\x08\x0e-\x1b\x1f\x7f-\x84\x86-\x9f\ufdd0-\ufdef\ufffe\uffff]+")
_INVISIBLE = re.compile(
    "[\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufff9-\ufffb]"
)
_MAYBE_INVISIBLE = re.compile("[\u034f\u115f\u1160\u17b4\u17b5]")  # the only ones that Python calls printable
_JOINERS = "\u200c\u200d"
_DIRECTIONS = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
_RIGHT_TO_LEFT = re.compile(r"[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]")
_UNSPACED = re.compile(r"[\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff]")  # Thai, Lao, Tibetan, Burmese, Khmer
_HANGUL = re.compile(r"[\u1100-\u11ff]")
_WHITE = re.compile(r"\s{2,}|\t")


def mend_line(line: str, mends: Collection[str] = MENDS.keys()) -> tuple[str, tuple[str, ...]]:
    """The mended line, and the names of the mends that changed it. Only these of `mends` are done."""
    if _is_fine(line):
        return line, ()
    done = []
    for name in MENDS:
        if name in mends:
            mended = _BY_NAME[name](line)
            if mended != line:
                done.append(name)
                line = mended
    return line, tuple(done)


def _is_fine(line: str) -> bool:
    """Whether surely no mend changes a line. Nearly all lines are such ones, and this is quick."""
    if not line.isprintable() or "  " in line or line[:1] == " " or line[-1:] == " ":
        return False
    return line.isascii() or (
        _MAYBE_MOJIBAKE.search(line) is None
        and _MAYBE_INVISIBLE.search(line) is None
        and unicodedata.is_normalized("NFC", line)
    )


def mend_lines(
    lines: Iterable[str], mends: Collection[str] = MENDS.keys()
) -> tuple[list[str], dict[int, tuple[str, ...]], Counter[str]]:
    """All lines mended; for those that changed, by their place, which mends did it; and how often each mend was done."""
    mended, changed, counts = [], {}, Counter()
    for place, line in enumerate(lines):
        text, done = mend_line(line, mends)
        mended.append(text)
        if done:
            changed[place] = done
            counts.update(done)
    return mended, changed, counts


def on_one_line(line: str) -> str:
    """The text without what every reader takes for the end of a line."""
    return re.sub("[\n\r]+", " ", line) if "\n" in line or line.endswith("\r") else line


# Mojibake -------------------------------------------------------------------------------------------------------------


def undo_mojibake(text: str) -> str:
    """UTF-8 that was read as cp1252 or Latin-1, read as UTF-8; a text that may be meant as it stands is left alone."""
    for _ in range(_LAYERS):
        if not _MAYBE_MOJIBAKE.search(text):
            break
        better = _undo_whole(text) or _undo_parts(text)
        if better == text:
            break
        text = better
    return _undo_controls(text)


def _undo_whole(text: str) -> str | None:
    """The text read again as UTF-8, if everything in it that is not ASCII was damaged in the same way, surely."""
    for table in (_WINDOWS, _LATIN):
        read = _read_again(text, table)
        if read is not None:
            break
    else:
        return None
    kinds = Counter(_kind(text, found) for found in _SEQUENCE.finditer(text))
    unlikely = kinds["foreign"] < 3 or _scripts_touch(read)
    if kinds["never"] or (kinds["foreign"] and unlikely and not _has_controls(text)):
        return None
    return read if kinds["sure"] or kinds["foreign"] else None


def _read_again(text: str, table: dict[str, int]) -> str | None:
    try:
        content = bytes(table[c] if c > "\x7f" else ord(c) for c in text)
        return content.decode("utf-8")
    except (KeyError, UnicodeDecodeError):
        return None


def _undo_parts(text: str) -> str:
    """Reads again only what whole text never has, such as "Ã¤" or "â€™"; the rest may be meant as it stands."""

    def read(found: re.Match[str]) -> str:
        if found[0][0] in "ÂÃâ" and _kind(text, found) == "sure":
            return _decoded(found[0]) or found[0]
        return found[0]

    return _SEQUENCE.sub(read, text)


def _kind(text: str, found: re.Match[str]) -> str:
    """What a sequence that could be UTF-8 is: sure, unsure, never, or a letter or mark of a foreign script."""
    letter = _decoded(found[0])
    if letter is None:
        return "never"
    if letter in _WINDOWS or letter in _LATIN or _is_latin(letter):
        return "sure" if _is_sure(text, found) else "unsure"
    category = unicodedata.category(letter)[0]
    if category in "LM":
        return "never" if "\u0250" <= letter <= "\u036f" else "foreign"
    return "sure" if len(found[0]) > 2 and (category in "PSZ" or letter in "\ufeff\u200b\u200c\u200d") else "never"


def _is_sure(text: str, found: re.Match[str]) -> bool:
    """Whether no whole text has these signs at this place."""
    if (
        len(found[0]) > 2 or found[0][0] == "Â" or _has_controls(found[0])
    ):  # no word of any language ends in a capital Â before a sign
        return True
    before, after = text[found.start() - 1 : found.start()], text[found.end() : found.end() + 1]
    return before.islower() or after.isalpha() or (found[0][0] == "Ã" and found[0][1] not in _AFTER_WORDS)


def _decoded(sequence: str) -> str | None:
    read = _read_again(sequence, _WINDOWS)
    return read if read is not None else _read_again(sequence, _LATIN)


def _is_latin(letter: str) -> bool:
    return letter <= "\u024f" or "\u1e00" <= letter <= "\u1eff" or "\uff21" <= letter <= "\uff5a"


def _scripts_touch(text: str) -> bool:
    """Whether a Latin letter stands directly beside a letter of another script."""
    return any(a.isalpha() and b.isalpha() and _is_latin(a) != _is_latin(b) for a, b in pairwise(text))


def _has_controls(text: str) -> bool:
    """Whether there are characters that Latin-1 has and no whole text: U+0080 to U+009F."""
    return _LATIN_CONTROL.search(text) is not None


def _undo_controls(text: str) -> str:
    """cp1252 that was read as Latin-1: U+0092 is an apostrophe. U+0085 is left, for it may be the end of a line."""
    if not _has_controls(text) or _SEQUENCE.search(text):
        return text
    return "".join(_MEANT.get(c, c) for c in text)


_MEANT = {chr(byte): c for c, byte in _WINDOWS.items() if byte < 0xA0 and chr(byte) != c and byte != 0x85}


# The other mends ------------------------------------------------------------------------------------------------------


def _without_return(line: str) -> str:
    return line.rstrip("\r") if line.endswith("\r") else line


def _without_invisible(line: str) -> str:
    if not _INVISIBLE.search(line):
        return line
    kept = _DIRECTIONS if _RIGHT_TO_LEFT.search(line) else ""
    if _UNSPACED.search(line):
        kept += "\u200b\u17b4\u17b5"
    if _HANGUL.search(line):
        kept += "\u115f\u1160"

    def seen(found: re.Match[str]) -> str:
        joins = found[0] in _JOINERS and _is_joined(line[found.start() - 1 : found.start()])
        return found[0] if joins or found[0] in kept else ""

    return _INVISIBLE.sub(seen, line)


def _is_joined(before: str) -> bool:
    """Whether a joiner has a meaning after a character: in Arabic, in the scripts of India, between emoji."""
    return "\u0600" <= before <= "\u1cff" or (before != "" and unicodedata.category(before)[0] in "SM")


_BY_NAME: dict[str, Callable[[str], str]] = {
    "byte-order-marks": lambda line: line.replace("\ufeff", ""),
    "crlf": _without_return,
    "mojibake": lambda line: undo_mojibake(line).replace("\ufeff", ""),
    "line-separators": lambda line: _SEPARATOR.sub(" ", line),
    "null-characters": lambda line: line.replace("\0", ""),
    "control-characters": lambda line: _CONTROL.sub("", line),
    "invisible-characters": _without_invisible,
    "soft-hyphens": lambda line: line.replace("\xad", ""),
    "mixed-normal-forms": lambda line: unicodedata.normalize("NFC", line),
    "white-space": lambda line: _WHITE.sub(" ", line.strip()),
}
