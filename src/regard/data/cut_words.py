"""Cuts running text into words as tagged corpora of English do, by a few rules:

- words stand between white space;
- brackets, quotes, commas and other marks at both ends of a word are words of their own, a run of one mark ("...", "--") a
  single one ("$5" is two words, "50%" too); "@name", "-3" and ".5" stay whole, and inside a word ("well-known", "3,000", "a/b")
  nothing is cut;
- a full stop stays with an abbreviation: short parts with full stops between them ("U.S."), a single letter but I ("J."), or one
  of a short list ("Mr.");
- n't, 's, 're, 've, 'll, 'd and 'm at the end of a word are words of their own ("do n't"), whatever the apostrophe.

The rules are those of no corpus exactly; whoever has words already gives them.
"""

from __future__ import annotations

import re
import unicodedata

ABBREVIATIONS = frozenset(
    (
        "mr", "mrs", "ms", "dr", "prof", "st", "vs", "etc", "jr", "sr", "inc",
        "ltd", "co", "corp", "jan", "feb", "apr", "aug", "sep", "sept", "oct", "nov", "dec",
    )
)  # fmt: skip
_CLITIC = re.compile(r"(?<=\w)(n['’]t|['’](?:s|re|ve|ll|d|m))$", re.IGNORECASE)
_KEPT_BEFORE = re.compile(r"@\w|[-.+]\d|[-+]\.\d")
_ADDRESS = re.compile(r"\w+://|www\.", re.IGNORECASE)


def cut_words(text: str) -> list[str]:
    """The words of a text."""
    return [word for chunk in text.split() for word in _parts(chunk)]


def _parts(chunk: str) -> list[str]:
    """Goes inwards from both ends by places: a long run of marks is not copied for each of them."""
    begin, end = 0, len(chunk)
    before: list[str] = []
    after: list[str] = []
    while begin < end and _is_mark(chunk[begin]) and not _KEPT_BEFORE.match(chunk, begin, end):
        first = begin
        while begin < end and chunk[begin] == chunk[first]:
            begin += 1
        before.append(chunk[first:begin])
    address = _ADDRESS.match(chunk, begin)
    while (
        begin < end
        and _is_mark(chunk[end - 1])
        and not _is_abbreviation(chunk, begin, end)
        and not (chunk[end - 1] == "/" and address is not None and address.end() <= end)
    ):
        last = end
        while begin < end and chunk[end - 1] == chunk[last - 1]:
            end -= 1
        after.append(chunk[end:last])
    chunk = chunk[begin:end]
    words: list[str] = [chunk] if chunk else []
    if found := _CLITIC.search(chunk):
        words = [chunk[: found.start()], found[0]]
    return [*before, *words, *reversed(after)]


def _is_mark(character: str) -> bool:
    return unicodedata.category(character)[0] in "PS"


def _is_abbreviation(chunk: str, begin: int, end: int) -> bool:
    """Whether chunk[begin:end] is one. What has no letter before its full stop is none, however long it is."""
    if chunk[end - 1] != "." or end - begin < 2 or not chunk[end - 2].isalpha():
        return False
    stem = chunk[begin : end - 1]
    if "." in stem:
        return all(part.isalpha() and len(part) <= 2 for part in stem.split("."))
    return stem.lower() in ABBREVIATIONS or (len(stem) == 1 and stem.isalpha() and stem != "I")
