"""What a model sums over a batch, where several workers have a part of the batch each.

Most of a model sees one row at a time, and adds up whatever rows it is given. What is a mean over the batch, or depends on all of
its rows (batch normalisation), has to ask the others: it divides by `over_all_workers(count)`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

Sum = Callable[[Tensor], Tensor]  # of a tensor over all workers, as a new tensor
_sum: Sum | None = None
asked = 0  # how often; what was recorded on a GPU must not ask


def over_all_workers(part: Tensor) -> Tensor:
    """A sum over this worker's rows into the sum over all rows of the batch; gradients find their way back."""
    global asked
    if _sum is None:
        return part
    asked += 1
    return _Summed.apply(part, _sum) if part.requires_grad else _sum(part)  # type: ignore[return-value]


def norm_over_all_workers(own: Tensor) -> Tensor:
    """The norm of a tensor of which every worker has a part, from that of this worker's."""
    return own if _sum is None else over_all_workers(own.square()).sqrt()


@contextlib.contextmanager
def working_together(sum_over_workers: Sum | None) -> Iterator[None]:
    """While a step is computed. All workers must ask for the same sums, in the same order."""
    global _sum
    before, _sum = _sum, sum_over_workers
    try:
        yield
    finally:
        _sum = before


class _Summed(torch.autograd.Function):
    """Every worker's loss depends on the sum: the gradient of a part is the sum of theirs."""

    @staticmethod
    def forward(ctx: Any, part: Tensor, add: Sum) -> Tensor:
        ctx.add = add
        return add(part)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return ctx.add(gradients[0]), None
