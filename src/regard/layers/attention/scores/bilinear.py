"""The bilinear score qᵀ W k (Luong et al. 2015, section 3.1, "general")."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn

from regard.layers.attention.scores._base import SCORES, Score


@SCORES.register("bilinear")
class Bilinear(Score):
    """h_tᵀ W_a h̄_s. Queries and keys may differ in width."""

    def __init__(self, query_width: int, key_width: int):
        super().__init__()
        self.key = nn.Linear(key_width, query_width, bias=False)  # W_a

    @classmethod
    def make(cls, *, query_width: int, key_width: int, width: int, limit: int) -> Score:
        return cls(query_width, key_width)

    def prepare(self, keys: Float[Tensor, "B S Dk"]) -> Float[Tensor, "B S Dq"]:
        return self.key(keys)

    def forward(self, query: Float[Tensor, "B N Dq"], prepared: Float[Tensor, "B S Dq"]) -> Float[Tensor, "B N S"]:
        return query @ prepared.transpose(1, 2)
