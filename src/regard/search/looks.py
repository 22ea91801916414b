"""What the host sees of searches that a device is at: copies that arrive while it goes on."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from jaxtyping import Bool
from torch import Tensor

from regard.core.tree import Rows
from regard.search.one_piece import in_one_piece

WHOLE = 1 << 16  # bytes up to which a look brings everything, so that texts need not be asked for when they are done


@dataclasses.dataclass
class Told(Rows):
    """Searches under way, as a host wants to know of them."""

    work: Any  # the method's kind of Work
    fine: Bool[Tensor, "B"]  # whether the prompt, if one was read at once, is possible: if not, the rest means nothing


class Look:
    """A look at searches whose tensors lie in one piece of memory, in memory that stays: `ask`, and later `get`.

    `whole`: whether it brings everything (None: if that is little), or only flags.
    """

    def __init__(self, told: Told, memory: Tensor, whole: bool | None = None):
        self.whole = len(memory) <= WHOLE if whole is None else whole
        flags = (told.fine, told.work.done, told.work.broken)
        size = len(memory) if self.whole else max(flag.storage_offset() + flag.numel() for flag in flags)
        self.there = memory[:size]
        self.work: Any = None  # all of it, where the look is whole
        if self.whole:
            here, self.here = in_one_piece(told, torch.device("cpu"), pinned=memory.is_cuda)
            self.work = here.work
        else:
            self.here = torch.empty(size, dtype=torch.uint8, pin_memory=memory.is_cuda)
        begins = [flag.storage_offset() for flag in flags]
        here = [self.here[begin : begin + flag.numel()] for begin, flag in zip(begins, flags, strict=True)]
        self.fine, self.done, self.broken = (flag.view(torch.bool).numpy() for flag in here)
        self.event = torch.cuda.Event() if memory.is_cuda else None

    def ask(self) -> None:
        self.here.copy_(self.there, non_blocking=True)
        if self.event is not None:
            self.event.record(torch.cuda.current_stream(self.there.device))

    def arrived(self) -> bool:
        return self.event is None or self.event.query()

    def get(self) -> Look:
        """Itself, with all as it was when it was asked for. It stays until the next `ask`."""
        if self.event is not None:
            self.event.synchronize()
        return self


class Arriving:
    """Searches on their way from the device, as they were when this was asked for: their kind of Work."""

    def __init__(self, value: Any):
        self.work, self.event = value.map(_sent), None
        first: Tensor = value.leaves()[0]
        if first.is_cuda:
            self.event = torch.cuda.Event()
            self.event.record(torch.cuda.current_stream(first.device))

    def arrived(self) -> bool:
        return self.event is None or self.event.query()

    def get(self) -> Arriving:
        if self.event is not None:
            self.event.synchronize()
        return self


def _sent(tensor: Tensor) -> Tensor:
    if tensor.device.type != "cuda":
        return tensor.clone()
    return torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True).copy_(tensor, non_blocking=True)
