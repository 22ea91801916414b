"""What search follows and what it returns: hypotheses being written, and written ones."""

from __future__ import annotations

import dataclasses
import math

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.core.tree import Rows, State


@dataclasses.dataclass
class Hypothesis:
    """One text that search found, with its scores."""

    tokens: list[int]  # without BOS and EOS
    score: float  # what it was ranked by: log_prob normalised by length, plus the coverage penalty
    # Sum of the model's own log-probabilities: of the tokens and, if finished, of EOS and, where the model plans, the length.
    log_prob: float
    token_log_probs: list[float]  # one per token, then that of EOS if finished
    finished: bool  # False: cut at the maximum length, or where the constraints left no token to write
    attention: Float[Tensor, "T S"] | None = None  # row t: what was attended when writing token t (then EOS)

    @classmethod
    def read(
        cls, tokens: Int[Tensor, "N"], log_probs: Float[Tensor, "M"], length: int, score: float, finished: bool
    ) -> Hypothesis:
        """From rows of a search's buffers, of which the first `length` places (EOS included) are this hypothesis'."""
        own = log_probs[:length].tolist()
        return cls(tokens[: length - finished].tolist(), score, math.fsum(own), own, finished)


@dataclasses.dataclass
class Live(State):
    """K hypotheses of every sentence that are being written; all rows have read the same number of tokens."""

    tokens: Int[Tensor, "B K N"]  # a margin that ends with BOS (see Constraints.margin), then what was written
    log_probs: Float[Tensor, "B K T"]  # the model's own, of what was written
    total: Float[Tensor, "B K"]  # their sum; -inf: no hypothesis
    covered: Float[Tensor, "B K S"] | None  # attention summed over what was written; None unless coverage asks

    @classmethod
    def begin(
        cls, margin: Int[Tensor, "M"], total: Float[Tensor, "B K"], covered: Float[Tensor, "B K S"] | None
    ) -> Live:
        nothing = total.new_zeros((*total.shape, 0), dtype=torch.float32)
        return cls(margin.expand(*total.shape, -1), nothing, total, covered)

    def after(self, tokens: Int[Tensor, "B T"], log_probs: Float[Tensor, "B T"]) -> Live:
        """All hypotheses with the same tokens at their end."""
        rows = self.total.shape
        longer = torch.cat([self.tokens, tokens[:, None].expand(*rows, -1)], -1)
        own = torch.cat([self.log_probs, log_probs[:, None].expand(*rows, -1)], -1)
        total = self.total + log_probs.to(self.total.dtype).sum(-1)[:, None]
        return dataclasses.replace(self, tokens=longer, log_probs=own, total=total)

    def write(self, tokens: Int[Tensor, "B K"], log_probs: Float[Tensor, "B K"]) -> Live:
        """One more token at the end of every hypothesis."""
        longer = torch.cat([self.tokens, tokens[..., None]], -1)
        return dataclasses.replace(self, tokens=longer, log_probs=torch.cat([self.log_probs, log_probs[..., None]], -1))


@dataclasses.dataclass
class Work(Rows):
    """All that search keeps of the sentences still in the batch. Methods add fields of their own."""

    row: Int[Tensor, "B"]  # which sentence of the caller's batch this is
    limit: Int[Tensor, "B"]  # most tokens it may write, EOS not counted
    keep: Bool[Tensor, "B S"]  # real source positions
    forced: Int[Tensor, "B P"]  # target prefix; -1 where it has ended
    given: Int[Tensor, "B"]  # tokens of a language model's prompt: they do not count in scores; 0 for other models
    base: Float[Tensor, "B"]  # the log-probability of those
    done: Bool[Tensor, "B"]
    broken: Bool[Tensor, "B"]  # the model gave scores that are not numbers
    live: Live
