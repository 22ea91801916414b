"""Beam search for texts that must have certain terms (grid beam search's idea, with the beam shared out among banks).

All is as in beam.py, but for the order of candidates. Besides the best 2K of all, those are looked at that begin or go on with a
term that is missing, and the best of each hypothesis (Hu et al. 2019). A candidate's bank is how many tokens of terms its text has.
Banks take turns: first the best candidate of each bank, then the second of each, banks with more first. A text may end when
all terms are there. Sentences without terms have one bank, and get what beam search gives.

Because only one bank can end, a sentence is done when its pool has that bank's share: K / (terms + 1), at least `nbest`.
"""

from __future__ import annotations

import dataclasses

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.search.beam import NONE, BeamSearch, BeamWork, Pool, Ranked
from regard.search.config import SearchConfig
from regard.search.constraints import forced_at
from regard.search.hypothesis import Hypothesis, Scores, Work
from regard.search.terms import Letters, TermState, TermTable, forbid


@dataclasses.dataclass
class TermWork(BeamWork):
    table: TermTable
    terms: TermState


class TermBeam(BeamSearch):
    """The rule by which hypotheses with terms go on."""

    whole = True  # the scores of terms' tokens are needed, too

    def __init__(self, config: SearchConfig, device: torch.device, most: int, letters: Letters | None):
        super().__init__(config, device, most)
        self.letters = None if letters is None else Letters(*(mask.to(device) for mask in letters))

    def begin(self, work: Work, table: TermTable) -> TermWork:  # type: ignore[override]
        begun = super().begin(work)
        fields = {f.name: getattr(begun, f.name) for f in dataclasses.fields(BeamWork)}
        return TermWork(**fields, table=table, terms=table.begin(self.width))

    def extend(
        self, work: BeamWork, scores: Scores, seen: Float[Tensor, "B K S"] | None
    ) -> tuple[BeamWork, Int[Tensor, "B K"] | None]:
        assert isinstance(work, TermWork)
        before = self._last(work)
        free = torch.ones_like(work.done)
        if work.forced.shape[1]:
            free = forced_at(work.forced, work.at)[:, 0] < 0
        forbid(scores.values, work.table, work.terms, free, self.letters)
        new, parents = super().extend(work, scores, seen)
        margin = new.live.tokens.shape[-1] - new.live.log_probs.shape[-1]
        place = (work.at + margin)[:, None, None].expand(*before.shape, 1)
        tokens = new.live.tokens.gather(2, place)[..., 0]
        old = work.terms
        if parents is not None:
            old, before = old.of(parents), before.gather(1, parents)
        return dataclasses.replace(new, terms=work.table.write(old, before, tokens, self.letters)), parents  # type: ignore[arg-type]

    def _last(self, work: TermWork) -> Int[Tensor, "B K"]:
        """The last token of each text."""
        live = work.live
        margin = live.tokens.shape[-1] - live.log_probs.shape[-1]
        return live.tokens.gather(2, (work.at + margin - 1)[:, None, None].expand(*live.total.shape, 1))[..., 0]

    def _rank(self, work: BeamWork, scores: Scores, total: Tensor) -> Ranked:
        assert isinstance(work, TermWork)
        plain = super()._rank(work, scores, total)
        values, before = scores.values, self._last(work)
        # tokens with which a missing term begins or goes on, and the best token of each hypothesis
        following = work.table.following(work.terms)
        missing = (following >= 0) & ~work.terms.met
        opens = work.table.opens(work.terms, before, self.letters)
        missing = missing if opens is None else missing & opens
        more = torch.cat([following.clamp(min=0), values.argmax(-1, keepdim=True)], -1)
        own = values.gather(-1, more).to(plain.own.dtype)
        own[..., :-1].masked_fill_(~missing, NONE)
        parents = self.slots[:, None].expand(*more.shape).flatten(1)
        sums = (total[..., None] + own).flatten(1)
        several = Ranked(
            torch.cat([plain.total, sums], 1),
            torch.cat([plain.parents, parents], 1),
            torch.cat([plain.tokens, more.flatten(1)], 1),
            torch.cat([plain.own, own.flatten(1)], 1),
        )
        ranked = self._once(several, values.shape[-1])
        bank = self._banks(work, before, ranked)
        alive = ranked.total > NONE
        order = _turns(bank.where(alive, -1), alive)
        ranked = Ranked(*(part.gather(1, order) for part in ranked))
        # scores that are no numbers are noticed at the first place
        broken = plain.total[:, :1].isnan() & (torch.arange(order.shape[1], device=order.device) == 0)
        return ranked._replace(total=ranked.total.masked_fill(broken, float("nan")))

    def _once(self, several: Ranked, vocabulary: int) -> Ranked:
        """By sum, equal ones by hypothesis and token; a candidate that is there twice counts once."""
        code = several.parents * vocabulary + several.tokens
        order = several.total.sort(dim=1, descending=True, stable=True).indices  # a term that is there already has -inf
        code, again = code.gather(1, order).sort(dim=1, stable=True)
        order = order.gather(1, again)
        sums = several.total.gather(1, order)
        sums[:, 1:].masked_fill_(code[:, 1:] == code[:, :-1], NONE)
        sums, rank = sums.sort(dim=1, descending=True, stable=True)
        order = order.gather(1, rank)
        return Ranked(sums, *(part.gather(1, order) for part in several[1:]))

    def _banks(self, work: TermWork, before: Tensor, ranked: Ranked) -> Int[Tensor, "B C"]:
        parents = work.terms.of(ranked.parents)
        return work.table.bank(work.table.write(parents, before.gather(1, ranked.parents), ranked.tokens, self.letters))

    def _stops(self, work: BeamWork, pool: Pool, likeliest: Float[Tensor, "B"]) -> Bool[Tensor, "B"]:
        assert isinstance(work, TermWork)
        if self.config.stop == "exact":
            return super()._stops(work, pool, likeliest)
        share = (self.width // (work.table.wanted() + 1)).clamp(min=self.config.nbest)
        full = (pool.score > NONE).sum(1) >= share
        return super()._stops(work, pool, likeliest) | (full & (work.table.wanted() > 0))

    def collect(self, work: BeamWork, most: int | None = None) -> list[list[Hypothesis]]:
        """As of any beam search; of texts that were cut, those with the most terms."""
        assert isinstance(work, TermWork)
        has = (work.terms.met[..., None] & work.table.group[:, None]).any(2).sum(-1)
        has = has.where(work.live.total > NONE, -1)
        live = dataclasses.replace(work.live, total=work.live.total.masked_fill(has < has.amax(1, keepdim=True), NONE))
        return super().collect(dataclasses.replace(work, live=live), most)


def _turns(bank: Int[Tensor, "B C"], alive: Bool[Tensor, "B C"]) -> Int[Tensor, "B C"]:
    """The order in which banks take turns, where candidates stand best first."""
    count = bank.shape[1]
    earlier = torch.ones(count, count, dtype=torch.bool, device=bank.device).tril(-1)
    turn = ((bank[:, :, None] == bank[:, None, :]) & earlier).sum(-1)
    most = bank.amax(1, keepdim=True) + 1
    key = turn * (most + 1) + (most - bank)
    return key.masked_fill(~alive, 1 << 40).sort(dim=1, stable=True).indices
