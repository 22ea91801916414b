"""The gradients of a step, summed over all workers.

They are laid end to end in a few long pieces, so that few messages are sent. The loss is a sum over the tokens of the whole batch,
divided by how many these are; so the sum of the workers' gradients is the gradient of one process with the whole batch.

A piece travels as soon as the backward pass has all of it, while it goes on with the rest: pieces begin with the weights that the
forward pass uses last. All workers send the same pieces in the same order; what a pass has not come to, they send at its end. If a
batch had to be read anew (it did not fit into memory), what was sent is sent once more.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from regard.core import workers
from regard.core.errors import TrainingError
from regard.training.distributed.team import Several

PIECES = 8  # of a model's gradients, unless they become too short or too long for it:
SHORTEST, LONGEST = 1 << 20, 32 << 20  # bytes


class GradientSums:
    """Puts into `.grad` of every parameter what all workers found, and gives the sums of a few numbers beside."""

    def __init__(self, team: Several, parameters: Iterable[tuple[str, nn.Parameter]]):
        self.team = team
        self.named = {name: p for name, p in parameters if p.requires_grad}
        self.pieces: list[Tensor] = []
        self.places: dict[str, tuple[Tensor, int]] | None = None  # where a gradient stands, and in which piece
        self.overlaps = self.begun = self.anew = False
        self.missing: list[int] = []
        self.there: set[str] = set()
        self.sent: list[Any] = []
        self._asked = workers.asked
        for name, p in self.named.items():
            p.register_post_accumulate_grad_hook(partial(self._arrived, name))

    def begin(self) -> None:
        """The next backward pass is the only one of the step: what it is through with may travel. All workers say so, or none."""
        if self.overlaps and self.places is not None:
            self.begun, self.anew, self.there, self.sent = True, False, set(), []
            self.missing = [0] * len(self.pieces)
            for _, piece in self.places.values():
                self.missing[piece] += 1

    @torch.no_grad()
    def _arrived(self, name: str, p: Tensor) -> None:
        if not self.begun or self.places is None or name not in self.places:
            return
        if p.is_cuda and torch.cuda.is_current_stream_capturing():
            return  # it is recorded, not computed
        if name in self.there:
            self.anew = True
            return
        assert p.grad is not None
        self.there.add(name)
        place, piece = self.places[name]
        place.copy_(p.grad)
        self.missing[piece] -= 1
        while len(self.sent) < len(self.pieces) and not self.missing[len(self.sent)]:
            self.sent.append(self.team.send(self.pieces[len(self.sent)]))

    @torch.no_grad()
    def __call__(self, numbers: Sequence[Tensor]) -> list[Tensor]:
        if self.places is None:
            self._lay_out()
        assert self.places is not None
        for name, p in self.named.items():
            if p.grad is not None and name not in self.places:
                what = f"the weight {name} had no gradient in the first step, and has one now"
                raise TrainingError("workers", what, "Train this model in one process")
        beside = torch.stack([number.detach().float() for number in numbers])
        already = len(self.sent) if self.begun else 0
        self._fill(already)
        rest = [self.team.send(tensor) for tensor in (*self.pieces[already:], beside)]
        self.team.await_sent([*self.sent[:already], *rest])
        if self.begun and self.team.add([int(self.anew and already > 0)])[0]:
            self._fill()
            self.team.await_sent([self.team.send(piece) for piece in self.pieces])
        self.begun, self.sent = False, []
        for name, (place, _) in self.places.items():
            self.named[name].grad = place
        return list(beside.unbind())

    def _fill(self, begin: int = 0) -> None:
        """Puts the gradients of this worker into their places, from a piece on."""
        assert self.places is not None
        for name, (place, piece) in self.places.items():
            if piece >= begin:
                gradient = self.named[name].grad
                place.zero_() if gradient is None else place.copy_(gradient)

    def _lay_out(self) -> None:
        """Weights that no worker has a gradient for stay as they are, as they do in one process."""
        asked = self.team.add([workers.asked - self._asked])[0]
        there = self.team.add([int(p.grad is not None) for p in self.named.values()])
        order = [name for name, count in zip(self.named, there, strict=True) if count][::-1]
        groups: list[list[str]] = []
        most = max(SHORTEST, min(LONGEST, sum(_bytes(self.named[name]) for name in order) // PIECES))
        room = 0
        for name in order:
            size = _bytes(self.named[name])
            if not groups or size > room or self.named[groups[-1][0]].dtype != self.named[name].dtype:
                groups.append([])
                room = max(most, size)
            groups[-1].append(name)
            room -= size
        self.places = {}
        for number, group in enumerate(groups):
            weights = [self.named[name] for name in group]
            piece = torch.zeros(sum(p.numel() for p in weights), dtype=weights[0].dtype, device=weights[0].device)
            self.pieces.append(piece)
            for name, p, part in zip(group, weights, piece.split([p.numel() for p in weights]), strict=True):
                self.places[name] = (part.view_as(p), number)
        self.overlaps = (
            len(groups) > 1 and not asked
        )  # a model that asks the others as it goes must not meet pieces on the way


def _bytes(p: Tensor) -> int:
    return p.numel() * p.element_size()


def worth_hiding(model: nn.Module) -> bool:
    """Whether sending a model's gradients takes so long that it had better be hidden than its steps be recorded."""
    return sum(_bytes(p) for p in model.parameters() if p.requires_grad) > LONGEST
