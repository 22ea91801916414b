"""Rotary positions: "RoFormer", Su et al. 2021 (arXiv 2104.09864). Queries and keys are turned by their positions.

Pairs of dimensions are turned by m θ_i, θ_i = base^(-2i/d) (eq. 15), so that products depend on m - n only (eq. 16):

    (R_m q)ᵀ (R_n k) = qᵀ R_{n-m} k

Which dimensions make a pair is a matter of layout: neighbours (2i, 2i+1), as in the paper and GPT-J, or i and i + d/2, as in
GPT-NeoX and LLaMA. Each learns as well; weights of one are not weights of the other. Keys are cached turned.

Departs:
- The paper has no absolute positions: set `positions="none"`. Both together are allowed.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.core.errors import ConfigError
from regard.layers.attention.relative._base import RELATIVE, Layout, Places, Relative, RelativeSettings


class Turns(NamedTuple):
    """Cosine and sine of m θ_i for every token and pair, for all heads."""

    cos: Float[Tensor, "#B 1 T I"]
    sin: Float[Tensor, "#B 1 T I"]


def turns(positions: Int[Tensor, "#B T"], head_width: int, base: float) -> Turns:
    """Angles in float32 whatever the weights are: near position 1000, float16 knows only every half of a radian."""
    pairs = torch.arange(0, head_width, 2, device=positions.device)
    theta = torch.exp(pairs * (-math.log(base) / head_width))
    angles = positions[:, None, :, None].float() * theta
    return Turns(angles.cos(), angles.sin())


def rotate(x: Float[Tensor, "B H T Dh"], by: Turns, layout: Layout) -> Float[Tensor, "B H T Dh"]:
    """(a, b) -> (a cos - b sin, a sin + b cos) for every pair (eq. 34)."""
    if layout == "interleaved":
        a, b = x.unflatten(-1, (-1, 2)).unbind(-1)
    else:
        a, b = x.chunk(2, -1)
    turned = (a * by.cos - b * by.sin, a * by.sin + b * by.cos)
    joined = torch.stack(turned, -1).flatten(-2) if layout == "interleaved" else torch.cat(turned, -1)
    return joined.to(x.dtype)


@RELATIVE.register("rotary")
class Rotary(Relative):
    """Turns queries and keys; nothing is learned."""

    one_for_all_layers = True

    def __init__(self, head_width: int, *, layout: Layout, base: float):
        super().__init__()
        self.head_width, self.base = head_width, base
        self.layout: Layout = layout

    @classmethod
    def check(cls, settings: RelativeSettings, head_width: int) -> None:
        if head_width % 2:
            what = f"rotary positions turn pairs: each head needs an even width, got {head_width}"
            raise ConfigError("setting model.heads", what, "Change the heads or the width")
        if not 1 < settings.rotary_base <= 1e12:
            what = f"{settings.rotary_base} is not above 1 and at most 1e12"
            raise ConfigError("setting model.rotary_base", what, "Give for example 10000")

    @classmethod
    def make(cls, settings: RelativeSettings, *, heads: int, head_width: int, causal: bool) -> Rotary:
        return cls(head_width, layout=settings.rotary_layout, base=settings.rotary_base)

    def place(self, places: Places) -> Turns:
        return turns(places.query, self.head_width, self.base)

    def turn(self, x: Float[Tensor, "B H T Dh"], placed: Turns) -> Float[Tensor, "B H T Dh"]:
        return rotate(x, placed, self.layout)
