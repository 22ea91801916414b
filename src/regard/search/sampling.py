"""Sampling: independent texts drawn from the model, the same for a sentence whatever its batch mates.

At each step the distribution is filtered in this order: constraints (see `constraints`), temperature, top-k (the k
likeliest), nucleus (of what is left, renormalised, the fewest likeliest tokens that together reach `top_p`), min-p
(those at least `min_p` times as likely as the likeliest). A token is drawn by inverting the cumulative distribution:
over tokens ranked by probability, equal ones by lower token, where top-k or the nucleus rank them anyway, otherwise in
the order of the vocabulary.

The random numbers are a function of (seed, the source's tokens or the prompt's, which sample, which step) and of nothing
else. The same sentence twice in a batch is therefore sampled the same twice: ask for more samples instead. Samples are
returned in the order of drawing, not by score, and the same text may come more than once. Log-probabilities are the
model's own, before temperature and filters.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.core.types import EOS, Padded
from regard.search.config import SearchConfig
from regard.search.hypothesis import Hypothesis, Scores, Work
from regard.search.ranking import best, precise
from regard.search.scoring import coverage_penalty, normalised

NONE = float("-inf")
NUCLEUS = 256  # tokens looked at before a whole vocabulary is sorted, which takes longer than a step of the model


@dataclasses.dataclass
class SampleWork(Work):
    """Samples under way; a sentence is done when all its samples are."""

    uniform: Float[Tensor, "B K T"]
    length: Int[Tensor, "B K"]  # log-probabilities of a sample that is over, EOS included if it is finished
    over: Bool[Tensor, "B K"]
    finished: Bool[Tensor, "B K"]


class Sampling:
    """The rule by which samples go on, end and are returned."""

    whole = True  # needs the log-probabilities of all tokens

    def __init__(self, config: SearchConfig, waits: bool = True):
        """`waits`: whether a step may wait for the device where that saves work."""
        self.config, self.waits = config, waits

    def begin(self, work: Work, uniform: Float[Tensor, "B K T"]) -> SampleWork:
        fields = {f.name: getattr(work, f.name) for f in dataclasses.fields(Work)}
        none = torch.zeros_like(work.live.total, dtype=torch.long)
        read = none + work.at[:, None]
        return SampleWork(**fields, uniform=uniform, length=read, over=none.bool(), finished=none.bool())

    def extend(self, work: SampleWork, scores: Scores, seen: Float[Tensor, "B K S"] | None) -> tuple[SampleWork, None]:
        """Draws one token of every sample. `seen` is the coverage with this step's attention added."""
        live, log_probs = work.live, scores.values
        place = work.at[:, None, None].expand(*work.over.shape, 1)
        tokens = draw(self.config, log_probs, work.uniform.gather(2, place)[..., 0], self.waits)
        own = log_probs.gather(-1, tokens[..., None])[..., 0]
        broken = work.broken | (log_probs.amax(-1).isnan().any(1) & ~work.done)
        dead = own == NONE  # the constraints left nothing
        ends = (tokens == EOS) & ~work.over & ~dead
        writes = ~work.over & ~dead & ((work.at < work.limit)[:, None] | ends)
        over = work.over | ends | ~writes
        covered = live.covered
        if seen is not None and covered is not None:
            covered = torch.where(writes[..., None], seen, covered)
        total = torch.where(writes, live.total + own, live.total)
        live = dataclasses.replace(live, total=total, covered=covered)
        live.write(work.at, tokens, own)
        # the last step's places are taken, too: what is written after it must not spoil them
        at = work.at + ~work.done
        length, finished = work.length + writes, work.finished | ends
        changes = {"length": length, "over": over, "finished": finished, "done": over.all(1), "broken": broken}
        return dataclasses.replace(work, live=live, at=at, **changes), None

    def collect(self, work: SampleWork) -> list[list[Hypothesis]]:
        """The samples of sentences that are done (`work` on the CPU)."""
        live = work.live
        score = normalised(self.config, live.total - work.base[:, None], work.length - work.given[:, None])
        score = score + coverage_penalty(self.config, live.covered, work.keep)
        start = live.tokens.shape[-1] - live.log_probs.shape[-1]  # the margin
        lists = []
        for b in range(len(work.row)):
            facts = zip(work.length[b].tolist(), score[b].tolist(), work.finished[b].tolist(), strict=True)
            texts = zip(live.tokens[b, :, start:], live.log_probs[b], strict=True)
            lists.append(
                [
                    Hypothesis.of(tokens[: length - finished].tolist(), own[:length].tolist(), value, finished)
                    for (tokens, own), (length, value, finished) in zip(texts, facts, strict=True)
                ]
            )
        return lists


def draw(
    config: SearchConfig, log_probs: Float[Tensor, "*N V"], uniform: Float[Tensor, "*N"], waits: bool = True
) -> Int[Tensor, "*N"]:
    """One token of each filtered distribution. Where every token is forbidden, any one of them."""
    tokens = None  # in the order of the vocabulary, unless a filter ranks them
    if 0 < config.top_k < log_probs.shape[-1]:
        log_probs, tokens = best(log_probs, config.top_k)
    mass = (log_probs / config.temperature).softmax(-1)
    if config.top_p < 1:
        if tokens is None:
            mass, tokens = _likeliest(mass, config.top_p, waits)
        mass = mass.where(mass.cumsum(-1) - mass < config.top_p, 0)  # what is likelier has not reached top_p yet
    if config.min_p > 0:
        mass = mass.where(mass >= config.min_p * mass.amax(-1, keepdim=True), 0)
    reached = mass.cumsum(-1, dtype=uniform.dtype)
    whole = reached[..., -1:].contiguous()
    place = torch.searchsorted(reached, uniform[..., None] * whole, right=True)  # the first place beyond
    place = place.minimum(torch.searchsorted(reached, whole))  # if rounding made the product the whole
    place = place.clamp(max=reached.shape[-1] - 1)  # if everything is forbidden and nothing is a number
    return (place if tokens is None else tokens.gather(-1, place))[..., 0]


def _likeliest(
    mass: Float[Tensor, "*N V"], share: float, waits: bool
) -> tuple[Float[Tensor, "*N k"], Int[Tensor, "*N k"]]:
    """Ranked tokens that hold at least this share of every distribution, without sorting the vocabulary if few do."""
    if waits:
        ranked, tokens = best(mass, NUCLEUS)
        if not bool((ranked.sum(-1) < share).any()):
            return ranked, tokens
    ranked, tokens = mass.sort(dim=-1, descending=True, stable=True)
    return ranked, tokens


def uniforms(
    config: SearchConfig, source: Padded, limits: Sequence[int], room: int | None = None
) -> Float[Tensor, "B K L"]:
    """Random numbers in [0, 1): a counter-based stream per sentence and sample, one number per step (0 beyond, to fill `room`)."""
    numbers = np.zeros((len(limits), config.nbest, room or max(limits, default=0) + 1))
    tokens, keep = source.tokens.cpu(), source.keep.cpu()
    for b, limit in enumerate(limits):
        sentence = tokens[b][keep[b]].numpy().astype("<i8").tobytes()
        for k in range(config.nbest):
            name = config.seed.to_bytes(8, "little") + k.to_bytes(8, "little") + sentence
            key = int.from_bytes(hashlib.blake2b(name, digest_size=16).digest(), "little")
            numbers[b, k, : limit + 1] = np.random.Generator(np.random.Philox(key=key)).random(limit + 1)
    return torch.from_numpy(numbers).to(precise(source.tokens.device))
