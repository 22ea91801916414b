"""Whether word vectors find alike what people do.

The score is Spearman's rank correlation between the cosines of pairs of words and people's scores, of the pairs whose words are
both known. Upper and lower case are the same.
"""

from __future__ import annotations

import csv
import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from regard.core.errors import DataError
from regard.core.visible_text import visible
from regard.data.reading.files import ByteFile
from regard.data.reading.lines import line_blocks
from regard.evaluation.metrics import Score
from regard.tasks.word_vectors import WordVectors

MAX_BYTES = 64 << 20
LEAST_PAIRS = 3  # for a correlation
_PART_OF_SPEECH = re.compile(r".+-[nvjar]")  # MEN's words: "sun-n"
_WORD_NAMES = re.compile(r"(word|w|term|string)[ _]?[12ab]", re.IGNORECASE)
_PAIRS = "Give two words and a score on each line, with commas, tabs or spaces between"
_SCORE_NAMES = (
    "similarity",
    "score",
    "simlex999",
    "human (mean)",
    "human mean",
    "mean",
    "rating",
    "relatedness",
    "gold",
)


@dataclass(frozen=True)
class SimilarityScore:
    """Spearman's correlation on a file, and how many of its pairs of words are known. None: too few, or all alike."""

    name: str
    rho: float | None
    known: int
    pairs: int

    def to_plain(self) -> dict[str, Any]:
        return {**vars(self)}

    def score(self) -> Score | None:
        if self.rho is None:
            return None
        signature = f"spearman|known:{self.known}|pairs:{self.pairs}|case:folded"
        return Score(self.name, 100 * self.rho, signature=signature, details=self.to_plain())


class Pair(NamedTuple):
    """Two words and how alike people find them."""

    a: str
    b: str
    score: float


def evaluate_similarity(vectors: WordVectors, path: str | Path) -> SimilarityScore:
    """Spearman's correlation between cosines and people's scores, over the pairs whose words are both known."""
    pairs = read_similarity(path)
    folded = vectors.folded
    known = [pair for pair in pairs if pair.a.upper() in folded and pair.b.upper() in folded]
    name = Path(path).name.partition(".")[0]
    if len(known) < LEAST_PAIRS:
        return SimilarityScore(name, None, len(known), len(pairs))
    a, b = [_place(vectors, pair.a) for pair in known], [_place(vectors, pair.b) for pair in known]
    cosines = (vectors.unit[a].astype(np.float64) * vectors.unit[b]).sum(1)
    return SimilarityScore(name, spearman(cosines, np.array([pair.score for pair in known])), len(known), len(pairs))


def _place(vectors: WordVectors, word: str) -> int:
    """A word as it is written, or else the most frequent spelling in another case."""
    return vectors.places.get(word, vectors.folded[word.upper()][0])


def spearman(a: Float[np.ndarray, " N"], b: Float[np.ndarray, " N"]) -> float | None:
    """The correlation of ranks, equal values sharing the mean of theirs. None where one side is all alike."""
    x, y = (ranks(side) - (len(side) + 1) / 2 for side in (a, b))
    norm = float(np.sqrt((x @ x) * (y @ y)))
    return float(x @ y) / norm if norm > 0 else None


def ranks(values: Float[np.ndarray, " N"]) -> Float[np.ndarray, " N"]:
    """Ranks from 1; equal values share the mean of theirs."""
    _, where, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - (counts - 1) / 2)[where]


def read_similarity(path: str | Path) -> list[Pair]:
    """Pairs of a file with commas, semicolons, tabs or spaces between its columns.

    A first line without any number names the columns. Without it, the words are the first two cells that are no numbers, and
    the score is the first number after them. MEN's parts of speech ("sun-n") are taken off where all words have one.
    """
    name = str(path)
    rows = [(number, _cells(name, number, line)) for number, line in numbered_lines(path)]
    columns: tuple[int, int, int] | None = None
    if rows and not any(_number(cell) is not None for cell in rows[0][1]):
        columns = _named_columns(f"{name}, line {rows[0][0]}", rows.pop(0)[1])
    found: list[Pair] = []
    for number, cells in rows:
        where = f"{name}, line {number}"
        columns = columns or _guessed_columns(where, cells)
        if len(cells) <= max(columns):
            raise DataError(where, f"{len(cells)} columns stand there, and {max(columns) + 1} are needed", _PAIRS)
        a, b, score = (cells[i] for i in columns)
        value = _number(score)
        if value is None or not np.isfinite(value) or not a or not b:
            what = f"{visible(score, 40)!r} is no score" if a and b else "a word is missing"
            raise DataError(where, what, _PAIRS)
        found.append(Pair(a, b, value))
    if not found:
        raise DataError(name, "there are no pairs of words in it", _PAIRS)
    if all(_PART_OF_SPEECH.fullmatch(word) for pair in found for word in pair[:2]):
        return [Pair(a[:-2], b[:-2], score) for a, b, score in found]
    return found


def _cells(name: str, number: int, line: str) -> list[str]:
    delimiter = next((mark for mark in "\t,;" if mark in line), "")
    try:
        cells = next(csv.reader([line], delimiter=delimiter, strict=True)) if delimiter else line.split()
    except csv.Error as error:
        raise DataError(f"{name}, line {number}", f"the line cannot be read ({error})", _PAIRS) from None
    return [cell.strip() for cell in cells]


def _named_columns(where: str, names: Sequence[str]) -> tuple[int, int, int]:
    words = [i for i, name in enumerate(names) if _WORD_NAMES.fullmatch(name)]
    lower = [name.lower() for name in names]
    scores = [lower.index(name) for name in _SCORE_NAMES if name in lower]
    if len(words) < 2 and len(names) == 3:
        return 0, 1, 2
    if len(words) != 2 or not scores:
        what = f"which columns hold the words and the score is unclear: {', '.join(visible(n, 30) for n in names[:12])}"
        raise DataError(where, what, "Name them word1, word2 and score")
    return words[0], words[1], scores[0]


def _guessed_columns(where: str, cells: Sequence[str]) -> tuple[int, int, int]:
    words = [i for i, cell in enumerate(cells) if _number(cell) is None][:2]
    scores = [i for i, cell in enumerate(cells) if len(words) == 2 and i > words[1] and _number(cell) is not None]
    if not scores:
        raise DataError(where, "two words and a score after them are expected", _PAIRS)
    return words[0], words[1], scores[0]


def _number(cell: str) -> float | None:
    try:
        return float(cell)
    except ValueError:
        return None


def numbered_lines(path: str | Path) -> Iterator[tuple[int, str]]:
    """The lines of a file that hold something, with their numbers."""
    blocks = line_blocks(ByteFile(path, limit=MAX_BYTES))
    lines = enumerate(itertools.chain.from_iterable(blocks), start=1)
    return ((number, line.strip()) for number, line in lines if line.strip())
