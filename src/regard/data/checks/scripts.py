"""The script a letter belongs to, from the names of Unicode characters, and what is known of each script."""

from __future__ import annotations

import unicodedata

OTHER = "Other"
# The first word of a letter's Unicode name is its script; these are said otherwise.
_OTHERWISE = {
    "CJK": "Han",
    "IDEOGRAPHIC": "Han",
    "HENTAIGANA": "Hiragana",
    "KATAKANA-HIRAGANA": "Katakana",
    "MODIFIER": OTHER,
    "VERTICAL": OTHER,
    "CARON": OTHER,
    "TURNED": OTHER,
    "ROMAN": "Latin",
}
# A few languages are written in several scripts at once.
_TOGETHER = {
    "Han": frozenset({"Han", "Hiragana", "Katakana", "Bopomofo"}),
    "Hiragana": frozenset({"Han", "Hiragana", "Katakana"}),
    "Katakana": frozenset({"Han", "Hiragana", "Katakana"}),
    "Hangul": frozenset({"Hangul", "Han"}),
}
DENSE = frozenset({"Han", "Hiragana", "Katakana", "Hangul", "Yi"})  # a letter holds as much as about three of others
UNSPACED = frozenset({"Han", "Hiragana", "Katakana", "Thai", "Lao", "Khmer", "Myanmar", "Tibetan", "Yi"})
RIGHT_TO_LEFT = frozenset({"Arabic", "Hebrew", "Syriac", "Thaana", "Nko"})
# Scripts in which an invisible joiner, non-joiner or word border can be part of the spelling.
JOINING = frozenset(
    {"Arabic", "Syriac", "Mongolian", "Devanagari", "Bengali", "Gurmukhi", "Gujarati", "Oriya", "Tamil", "Telugu"}
    | {"Kannada", "Malayalam", "Sinhala", "Khmer", "Myanmar", "Thai", "Lao", "Tibetan"}
)

_names: list[str] = [OTHER]
_numbers: dict[str, int] = {OTHER: 0}


def script_of(character: str) -> str:
    """The script of a letter, such as "Latin" or "Han"; "Other" for what is no letter, or of no script of its own."""
    if unicodedata.category(character)[0] != "L":
        return OTHER
    plain = unicodedata.normalize("NFKC", character)[0]  # a full-width or mathematical A is an A
    words = unicodedata.name(plain, "").split()
    return _OTHERWISE.get(words[0], words[0].capitalize()) if words else OTHER


def number_of(script: str) -> int:
    """A number below 256 for a script, the same as long as the program runs."""
    if script not in _numbers:
        if len(_names) > 255:
            return 0
        _numbers[script] = len(_names)
        _names.append(script)
    return _numbers[script]


def name_of(number: int) -> str:
    return _names[number]


def written_with(script: str) -> frozenset[str]:
    """The scripts that a text mainly in this one is written with."""
    return _TOGETHER.get(script, frozenset({script}))
