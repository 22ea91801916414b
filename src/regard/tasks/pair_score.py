"""How probable a model finds a given translation."""

from __future__ import annotations

import dataclasses
import math
from typing import Any


@dataclasses.dataclass(frozen=True)
class PairScore:
    """The log-probability of a given target text, and of each of its tokens and its end."""

    log_prob: float
    tokens: list[str]
    token_log_probs: list[float]

    @property
    def perplexity(self) -> float:
        try:
            return math.exp(-self.log_prob / len(self.token_log_probs))
        except OverflowError:
            return math.inf

    def to_plain(self) -> dict[str, Any]:
        return {**dataclasses.asdict(self), "perplexity": self.perplexity}
