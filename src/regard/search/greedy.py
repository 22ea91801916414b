"""Greedy search: a beam of one with `stop="full"`, in which the likeliest token either ends the text or goes on.

It finds what `beam.py` would find, by fewer operations.
"""

from __future__ import annotations

import dataclasses

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from regard.core.types import EOS
from regard.search.config import SearchConfig
from regard.search.hypothesis import Hypothesis, Scores, Work, firsts
from regard.search.scoring import coverage_penalty, normalised

NONE = float("-inf")


@dataclasses.dataclass
class GreedyWork(Work):
    """A greedy search under way. A sentence that is done has gone on by one place: what stood at the last one may be its end."""

    finished: Bool[Tensor, "B 1"]


class GreedySearch:
    """The rule by which a hypothesis goes on or ends."""

    whole = False  # needs few of the scores

    def __init__(self, config: SearchConfig):
        self.config = config

    @staticmethod
    def fits(config: SearchConfig) -> bool:
        """With a beam of one and stop="full", whatever ranks first either ends the search or lives on."""
        return config.method == "beam" and config.beam == 1 and config.stop == "full"

    def begin(self, work: Work) -> GreedyWork:
        fields = {f.name: getattr(work, f.name) for f in dataclasses.fields(Work)}
        return GreedyWork(**fields, finished=torch.zeros_like(work.live.total, dtype=torch.bool))

    def extend(self, work: GreedyWork, scores: Scores, seen: Float[Tensor, "B K S"] | None) -> tuple[GreedyWork, None]:
        """Writes one token. `seen` is the coverage with this step's attention added."""
        live = work.live
        own, token = (one[..., 0] for one in scores.largest(1))
        total, is_open, is_end = live.total + own, ~work.done[:, None], token == EOS
        broken = work.broken | (total.isnan() & is_open)[:, 0]
        # not if the constraints left nothing, or where the text is as long as it may be
        written = is_open & (total > NONE) & (is_end | (work.at < work.limit)[:, None])
        covered = live.covered
        if seen is not None and covered is not None:
            covered = torch.where(written[..., None], seen, covered)
        live = dataclasses.replace(live, total=torch.where(written, total, live.total), covered=covered)
        live.write(work.at, token, own)
        finished, done = work.finished | (written & is_end), (~written | is_end)[:, 0]
        at = work.at + is_open[:, 0]
        return dataclasses.replace(work, live=live, at=at, finished=finished, done=done, broken=broken), None

    def collect(self, work: GreedyWork) -> list[list[Hypothesis]]:
        """The texts of sentences that are done (`work` on the CPU)."""
        live = work.live
        length = work.at[:, None] - 1 + work.finished.long()  # of log-probabilities
        score = normalised(self.config, live.total - work.base[:, None], length - work.given[:, None])
        score = score + coverage_penalty(self.config, live.covered, work.keep)
        margin = live.tokens.shape[-1] - live.log_probs.shape[-1]
        most, finished = int(length.max()), work.finished[:, 0]
        tokens = firsts(live.tokens[:, 0, margin : margin + most].numpy(), (length[:, 0] - finished.long()).tolist())
        own = firsts(live.log_probs[:, 0, :most].numpy(), length[:, 0].tolist())
        facts = zip(tokens, own, score[:, 0].tolist(), finished.tolist(), strict=True)
        return [[Hypothesis.of(*one)] for one in facts]
