"""What every metric keeps to: a row of numbers for each sentence, and a score that is a function of their sums.

That is all that intervals, paired tests and length bins need: they draw sentences, add up rows and ask for the score.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float

from regard.core.registry import Registry
from regard.evaluation.metrics._flavour import Flavour

METRICS: Registry[type[Metric]] = Registry("metric", "regard.evaluation.metrics")
USUAL = ("bleu", "chrf", "ter")  # what `regard evaluate` prints


class Metric(ABC):
    """Compares translations with references, one each. BLEU of a corpus is no mean over sentences: hence sums."""

    label: ClassVar[str]  # as people write it
    lower_is_better: ClassVar[bool] = False

    def __init__(self, flavour: Flavour):
        self.flavour = flavour

    @abstractmethod
    def statistics(self, hypotheses: Sequence[str], references: Sequence[str]) -> Float[np.ndarray, "N F"]:
        """A row for each sentence; rows are added up, never averaged."""

    @abstractmethod
    def scores(self, sums: Float[np.ndarray, "R F"]) -> Float[np.ndarray, " R"]:
        """The scores of R sums of rows. Sums may be 0: a sample can miss every sentence that counts."""

    def score(self, sums: Float[np.ndarray, " F"]) -> float:
        """The score of one sum of rows."""
        return float(self.scores(sums[None])[0])

    def signature(self, bootstrap: int, seed: int) -> str:
        """How the score was computed, as far as it can change; `bootstrap` samples are behind its interval, or none."""
        return f"nrefs:1|bs:{bootstrap}|seed:{seed}" if bootstrap else "nrefs:1"

    def details(self, sums: Float[np.ndarray, " F"]) -> dict[str, Any]:
        """What the score is made of, where that helps to check it."""
        return {}
