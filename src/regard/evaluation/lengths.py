"""Scores by the length of the source sentence: where a system that is good on the whole falls short."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from regard.core.errors import ConfigError
from regard.evaluation.metrics import Flavour, Score, Statistics, check_parallel

EDGES = (5, 10, 15, 20, 30, 40, 60)  # 1-5, 6-10, ... 41-60, and 61+
FEWEST = 10  # sentences in a bin of the default edges

# Chinese, Japanese and South-East Asian scripts put no spaces between words: each character counts as one.
_UNSPACED = re.compile(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]")


@dataclass(frozen=True)
class LengthBin:
    """Sentences whose source has `low` to `high` words (no upper bound where `high` is None), and their scores."""

    low: int
    high: int | None
    sentences: int
    bleu: Score
    chrf: Score

    @property
    def label(self) -> str:
        if self.high is None:
            return f"{self.low}+"
        return str(self.low) if self.low == self.high else f"{self.low}-{self.high}"

    def to_plain(self) -> dict[str, Any]:
        return {
            "words": self.label,
            "sentences": self.sentences,
            "bleu": self.bleu.value,
            "bleu_low": self.bleu.low,
            "bleu_high": self.bleu.high,
            "chrf": self.chrf.value,
            "chrf_low": self.chrf.low,
            "chrf_high": self.chrf.high,
        }


def by_source_length(
    sources: Sequence[str],
    hypotheses: Sequence[str],
    references: Sequence[str],
    flavour: Flavour = Flavour(),
    edges: Sequence[int] | None = None,
) -> list[LengthBin]:
    """Scores each bin of source lengths. `edges` are the largest lengths of all bins but the last, which is open.

    Without edges they are chosen: those of `EDGES`, where bins of fewer than ten sentences join a neighbour.
    Bins without sentences are left out.
    """
    check_parallel(sources=sources, hypotheses=hypotheses, references=references)
    spans = length_spans(sources, edges)
    bleu = Statistics.of("bleu", hypotheses, references, flavour)
    chrf = Statistics.of("chrf", hypotheses, references, flavour)
    bins = []
    for span in spans:
        scores = (statistics.take(span.rows).score(flavour.bootstrap) for statistics in (bleu, chrf))
        bins.append(LengthBin(span.low, span.high, len(span.rows), *scores))
    return bins


@dataclass(frozen=True)
class LengthSpan:
    """The sentences of a bin: `rows` are their places in the text."""

    low: int
    high: int | None
    rows: np.ndarray


def length_spans(sources: Sequence[str], edges: Sequence[int] | None = None) -> list[LengthSpan]:
    """The bins of source lengths that hold sentences; for `edges` see `by_source_length`."""
    lengths = np.array([count_words(source) for source in sources])
    if edges is None:
        chosen = _merged_edges(lengths)
        last = next((edge for edge in EDGES if edge >= lengths.max()), None)
    else:
        chosen, last = list(edges), None
        if any(a >= b for a, b in itertools.pairwise([0, *chosen])):
            raise ConfigError("edges of length bins", f"{chosen} do not rise from 1", "Give for example 10, 20, 40")
    first = min(1, int(lengths.min()))  # 0 where there are empty sources
    spans = []
    for low, high in zip([first, *(edge + 1 for edge in chosen)], [*chosen, last], strict=True):
        rows = np.flatnonzero((lengths >= low) & (lengths <= (lengths.max() if high is None else high)))
        if len(rows):
            spans.append(LengthSpan(low, high, rows))
    return spans


def table(bins: Sequence[LengthBin]) -> list[dict[str, Any]]:
    """The bins as plain rows, ready for JSON or for printing."""
    return [entry.to_plain() for entry in bins]


def count_words(text: str) -> int:
    """Words between spaces; in scripts without spaces, characters."""
    return len(_UNSPACED.sub(r" \g<0> ", text).split())


def _merged_edges(lengths: np.ndarray) -> list[int]:
    """The default edges, where the smallest bin joins its smaller neighbour until none is too small."""
    edges: list[int] = list(EDGES)
    counts = np.bincount(np.searchsorted(edges, lengths), minlength=len(edges) + 1).tolist()
    while len(counts) > 1 and min(counts) < FEWEST:
        small = counts.index(min(counts))
        neighbours = [i for i in (small - 1, small + 1) if 0 <= i < len(counts)]
        left = min(small, min(neighbours, key=counts.__getitem__))
        counts[left : left + 2] = [counts[left] + counts[left + 1]]
        del edges[left]
    return edges
