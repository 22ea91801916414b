"""Beam search over any model that keeps the contract; greedy search is a beam of one.

For every sentence, with K hypotheses:

1. At first only hypothesis 0 lives, empty and with sum 0; the others have sum -inf.
2. At each step all K * V continuations (less those the constraints forbid) are ranked by their summed log-probability,
   equal sums by lower hypothesis, then lower token (see `ranking.best`); the first 2K are looked at.
3. A continuation by EOS that ranks among the first K is finished and gets its normalised score; one that ranks lower
   is dropped. There is at most one per hypothesis, so at least K of the 2K do not end: the first K of those live on.
4. The pool keeps the K finished ones with the best scores; of equal scores, the one finished earlier.
5. The sentence is done when its pool is full (`stop="full"`); or when it is full and no live hypothesis can still reach
   a score above the worst in it (`stop="exact"`); or when the step has been taken in which its hypotheses have as many
   tokens as they may have (that step lets them end, in competition with all other continuations, so that a text that
   the model did not want to end is not called finished); or when nothing lives on.
6. Returned are the best `nbest` of the pool. If it has fewer, the hypotheses that were cut follow, best first, with
   `finished=False`: so a finished text always stands before a cut one.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import pad

from regard.core.tree import State
from regard.core.types import EOS
from regard.search.config import SearchConfig
from regard.search.hypothesis import Hypothesis, Work
from regard.search.ranking import best
from regard.search.scoring import coverage_penalty, normalised, reachable

NONE = float("-inf")


@dataclasses.dataclass
class Pool(State):
    """The K best finished hypotheses of every sentence, best first."""

    score: Float[Tensor, "B K"]  # -inf: an empty place
    length: Int[Tensor, "B K"]  # EOS included
    tokens: Int[Tensor, "B K N"]  # with the margin of `Live.tokens`
    log_probs: Float[Tensor, "B K T"]

    def join(self, new: Any) -> Pool:
        """The best K of both; the texts of the new ones may be longer."""
        k = self.score.shape[1]
        both = self.map(lambda old, more: torch.cat([pad(old, (0, more.shape[-1] - old.shape[-1])), more], 1), new)
        return both.reorder(both.score.sort(dim=1, descending=True, stable=True).indices[:, :k])


@dataclasses.dataclass
class BeamWork(Work):
    """A beam search under way. A sentence that is done keeps its live hypotheses as they were: the cut ones."""

    pool: Pool
    cut: Int[Tensor, "B"]  # how many tokens they had then


class BeamSearch:
    """The rule by which hypotheses go on, end and are returned."""

    def __init__(self, config: SearchConfig):
        self.config = config
        self.width = config.beam
        # With one hypothesis and stop="full", whatever ranks first either ends the search or lives on.
        self.candidates = 1 if config.beam == 1 and config.stop == "full" else 2 * config.beam

    def begin(self, work: Work) -> BeamWork:
        live = work.live
        total = live.total.clone()
        total[:, 1:] = NONE  # equal hypotheses would stay equal for ever
        no_length = torch.zeros_like(total, dtype=torch.long)
        empty = Pool(torch.full_like(total, NONE), no_length, live.tokens, live.log_probs)
        fields = {f.name: getattr(work, f.name) for f in dataclasses.fields(Work)}
        fields["live"] = dataclasses.replace(live, total=total)
        return BeamWork(**fields, pool=empty, cut=torch.zeros_like(work.limit))

    def extend(
        self, work: BeamWork, log_probs: Float[Tensor, "B K V"], seen: Float[Tensor, "B K S"] | None, step: int
    ) -> tuple[BeamWork, Int[Tensor, "B K"] | None]:
        """Writes one token of every hypothesis. `seen` is the coverage with this step's attention added.

        Also gives the parents by which the model's state must be reordered, or None where it need not be.
        """
        live, k = work.live, self.width
        total, parents, tokens, own = self._rank(log_probs, live.total.masked_fill(work.done[:, None], NONE))
        broken = work.broken | total[:, 0].isnan()  # sorting puts nan first
        ends = (tokens == EOS) & (total > NONE)
        pool = self._finish(work, ends[:, :k], total[:, :k], parents[:, :k], own[:, :k], seen, step)
        ended = (ends[:, :k, None] & (parents[:, :k, None] == torch.arange(k, device=parents.device))).any(1)

        going = ends.byte().sort(dim=1, stable=True).indices[:, :k]  # the first K that do not end
        total = total.masked_fill(ends, NONE).gather(1, going)
        done = work.done | self._stops(work, pool, total.amax(1), step)

        # Sentences that are done keep their hypotheses, less those that ended just now: they stand in the pool.
        still = torch.arange(k, device=parents.device).expand(len(done), k)
        parents = torch.where(done[:, None], still, parents.gather(1, going))
        total = torch.where(done[:, None], live.total.masked_fill(ended, NONE), total)
        grown = live.reorder(parents) if k > 1 else live
        covered = grown.covered
        if seen is not None and covered is not None:
            covered = torch.where(done[:, None, None], covered, seen.gather(1, parents[..., None].expand_as(seen)))
        grown = grown.write(tokens.gather(1, going), own.gather(1, going))
        grown = dataclasses.replace(grown, total=total, covered=covered)
        cut = torch.where(work.done, work.cut, step)
        new = dataclasses.replace(work, live=grown, pool=pool, done=done, broken=broken, cut=cut)
        return new, parents if k > 1 else None

    def _rank(self, log_probs: Tensor, total: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The first candidates of each sentence: sum, parent, token and the token's own log-probability."""
        own, tokens = best(log_probs, self.candidates)  # no hypothesis can give more than are wanted in all
        width = own.shape[-1]
        sums = (total[..., None] + own).flatten(1)
        sums, order = sums.sort(dim=1, descending=True, stable=True)
        sums, order = sums[:, : self.candidates], order[:, : self.candidates]
        return sums, order // width, tokens.flatten(1).gather(1, order), own.flatten(1).gather(1, order)

    def _finish(
        self, work: BeamWork, ends: Tensor, total: Tensor, parents: Tensor, own: Tensor, seen: Tensor | None, step: int
    ) -> Pool:
        if seen is not None:
            seen = seen.gather(1, parents[..., None].expand(*parents.shape, seen.shape[-1]))
        length = torch.full_like(parents, step + 1)
        score = normalised(self.config, total - work.base[:, None], length - work.given[:, None])
        score = score + coverage_penalty(self.config, seen, work.keep)
        text = work.live.reorder(parents).write(torch.full_like(parents, EOS), own)
        return work.pool.join(Pool(score.masked_fill(~ends, NONE), length, text.tokens, text.log_probs))

    def _stops(self, work: BeamWork, pool: Pool, likeliest: Float[Tensor, "B"], step: int) -> Bool[Tensor, "B"]:
        worst = pool.score[:, -1]
        full = worst > NONE
        if self.config.stop == "exact":
            full &= reachable(self.config, likeliest - work.base, work.limit - work.given) <= worst
        return full | (step >= work.limit) | (likeliest == NONE)

    def collect(self, work: BeamWork) -> list[list[Hypothesis]]:
        """The n-best lists of sentences that are done (`work` on the CPU)."""
        pool, live = work.pool, work.live
        cut = normalised(self.config, live.total - work.base[:, None], (work.cut - work.given)[:, None])
        cut = cut + coverage_penalty(self.config, live.covered, work.keep)
        cut, order = cut.sort(dim=1, descending=True, stable=True)
        live = live.reorder(order)
        start = live.tokens.shape[-1] - live.log_probs.shape[-1]  # the margin
        lists = []
        for b, length in enumerate(work.cut.tolist()):
            found = [
                Hypothesis.read(pool.tokens[b, k, start:], pool.log_probs[b, k], int(pool.length[b, k]), score, True)
                for k, score in enumerate(pool.score[b].tolist())
                if score > NONE
            ]
            found += [
                Hypothesis.read(live.tokens[b, k, start:], live.log_probs[b, k], length, score, False)
                for k, score in enumerate(cut[b].tolist())
                if score > NONE
            ]
            lists.append(found[: self.config.nbest])
        return lists
