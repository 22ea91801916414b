"""One word in two places: how far its vector moves with the words around it, layer by layer."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
from jaxtyping import Float

from regard.core.errors import DataError
from regard.core.visible_text import visible
from regard.tasks.word_vectors import Neighbour, WordVectors

SHOWN = 5  # neighbours
_WORDS_AROUND = 4  # shown of a text that is long
_BEFORE_SIGN = re.compile(r" (?=[.,;:!?)’'])")
_EDGE = re.compile(r"^[\W_]+|[\W_]+$")


class LayeredReader(Protocol):
    """What is needed of a model that reads: words with begin and end of their pieces, and a state of each piece in each layer."""

    def layers(self, text: str) -> tuple[Sequence[tuple[str, int, int]], Sequence[Float[np.ndarray, "P D"]]]: ...


class Use(NamedTuple):
    """A word where it stands: the number of its text, from 1, and the words before and after it."""

    text: int
    place: int
    shown: str


@dataclass(frozen=True)
class Uses:
    """Two uses of a word, the cosine of their vectors in each layer (0: the embeddings), and what is near to each."""

    word: str
    uses: tuple[Use, Use]
    cosines: tuple[float, ...]
    near: tuple[list[Neighbour], list[Neighbour]]  # other words of the texts, in the last layer
    left_out: int = 0  # further uses
    static: list[Neighbour] | None = None  # nearest to the word's single vector; None: no word vectors were given
    note: str = field(default="")

    def to_plain(self) -> dict[str, Any]:
        plain: dict[str, Any] = {
            "word": self.word,
            "uses": [
                {**use._asdict(), "near": [one._asdict() for one in near]}
                for use, near in zip(self.uses, self.near, strict=True)
            ],
            "cosines": list(self.cosines),
            "further_uses": self.left_out,
        }
        if self.static is not None:
            plain["vectors"] = {"cosine": 1.0, "nearest": [one._asdict() for one in self.static], "note": self.note}
        return plain


class _Word(NamedTuple):
    text: int
    place: int
    written: str
    plain: str  # without punctuation around it, in lower case
    states: list[Float[np.ndarray, " D"]]  # the mean of its pieces, in each layer


def compare_uses(reader: LayeredReader, texts: Sequence[str], word: str, static: WordVectors | None = None) -> Uses:
    """Compares a word's vectors in two texts, or in one text that has it twice. Whole words, in any case."""
    asked = _plain(word)
    texts = [text for text in texts if text.strip()]
    if not asked or len(asked.split()) > 1:
        raise DataError(f"--in-context {visible(word, 40)!r}", "it is no word", "Give one word")
    if not 1 <= len(texts) <= 2:
        raise DataError(
            "--in-context", f"{len(texts)} texts are given", "Give two texts, or one that has the word twice"
        )
    all_words: list[_Word] = []
    found: list[list[_Word]] = []
    for number, text in enumerate(texts, start=1):
        words = _words(reader, text, number)
        all_words += words
        found.append([one for one in words if one.plain == asked])
        if not found[-1]:
            what = f"the word {visible(word, 40)!r} does not stand in it"
            raise DataError(f"text {number}", what, "Give a text with the whole word in it")
    if len(texts) == 1 and len(found[0]) < 2:
        what = f"the word {visible(word, 40)!r} stands in it only once"
        raise DataError("text 1", what, "Give a second text, or one that has the word twice")
    first, second = (found[0][0], found[0][1]) if len(texts) == 1 else (found[0][0], found[1][0])
    others = [one for one in all_words if one.plain != asked and any(map(str.isalnum, one.plain))]
    uses = tuple(Use(one.text, one.place, _around(all_words, one)) for one in (first, second))
    nearest, note = _static(static, word)
    return Uses(
        word,
        (uses[0], uses[1]),
        tuple(_cosine(a, b) for a, b in zip(first.states, second.states, strict=True)),
        (_near(first, others), _near(second, others)),
        sum(map(len, found)) - 2,
        nearest,
        note,
    )


def _words(reader: LayeredReader, text: str, number: int) -> list[_Word]:
    words, layers = reader.layers(text)
    found: list[_Word] = []
    for place, (written, begin, end) in enumerate(words):
        states = [np.asarray(layer[begin:end], dtype=np.float64).mean(0) for layer in layers]
        found.append(_Word(number, place, written, _plain(written), states))
    return found


def _plain(word: str) -> str:
    return _EDGE.sub("", word.strip()).casefold()


def _around(words: Sequence[_Word], use: _Word) -> str:
    """The word with a few others before and after it, itself between brackets."""
    own = [one for one in words if one.text == use.text]
    at = own.index(use)
    before, after = own[max(0, at - _WORDS_AROUND) : at], own[at + 1 : at + 1 + _WORDS_AROUND]
    shown = [*(one.written for one in before), f"[{use.written}]", *(one.written for one in after)]
    joined = _BEFORE_SIGN.sub("", " ".join(shown))
    return ("… " if at > _WORDS_AROUND else "") + joined + (" …" if len(own) > at + 1 + _WORDS_AROUND else "")


def _near(use: _Word, others: Sequence[_Word]) -> list[Neighbour]:
    """The words of both texts whose vectors of the last layer are nearest; one that stands twice counts once."""
    best: dict[str, Neighbour] = {}
    for other in others:
        cosine = _cosine(use.states[-1], other.states[-1])
        if other.plain not in best or cosine > best[other.plain].similarity:
            best[other.plain] = Neighbour(_EDGE.sub("", other.written), cosine)
    return sorted(best.values(), key=lambda one: -one.similarity)[:SHOWN]


def _static(vectors: WordVectors | None, word: str) -> tuple[list[Neighbour] | None, str]:
    if vectors is None:
        return None, ""
    places = vectors.folded.get(word.upper())
    if word not in vectors and not places:
        return [], f"The word vectors do not know {visible(word, 40)!r}."
    known = word if word in vectors else vectors.words[(places or [0])[0]]
    return vectors.nearest(known, SHOWN), ""


def _cosine(a: Float[np.ndarray, " D"], b: Float[np.ndarray, " D"]) -> float:
    norm = float(np.linalg.norm(a) * np.linalg.norm(b))
    return float(a @ b) / norm if norm > 0 else 0.0
