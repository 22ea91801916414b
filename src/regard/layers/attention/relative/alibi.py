"""ALiBi: "Train Short, Test Long", Press, Smith & Lewis 2022 (arXiv 2108.12409). Far keys are punished, by each head as it must.

    softmax(q_i Kᵀ / √d + m_h · [-(i-1), .., -2, -1, 0])   (section 3)

The slopes m_h are fixed: 2^(-8/n), 2^(-16/n), .. for n heads, n a power of two. Else those of the nearest smaller power of two,
and between them the first of every second of the next larger one (the authors' code).

Departs:
- The paper is about decoders. In an encoder both directions are punished alike: -m_h |i - j|. So no direction is seen: a source
  and its mirror image would be one, were it not for the end of sentence, whose distance tells both.
- The paper has no absolute positions: set `positions="none"`. Both together are allowed.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from regard.core.distances import slopes
from regard.layers.attention.relative._base import RELATIVE, Places, Relative, RelativeSettings


@RELATIVE.register("alibi")
class ALiBi(Relative):
    """-m_h |i - j|; nothing is learned."""

    one_for_all_layers = True

    def __init__(self, heads: int):
        super().__init__()
        self.register_buffer("slopes", torch.tensor(slopes(heads), device="cpu"), persistent=False)

    @classmethod
    def make(cls, settings: RelativeSettings, *, heads: int, head_width: int, causal: bool) -> ALiBi:
        return cls(heads)

    def place(self, places: Places) -> Float[Tensor, "#B H T S"]:
        return -self.get_buffer("slopes")[:, None, None] * places.distances.abs()[:, None]

    def bias(self, query: Float[Tensor, "B H T Dh"], placed: Float[Tensor, "#B H T S"]) -> Float[Tensor, "#B H T S"]:
        return placed
