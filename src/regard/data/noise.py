"""Changes to a sentence as readers meet them: capitals, small letters, headlines, typing errors, words out of order."""

from __future__ import annotations

import re
import unicodedata
from itertools import pairwise

from regard.data.draws import Draws

_GAPS = re.compile(r"(\s+)")


def in_capitals(text: str) -> str:
    return text.upper()


def in_small_letters(text: str) -> str:
    return text.lower()


def as_headline(text: str) -> str:
    """The first letter of every word is a capital; the other letters stay as they are."""
    return "".join(_capitalised(part) for part in _GAPS.split(text))


def _capitalised(word: str) -> str:
    first = next((i for i, character in enumerate(word) if character.isalnum()), 0)
    return word[:first] + word[first : first + 1].title() + word[first + 1 :]


def with_typos(text: str, share: float, draws: Draws) -> str:
    """Some words get one typing error each.

    Two neighbouring letters change places, or one is left out, written twice, or becomes another letter of the text.
    Words with digits stay as they are, for a wrong number has another translation, and so do single letters.
    """
    parts = _GAPS.split(text)  # every second one is a gap
    usual: list[str] = []
    for word in draws.chosen((len(parts) + 1) // 2, share):
        letters = _letters(parts[2 * word])
        if sum(letter[0].isalpha() for letter in letters) > 1 and not any(map(str.isdigit, parts[2 * word])):
            usual = usual or [letter for letter in _letters(text.lower()) if letter[0].isalpha()]
            parts[2 * word] = "".join(_mistyped(letters, usual, draws))
    return "".join(parts)


def _letters(text: str) -> list[str]:
    """The characters of a text, each with its marks: taken apart, they would be damage and no typing error."""
    letters: list[str] = []
    for character in text:
        if letters and unicodedata.category(character)[0] == "M":
            letters[-1] += character
        else:
            letters.append(character)
    return letters


def _mistyped(word: list[str], usual: list[str], draws: Draws) -> list[str]:
    """A word with one error, which always changes it."""
    kind = draws.below(4)
    places = [i for i, letter in enumerate(word) if letter[0].isalpha()]
    if kind == 0:
        pairs = [i for i, j in pairwise(places) if j == i + 1 and word[i] != word[j]]
        if pairs:
            i = pairs[draws.below(len(pairs))]
            return [*word[:i], word[i + 1], word[i], *word[i + 2 :]]
    i = places[draws.below(len(places))]
    if kind == 1:
        return [*word[:i], *word[i + 1 :]]
    if kind == 2:
        others = [letter for letter in usual if letter != word[i].lower()]
        if others:
            other = others[draws.below(len(others))]
            return [*word[:i], other.upper() if word[i].isupper() else other, *word[i + 1 :]]
    return [*word[:i], word[i], *word[i:]]


def with_swaps(text: str, share: float, draws: Draws) -> str:
    """Some words change places with the next one; punctuation around them stays where it is."""
    parts = _GAPS.split(text)  # every second one is a gap
    moved = -1
    for word in draws.chosen(len(parts) // 2, share):
        i, j = 2 * word, 2 * word + 2
        (opening, first, closing), (next_opening, second, next_closing) = _bare(parts[i]), _bare(parts[j])
        if moved != word and first and second:
            parts[i], parts[j] = opening + second + closing, next_opening + first + next_closing
            moved = word + 1  # it has changed places and stays
    return "".join(parts)


def _bare(word: str) -> tuple[str, str, str]:
    """The punctuation before a word, the word, and the punctuation after it."""
    inner = [i for i, character in enumerate(word) if unicodedata.category(character)[0] not in "PS"]
    begin, end = (inner[0], inner[-1] + 1) if inner else (len(word), len(word))
    return word[:begin], word[begin:end], word[end:]
