"""Which positions a query may see: the windows of local attention (Luong et al. 2015, section 3.2), and causal masks.

Local attention sees the source positions s with |s - p_t| <= D around a centre p_t. Positions are counted from 0 and stay
integers; centres may be real.

- local-m (monotonic) takes p_t = t;
- local-p (predictive) takes p_t from `PredictedCentre` and multiplies the softmax over the window with `gaussian`. The
  product is not renormalised: the weights of a query sum to less than one (eq. 10).
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn


class PredictedCentre(nn.Module):
    """p_t = S · sigmoid(v_pᵀ tanh(W_p h_t)) (eq. 9), where S is the true length of each source sentence."""

    def __init__(self, query_width: int, width: int):
        super().__init__()
        self.hidden = nn.Linear(query_width, width, bias=False)  # W_p
        self.v = nn.Parameter(torch.empty(width))  # v_p
        nn.init.uniform_(self.v, -1 / math.sqrt(width), 1 / math.sqrt(width))  # as a linear layer to one number

    def forward(self, query: Float[Tensor, "B N Dq"], lengths: Int[Tensor, "B"]) -> Float[Tensor, "B N"]:
        share = torch.tanh(self.hidden(query)) @ self.v
        return lengths[:, None] * at_least_single(share).sigmoid()


def window_keep(
    centres: Float[Tensor, "B N"] | Int[Tensor, "B N"], source_length: int, half_width: int, keep: Bool[Tensor, "B S"]
) -> Bool[Tensor, "B N S"]:
    """True where |s - p_t| <= D and the source has a word. Padding follows the words, as in `Padded`.

    A centre at or beyond the end counts as the last word, so that no window of local-m lies wholly outside.
    """
    lengths = keep.sum(-1, keepdim=True)
    centres = torch.where(centres < lengths, centres, lengths - 1)
    return (_offsets(centres, source_length).abs() <= half_width) & keep[:, None]


def gaussian(
    centres: Float[Tensor, "B N"] | Int[Tensor, "B N"], source_length: int, sigma: float
) -> Float[Tensor, "B N S"]:
    """exp(-(s - p_t)² / (2σ²)) (eq. 10); the paper takes σ = D/2. A learned centre gets its gradient from here."""
    return torch.exp(_offsets(centres, source_length).square() / (-2 * sigma**2))


def causal_keep(length: int, device: torch.device | None = None) -> Bool[Tensor, "N N"]:
    """True where key s is not after query n: self-attention of a writer, which must not see what it has yet to write."""
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()


def _offsets(centres: Tensor, source_length: int) -> Float[Tensor, "B N S"]:
    """s - p_t."""
    centres = at_least_single(centres)
    return torch.arange(source_length, device=centres.device, dtype=centres.dtype) - centres[:, :, None]


def at_least_single(x: Tensor) -> Tensor:
    """In float32, if not better: bfloat16 cannot tell the positions of a long sentence apart."""
    return x.to(torch.promote_types(x.dtype, torch.float32))
