"""What may be written next: banned specials, minimum length, n-gram and loop guards, and the forced prefix.

Everything is computed on the device from the history of each hypothesis, without waiting for it.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.core.types import BOS, EOS, PAD, UNK
from regard.search.config import SearchConfig

LOOP_SIZES = (1, 2, 3, 4)
NEVER = float("-inf")


class Constraints:
    """Sets the log-probability of what may not be written to -inf; that of all else stays the model's own."""

    def __init__(self, config: SearchConfig, device: torch.device):
        self.config = config
        self.banned = torch.tensor([PAD, BOS, UNK] if config.ban_unknown else [PAD, BOS], device=device)
        # Writing x repeats an n-gram for the (R+1)-th time in a row if x is what stood n places before and the last
        # n(R+1)-1 tokens have period n: n*R-1 comparisons of places n apart. All sizes are compared at once, the
        # shorter ones filled up with comparisons of a place with itself. Places count back from the end.
        repeat = config.max_repeat
        self.window = max(LOOP_SIZES) * (repeat + 1) - 1 if repeat else 0
        pairs = max(LOOP_SIZES) * repeat - 1
        late = [[-1 - j if j < n * repeat - 1 else -1 for j in range(pairs)] for n in LOOP_SIZES] if repeat else []
        early = [[-1 - j - n if j < n * repeat - 1 else -1 for j in range(pairs)] for n in LOOP_SIZES] if repeat else []
        self.late = self.window + torch.tensor(late, device=device, dtype=torch.long)
        self.early = self.window + torch.tensor(early, device=device, dtype=torch.long)
        self.next = self.window - torch.tensor(LOOP_SIZES, device=device)
        # Histories begin with values that are no tokens and equal nothing, so that no step is special; BOS comes last,
        # so that the end of a history is always what the model reads next.
        missing = -1 - torch.arange(self.window, device=device)
        self.margin: Int[Tensor, "M"] = torch.cat([missing, torch.tensor([BOS], device=device)])

    def apply(
        self,
        log_probs: Float[Tensor, "B K V"],
        history: Int[Tensor, "B K N"],
        forced: Int[Tensor, "B P"],
        given: Int[Tensor, "B"] | None = None,
    ) -> Float[Tensor, "B K V"]:
        """Works in place: the output layer's scores are made anew at every step and read by nobody else.

        `given` says how many tokens at the beginning of each text do not count for the minimum length.
        """
        step = history.shape[-1] - len(self.margin)
        own = log_probs.clone() if step < forced.shape[1] else log_probs  # forced tokens may be banned ones
        log_probs.index_fill_(-1, self.banned, NEVER)
        if given is not None and self.config.min_length:
            log_probs[..., EOS].masked_fill_((step - given < self.config.min_length)[:, None], NEVER)
        elif step < self.config.min_length:
            log_probs[..., EOS] = NEVER
        if self.config.no_repeat_ngram:
            self._no_repeat(log_probs, history)
        if self.config.max_repeat:
            self._no_loop(log_probs, history)
        if step < forced.shape[1]:
            token = forced[:, None, step, None].expand(*history.shape[:2], 1)
            place = token.clamp(min=0)
            only = torch.full_like(own, NEVER).scatter_(-1, place, own.gather(-1, place))
            log_probs = torch.where(token >= 0, only, log_probs)
        return log_probs

    def end_at(self, log_probs: Float[Tensor, "B K V"], limit: Int[Tensor, "B"], step: int) -> Float[Tensor, "B K V"]:
        """Texts of a given length: no EOS before as many tokens as they may have, and nothing else after."""
        ends = torch.arange(log_probs.shape[-1], device=log_probs.device) == EOS
        return log_probs.masked_fill(ends != (step >= limit)[:, None, None], NEVER)

    def _no_repeat(self, log_probs: Tensor, history: Tensor) -> None:
        n = self.config.no_repeat_ngram
        count = history.shape[-1] - (n - 1)
        if count <= 0:
            return
        following = history[..., n - 1 :]  # what followed each earlier (n-1)-gram
        repeated = following >= 0
        for i in range(n - 1):
            repeated &= history[..., i : i + count] == history[..., count + i, None]
        # PAD is banned anyway: the places that are not meant write there.
        log_probs.scatter_(-1, following.where(repeated, PAD), NEVER)

    def _no_loop(self, log_probs: Tensor, history: Tensor) -> None:
        recent = history[..., -self.window :]
        looping = (recent[..., self.late] == recent[..., self.early]).all(-1)  # [B, K, sizes]
        log_probs.scatter_(-1, recent[..., self.next].where(looping, PAD), NEVER)
