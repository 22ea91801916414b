"""Beam search over any model that keeps the contract; greedy search is a beam of one (see greedy.py).

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

Texts are kept as they were written: `came[b, k, t]` says what hypothesis k wrote as its token t, and which hypothesis it had
been before. So the pool need not copy texts, and log-probabilities are never reordered. Only the histories that constraints read
are.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor

from regard.core.tree import State
from regard.core.types import EOS
from regard.search.config import MAX_HYPOTHESES, SearchConfig
from regard.search.hypothesis import Hypothesis, Live, Scores, Work, firsts
from regard.search.ranking import precise
from regard.search.scoring import coverage_penalty, normalised, reachable

NONE = float("-inf")


@dataclasses.dataclass
class Pool(State):
    """The K best finished hypotheses of every sentence, best first."""

    score: Float[Tensor, "B K"]  # -inf: an empty place
    end: Int[Tensor, "B K"]  # how many tokens, and which hypothesis it was: see `_code`
    last: Float[Tensor, "B K"]  # log-probability of EOS

    def join(self, new: Pool) -> Pool:
        """The best K of both."""
        k = self.score.shape[1]
        score, order = torch.cat([self.score, new.score], 1).sort(dim=1, descending=True, stable=True)
        score, order = score[:, :k], order[:, :k]
        end, last = (torch.cat(both, 1).gather(1, order) for both in ((self.end, new.end), (self.last, new.last)))
        return Pool(score, end, last)


@dataclasses.dataclass
class BeamWork(Work):
    """A beam search under way. A sentence that is done keeps its live hypotheses as they were: the cut ones."""

    pool: Pool
    came: Int[Tensor, "B K T"]  # token and earlier hypothesis: see `_code`; of a single hypothesis nothing


class Ranked(NamedTuple):
    """The first candidates of each sentence."""

    total: Float[Tensor, "B C"]  # the sum of log-probabilities
    parents: Int[Tensor, "B C"]
    tokens: Int[Tensor, "B C"]
    own: Float[Tensor, "B C"]  # the token's own log-probability


class Chosen(NamedTuple):
    """What becomes of the candidates of a step."""

    pool: Pool
    ended: Bool[Tensor, "B K"]  # hypotheses that a finished text came from
    broken: Bool[Tensor, "B"]
    going: Ranked  # K that live on


def _code(number: Tensor, hypothesis: Tensor | int) -> Tensor:
    """A number and a hypothesis as one."""
    return number * MAX_HYPOTHESES + hypothesis


class BeamSearch:
    """The rule by which hypotheses go on, end and are returned."""

    whole = False  # needs few of the scores
    watch: Callable[[Ranked, Tensor | None], None] | None = None  # told of each step's candidates, and of what was seen

    def __init__(self, config: SearchConfig, device: torch.device, most: int):
        """No text has more than `most` tokens."""
        self.config = config
        self.width, self.candidates = config.beam, 2 * config.beam
        self.slots = torch.arange(self.width, device=device)
        numbers = torch.arange(1, most + 2, dtype=precise(device), device=device)
        self.divisors = torch.ones_like(numbers) * config.length_divisor(numbers)  # of texts that end at each place

    def begin(self, work: Work) -> BeamWork:
        live = work.live
        total = live.total.clone()
        total[:, 1:].fill_(NONE)  # equal hypotheses would stay equal for ever
        nothing = torch.zeros_like(total, dtype=torch.long)
        empty = Pool(torch.full_like(total, NONE), nothing, torch.zeros_like(total, dtype=torch.float32))
        fields = {f.name: getattr(work, f.name) for f in dataclasses.fields(Work)}
        fields["live"] = dataclasses.replace(live, total=total)
        written = live.tokens[..., live.tokens.shape[-1] - live.log_probs.shape[-1] :]
        came = _code(written, self.slots[:, None]) if self.width > 1 else written[..., :0]
        return BeamWork(**fields, pool=empty, came=came)

    def extend(
        self, work: BeamWork, scores: Scores, seen: Float[Tensor, "B K S"] | None
    ) -> tuple[BeamWork, Int[Tensor, "B K"] | None]:
        """Writes one token of every hypothesis. `seen` is the coverage with this step's attention added.

        Also gives the parents by which the model's state must be reordered, or None where it need not be.
        """
        live, k = work.live, self.width
        pool, ended, broken, (total, parents, tokens, own) = self._choose(work, scores, seen)
        done = work.done | self._stops(work, pool, total.amax(1))

        # Sentences that are done keep their hypotheses, less those that ended just now: they stand in the pool.
        parents = torch.where(done[:, None], self.slots, parents)
        total = torch.where(done[:, None], live.total.masked_fill(ended, NONE), total)
        covered = live.covered
        if seen is not None and covered is not None:
            going_on = seen.gather(1, parents[..., None].expand_as(seen))
            covered = torch.where(done[:, None, None], covered, going_on)
        history = _History(live.tokens).reorder(parents).tokens if k > 1 else live.tokens
        live = Live(history, live.log_probs, total, covered)
        live.write(work.at, tokens, own)
        if k > 1:
            place = work.at[:, None, None].expand(*parents.shape, 1)
            work.came.scatter_(2, place, _code(tokens, parents)[..., None])
        new = dataclasses.replace(work, live=live, pool=pool, done=done, broken=broken, at=work.at + ~done)
        return new, parents if k > 1 else None

    def _choose(self, work: BeamWork, scores: Scores, seen: Float[Tensor, "B K S"] | None) -> Chosen:
        """What ends, and what goes on."""
        k = self.width
        ranked = self._rank(work, scores, work.live.total.masked_fill(work.done[:, None], NONE))
        if self.watch is not None:
            self.watch(ranked, seen)
        total, parents, tokens, own = ranked
        broken = work.broken | (total[:, 0].isnan() & ~work.done)  # sorting puts nan first
        ends = (tokens == EOS) & (total > NONE)
        first = Ranked(total[:, :k], parents[:, :k], tokens[:, :k], own[:, :k])
        pool = self._finish(work, work.pool, ends[:, :k], first, seen)
        ended = (ends[:, :k, None] & (parents[:, :k, None] == self.slots)).any(1)
        going = ends.byte().sort(dim=1, stable=True).indices[:, :k]  # the first K that do not end
        total = total.masked_fill(ends, NONE)
        return Chosen(pool, ended, broken, Ranked(*(part.gather(1, going) for part in (total, parents, tokens, own))))

    def _rank(self, work: BeamWork, scores: Scores, total: Tensor) -> Ranked:
        own, tokens = scores.largest(self.candidates)  # no hypothesis can give more than are wanted in all
        vocabulary = scores.values.shape[-1]
        code = torch.add(tokens, self.slots[:, None], alpha=vocabulary)
        code, order = code.flatten(1).sort(1)  # by hypothesis, then token
        totals = total[..., None].expand(own.shape).flatten(1)
        own = own.flatten(1).gather(1, order)
        sums = totals + own
        sums, order = sums.sort(dim=1, descending=True, stable=True)
        sums, order = sums[:, : self.candidates], order[:, : self.candidates]
        code = code.gather(1, order)
        return Ranked(sums, code // vocabulary, code % vocabulary, own.gather(1, order))

    def _score(self, work: BeamWork, total: Float[Tensor, "B C"], seen: Float[Tensor, "B C S"] | None) -> Tensor:
        """Of hypotheses that end now."""
        place = (work.at - work.given).clamp(min=0)  # below 0 only where a prompt is still being read
        score = (total - work.base[:, None]) / self.divisors.index_select(0, place)[:, None]
        return score if seen is None else score + coverage_penalty(self.config, seen, work.keep)

    def _finish(self, work: BeamWork, pool: Pool, ends: Tensor, first: Ranked, seen: Tensor | None) -> Pool:
        if seen is not None:
            seen = seen.gather(1, first.parents[..., None].expand(*first.parents.shape, seen.shape[-1]))
        score = self._score(work, first.total, seen).masked_fill(~ends, NONE)
        return pool.join(Pool(score, _code(work.at[:, None], first.parents), first.own))

    def _stops(self, work: BeamWork, pool: Pool, likeliest: Float[Tensor, "B"]) -> Bool[Tensor, "B"]:
        worst = pool.score[:, -1]
        full = worst > NONE
        if self.config.stop == "exact":
            full &= reachable(self.config, likeliest - work.base, work.limit - work.given) <= worst
        return full | (work.at >= work.limit) | (likeliest == NONE)

    def collect(self, work: BeamWork, most: int | None = None) -> list[list[Hypothesis]]:
        """The n-best lists of sentences that are done (`work` on the CPU), of at most `most` (None: `nbest`)."""
        pool, live = work.pool, work.live
        cut = normalised(self.config, live.total - work.base[:, None], (work.at - work.given)[:, None])
        cut = (cut + coverage_penalty(self.config, live.covered, work.keep)).numpy()
        # from here on by numpy, which is the quicker with little
        sentence = np.arange(len(cut))[:, None]
        order = np.argsort(-cut, axis=1, kind="stable")
        # finished ones first, then cut ones; -inf: none
        score = np.concatenate([pool.score.numpy(), cut[sentence, order]], 1)
        end = np.concatenate([pool.end.numpy(), work.at.numpy()[:, None] * MAX_HYPOTHESES + order], 1)
        chosen = np.argsort(score == NONE, axis=1, kind="stable")[:, : most or self.config.nbest]
        score, end, finished = score[sentence, chosen], end[sentence, chosen], chosen < self.width
        last = pool.last.numpy()[sentence, np.minimum(chosen, self.width - 1)]
        length, slot = end // MAX_HYPOTHESES, end % MAX_HYPOTHESES
        tokens, log_probs = self._texts(work, length, slot)
        flat_score, flat_finished, flat_last = (one.ravel().tolist() for one in (score, finished, last))
        size = np.where(score > NONE, length, 0).ravel().tolist()
        texts, own = firsts(tokens, size), firsts(log_probs, size)
        for log_probs_of, whole, of_end in zip(own, flat_finished, flat_last, strict=True):
            if whole:
                log_probs_of.append(of_end)
        found, many = list(map(Hypothesis.of, texts, own, flat_score, flat_finished)), score.shape[1]
        return [[one for one in found[i : i + many] if one.score > NONE] for i in range(0, len(found), many)]

    def _texts(
        self, work: BeamWork, length: NDArray[np.int64], slot: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """The first tokens of some hypotheses, and their log-probabilities, found from the last to the first."""
        most = int(length.max(initial=0))
        live = work.live
        if self.width == 1:
            margin = live.tokens.shape[-1] - live.log_probs.shape[-1]
            return live.tokens[..., margin : margin + most].numpy(), live.log_probs[..., :most].numpy()
        # by place, then sentence and hypothesis
        came, own = (one.flatten(0, 1)[:, :most].numpy().T for one in (work.came, live.log_probs))
        first = (np.arange(len(slot)) * self.width)[:, None]
        path, codes = (np.empty((most, *slot.shape), np.int64) for _ in range(2))
        slot, shortest = slot + first, int(length.min(initial=most))
        for t in range(most - 1, -1, -1):
            path[t], codes[t] = slot, came[t][slot]
            earlier = codes[t] % MAX_HYPOTHESES + first
            slot = earlier if t < shortest else np.where(t < length, earlier, slot)
        log_probs = own[np.arange(most)[:, None, None], path]
        return (codes // MAX_HYPOTHESES).transpose(1, 2, 0), log_probs.transpose(1, 2, 0)


@dataclasses.dataclass
class _History(State):
    tokens: Int[Tensor, "B K N"]
