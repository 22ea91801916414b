"""Minimum Bayes risk: of many drawn translations, the one that is on the mean most like all of them (Eikema & Aziz 2020).

    best = argmax_h  1/N Σ_r  utility(h, r),   h and r drawn from the model

The utility is sentence chrF or sentence BLEU as sacreBLEU defines both (`chrF2` without smoothing; BLEU of 13a tokens with
exponential smoothing and effective order). Counts of n-grams are compared as matrices, all pairs at once.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from regard.core.errors import ConfigError
from regard.core.search_config import MAX_HYPOTHESES, SearchConfig
from regard.tasks.lines import Translation

if TYPE_CHECKING:
    import numpy as np

CHARACTERS, BETA = 6, 2  # of chrF
WORDS = 4  # of BLEU
MOST_CHARACTERS = 20_000  # of a candidate that is compared


@dataclasses.dataclass(frozen=True, kw_only=True)
class MinimumRisk:
    """Draws `samples` translations of each sentence and puts those first that the others agree with most."""

    samples: int = 32
    utility: str = "chrf"
    temperature: float = 1.0
    min_p: float = 0.02  # tokens less likely than this part of the likeliest one are never drawn (0: all are)

    def __post_init__(self) -> None:
        if self.utility not in UTILITIES:
            known = ", ".join(UTILITIES)
            raise ConfigError("utility", f"{self.utility!r} is not one of {known}", "Choose one of them")
        if not 2 <= self.samples <= MAX_HYPOTHESES:
            what = f"{self.samples} is not from 2 to {MAX_HYPOTHESES}"
            raise ConfigError("samples", what, "Choose such a number; 32 is usual")

    def settings(self, asked: SearchConfig) -> SearchConfig:
        """How candidates are searched for."""
        drawn = {"method": "sample", "nbest": self.samples, "temperature": self.temperature, "min_p": self.min_p}
        return dataclasses.replace(asked, **drawn, coverage=0.0)

    def choose(self, sources: Sequence[str], lists: Sequence[list[Translation]]) -> list[list[Translation]]:
        """Of each sentence the different texts, the best first; `score` is the mean utility, from 0 to 100."""
        return [self._ranked(many) for many in lists]

    def _ranked(self, many: Sequence[Translation]) -> list[Translation]:
        values = expected_utilities([t.text for t in many], self.utility)
        first = {t.text: i for i, t in reversed(list(enumerate(many)))}
        order = sorted(first.values(), key=lambda i: (-values[i], i))
        return [dataclasses.replace(many[i], score=values[i]) for i in order]


def expected_utilities(texts: Sequence[str], utility: str) -> list[float]:
    """The mean utility of each text over all of them, itself included."""
    table = UTILITIES[utility]([text[:MOST_CHARACTERS] for text in texts])
    return table.mean(1).tolist()


def chrf(texts: Sequence[str]) -> np.ndarray:
    """chrF of each text (rows) with each as its reference (columns)."""
    import numpy as np

    joined = ["".join(text.split()) for text in texts]
    precision, recall, orders = (np.zeros((len(texts),) * 2) for _ in range(3))
    for n in range(1, CHARACTERS + 1):
        matches, totals = _matches([[text[i : i + n] for i in range(len(text) - n + 1)] for text in joined])
        both = (totals[:, None] > 0) & (totals[None] > 0)
        precision += np.where(both, matches / np.maximum(totals[:, None], 1), 0)
        recall += np.where(both, matches / np.maximum(totals[None], 1), 0)
        orders += both
    precision, recall = precision / np.maximum(orders, 1), recall / np.maximum(orders, 1)
    below = BETA**2 * precision + recall
    return 100 * (1 + BETA**2) * precision * recall / np.where(below > 0, below, 1)


def bleu(texts: Sequence[str]) -> np.ndarray:
    """Sentence BLEU of each text (rows) with each as its reference (columns)."""
    import numpy as np
    from sacrebleu.metrics.bleu import BLEU

    cut = BLEU(effective_order=True).tokenizer
    words = [cut(text.rstrip()).split() for text in texts]
    grams = [_matches([_grams(row, n) for row in words]) for n in range(1, WORDS + 1)]
    table = np.zeros((len(texts),) * 2)
    for i, row in enumerate(words):
        for j, other in enumerate(words):
            table[i, j] = BLEU.compute_bleu(
                correct=[int(matches[i, j]) for matches, _ in grams],
                total=[int(totals[i]) for _, totals in grams],
                sys_len=len(row),
                ref_len=len(other),
                smooth_method="exp",
                effective_order=True,
            ).score
    return table


UTILITIES: dict[str, Callable[[Sequence[str]], np.ndarray]] = {"chrf": chrf, "bleu": bleu}


def _grams(words: Sequence[str], n: int) -> list[tuple[str, ...]]:
    return list(zip(*(words[i:] for i in range(n)), strict=False))


def _matches(rows: Sequence[Sequence[str | tuple[str, ...]]]) -> tuple[np.ndarray, np.ndarray]:
    """For every two rows how many n-grams they share, counted as often as both have them; and how many each has."""
    import numpy as np

    numbers: dict[str | tuple[str, ...], int] = {}
    for row in rows:
        for gram in row:
            numbers.setdefault(gram, len(numbers))
    counts = np.zeros((len(rows), max(1, len(numbers))), np.int32)
    for i, row in enumerate(rows):
        for gram, count in Counter(row).items():
            counts[i, numbers[gram]] = count
    matches = np.stack([np.minimum(counts, row).sum(1) for row in counts]) if len(rows) else np.zeros((0, 0), int)
    return matches, counts.sum(1)
