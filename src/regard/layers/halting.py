"""Adaptive computation time (Graves 2016, arXiv 1603.08983, section 2): how much each step of a recurrence in depth counts.

Every step n gives a position the chance h_n that it halts there. It halts at N, the first step at which these add up to
more than 1 - ε, and at the last step at the latest; that step gets the remainder R, and what comes later counts nothing:

    N = min { n : h_1 + .. + h_n > 1 - ε },    R = 1 - (h_1 + .. + h_{N-1})
    p_n = h_n for n < N,    p_N = R,    p_n = 0 for n > N

All is computed for all steps at once, in constant shapes: on CUDA, nothing asks the device.
"""

from __future__ import annotations

from itertools import accumulate
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor


class Halted(NamedTuple):
    """When positions halt: the weights p_n of their steps, which sum to one, and their N and R."""

    weights: Float[Tensor, "steps *N"]
    steps: Int[Tensor, "*N"]
    remainder: Float[Tensor, "*N"]

    @property
    def ponder(self) -> Float[Tensor, "*N"]:
        """N + R (section 2.1), of which only R has a gradient: to lower it is to raise the chances before the last step."""
        return self.steps + self.remainder


def halt(chances: Float[Tensor, "steps *N"], epsilon: float) -> Halted:
    """When positions halt whose steps have these chances, in [0, 1]. Give them in float32: they are added up."""
    up_to = torch.stack(list(accumulate(chances.unbind(), torch.add)))  # cumsum has no deterministic kernel on CUDA
    before = torch.cat((torch.zeros_like(up_to[:1]), up_to[:-1]))
    runs = before <= 1 - epsilon  # h_1 + .. + h_{n-1}: step n is still made
    goes_on = torch.cat((runs[1:], torch.zeros_like(runs[:1])))  # and so is step n + 1; after the last there is none
    rest = (1 - before).where(runs & ~goes_on, 0.0)
    return Halted(chances.where(goes_on, rest), runs.sum(0), rest.sum(0))


def interpolate(weights: Float[Tensor, "steps *N"]) -> Float[Tensor, "steps *N"]:
    """How much each step counts if each result y_n is mixed into those before: y = p_n y_n + (1 - p_n) y, from y = 0.

    That is p_n (1 - p_{n+1}) (1 - p_{n+2}) ..: less than one in sum, unless some p_n is 1. Universal Transformers do so.
    """
    kept, left = [], torch.ones_like(weights[0])
    for p in reversed(weights.unbind()):  # torch's own running product would ask the device when it goes backwards
        kept.append(p * left)
        left = left * (1 - p)
    return torch.stack(kept[::-1])
