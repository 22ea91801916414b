"""Huang et al. 2018, "Music Transformer" (arXiv 1809.04281): Shaw's keys without a gather, by skewing.

    Attention = softmax((Q Kᵀ + S_rel) / √D_h) V   (3)        S_rel = Skew(Q E_rᵀ)   (section 3.4.1)

Q E_rᵀ has a column for every distance; the skew moves row i left by i, so that columns become keys. It is done by padding
and by reading the same numbers with rows of another length.

Departs:
- The paper's skew is for decoders: what it leaves above the diagonal is not meant, and the causal mask hides it. The encoder
  has distances in both directions and a skew of its own, all of which is meant.
- Distances are clipped as in Shaw 2018, where the paper has a vector for every distance of its sequences; set
  `relative_distance` to the longest sequence for that.
- Vectors are shared by the heads unless `relative_per_head`; the paper's are of each head.
- Skewing needs a sequence from its start. Decoding, where sentences stand at different places, gathers.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from regard.layers.attention.relative._base import RELATIVE, Places, RelativeSettings
from regard.layers.attention.relative.shaw import USUAL_DISTANCE, Shaw, clipped


@RELATIVE.register("music")
class Music(Shaw):
    """E_r for the distances -k .. k, of all heads or of each."""

    def __init__(self, distance: int, *, heads: int, head_width: int, causal: bool, per_head: bool = False):
        super().__init__(distance, heads=heads, head_width=head_width, to="keys", per_head=per_head)
        self.causal = causal

    @classmethod
    def make(cls, settings: RelativeSettings, *, heads: int, head_width: int, causal: bool) -> Music:
        return cls(
            settings.relative_distance or USUAL_DISTANCE,
            heads=heads,
            head_width=head_width,
            causal=causal,
            per_head=settings.relative_per_head,
        )

    def place(self, places: Places) -> Int[Tensor, "X"] | Int[Tensor, "#B T S"]:
        """Rows of the table: of a whole sequence for every distance, in order; else for every pair."""
        if not places.whole:
            return super().place(places)
        length = places.key.shape[1]
        return clipped(torch.arange(1 - length, 1 if self.causal else length, device=places.key.device), self.distance)

    def bias(
        self, query: Float[Tensor, "B H T Dh"], placed: Int[Tensor, "X"] | Int[Tensor, "#B T S"]
    ) -> Float[Tensor, "B H T S"] | None:
        if placed.dim() > 1:
            return super().bias(query, placed)
        assert self.a_key is not None
        by_distance = self.compare(query, self.a_key[:, placed])
        return skew_causal(by_distance) if self.causal else skew_both_ways(by_distance)


def skew_causal(x: Float[Tensor, "*N L L"]) -> Float[Tensor, "*N L L"]:
    """x[i, c] is for distance c - (L-1); gives y[i, j] for distance j - i where j <= i, and anything above.

    Pads a column on the left, reads [L, L+1] as [L+1, L] and drops the first row (figure 3).
    """
    length = x.shape[-1]
    return F.pad(x, (1, 0)).flatten(-2).unflatten(-1, (length + 1, length))[..., 1:, :]


def skew_both_ways(x: Float[Tensor, "*N L X"]) -> Float[Tensor, "*N L L"]:
    """x[i, c], X = 2L - 1, is for distance c - (L-1); gives y[i, j] for distance j - i, everywhere.

    With a column more on the right, row i starts at 2L·i = X·i + i: read with rows of X, it has moved right by i.
    """
    length, distances = x.shape[-2:]
    flat = F.pad(x, (0, 1)).flatten(-2)[..., : length * distances]
    return flat.unflatten(-1, (length, distances))[..., length - 1 :]
