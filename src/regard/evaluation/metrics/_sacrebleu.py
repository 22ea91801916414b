"""Metrics of sacreBLEU: it reads the text, gives the score and signs it; only sums of many samples are scored here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from regard.evaluation.metrics._base import Metric
from regard.evaluation.metrics._flavour import Flavour


class SacreBleuMetric(Metric):
    """A metric with a scorer of sacreBLEU behind it."""

    def __init__(self, flavour: Flavour):
        super().__init__(flavour)
        self.scorer = self.make_scorer(flavour)

    def make_scorer(self, flavour: Flavour) -> Any:
        """sacreBLEU's metric, for text compared like this."""
        raise NotImplementedError

    def statistics(self, hypotheses: Sequence[str], references: Sequence[str]) -> Float[np.ndarray, "N F"]:
        return np.array(self.scorer._extract_corpus_statistics(hypotheses, [references]), dtype=np.float64)

    def result(self, sums: Float[np.ndarray, " F"]) -> Any:
        """sacreBLEU's own result for one sum of rows."""
        return self.scorer._compute_score_from_stats([int(x) if x.is_integer() else x for x in sums.tolist()])

    def score(self, sums: Float[np.ndarray, " F"]) -> float:
        return float(self.result(sums).score)

    def signature(self, bootstrap: int, seed: int) -> str:
        self.scorer.n_bootstrap, self.scorer.seed = (bootstrap, seed) if bootstrap else (None, None)
        return self.scorer.get_signature().format()
