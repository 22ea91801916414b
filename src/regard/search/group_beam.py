"""Diverse beam search (Vijayakumar et al. 2016): the beam in groups, each of which avoids what the earlier ones write.

All is as in beam.py within each group of K / G hypotheses, with a pool of its own. At each step the groups choose in turn.
In the ranking, but not in the sums, a token costs `diversity` for every hypothesis of an earlier group that goes on with it now
(Hamming diversity). The first group finds what a beam of its size finds. A sentence is done when all its pools are full. Texts
of all groups are returned best first, each once.
"""

from __future__ import annotations

import dataclasses

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from regard.core.types import EOS
from regard.search.beam import NONE, BeamSearch, BeamWork, Chosen, Pool, Ranked
from regard.search.hypothesis import Hypothesis, Scores, Work
from regard.search.ranking import best


class GroupBeam(BeamSearch):
    """The rule by which hypotheses in groups go on."""

    whole = True  # costs are of all tokens

    def begin(self, work: Work) -> BeamWork:
        """One hypothesis of each group lives."""
        begun, size = super().begin(work), self.width // self.config.groups
        begun.live.total[:, ::size] = work.live.total[:, ::size]
        return begun

    def _choose(self, work: BeamWork, scores: Scores, seen: Float[Tensor, "B K S"] | None) -> Chosen:
        groups, size = self.config.groups, self.width // self.config.groups
        totals = work.live.total.masked_fill(work.done[:, None], NONE)
        cost = torch.zeros_like(scores.values[:, 0])
        chosen: list[Chosen] = []
        for group in range(groups):
            part = slice(group * size, (group + 1) * size)
            ranked = self._of_group(scores.values[:, part], totals[:, part], cost, group * size)
            one = self._within(work, ranked, seen, part, size)
            chosen.append(one)
            going = one.going
            alive = (going.total > NONE).to(cost.dtype) * self.config.diversity
            cost = cost.scatter_add(1, going.tokens, alive)
        pool = Pool(*(torch.cat([getattr(one.pool, f.name) for one in chosen], 1) for f in dataclasses.fields(Pool)))
        ended = torch.stack([one.ended for one in chosen]).any(0)
        broken = work.broken | (scores.values.isnan().flatten(1).any(1) & ~work.done)
        going = Ranked(*(torch.cat(parts, 1) for parts in zip(*(one.going for one in chosen), strict=True)))
        return Chosen(pool, ended, broken, going)

    def _of_group(self, values: Tensor, total: Tensor, cost: Tensor, first: int) -> Ranked:
        """A group's candidates, ranked with costs."""
        count, vocabulary = 2 * values.shape[1], values.shape[-1]
        # the best of each hypothesis are enough
        dear, tokens = best(values - cost[:, None], min(count, vocabulary))
        order = best((total[..., None] + dear).flatten(1), count)[1]
        own = values.gather(-1, tokens).flatten(1).gather(1, order)
        parents = order // dear.shape[-1]
        return Ranked(total.gather(1, parents) + own, parents + first, tokens.flatten(1).gather(1, order), own)

    def _within(self, work: BeamWork, ranked: Ranked, seen: Tensor | None, part: slice, size: int) -> Chosen:
        """What of a group's candidates ends, and what goes on: see beam.py."""
        ends = (ranked.tokens == EOS) & (ranked.total > NONE)
        first = Ranked(*(one[:, :size] for one in ranked))
        own = Pool(*(getattr(work.pool, f.name)[:, part] for f in dataclasses.fields(Pool)))
        pool = self._finish(work, own, ends[:, :size], first, seen)
        ended = (ends[:, :size, None] & (first.parents[..., None] == self.slots)).any(1)
        going = ends.byte().sort(dim=1, stable=True).indices[:, :size]
        ranked = ranked._replace(total=ranked.total.masked_fill(ends, NONE))
        return Chosen(pool, ended, work.broken, Ranked(*(one.gather(1, going) for one in ranked)))

    def _stops(self, work: BeamWork, pool: Pool, likeliest: Float[Tensor, "B"]) -> Bool[Tensor, "B"]:
        """The worst of all pools decides, wherever it stands."""
        worst = pool.score.amin(1, keepdim=True).expand_as(pool.score)
        return super()._stops(work, dataclasses.replace(pool, score=worst), likeliest)

    def collect(self, work: BeamWork, most: int | None = None) -> list[list[Hypothesis]]:
        score, order = work.pool.score.sort(dim=1, descending=True, stable=True)
        pool = Pool(score, work.pool.end.gather(1, order), work.pool.last.gather(1, order))
        lists = super().collect(dataclasses.replace(work, pool=pool), self.width)
        return [_once(many)[: most or self.config.nbest] for many in lists]


def _once(many: list[Hypothesis]) -> list[Hypothesis]:
    found: dict[tuple[bool, tuple[int, ...]], Hypothesis] = {}
    for one in many:
        found.setdefault((one.finished, tuple(one.tokens)), one)
    return list(found.values())
