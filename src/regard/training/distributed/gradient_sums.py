"""The gradients of a step, summed over all workers.

They are laid end to end in a few long pieces, so that few messages are sent. The loss is a sum over the tokens of the whole batch,
divided by how many these are; so the sum of the workers' gradients is the gradient of one process with the whole batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

from regard.core.errors import TrainingError
from regard.training.distributed.team import Several

PIECE_BYTES = 32 << 20


class GradientSums:
    """Puts into `.grad` of every parameter what all workers found, and gives the sums of a few numbers beside."""

    def __init__(self, team: Several, parameters: Iterable[tuple[str, nn.Parameter]]):
        self.team = team
        self.named = [(name, p) for name, p in parameters if p.requires_grad]
        self.pieces: list[Tensor] = []
        self.places: list[tuple[str, nn.Parameter, Tensor]] | None = None  # where a gradient stands

    @torch.no_grad()
    def __call__(self, numbers: Sequence[Tensor]) -> list[Tensor]:
        if self.places is None:
            self._lay_out()
        assert self.places is not None
        placed = {name for name, _, _ in self.places}
        for name, p in self.named:
            if p.grad is not None and name not in placed:
                what = f"the weight {name} had no gradient in the first step, and has one now"
                raise TrainingError("workers", what, "Train this model in one process")
        for _, p, place in self.places:
            if p.grad is None:
                place.zero_()
            elif p.grad is not place:
                place.copy_(p.grad)
        beside = torch.stack([number.detach().float() for number in numbers])
        self.team.sum_in_place([*self.pieces, beside])
        for _, p, place in self.places:
            p.grad = place
        return list(beside.unbind())

    def _lay_out(self) -> None:
        """Weights that no worker has a gradient for stay as they are, as they do in one process."""
        there = self.team.add([int(p.grad is not None) for _, p in self.named])
        trained = [(name, p) for (name, p), count in zip(self.named, there, strict=True) if count]
        groups: list[list[tuple[str, nn.Parameter]]] = []
        room = 0
        for name, p in trained:
            size = p.numel() * p.element_size()
            if not groups or size > room or groups[-1][0][1].dtype != p.dtype:
                groups.append([])
                room = max(PIECE_BYTES, size)
            groups[-1].append((name, p))
            room -= size
        self.places = []
        for group in groups:
            piece = torch.zeros(sum(p.numel() for _, p in group), dtype=group[0][1].dtype, device=group[0][1].device)
            self.pieces.append(piece)
            parts = piece.split([p.numel() for _, p in group])
            self.places += [(name, p, part.view_as(p)) for (name, p), part in zip(group, parts, strict=True)]
