"""What may be written next: banned specials, minimum length, n-gram and loop guards, and the forced prefix.

Everything is computed on the device from the history of each hypothesis, without waiting for it. Sentences may be at different
places: `at` says how many tokens the hypotheses of each have.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.core.types import BOS, EOS, PAD, UNK
from regard.search.config import SearchConfig

LOOP_SIZES = (1, 2, 3, 4)
NEVER = float("-inf")


class Recent(NamedTuple):
    """The end of each history: what the model reads next, and what would close a loop."""

    token: Int[Tensor, "B K"]
    looped: Int[Tensor, "B K n"] | None  # PAD where there is none


class Constraints:
    """Sets the score of what may not be written to -inf; that of all else stays the model's own."""

    def __init__(self, config: SearchConfig, device: torch.device):
        self.config = config
        self.banned = torch.tensor([PAD, BOS, UNK] if config.ban_unknown else [PAD, BOS], device=device)
        # Writing x repeats an n-gram for the (R+1)-th time in a row if x is what stood n places before and the last
        # n(R+1)-1 tokens have period n: n*R-1 comparisons of places n apart. All sizes are compared at once, the
        # shorter ones filled up with comparisons of a place with itself. Places count back from the end.
        repeat = config.max_repeat
        window = max(LOOP_SIZES) * (repeat + 1) - 1 if repeat else 0
        self.pairs = max(LOOP_SIZES) * repeat - 1
        late = [-1 - j if j < n * repeat - 1 else -1 for n in LOOP_SIZES for j in range(self.pairs)]
        early = [-1 - j - n if j < n * repeat - 1 else -1 for n in LOOP_SIZES for j in range(self.pairs)]
        back = [*late, *early, *(-n for n in LOOP_SIZES), -1] if repeat else [-1]
        self.recent = torch.tensor(back, device=device) + window + 1  # places in a history of no tokens
        # Histories begin with values that are no tokens and equal nothing, so that no step is special; BOS comes last,
        # so that the end of a history is always what the model reads next.
        missing = -1 - torch.arange(window, device=device)
        self.margin: Int[Tensor, "M"] = torch.cat([missing, torch.tensor([BOS], device=device)])

    def read(self, history: Int[Tensor, "B K N"], at: Int[Tensor, "B"]) -> Recent:
        """What the next step needs of the histories."""
        places = (at[:, None] + self.recent)[:, None].expand(-1, history.shape[1], -1)
        found = history.gather(2, places)
        if not self.config.max_repeat:
            return Recent(found[..., -1], None)
        sizes = len(LOOP_SIZES)
        late, early, loops, token = found.split((sizes * self.pairs, sizes * self.pairs, sizes, 1), -1)
        looping = (late == early).unflatten(-1, (sizes, self.pairs)).all(-1)
        # PAD is banned anyway: what is not meant is written there.
        return Recent(token[..., 0], loops.where(looping, PAD))

    @property
    def few(self) -> bool:
        """Whether `bans` names all that is forbidden, unless there is a prefix."""
        return not self.config.no_repeat_ngram

    def bans(self, recent: Recent, at: Int[Tensor, "B"], given: Int[Tensor, "B"]) -> Int[Tensor, "B K n"]:
        """The tokens that each hypothesis may not write, besides the specials; PAD stands for none. For what `apply` says."""
        found = [] if recent.looped is None else [recent.looped]
        if self.config.min_length:
            short = at - given < self.config.min_length
            found.append(torch.where(short, EOS, PAD)[:, None, None].expand(*recent.token.shape, 1))
        return torch.cat(found, -1) if found else recent.token[..., None][..., :0]

    def apply(
        self,
        values: Float[Tensor, "B K V"],
        recent: Recent,
        history: Int[Tensor, "B K N"],
        at: Int[Tensor, "B"],
        span: int,
        forced: Int[Tensor, "B P"],
        given: Int[Tensor, "B"],
    ) -> None:
        """Works in place: the output layer's scores are made anew at every step and read by nobody else.

        No sentence has `span` tokens yet. `forced` is a prefix, -1 where it has ended, of width 0 where none is. `given` says
        how many tokens at the beginning of each text do not count for the minimum length.
        """
        token = forced_at(forced, at)[:, None] if forced.shape[1] else None  # B 1 1
        place = None if token is None else token.clamp(min=0).expand(*values.shape[:2], 1)
        own = None if place is None else values.gather(-1, place)  # forced tokens may be banned ones
        values.index_fill_(-1, self.banned, NEVER)
        if self.config.min_length:
            short: Bool[Tensor, "B"] = at - given < self.config.min_length
            values[..., EOS].masked_fill_(short[:, None], NEVER)
        if self.config.no_repeat_ngram:
            self._no_repeat(values, history, at, span)
        if recent.looped is not None:
            values.scatter_(-1, recent.looped, NEVER)
        if token is not None and place is not None and own is not None:
            is_forced: Bool[Tensor, "B 1 1"] = token >= 0
            values.masked_fill_(is_forced, NEVER)
            values.scatter_(-1, place, own.where(is_forced, values.gather(-1, place)))

    def end_at(self, values: Float[Tensor, "B K V"], limit: Int[Tensor, "B"], at: Int[Tensor, "B"]) -> None:
        """Texts of a given length: no EOS before as many tokens as they may have, and nothing else after."""
        ends = torch.arange(values.shape[-1], device=values.device) == EOS
        values.masked_fill_(ends != (at >= limit)[:, None, None], NEVER)

    def _no_repeat(self, values: Tensor, history: Tensor, at: Tensor, span: int) -> None:
        n, margin = self.config.no_repeat_ngram, len(self.margin)
        high = margin + span - 1  # places that any history has
        count = high - (n - 1)
        if count <= 0:
            return
        ends = (at + margin)[:, None, None]
        following = history[..., n - 1 : high]  # what followed each earlier (n-1)-gram
        repeated = (following >= 0) & (torch.arange(n - 1, high, device=history.device) < ends)
        if n > 1:
            last = (ends - torch.arange(n - 1, 0, -1, device=history.device)).clamp(min=0)
            last = history.gather(2, last.expand(*history.shape[:2], -1))
            for i in range(n - 1):
                repeated &= history[..., i : i + count] == last[..., i, None]
        values.scatter_(-1, following.where(repeated, PAD), NEVER)


def forced_at(forced: Int[Tensor, "B P"], at: Int[Tensor, "B"]) -> Int[Tensor, "B 1"]:
    """The forced token at each sentence's place; -1 where there is none."""
    last = forced.shape[1] - 1
    return forced.gather(1, at[:, None].clamp(max=last)).where(at[:, None] <= last, -1)
