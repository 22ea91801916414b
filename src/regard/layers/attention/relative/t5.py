"""T5's relative positions: Raffel et al. 2020, section 2.1 (arXiv 1910.10683). One number per head and bucket of distances.

Half of the buckets are for single distances, the other half for ranges that grow with the logarithm up to a longest distance;
all beyond it share the last. Where both directions are seen, half of all buckets are for later words. The numbers are added
to the scores of every layer: the layers of a stack share them.

Departs:
- T5 does not divide q·k by √d, and starts with query matrices that are √d smaller instead. Here q·k stays divided: the same
  functions and the same start, but Adam, whose steps do not know the size of a matrix, takes larger ones there.
- Bucket limits are whole numbers found once, so that no rounding of a logarithm on some device moves a distance over them.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.core.distances import bucket_starts
from regard.core.errors import ConfigError
from regard.layers.attention.relative._base import RELATIVE, Places, Relative, RelativeSettings

USUAL_DISTANCE = 128


@RELATIVE.register("t5")
class T5(Relative):
    """A learned number for every head and bucket."""

    one_for_all_layers = True

    def __init__(self, buckets: int, distance: int, *, heads: int, head_width: int, causal: bool):
        super().__init__()
        self.causal = causal
        self.each_way = buckets if causal else buckets // 2
        starts = torch.tensor(bucket_starts(self.each_way, distance), device="cpu")
        self.register_buffer("starts", starts, persistent=False)
        self.table = nn.Embedding(buckets, heads)
        nn.init.normal_(self.table.weight, std=(heads * head_width) ** -0.5)  # as in T5's code

    @classmethod
    def check(cls, settings: RelativeSettings, head_width: int) -> None:
        buckets, distance = settings.relative_buckets, settings.relative_distance or USUAL_DISTANCE
        if distance <= buckets // 2:
            raise ConfigError(
                "setting model.relative_distance",
                f"{distance} leaves no distances for the upper half of {buckets} buckets",
                f"Give more than {buckets // 2}, or fewer buckets",
            )

    @classmethod
    def make(cls, settings: RelativeSettings, *, heads: int, head_width: int, causal: bool) -> T5:
        distance = settings.relative_distance or USUAL_DISTANCE
        return cls(settings.relative_buckets, distance, heads=heads, head_width=head_width, causal=causal)

    def buckets(self, distances: Int[Tensor, "*N"]) -> Int[Tensor, "*N"]:
        """The bucket of j - i."""
        before = -distances.clamp(max=0) if self.causal else distances.abs()
        bucket = torch.bucketize(before, self.get_buffer("starts"), right=True)
        return bucket if self.causal else bucket + self.each_way * (distances > 0)

    def place(self, places: Places) -> Float[Tensor, "#B H T S"]:
        return self.table(self.buckets(places.distances)).permute(0, 3, 1, 2)

    def bias(self, query: Float[Tensor, "B H T Dh"], placed: Float[Tensor, "#B H T S"]) -> Float[Tensor, "#B H T S"]:
        return placed
