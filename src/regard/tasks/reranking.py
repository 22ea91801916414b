"""Reranking: the n-best translations of a sentence in another order, by what other models say of them.

    score(y) = log P(y | x) / |y|  +  λ_c log P(x | y) / |x|  +  λ_l log P(y) / |x|  +  λ_r log P_r(y | x) / |y|

The second and third terms are the noisy channel (Yee, Dauphin & Auli 2019): a translator of the other direction, and a language
model of the target. The last one is another translator, such as one that writes from right to left (`data.target_order=reversed`).
Lengths are counted in each model's own tokens, ends included.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from regard.core.errors import ConfigError
from regard.core.search_config import MAX_HYPOTHESES, SearchConfig
from regard.tasks.lines import Translation

if TYPE_CHECKING:
    from regard.tasks.language_model import TextModel
    from regard.tasks.pair_score import PairScore
    from regard.tasks.translation import Translator

MOST_WEIGHT = 100.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reranker:
    """Puts the `candidates` best of a beam in a new order. What is not given does not count."""

    channel: Translator | None = None
    language_model: TextModel | None = None
    other: Translator | None = None
    candidates: int = 8
    channel_weight: float = 0.5
    language_weight: float = 0.3
    other_weight: float = 1.0

    def __post_init__(self) -> None:
        if self.channel is None and self.language_model is None and self.other is None:
            raise ConfigError(
                "reranking", "there is no model to do it", "Give a channel, a language model or another one"
            )
        if not 2 <= self.candidates <= MAX_HYPOTHESES:
            what = f"{self.candidates} is not from 2 to {MAX_HYPOTHESES}"
            raise ConfigError("candidates", what, "Choose such a number")
        for name in ("channel_weight", "language_weight", "other_weight"):
            value = getattr(self, name)
            if not 0 <= value <= MOST_WEIGHT:
                raise ConfigError(name, f"{value} is not from 0 to {MOST_WEIGHT:g}", "Choose such a number")

    def settings(self, asked: SearchConfig) -> SearchConfig:
        """How candidates are searched for."""
        beam = max(asked.beam, self.candidates)
        return dataclasses.replace(asked, method="beam", beam=beam, nbest=self.candidates)

    def choose(self, sources: Sequence[str], lists: Sequence[list[Translation]]) -> list[list[Translation]]:
        """The lists in the new order; `score` is the new one."""
        pairs = [(source, one) for source, many in zip(sources, lists, strict=True) for one in many]
        xs, ys = [source for source, _ in pairs], [one.text for _, one in pairs]
        totals = [one.log_prob / (len(one.tokens) + 1) for _, one in pairs]
        source_lengths = [len(one.source_tokens) + 1 for _, one in pairs]
        if self.channel is not None:
            scored = self.channel.score(ys, xs)
            totals = _sum(totals, [self.channel_weight * _per_token(one) for one in scored])
        if self.language_model is not None:
            scored = self.language_model.score(ys)
            spread = zip(scored, source_lengths, strict=True)
            totals = _sum(totals, [self.language_weight * one.log_prob / length for one, length in spread])
        if self.other is not None:
            scored = self.other.score(xs, ys)
            totals = _sum(totals, [self.other_weight * _per_token(one) for one in scored])
        new = iter([dataclasses.replace(one, score=total) for (_, one), total in zip(pairs, totals, strict=True)])
        return [sorted((next(new) for _ in many), key=lambda one: -one.score) for many in lists]


def _per_token(score: PairScore) -> float:
    return score.log_prob / max(1, len(score.token_log_probs))


def _sum(one: Sequence[float], other: Sequence[float]) -> list[float]:
    return [math.fsum(pair) for pair in zip(one, other, strict=True)]
