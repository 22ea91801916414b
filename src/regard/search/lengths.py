"""Which lengths are tried for models that have to know it before they write, and how texts of different lengths compete.

Beam search tries the `search.lengths` likeliest lengths of each sentence, one after the other, each with a beam of its own in
which every text has that length. Sampling draws a length for every sample from log P(length), without temperature or filters.
A text's log-probability is log P(length) + log P(text | length); its score is that sum, normalised as any other. A text that
was cut has no length of which there could be a probability: that of its tokens alone counts. Lengths that the sentence's
limits, its forced prefix or `search.min_length` rule out are not tried.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterator, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from regard.core.errors import ModelError
from regard.core.types import Padded
from regard.models.base import Planner
from regard.search.config import SearchConfig
from regard.search.hypothesis import Hypothesis
from regard.search.ranking import best
from regard.search.sampling import draw, uniforms
from regard.search.scoring import normalised

NONE = float("-inf")


@dataclasses.dataclass(frozen=True)
class Try:
    """One length for each sentence that has one left to try."""

    config: SearchConfig
    rows: list[int]  # which sentences of the batch these are
    limits: list[int]  # tokens of each sentence's texts, EOS not counted
    log_probs: list[float]  # of the lengths

    def scored(self, found: list[list[Hypothesis]]) -> list[list[Hypothesis]]:
        """What was found, with the length's log-probability counted in."""
        return [
            [_with_length(self.config, h, log_prob) for h in hypotheses]
            for hypotheses, log_prob in zip(found, self.log_probs, strict=True)
        ]


def tries(
    model: Planner, source: Padded, config: SearchConfig, limits: Sequence[int], prefixes: Sequence[int]
) -> Iterator[Try]:
    """The lengths to try: `limits` are the most tokens of each sentence (EOS not counted), `prefixes` how many are forced."""
    scores = model.length_scores(source, max(limits) + 1).cpu().double()
    for row, (limit, prefix) in enumerate(zip(limits, prefixes, strict=True)):
        fewest = min(limit, max(prefix, config.min_length))
        scores[row, :fewest] = NONE  # column j is j tokens and EOS
        scores[row, limit + 1 :] = NONE
    if not scores.amax(1).isfinite().all():
        raise ModelError("search", "the model's scores are not numbers", "Check how it was trained")
    if config.method == "sample":
        yield from _drawn(source, config, scores)
        return
    values, lengths = best(scores, config.lengths)
    for log_probs, tokens in zip(values.t(), lengths.t(), strict=True):
        rows = (log_probs > NONE).nonzero()[:, 0]
        if len(rows):
            yield Try(config, rows.tolist(), tokens[rows].tolist(), log_probs[rows].tolist())


def _drawn(source: Padded, config: SearchConfig, scores: Float[Tensor, "B L"]) -> Iterator[Try]:
    """A length for each sample, as a function of (seed, the source's tokens, which sample), as all that is drawn."""
    for sample in range(config.nbest):
        plain = SearchConfig(method="sample", seed=_seed(config.seed, sample, "length"))  # no temperature, no filters
        words = dataclasses.replace(config, nbest=1, seed=_seed(config.seed, sample, "words"))
        uniform = uniforms(plain, source, [0] * len(scores))[:, 0, 0].cpu().double()
        tokens = draw(plain, scores, uniform)
        log_probs = scores.gather(1, tokens[:, None])[:, 0]
        yield Try(words, list(range(len(scores))), tokens.tolist(), log_probs.tolist())


def _seed(seed: int, sample: int, what: str) -> int:
    name = hashlib.blake2b(f"{what} {sample} {seed}".encode(), digest_size=8).digest()
    return int.from_bytes(name, "little") >> 1


def _with_length(config: SearchConfig, hypothesis: Hypothesis, log_prob: float) -> Hypothesis:
    if not hypothesis.finished:
        return hypothesis
    n = torch.tensor(len(hypothesis.token_log_probs))
    score = hypothesis.score + float(normalised(config, torch.tensor(log_prob, dtype=torch.float64), n))
    return dataclasses.replace(hypothesis, score=score, log_prob=hypothesis.log_prob + log_prob)


def merge(config: SearchConfig, found: list[Hypothesis]) -> list[Hypothesis]:
    """Of all that was found for a sentence: of a beam the best, finished ones first; of sampling, in the order of drawing."""
    if config.method == "beam":
        found = sorted(found, key=lambda h: (not h.finished, -h.score))
    return found[: config.nbest]
