"""BLEU (Papineni et al. 2002) by sacreBLEU."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float

from regard.core.errors import ConfigError
from regard.evaluation.metrics._base import METRICS
from regard.evaluation.metrics._flavour import Flavour
from regard.evaluation.metrics._sacrebleu import SacreBleuMetric


@METRICS.register("bleu")
class Bleu(SacreBleuMetric):
    """n-gram precisions up to four words, and a penalty for brevity. Lengths are in tokens."""

    label = "BLEU"

    def make_scorer(self, flavour: Flavour) -> Any:
        from sacrebleu.metrics.bleu import BLEU

        tokenizer = flavour.tokenizer
        if tokenizer not in BLEU.TOKENIZERS:
            what = f"{tokenizer!r} is unknown"
            raise ConfigError("setting tokenize", what, f"Use one of {', '.join(BLEU.TOKENIZERS)}")
        try:
            # force: what sacreBLEU would log about text that is tokenised already, `corpus_scores` says
            return BLEU(tokenize=tokenizer, lowercase=flavour.lowercase, force=True)
        except (ImportError, RuntimeError) as error:
            first = str(error).strip().splitlines()[0]
            raise ConfigError("setting tokenize", f"{tokenizer!r} cannot be used here ({first})", "Use char") from None

    def scores(self, sums: Float[np.ndarray, "R F"]) -> Float[np.ndarray, " R"]:
        """BLEU-4 with NIST smoothing: the k-th order without a match counts as 1 / 2^k matches."""
        hypothesis, reference, matches, totals = sums[:, 0], sums[:, 1], sums[:, 2:6], sums[:, 6:10]
        missed = np.cumsum(matches == 0, axis=1)
        precisions = np.where(matches > 0, matches, 0.5**missed) / totals
        brevity = np.exp(np.minimum(0.0, 1.0 - reference / hypothesis))
        scores = 100.0 * brevity * np.exp(np.log(precisions).mean(1))
        return np.where(matches.any(axis=1) & totals.all(axis=1), scores, 0.0)

    def details(self, sums: Float[np.ndarray, " F"]) -> dict[str, Any]:
        result = self.result(sums)
        return {
            "hyp_len": int(result.sys_len),
            "ref_len": int(result.ref_len),
            "brevity_penalty": float(result.bp),
            "precisions": [float(p) for p in result.precisions],
        }
