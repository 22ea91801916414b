"""Checkpoints that are written while training goes on: a copy is taken at once, and a thread brings it to the disk.

What is written, and in which order, is what `Checkpoints` does. One thing is written at a time, and a copy is only taken when the
one of its kind before is on the disk: at most one checkpoint and one set of best weights wait in memory. An error of the disk is
raised by the next call; `settle` waits until all is written.

Whatever happens to a run, at most one interval of its steps is lost. So that training need not wait for the disk for this, there is
a checkpoint in the middle of every interval, too (`due`). One that takes longer to write than half of it, training awaits.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any

import torch
from torch import Tensor

from regard.training.checkpoint import Checkpoints


def taken(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A copy in the memory of the host, in which no later step changes anything, as `save_tensors` wants it."""
    plain = torch.contiguous_format
    return {name: tensor.detach().to("cpu", copy=True, memory_format=plain) for name, tensor in tensors.items()}


class BackgroundSaves:
    """Writes the checkpoints of a run that is being trained."""

    def __init__(self, checkpoints: Checkpoints):
        self.checkpoints = checkpoints
        self.on_disk = 0  # the step that a run which is killed now would go on from
        self._pool: ThreadPoolExecutor | None = None
        self._waiting: dict[str, Future[None]] = {}  # by kind

    def save(
        self,
        step: int,
        *,
        weights: Mapping[str, Tensor],
        optimizer: Mapping[str, Tensor],
        average: Mapping[str, Tensor] | None,
        state: Mapping[str, Any],
        carried: Mapping[str, Tensor] | None = None,
    ) -> None:
        """See `Checkpoints.save`."""
        self._await("step")
        work = partial(
            self._write,
            step,
            weights=taken(weights),
            optimizer=taken(optimizer),
            average=None if average is None else taken(average),
            state=copy.deepcopy(dict(state)),
            carried=None if carried is None else taken(carried),
        )
        self._begin("step", work)

    def due(self, step: int) -> bool:
        """Whether there is a checkpoint after a step: at the end and in the middle of every interval."""
        every = self.checkpoints.every
        return step % every in (0, every // 2)

    def allow(self, step: int) -> None:
        """Returns when a step may be begun: if all ended in it, no more than an interval would be lost."""
        if step - self.on_disk > self.checkpoints.every:
            self._await("step")

    def save_best(self, weights: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
        """See `Checkpoints.save_best`."""
        self._await("best")
        self._begin("best", partial(self.checkpoints.save_best, taken(weights), copy.deepcopy(dict(state))))

    def check(self) -> None:
        """Raises what went wrong with anything written so far, without waiting."""
        for kind in [kind for kind, future in self._waiting.items() if future.done()]:
            self._await(kind)

    def settle(self) -> None:
        """Waits until all is on the disk, and raises what went wrong."""
        for kind in list(self._waiting):
            self._await(kind)

    def close(self) -> None:
        """Ends the thread when all is written. Whoever must know that it is, calls `settle` before."""
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None
        with contextlib.suppress(Exception):
            self.settle()

    def _write(self, step: int, **content: Any) -> None:
        self.checkpoints.save(step, **content)
        self.on_disk = step

    def _begin(self, kind: str, work: Callable[[], None]) -> None:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, thread_name_prefix="checkpoints")
        self._waiting[kind] = self._pool.submit(work)

    def _await(self, kind: str) -> None:
        if (future := self._waiting.pop(kind, None)) is not None:
            future.result()
