"""The location score W q (Luong et al. 2015, eq. 8): attention from the query alone, whatever the keys say.

Departs:
- The paper takes the softmax over all positions that W has, and cuts the weights to the sentence; here, as for all scores,
  the softmax goes over the sentence only, so that the weights of short sentences sum to one.
- The paper ignores the words beyond W's positions; here a sentence that is too long is an error.
"""

from __future__ import annotations

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from regard.core.errors import ModelError
from regard.layers.attention.scores._base import SCORES, Score


@SCORES.register("location")
class Location(Score):
    """W_a h_t: one number for each of at most `limit` source positions."""

    def __init__(self, query_width: int, limit: int):
        super().__init__()
        self.positions = nn.Linear(query_width, limit, bias=False)  # W_a
        self.limit = limit

    @classmethod
    def make(cls, *, query_width: int, key_width: int, width: int, limit: int) -> Score:
        return cls(query_width, limit)

    def prepare(self, keys: Float[Tensor, "B S Dk"]) -> Float[Tensor, "B S 0"]:
        """Nothing but how many keys there are."""
        if keys.shape[1] > self.positions.out_features:
            raise ModelError(
                "the source",
                f"it has {keys.shape[1]} positions, and this location score knows {self.limit}",
                "Shorten the text, or train with a larger limit",
            )
        return keys[:, :, :0]

    def forward(self, query: Float[Tensor, "B N Dq"], prepared: Float[Tensor, "B S 0"]) -> Float[Tensor, "B N S"]:
        return F.linear(query, self.positions.weight[: prepared.shape[1]])
