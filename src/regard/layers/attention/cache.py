"""Keys and values of the target so far, for incremental decoding, with reordering by masks instead of by copying.

Slot k at position l holds what hypothesis k wrote when it was l tokens long. When the beam reorders, nothing moves: `hidden`
says what each hypothesis may see of all K slots, and only its rows are reordered. Copying whole caches would cost more than the
matrix products of a step.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.core.tree import State

NEVER = float("-inf")


@dataclasses.dataclass
class CacheState(State):
    """Pre-allocated caches of all layers. All hypotheses of a sentence are equally long; sentences may differ."""

    brief: ClassVar[bool] = True
    keys: tuple[Float[Tensor, "B H L K Dh"], ...]
    values: tuple[Float[Tensor, "B H L K Dh"], ...]
    hidden: Float[Tensor, "B K LK"]  # added to scores: 0 where a hypothesis finds its own past, -inf elsewhere
    positions: Int[Tensor, "B"]
    filled: int = 0  # an upper bound of positions that the host knows without asking the device
    even: bool = True  # all positions are equal, and `filled` is what they are

    @staticmethod
    def empty(
        sentences: int, beams: int, capacity: int, layers: int, heads: int, width: int, like: Tensor
    ) -> CacheState:
        shape = (sentences, heads, capacity, beams, width // heads)
        return CacheState(
            keys=tuple(like.new_zeros(shape) for _ in range(layers)),
            values=tuple(like.new_zeros(shape) for _ in range(layers)),
            hidden=like.new_full((sentences, beams, capacity * beams), NEVER),
            positions=torch.zeros(sentences, dtype=torch.long, device=like.device),
        )

    @property
    def capacity(self) -> int:
        return self.hidden.shape[2] // self.hidden.shape[1]

    def reorder(self, parents: Int[Tensor, "B K"]) -> CacheState:
        return dataclasses.replace(self, hidden=_Hidden(self.hidden).reorder(parents).rows)

    def within(self, span: int) -> CacheState:
        return dataclasses.replace(self, filled=span - 1, even=False)

    def put(self, sentences: Int[Tensor, "N"], other: Any) -> CacheState:
        merged = super().put(sentences, other)
        return dataclasses.replace(merged, filled=max(self.filled, other.filled), even=False)

    def put_in_place(self, sentences: Int[Tensor, "N"], other: Any) -> None:
        """Only what `other` has read is copied: the rest means nothing yet."""
        self.positions.index_copy_(0, sentences, other.positions)
        self.hidden.index_fill_(0, sentences, NEVER)
        read = other.filled
        if read:
            here = read * self.hidden.shape[1]
            self.hidden[:, :, :here].index_copy_(0, sentences, other.hidden[:, :, :here].to(self.hidden.dtype))
            for mine, new in zip((*self.keys, *self.values), (*other.keys, *other.values), strict=True):
                mine[:, :, :read].index_copy_(0, sentences, new[:, :, :read].to(mine.dtype))

    def next_positions(self, count: int) -> Int[Tensor, "B T"]:
        known = self.__dict__.get("_next")  # all layers ask
        if known is None or known.shape[1] != count:
            known = self.positions[:, None]
            if count > 1:
                known = known + torch.arange(count, device=self.positions.device)
            if not self.even:  # rows that are done may go on
                known = known.clamp(max=self.capacity - 1)
            self._next = known
        return known

    def stored_positions(self, count: int) -> Int[Tensor, "1 LK"]:
        """The positions of all that will be stored once `count` more tokens are: the same in every sentence."""
        beams = self.hidden.shape[1]
        return torch.arange(self.filled + count, device=self.positions.device).repeat_interleave(beams)[None]

    def visible(self, count: int) -> Float[Tensor, "B 1 KT LK"] | None:
        """What is to be added to the scores of cached entries, for each of the next `count` tokens of each hypothesis: 0 where it
        may look, itself included, and -inf elsewhere; None: it may look everywhere."""
        high = self.filled + count
        beams = self.hidden.shape[1]
        if beams == 1 and count == 1 and self.even:
            self.hidden[:, :, self.filled].zero_()
            return None
        # what comes next is written into each hypothesis' own slot
        places = self.next_positions(count)
        if beams > 1:
            own = places[:, None] * beams + torch.arange(beams, device=places.device)[:, None]
        else:
            own = places[:, None]
        self.hidden.scatter_(2, own, 0)
        seen = self.hidden[:, :, : high * beams]
        if count == 1:
            return seen[:, None]
        later = torch.arange(high, device=places.device) > places[:, :, None]  # B T L
        later = later.repeat_interleave(beams, 2)[:, None]
        return seen[:, :, None].masked_fill(later, NEVER).flatten(1, 2)[:, None]

    def write(
        self, layer: int, key: Float[Tensor, "B H KT Dh"], value: Float[Tensor, "B H KT Dh"], count: int
    ) -> tuple[Float[Tensor, "B H LK Dh"], Float[Tensor, "B H LK Dh"]]:
        """Stores the next tokens' keys and values of one layer, in place, and gives all that is stored."""
        beams, high = self.hidden.shape[1], self.filled + count
        stored = []
        for cache, new in ((self.keys[layer], key), (self.values[layer], value)):
            new = new.unflatten(2, (beams, count)).to(cache.dtype)  # B H K T Dh
            if self.even:
                cache[:, :, self.filled : high] = new.transpose(2, 3)
            else:
                new = new.transpose(2, 3)
                cache.scatter_(2, self.next_positions(count)[:, None, :, None, None].expand(new.shape), new)
            stored.append(cache[:, :, :high].flatten(2, 3))
        return stored[0], stored[1]

    def advanced(self, count: int) -> CacheState:
        return dataclasses.replace(self, positions=self.positions + count, filled=self.filled + count)


@dataclasses.dataclass
class _Hidden(State):
    rows: Float[Tensor, "B K LK"]
