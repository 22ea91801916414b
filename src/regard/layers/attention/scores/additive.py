"""The additive score vᵀ tanh(W q + U k) (Bahdanau et al. 2015, appendix A.1.2): a network with one hidden layer."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.layers.attention.scores._base import SCORES, Score

CELLS = 1 << 26  # queries x keys x width that are compared at once: 256 MiB


@SCORES.register("additive")
class Additive(Score):
    """v_aᵀ tanh(W_a s_{i-1} + U_a h_j), without biases, as in the paper. Queries and keys may differ in width."""

    def __init__(self, query_width: int, key_width: int, width: int):
        super().__init__()
        self.query = nn.Linear(query_width, width, bias=False)  # W_a
        self.key = nn.Linear(key_width, width, bias=False)  # U_a
        self.v = nn.Parameter(torch.empty(width))  # v_a
        nn.init.uniform_(self.v, -1 / math.sqrt(width), 1 / math.sqrt(width))  # as a linear layer to one number

    @classmethod
    def make(cls, *, query_width: int, key_width: int, width: int, limit: int) -> Score:
        return cls(query_width, key_width, width)

    def prepare(self, keys: Float[Tensor, "B S Dk"]) -> Float[Tensor, "B S A"]:
        return self.key(keys)

    def compare(
        self, projected_query: Float[Tensor, "B N A"], prepared: Float[Tensor, "B S A"]
    ) -> Float[Tensor, "B N S"]:
        """The score of a query that was projected elsewhere, for decoders that make W_a part of a larger product."""
        most = max(1, CELLS // max(1, prepared.numel()))
        # B N S A; tanh needs only its own result for the gradient, so it may overwrite the sum
        parts = [(part[:, :, None] + prepared[:, None]).tanh_() @ self.v for part in projected_query.split(most, 1)]
        return parts[0] if len(parts) == 1 else torch.cat(parts, 1)

    def forward(self, query: Float[Tensor, "B N Dq"], prepared: Float[Tensor, "B S A"]) -> Float[Tensor, "B N S"]:
        return self.compare(self.query(query), prepared)
