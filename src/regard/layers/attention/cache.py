"""Keys and values of the target so far, for incremental decoding, with reordering by ancestry instead of by copying.

Slot k at position l holds what hypothesis k wrote when it was l tokens long. When the beam reorders, nothing moves:
`ancestry[b, k, l]` says in which slot hypothesis k finds its own past, and attention looks at all K slots through a
mask. Copying whole caches would cost more than the matrix products of a step.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.core.tree import State


@dataclasses.dataclass
class CacheState(State):
    """Pre-allocated caches of all layers. All hypotheses of a sentence are equally long; sentences may differ."""

    keys: tuple[Float[Tensor, "B H L K Dh"], ...]
    values: tuple[Float[Tensor, "B H L K Dh"], ...]
    ancestry: Int[Tensor, "B K L"]
    positions: Int[Tensor, "B"]
    filled: int = 0  # an upper bound of positions that the host knows without asking the device
    even: bool = True  # all positions are equal

    @staticmethod
    def empty(
        sentences: int, beams: int, capacity: int, layers: int, heads: int, width: int, like: Tensor
    ) -> CacheState:
        shape = (sentences, heads, capacity, beams, width // heads)
        return CacheState(
            keys=tuple(like.new_zeros(shape) for _ in range(layers)),
            values=tuple(like.new_zeros(shape) for _ in range(layers)),
            ancestry=torch.arange(beams, device=like.device)[None, :, None].repeat(sentences, 1, capacity),
            positions=torch.zeros(sentences, dtype=torch.long, device=like.device),
        )

    @property
    def capacity(self) -> int:
        return self.ancestry.shape[2]

    def reorder(self, parents: Int[Tensor, "B K"]) -> CacheState:
        ancestry = self.ancestry.gather(1, parents[:, :, None].expand_as(self.ancestry))
        # what comes next is written into each hypothesis' own slot
        own = torch.arange(parents.shape[1], device=parents.device)[None, :, None]
        future = torch.arange(self.capacity, device=parents.device) >= self.positions[:, None]
        return dataclasses.replace(self, ancestry=torch.where(future[:, None], own, ancestry))

    def put(self, sentences: Int[Tensor, "N"], other: Any) -> CacheState:
        merged = super().put(sentences, other)
        return dataclasses.replace(merged, filled=max(self.filled, other.filled), even=False)

    def next_positions(self, count: int) -> Int[Tensor, "B T"]:
        return self.positions[:, None] + torch.arange(count, device=self.positions.device)

    def stored_positions(self, count: int) -> Int[Tensor, "1 LK"]:
        """The positions of all that will be stored once `count` more tokens are: the same in every sentence."""
        beams = self.ancestry.shape[1]
        return torch.arange(self.filled + count, device=self.positions.device).repeat_interleave(beams)[None]

    def visible(self, count: int) -> Bool[Tensor, "B 1 KT LK"] | None:
        """Which cached entries each of the next `count` tokens of each hypothesis may look at, itself included."""
        high = self.filled + count
        sentences, beams, _ = self.ancestry.shape
        if beams == 1 and count == 1 and self.even:
            return None  # everything
        places = torch.arange(high, device=self.positions.device)
        past = places <= self.next_positions(count)[:, :, None]  # B T L
        slots = torch.arange(beams, device=self.positions.device)
        mine = self.ancestry[:, :, :high, None] == slots  # B K L K'
        both = mine[:, :, None] & past[:, None, :, :, None]  # B K T L K'
        return both.reshape(sentences, 1, beams * count, high * beams)

    def write(
        self, layer: int, key: Float[Tensor, "B H KT Dh"], value: Float[Tensor, "B H KT Dh"], count: int
    ) -> tuple[Float[Tensor, "B H LK Dh"], Float[Tensor, "B H LK Dh"]]:
        """Stores the next tokens' keys and values of one layer, in place, and gives all that is stored."""
        sentences, beams, _ = self.ancestry.shape
        rows = torch.arange(sentences, device=self.positions.device)[:, None]
        places = self.next_positions(count)
        high = self.filled + count
        stored = []
        for cache, new in ((self.keys[layer], key), (self.values[layer], value)):
            # B H (K T) Dh -> B T H K Dh, the order that indexing dimensions 0 and 2 gives
            cache[rows, :, places] = new.unflatten(2, (beams, count)).permute(0, 3, 1, 2, 4).to(cache.dtype)
            stored.append(cache[:, :, :high].flatten(2, 3))
        return stored[0], stored[1]

    def advanced(self, count: int) -> CacheState:
        return dataclasses.replace(self, positions=self.positions + count, filled=self.filled + count)
