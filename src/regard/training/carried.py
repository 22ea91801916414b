"""The state that a language model carries from batch to batch while it is trained."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from regard.core.errors import CheckpointError
from regard.core.tree import State
from regard.models.base import LanguageModel, Writer

WHOLE = slice(None)


class Carried:
    """The state that goes on from batch to batch, in tensors that stay where they are; nothing for most models."""

    def __init__(self, model: Writer):
        self.model = model if isinstance(model, LanguageModel) and model.carries else None
        self.state: State | None = None

    def at_hand(self, rows: int, place: slice = WHOLE) -> State:
        """The state before the next batch, which has so many rows in all; of those at a place."""
        assert self.model is not None
        if self.state is None:
            self.state = self.model.begin(rows).clone()
        return self.state if place == WHOLE else self.state.map(lambda tensor: tensor[place])

    @torch.no_grad()
    def forget(self) -> None:
        """A text begins: the state is that before any token."""
        if self.state is not None and self.model is not None:
            rows = len(_leaves(self.state)[0])
            self.state.map(lambda tensor, new: tensor.copy_(new), self.model.begin(rows))

    @torch.no_grad()
    def put(self, state: State, place: slice = WHOLE) -> None:
        """What is not finite is 0 instead: a bad step is skipped, and must not spoil all that come after."""
        assert self.state is not None
        self.state.map(lambda tensor, new: tensor[place].copy_(torch.where(new.isfinite(), new, 0)), state)

    def tensors(self) -> dict[str, Tensor] | None:
        return None if self.state is None else {str(i): t for i, t in enumerate(_leaves(self.state))}

    def load(self, tensors: Mapping[str, Tensor], where: str) -> None:
        wrong = CheckpointError(
            where, "the carried state does not fit the model", "Use the version of regard that wrote it"
        )
        if self.model is None or "0" not in tensors:
            raise wrong
        self.state = self.model.begin(len(tensors["0"])).clone()
        own = _leaves(self.state)
        if [tuple(t.shape) for t in own] != [tuple(t.shape) for _, t in sorted(tensors.items(), key=_number)]:
            raise wrong
        for i, tensor in enumerate(own):
            tensor.copy_(tensors[str(i)])


def _number(item: tuple[str, Tensor]) -> int:
    return int(item[0]) if item[0].isdecimal() else -1


def _leaves(state: State) -> list[Tensor]:
    found: list[Tensor] = []
    state.map(lambda tensor: (found.append(tensor), tensor)[1])
    return found
