"""How good word vectors are: analogies by section. Similarity is in word_similarity.py.

Analogies are counted as word2vec's own compute-accuracy does: upper and lower case are the same, only the most frequent words are
asked for and answered with, a question with another word is skipped, and the three words of a question are no answers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from regard.core.errors import ConfigError, DataError
from regard.evaluation.metrics import Score
from regard.evaluation.word_similarity import SimilarityScore, evaluate_similarity, numbered_lines, spearman
from regard.tasks.word_vectors import WordVectors

__all__ = [
    "AnalogyReport",
    "SectionScore",
    "SimilarityScore",
    "evaluate_analogies",
    "evaluate_similarity",
    "read_analogies",
    "spearman",
]

VOCABULARY = 30_000  # the most frequent words, as in word2vec's own script
SYNTACTIC = "gram"  # what the names of sections about grammar begin with
_SCORES = 1 << 24  # numbers held at once
_QUESTIONS = "Give four words on each line, with sections that begin with a colon"


class Question(NamedTuple):
    """`a` is to `b` as `c` is to `answer`."""

    a: str
    b: str
    c: str
    answer: str


@dataclass(frozen=True)
class SectionScore:
    """How many questions of a section were asked, and got the right answer; `skipped` ones have an unknown word."""

    section: str
    right: int
    asked: int
    skipped: int

    @property
    def accuracy(self) -> float | None:
        """Of 100 asked ones; None where none was."""
        return 100 * self.right / self.asked if self.asked else None

    @property
    def syntactic(self) -> bool:
        return self.section.startswith(SYNTACTIC)

    def to_plain(self) -> dict[str, Any]:
        return {**vars(self), "accuracy": self.accuracy}


@dataclass(frozen=True)
class AnalogyReport:
    """The sections of a file of analogies, and their sums."""

    sections: tuple[SectionScore, ...]
    vocabulary: int

    @property
    def semantic(self) -> SectionScore:
        return _sum("semantic", (one for one in self.sections if not one.syntactic))

    @property
    def syntactic(self) -> SectionScore:
        return _sum("syntactic", (one for one in self.sections if one.syntactic))

    @property
    def total(self) -> SectionScore:
        return _sum("total", self.sections)

    def rows(self) -> list[SectionScore]:
        """The sections in their order, then the sums."""
        return [*self.sections, self.semantic, self.syntactic, self.total]

    def to_plain(self) -> dict[str, Any]:
        return {"vocabulary": self.vocabulary, "rows": [row.to_plain() for row in self.rows()]}

    def scores(self) -> dict[str, Score]:
        """Accuracies of the sums; those without any question are left out."""
        found: dict[str, Score] = {}
        for row in (self.total, self.semantic, self.syntactic):
            if row.accuracy is not None:
                name = "analogies" if row.section == "total" else f"{row.section} analogies"
                signature = f"vocabulary:{self.vocabulary}|asked:{row.asked}|skipped:{row.skipped}|case:folded|3CosAdd"
                found[name.replace(" ", "_")] = Score(name, row.accuracy, signature=signature, details=row.to_plain())
        return found


def evaluate_analogies(vectors: WordVectors, path: str | Path, vocabulary: int = VOCABULARY) -> AnalogyReport:
    """Answers the questions of a file with the `vocabulary` first words; 0: all."""
    if vocabulary < 0:
        raise ConfigError("setting vocabulary", f"it is {vocabulary}", "Give a number of words, or 0 for all")
    size = min(vocabulary or len(vectors), len(vectors))
    places = {form: [i for i in rows if i < size] for form, rows in vectors.folded.items() if rows[0] < size}
    forms = [word.upper() for word in vectors.words[:size]]
    unit = vectors.unit[:size]
    step = max(1, _SCORES // size)
    found = []
    for section, questions in read_analogies(path).items():
        folded = [Question(*(word.upper() for word in question)) for question in questions]
        asked = [question for question in folded if all(word in places for word in question)]
        parts = (asked[begin : begin + step] for begin in range(0, len(asked), step))
        right = sum(_right(unit, forms, places, part) for part in parts)
        found.append(SectionScore(section, right, len(asked), len(questions) - len(asked)))
    return AnalogyReport(tuple(found), size)


def _right(
    unit: Float[np.ndarray, "N D"], forms: Sequence[str], places: dict[str, list[int]], questions: Sequence[Question]
) -> int:
    """How many questions get their answer: b - a + c, of the most frequent spelling of each word."""
    a, b, c = (np.array([places[question[i]][0] for question in questions], dtype=np.int64) for i in range(3))
    scores = (unit[b] - unit[a] + unit[c]) @ unit.T
    for row, question in enumerate(questions):
        for word in question[:3]:
            scores[row, places[word]] = -np.inf
    best = scores.argmax(1)
    return sum(forms[i] == question.answer for i, question in zip(best, questions, strict=True))


def read_analogies(path: str | Path) -> dict[str, list[Question]]:
    """The questions of a file, by section (": name"). Those before the first section are of one without a name."""
    name = str(path)
    found: dict[str, list[Question]] = {}
    section = ""
    for number, line in numbered_lines(path):
        if line.startswith(":"):
            section = line[1:].strip()
            found.setdefault(section, [])
            continue
        words = line.split()
        if len(words) != 4:
            raise DataError(f"{name}, line {number}", f"{len(words)} words stand there, not 4", _QUESTIONS)
        found.setdefault(section, []).append(Question(*words))
    if not any(found.values()):
        raise DataError(name, "there are no questions in it", _QUESTIONS)
    return found


def _sum(name: str, rows: Iterable[SectionScore]) -> SectionScore:
    listed = list(rows)
    return SectionScore(name, *(sum(getattr(row, part) for row in listed) for part in ("right", "asked", "skipped")))
