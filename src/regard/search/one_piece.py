"""Values whose tensors lie in one piece of memory: one copy brings all of them from the device to the host, or there."""

from __future__ import annotations

from typing import TypeVar

import torch
from torch import Tensor

from regard.core.tree import Rows

ALIGNED = 256  # bytes, where tensors begin: kernels read what begins so in larger pieces

R = TypeVar("R", bound=Rows)


def in_one_piece(like: R, device: torch.device, pinned: bool = False) -> tuple[R, Tensor]:
    """Room for a value of these shapes and types, and the memory that it is a part of; the smallest tensors come first.

    `pinned`: memory of the host from which and to which a GPU copies by itself.
    """
    leaves = like.leaves()
    sizes = [leaf.numel() * leaf.element_size() for leaf in leaves]
    begins, end = [0] * len(leaves), 0
    for i in sorted(range(len(leaves)), key=sizes.__getitem__):
        begins[i] = end
        end += -(-sizes[i] // ALIGNED) * ALIGNED
    memory = torch.empty(end, dtype=torch.uint8, device=device, pin_memory=pinned)
    parts = iter(
        memory[begin : begin + size].view(leaf.dtype).view(leaf.shape)
        for leaf, begin, size in zip(leaves, begins, sizes, strict=True)
    )
    return like.map(lambda _: next(parts)), memory
