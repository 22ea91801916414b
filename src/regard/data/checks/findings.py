"""Every finding by name: what it is, from which share of the lines it warns or refuses, and what to do about it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass

from regard.core.errors import DataError
from regard.data.checks.report import Severity

_ANY = 0.0
_NEVER = 2.0  # a share that nothing reaches


@dataclass(frozen=True)
class Rule:
    """How a finding is judged and worded. Below the share for a warning it is a note."""

    what: str  # one line that explains it
    warning: float  # share of the lines from which it is a warning
    damage: float  # share from which training is refused
    phrase: str  # goes on after "12 of 1,000 pairs (1.2 %)"; {have} and {are} follow the number
    todo: str
    least: int = 3  # lines that damage takes, so that a single odd line of a small file is none


_CLEAN_DROPS = "`regard data clean` drops them"
_CLEAN_MENDS = "`regard data clean` mends them"

# fmt: off
RULES: dict[str, Rule] = {
    "line-counts": Rule(
        "the two files do not have the same number of lines", _ANY, _ANY, "", "", least=0),
    "misaligned": Rule(
        "a stretch of lines belongs to other lines of the other side", _ANY, _ANY, "", "", least=0),
    "unrelated": Rule(
        "a stretch of lines has nothing to do with the other side", _ANY, _ANY, "", "", least=0),
    "same-file": Rule(
        "both sides are the same text", _ANY, _ANY, "", "Give the file with the translations", least=0),
    "swapped-languages": Rule(
        "the source is in the language of the target, and the target in that of the source", _ANY, _ANY, "",
        "Give the files in the other order", least=0),
    "unexpected-language": Rule(
        "a whole side is in another language than its name or the settings say", _ANY, _ANY, "",
        "Give the right file, or the right language: data.source_language=CODE, data.target_language=CODE", least=0),
    "not-utf8": Rule(
        "bytes that are not UTF-8", _ANY, _ANY, "{have} bytes that are not UTF-8",
        "Convert the file, for example with iconv -f WINDOWS-1252 -t UTF-8; `regard data clean` drops such lines", 1),
    "null-characters": Rule(
        "null characters, as in binary files or UTF-16", _ANY, _ANY, "{have} null characters",
        "Check that the file is text in UTF-8; `regard data clean` removes them", 1),
    "lone-surrogates": Rule(
        "halves of UTF-16 pairs, which are no characters", _ANY, _ANY, "{have} a lone UTF-16 surrogate",
        "Write the text as UTF-8 again from its origin; `regard data clean` drops such lines", 1),
    "mojibake": Rule(
        "UTF-8 that was read as Latin-1 or cp1252 and saved again, such as Ã¤ for ä", _ANY, 0.01,
        "{have} UTF-8 that was read as Latin-1 or cp1252, once or more, such as Ã¤ for ä", _CLEAN_MENDS),
    "replacement-characters": Rule(
        "characters (U+FFFD) that stand for what was lost in a conversion", _ANY, 0.01,
        "{have} a replacement character (U+FFFD) where text was lost", f"Convert the text again; {_CLEAN_DROPS}"),
    "empty-side": Rule(
        "a line that is empty on one side only", 0.001, 0.10, "{are} empty on one side", _CLEAN_DROPS),
    "empty-pairs": Rule(
        "lines that are empty on both sides", 0.01, _NEVER, "{are} empty on both sides", _CLEAN_DROPS),
    "copied-source": Rule(
        "a target that is a copy of its source", 0.005, 0.25, "{have} the source again as target", _CLEAN_DROPS),
    "duplicates": Rule(
        "pairs that stand there more than once", 0.05, 0.50, "repeat{s} an earlier one exactly", _CLEAN_DROPS,
        least=10_000),  # small texts that repeat themselves are made for trying things out
    "near-duplicates": Rule(
        "pairs that are the same but for case, punctuation, digits and white space", 0.05, _NEVER,
        "differ{s} from an earlier one only in case, punctuation, digits or white space",
        "`regard data clean --drop near-duplicates` drops them"),
    "similar-pairs": Rule(
        "long pairs that differ from another by a word or two", 0.25, _NEVER,
        "differ{s} from an earlier one by few words only", "Keep them unless they are all there is"),
    "wrong-script": Rule(
        "lines mostly in another script than the rest of their side", 0.005, 0.10,
        "{are} mostly in another script than the rest of their side", _CLEAN_DROPS),
    "wrong-language": Rule(
        "lines that look like the language of the other side", 0.005, 0.25,
        "look{s} like the language of the other side", _CLEAN_DROPS),
    "foreign-language": Rule(
        "lines that look like neither language of the corpus", 0.01, _NEVER,
        "look{s} like neither language of the corpus", _CLEAN_DROPS),
    "long-lines": Rule(
        "lines of more than 1,000 words or 10,000 characters", 0.001, _NEVER,
        "{have} more than 1,000 words or 10,000 characters", f"Check that line feeds end the lines; {_CLEAN_DROPS}"),
    "length-ratio": Rule(
        "one side is more than three times as long as usual for the other", 0.02, _NEVER,
        "{have} a side that is more than three times as long as usual for the other", _CLEAN_DROPS),
    "different-numbers": Rule(
        "numbers that stand on one side only", 0.10, _NEVER,
        "with digits {have} numbers that are not on the other side",
        "`regard data clean --drop different-numbers` drops them"),
    "unbalanced-markup": Rule(
        "tags that are opened and not closed, or closed and not opened", 0.01, _NEVER,
        "{have} a tag that is opened but not closed, or the other way round", _CLEAN_DROPS),
    "different-markup": Rule(
        "tags or placeholders that are not the same on both sides", 0.01, _NEVER,
        "{have} other tags or placeholders on one side than on the other", _CLEAN_DROPS),
    "byte-order-marks": Rule(
        "byte order marks inside the text, as from files that were joined", _ANY, _NEVER,
        "{have} a byte order mark inside the text", _CLEAN_MENDS),
    "crlf": Rule(
        "lines that end with a carriage return and a line feed, as on Windows", _NEVER, _NEVER,
        "end{s} with a carriage return and a line feed", "Nothing: they are read as line feeds"),
    "mixed-line-ends": Rule(
        "some lines end as on Windows, and others do not", _ANY, _NEVER,
        "end{s} with a carriage return and a line feed, the others with a line feed only",
        "Check how the file was put together; `regard data clean` writes line feeds"),
    "line-separators": Rule(
        "characters at which some programs begin a new line, though it is none", _ANY, _NEVER,
        "{have} a character at which some programs begin a new line (such as U+2028), so that they count other lines",
        _CLEAN_MENDS),
    "control-characters": Rule(
        "control characters and others without a meaning", 0.001, 0.10,
        "{have} control characters, or others without a meaning", _CLEAN_MENDS),
    "invisible-characters": Rule(
        "zero-width characters, and marks of direction where none is needed", 0.001, _NEVER,
        "{have} zero-width characters, or marks of direction where none is needed", _CLEAN_MENDS),
    "mixed-normal-forms": Rule(
        "letters with marks are one character in some lines, and two in others", _ANY, _NEVER,
        "{have} another Unicode normal form than most (NFC and NFD letters look the same, but are different tokens)",
        _CLEAN_MENDS),
    "soft-hyphens": Rule(
        "soft hyphens, which are seen at line ends only", _NEVER, _NEVER, "{have} soft hyphens",
        "Nothing, or remove them where one side only has them"),
    "special-spaces": Rule(
        "no-break and other unusual spaces", _NEVER, _NEVER, "{have} no-break or other unusual spaces",
        "Nothing, or replace them by common ones"),
    "leaked-pairs": Rule(
        "held-out pairs that are in the training text", _ANY, 0.05, "", "Take them out of the training text"),
    "leaked-sources": Rule(
        "held-out sources that are in the training text, with whatever target", _ANY, 0.50, "",
        "Take them out of the training text"),
}
# fmt: on
FINDINGS: dict[str, str] = {name: rule.what for name, rule in RULES.items()}
# Allowed or not, what is trained on must be pairs of text in UTF-8.
MUST_BE_MENDED = ("line-counts", "not-utf8", "lone-surrogates")
# In a report, findings of one severity stand in this order.
ORDER = {name: place for place, name in enumerate(RULES)}


def severity_of(name: str, count: int, share: float) -> Severity:
    """How grave a finding is in so many lines, which are such a share."""
    rule = RULES[name]
    if share >= rule.damage and count >= rule.least:
        return "damage"
    return "warning" if share >= rule.warning else "note"


def known_names(names: Iterable[str]) -> frozenset[str]:
    """The names of findings that the user has given, which must exist."""
    given = frozenset(names)
    for name in sorted(given):
        if name not in FINDINGS:
            near = difflib.get_close_matches(name, FINDINGS, n=1, cutoff=0.5)
            meant = f"Did you mean {near[0]}? " if near else ""
            raise DataError(
                f"--allow {name}",
                "there is no finding of this name",
                f"{meant}All names are shown by `regard data findings`",
            )
    return given
