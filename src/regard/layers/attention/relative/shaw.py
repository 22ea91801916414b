"""Shaw, Uszkoreit & Vaswani 2018, "Self-Attention with Relative Position Representations" (arXiv 1803.02155).

Words are the nodes of a graph (relations.py) whose labels are distances, clipped at k:  a_ij = w_clip(j - i, k).
By default vectors are shared by the heads and each layer has its own, as in the paper.

Departs:
- The paper has no absolute positions: set `positions="none"`. Both together are allowed.
- In the decoder the vectors of later words, k of 2k + 1, are never read; they are there so that both stacks are one thing.
"""

from __future__ import annotations

from jaxtyping import Int
from torch import Tensor

from regard.layers.attention.relative._base import RELATIVE, AddedTo, Places, RelativeSettings
from regard.layers.attention.relative.relations import Relations

USUAL_DISTANCE = 16  # of the paper's base model


@RELATIVE.register("shaw")
class Shaw(Relations):
    """w^K and w^V for the distances -k .. k."""

    def __init__(self, distance: int, *, heads: int, head_width: int, to: AddedTo = "both", per_head: bool = False):
        super().__init__(2 * distance + 1, heads=heads, head_width=head_width, to=to, per_head=per_head)
        self.distance = distance

    @classmethod
    def make(cls, settings: RelativeSettings, *, heads: int, head_width: int, causal: bool) -> Shaw:
        return cls(
            settings.relative_distance or USUAL_DISTANCE,
            heads=heads,
            head_width=head_width,
            to=settings.relative_to,
            per_head=settings.relative_per_head,
        )

    def place(self, places: Places) -> Int[Tensor, "#B T S"]:
        return clipped(places.distances, self.distance)


def clipped(distances: Int[Tensor, "*N"], k: int) -> Int[Tensor, "*N"]:
    """clip(x, k) = max(-k, min(k, x)), counted from 0."""
    return distances.clamp(-k, k) + k
