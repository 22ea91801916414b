"""chrF (Popović 2015) by sacreBLEU."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float

from regard.evaluation.metrics._base import METRICS
from regard.evaluation.metrics._flavour import Flavour
from regard.evaluation.metrics._sacrebleu import SacreBleuMetric


@METRICS.register("chrf")
class Chrf(SacreBleuMetric):
    """chrF2: n-grams of characters up to six, recall weighs twice. Lengths are in characters."""

    label = "chrF2"

    def make_scorer(self, flavour: Flavour) -> Any:
        from sacrebleu.metrics.chrf import CHRF

        return CHRF(lowercase=flavour.lowercase)

    def scores(self, sums: Float[np.ndarray, "R F"]) -> Float[np.ndarray, " R"]:
        """chrF2: F-score (recall weighs twice) of precision and recall averaged over the orders that both sides have."""
        hypothesis, reference, matches = sums[:, 0::3], sums[:, 1::3], sums[:, 2::3]
        counted = (hypothesis > 0) & (reference > 0)
        orders = np.maximum(counted.sum(1), 1)
        precision = np.where(counted, matches / hypothesis, 0.0).sum(1) / orders
        recall = np.where(counted, matches / reference, 0.0).sum(1) / orders
        return np.where(precision + recall > 0, 100.0 * 5.0 * precision * recall / (4.0 * precision + recall), 0.0)

    def details(self, sums: Float[np.ndarray, " F"]) -> dict[str, Any]:
        return {"hyp_len": int(sums[0]), "ref_len": int(sums[1])}
