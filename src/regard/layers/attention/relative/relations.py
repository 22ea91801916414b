"""Relation-aware attention over a labelled graph (Shaw et al. 2018, section 3.1): every pair of nodes has a label.

Each label has vectors a^K and a^V, which are added to the keys and to the values of the pairs that carry it:

    e_ij = x_i W^Q (x_j W^K + a^K_ij)ᵀ / √d_z   (4)        z_i = Σ_j α_ij (x_j W^V + a^V_ij)   (3)

Sentences are the special case in which the label is the clipped distance (shaw.py).

Departs:
- q·a is computed once for every label, not once for every pair, and then spread over the pairs; likewise weights are summed
  by label before they meet a^V. The sums are those of the equations; [T S D] vectors are never stored.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.layers.attention.multihead import SelfAttention
from regard.layers.attention.relative._base import AddedTo, Places, Relative, RelativeSettings, SchemeAtPlaces


class Relations(Relative):
    """a^K and a^V for R labels, of all heads or of each."""

    def __init__(self, labels: int, *, heads: int, head_width: int, to: AddedTo = "both", per_head: bool = False):
        super().__init__()
        shape = (heads if per_head else 1, labels, head_width)
        self.a_key = None if to == "values" else nn.Parameter(torch.empty(shape))
        self.a_value = None if to == "keys" else nn.Parameter(torch.empty(shape))
        self.adds_values = self.a_value is not None
        for tables in self.parameters():
            for table in tables.data:
                nn.init.xavier_uniform_(table)

    @classmethod
    def make(cls, settings: RelativeSettings, *, heads: int, head_width: int, causal: bool) -> Relative:
        raise NotImplementedError("labels of a graph do not come from positions")

    def place(self, places: Places) -> Int[Tensor, "#B T S"]:
        raise NotImplementedError("labels of a graph do not come from positions")

    def bias(self, query: Float[Tensor, "B H T Dh"], placed: Int[Tensor, "#B T S"]) -> Float[Tensor, "B H T S"] | None:
        if self.a_key is None:
            return None
        by_label = self.compare(query, self.a_key)  # q_i · a^K_r for every label r
        return by_label.gather(-1, _spread(placed, query))

    def values(self, weights: Float[Tensor, "B H T S"], placed: Int[Tensor, "#B T S"]) -> Float[Tensor, "B H T Dh"]:
        assert self.a_value is not None
        labels = self.a_value.shape[1]
        # Σ α_ij over the j that carry each label
        by_label = weights.new_zeros(*weights.shape[:-1], labels).scatter_add(-1, _spread(placed, weights), weights)
        if len(self.a_value) == 1:
            return by_label @ self.a_value[0]
        return torch.einsum("bhtr,hrd->bhtd", by_label, self.a_value)

    @staticmethod
    def compare(query: Float[Tensor, "B H T Dh"], vectors: Float[Tensor, "G R Dh"]) -> Float[Tensor, "B H T R"]:
        """q · a / √d_z with the vectors of all heads (G = 1) or of each (G = H)."""
        query = query / math.sqrt(query.shape[-1])
        if len(vectors) == 1:  # one matrix product; as a batch of equal matrices it would be stored B H times
            return query @ vectors[0].transpose(0, 1)
        return torch.einsum("bhtd,hrd->bhtr", query, vectors)


def _spread(labels: Int[Tensor, "#B T S"], like: Float[Tensor, "B H T X"]) -> Int[Tensor, "B H T S"]:
    return labels[:, None].expand(*like.shape[:3], -1)


class RelationAttention(nn.Module):
    """Multi-head self-attention over the nodes of any graph whose pairs are labelled 0 .. R-1."""

    def __init__(
        self,
        width: int,
        heads: int,
        labels: int,
        *,
        to: AddedTo = "both",
        per_head: bool = False,
        dropout: float = 0.0,
    ):
        super().__init__()
        self.attention = SelfAttention(width, heads, dropout)
        self.relations = Relations(labels, heads=heads, head_width=width // heads, to=to, per_head=per_head)

    def forward(
        self,
        x: Float[Tensor, "B N D"],
        labels: Int[Tensor, "#B N N"],
        keep: Bool[Tensor, "B #H #N N"] | None = None,
        explicit: bool = False,
    ) -> tuple[Float[Tensor, "B N D"], Float[Tensor, "B H N N"] | None]:
        """labels[b, i, j] is how node j stands to node i. `keep` is True where i may look at j (for example: is a node)."""
        placed: Any = labels
        return self.attention(x, keep, False, explicit, SchemeAtPlaces(self.relations, placed))
