"""What search follows and what it returns: hypotheses being written, and written ones."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor

from regard.core.tree import Rows, State
from regard.search.ranking import largest


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
    def of(cls, tokens: list[int], log_probs: list[float], score: float, finished: bool) -> Hypothesis:
        """The lists become its own."""
        return cls(tokens, score, math.fsum(log_probs), log_probs, finished)


def firsts(rows: NDArray[Any], sizes: Sequence[int]) -> list[list[Any]]:
    """The first numbers of each row, so many of each.

    They are parts of one list of all: for as many lists besides, the collector of garbage would look through the whole program.
    """
    every, width = rows.ravel().tolist(), rows.shape[-1]
    return [every[row * width : row * width + size] for row, size in enumerate(sizes)]


@dataclasses.dataclass
class Live(State):
    """K hypotheses of every sentence that are being written, in buffers that do not grow.

    What is written goes to the place `Work.at` of each sentence; what stands there and beyond means nothing.
    """

    tokens: Int[Tensor, "B K N"]  # a margin that ends with BOS (see Constraints.margin), then what was written
    log_probs: Float[
        Tensor, "B K T"
    ]  # the model's own, of what was written; a beam does not reorder them (see BeamWork)
    total: Float[Tensor, "B K"]  # their sum; -inf: no hypothesis
    covered: Float[Tensor, "B K S"] | None  # attention summed over what was written; None unless coverage asks

    @classmethod
    def begin(
        cls, margin: Int[Tensor, "M"], total: Float[Tensor, "B K"], covered: Float[Tensor, "B K S"] | None, room: int
    ) -> Live:
        """Nothing written yet, with room for so many tokens."""
        sentences, beams = total.shape
        tokens = margin.new_zeros((sentences, beams, len(margin) + room))
        tokens[..., : len(margin)] = margin
        return cls(tokens, total.new_zeros((sentences, beams, room), dtype=torch.float32), total, covered)

    def after(self, tokens: Int[Tensor, "B T"], log_probs: Float[Tensor, "B T"]) -> Live:
        """All hypotheses with the same tokens at their beginning. Writes into these buffers."""
        count, margin = tokens.shape[1], self.tokens.shape[-1] - self.log_probs.shape[-1]
        self.tokens[..., margin : margin + count] = tokens[:, None]
        self.log_probs[..., :count] = log_probs[:, None]
        total = self.total + log_probs.to(self.total.dtype).sum(-1)[:, None]
        return dataclasses.replace(self, total=total)

    def write(self, at: Int[Tensor, "B"], tokens: Int[Tensor, "B K"], log_probs: Float[Tensor, "B K"]) -> None:
        """One more token of every hypothesis, into these buffers."""
        place = at[:, None, None].expand(*tokens.shape, 1)
        margin = self.tokens.shape[-1] - self.log_probs.shape[-1]
        self.tokens.scatter_(2, place + margin, tokens[..., None])
        self.log_probs.scatter_(2, place, log_probs[..., None])


@dataclasses.dataclass
class Work(Rows):
    """All that search keeps of the sentences still in the batch. Methods add fields of their own.

    A step writes into some of these tensors and replaces others; all keep their shapes.
    """

    row: Int[Tensor, "B"]  # which sentence of the caller's batch this is
    at: Int[Tensor, "B"]  # how many tokens its hypotheses have; stays once it is done
    limit: Int[Tensor, "B"]  # most tokens it may write, EOS not counted
    keep: Bool[Tensor, "B S"]  # real source positions
    forced: Int[Tensor, "B P"]  # target prefix; -1 where it has ended
    given: Int[Tensor, "B"]  # tokens of a language model's prompt: they do not count in scores; 0 for other models
    base: Float[Tensor, "B"]  # the log-probability of those
    done: Bool[Tensor, "B"]
    broken: Bool[Tensor, "B"]  # the model gave scores that are not numbers
    live: Live


@dataclasses.dataclass
class Scores:
    """What the model says of every next token: log-probabilities, or values that give these when `norm` is subtracted."""

    values: Float[Tensor, "B K V"]  # -inf: forbidden
    norm: Float[Tensor, "B K 1"] | None = None
    maxima: Float[Tensor, "B K G"] | None = None  # of groups of values, if known: see `ranking.largest`

    def largest(self, count: int) -> tuple[Float[Tensor, "B K n"], Int[Tensor, "B K n"]]:
        """The largest log-probabilities, and their tokens: see `ranking.largest`."""
        values, tokens = largest(self.values, count, self.maxima)
        return values if self.norm is None else values.float() - self.norm, tokens
