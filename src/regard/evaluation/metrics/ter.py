"""TER (Snover et al. 2006) by sacreBLEU."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float

from regard.evaluation.metrics._base import METRICS
from regard.evaluation.metrics._flavour import Flavour
from regard.evaluation.metrics._sacrebleu import SacreBleuMetric


@METRICS.register("ter")
class Ter(SacreBleuMetric):
    """Edits, shifts of words among them, that make a translation its reference, for 100 words of the reference."""

    label = "TER"
    lower_is_better = True

    def make_scorer(self, flavour: Flavour) -> Any:
        from sacrebleu.metrics.ter import TER

        # Words of an unspaced script are its characters, which tercom splits only when it normalises.
        unspaced = flavour.tokenizer in ("zh", "char", "ja-mecab")
        return TER(case_sensitive=not flavour.lowercase, normalized=unspaced, asian_support=unspaced)

    def scores(self, sums: Float[np.ndarray, "R F"]) -> Float[np.ndarray, " R"]:
        edits, reference = sums[:, 0], sums[:, 1]
        return 100.0 * np.where(reference > 0, edits / reference, (edits > 0).astype(np.float64))

    def details(self, sums: Float[np.ndarray, " F"]) -> dict[str, Any]:
        result = self.result(sums)
        return {"edits": int(result.num_edits), "ref_len": int(result.ref_length)}
