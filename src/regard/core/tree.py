"""Values made of tensors with one row per sentence: what a model remembers of the source and of the target so far."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, Self

import torch
from jaxtyping import Int
from torch import Tensor


@dataclasses.dataclass
class Rows:
    """A value made of tensors whose first dimension is the sentence. The fields may nest other `Rows`, tuples and None."""

    def map(self, function: Any, *others: Self) -> Self:
        """Applies a function to every tensor (and the matching tensors of others)."""
        fields = {
            f.name: _map(function, getattr(self, f.name), *(getattr(o, f.name) for o in others))
            for f in dataclasses.fields(self)
        }
        return dataclasses.replace(self, **fields)

    def take(self, sentences: Int[Tensor, "N"]) -> Self:
        """The rows of some sentences, as a new value."""
        return self.map(lambda tensor: tensor.index_select(0, sentences))

    def put(self, sentences: Int[Tensor, "N"], other: Self) -> Self:
        """This value with the rows of some sentences replaced by those of another value of the same shape."""
        return self.map(lambda tensor, new: tensor.index_copy(0, sentences, new.to(tensor.dtype)), other)

    def put_in_place(self, sentences: Int[Tensor, "N"], other: Self) -> None:
        """`put` into these very tensors: for a value whose tensors stay where they are."""
        self.map(lambda tensor, new: tensor.index_copy_(0, sentences, new.to(tensor.dtype)), other)

    def clone(self) -> Self:
        """A copy that stays valid when `advance` consumes the original."""
        return self.map(lambda tensor: tensor.clone())

    def leaves(self) -> list[Tensor]:
        """All tensors, in the order of the fields."""
        found: list[Tensor] = []
        self.map(lambda tensor: (found.append(tensor), tensor)[1])
        return found


def _map(function: Any, value: Any, *others: Any) -> Any:
    if isinstance(value, Tensor):
        return function(value, *others)
    if isinstance(value, Rows):
        return value.map(function, *others)
    if isinstance(value, tuple):
        return tuple(_map(function, *items) for items in zip(value, *others, strict=True))
    return value


@dataclasses.dataclass
class Memory(Rows):
    """What a model keeps of the source: B rows, shared by all hypotheses of a sentence, never copied per hypothesis."""

    def constants(self) -> list[Tensor]:
        """Tensors that belong to no sentence, such as matrices made ready once; `map`, `take` and `put` leave them as they are."""
        return []


@dataclasses.dataclass
class State(Rows):
    """What a model keeps of the target so far. Every tensor starts with [B, K]."""

    brief: ClassVar[bool] = False  # `put_in_place` also takes states that have room for fewer tokens

    def reorder(self, parents: Int[Tensor, "B K"]) -> Self:
        """The state in which hypothesis k of each sentence continues what was hypothesis `parents[b, k]`."""
        sentences, beams = parents.shape
        rows = (parents + torch.arange(0, sentences * beams, beams, device=parents.device)[:, None]).flatten()
        return self.map(lambda tensor: tensor.flatten(0, 1).index_select(0, rows).unflatten(0, (sentences, beams)))

    def within(self, span: int) -> Self:
        """The same, for a step in which no hypothesis that counts has read `span` tokens yet; rows may be at different places.

        Whatever the host would otherwise count from step to step comes from `span`: so the same step can be replayed. Rows that
        have read more, which are done, may go on: what they read means nothing, but must do no harm.
        """
        return self
