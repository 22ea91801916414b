"""Tries a trainer out: what memory its largest batches take, and how fast its steps are. The weights are spoilt by it.

On CUDA, memory is what torch's allocator had at most; elsewhere, by how much the process grew, which is coarser.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import numpy as np
import torch
from torch import Tensor

from regard.core.errors import TrainingError
from regard.core.types import PAD, Padded
from regard.data.batching import Batch, Drawn, Place
from regard.training.loop import Trainer
from regard.training.step_time import step_seconds

MOST_SAMPLED, SAMPLING_SECONDS = 2000, 2.0
TIMED_BATCHES = 24
TIMES = 3  # on CUDA a shape is computed, then recorded, then replayed


@dataclasses.dataclass(frozen=True, kw_only=True)
class MemoryUse:
    """Bytes at the largest batch. `activations` are all that is left of the total: temporary tensors, too."""

    weights: int
    gradients: int
    optimizer: int
    activations: int
    total: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sample:
    """Batches of a text: some as they come, and the largest of all that were looked at."""

    usual: list[Batch]
    largest: list[Batch]
    looked_at: int
    seconds_per_batch: float
    epoch_tokens: int | None  # padding included; None where an epoch has more batches than were looked at


def sample(trainer: Trainer) -> Sample:
    """Looks at the first batches of a run."""
    config, on_cuda = trainer.config, trainer.on_cuda
    trainer.progress.multiple = trainer.text.multiple(trainer.model, on_cuda)
    found: list[Batch] = []
    whole, began = None, time.monotonic()
    with trainer.text.open(config, Place(), trainer.progress.multiple, on_cuda) as stream:
        while len(found) < MOST_SAMPLED and time.monotonic() - began < SAMPLING_SECONDS and whole is None:
            drawn = next(stream)
            found.append(cast(Batch, drawn.batch))  # padded ones, whatever train.packed says
            if drawn.next.epoch > 0:
                whole = sum(_tokens(batch) for batch in found)
    took = time.monotonic() - began
    sizes = (_tokens, _attention, lambda batch: batch.target_out.numel())
    largest = {id(batch): batch for batch in (max(found, key=size) for size in sizes)}
    return Sample(
        usual=found[:TIMED_BATCHES],
        largest=list(largest.values()),
        looked_at=len(found),
        seconds_per_batch=took / len(found),
        epoch_tokens=whole,
    )


def _tokens(batch: Batch) -> int:
    return len(batch.target_in) * max(batch.source.tokens.shape[1], batch.target_in.shape[1])


def _attention(batch: Batch) -> int:
    source, target = batch.source.tokens.shape[1], batch.target_in.shape[1]
    return len(batch.target_in) * (source * source + target * target + source * target)


def resized(batch: Batch, factor: float) -> Batch:
    """A batch of so many times the rows: its own, again and again."""
    rows = len(batch.target_in)
    index = torch.arange(max(1, round(rows * factor))) % rows
    source = Padded(batch.source.tokens[index], batch.source.keep[index])
    return Batch(source, batch.target_in[index], batch.target_out[index], [int(i) for i in index])


class Probe:
    """Measures steps of a trainer."""

    def __init__(self, trainer: Trainer):
        self.trainer, self.device = trainer, trainer.device
        trainer.model.train()
        self._resident = resident_bytes()
        self._weights = _bytes(trainer.model.state_dict().values())
        lowered = trainer.lowered
        self._lowered = 0 if lowered is None else _bytes(lowered.model.state_dict().values())
        self._gradients = _bytes(p for p in trainer.model.parameters() if p.requires_grad)

    def memory(self, batches: Sequence[Batch], factor: float = 1.0) -> MemoryUse | None:
        """At the largest batch, with `factor` times its rows; None where it does not fit."""
        gradients = self.trainer.gradients
        gradients.forget()  # of another number of rows
        split = gradients.split
        self._begin()
        try:
            for batch in batches:
                for _ in range(TIMES if self.trainer.on_cuda else 2):
                    self.step([resized(batch, factor)])
            self._wait()
        except TrainingError:
            return None
        finally:
            gradients.forget()
        if gradients.split > split:
            return None
        weights, optimizer = self._weights + self._lowered, _bytes(self.trainer.optimizer.tensors().values())
        total = self._peak()
        rest = total - weights - self._gradients - optimizer
        return MemoryUse(
            weights=weights,
            gradients=self._gradients,
            optimizer=optimizer,
            activations=max(0, rest),
            total=max(total, weights + self._gradients + optimizer),
        )

    def step(self, batches: Sequence[Batch]) -> None:
        self.trainer._step([Drawn(batch, 0, Place(0, 1)) for batch in batches])

    def seconds_per_step(self, batches: Sequence[Batch], seconds: float) -> tuple[float, float]:
        """Of a step, once all shapes have been met; and what the first took, with compiling."""
        accumulate = self.trainer.config.accumulate
        groups = [[batches[(i + j) % len(batches)] for j in range(accumulate)] for i in range(len(batches))]
        began = time.monotonic()
        self.step(groups[0])
        self._wait()
        first = time.monotonic() - began
        for group in groups * (TIMES - 1) if self.trainer.on_cuda else groups[:2]:
            self.step(group)
        self._wait()
        rows: list[dict[str, float | int]] = []
        began, number = time.monotonic(), 0
        while not rows or rows[-1]["seconds"] < seconds:
            self.step(groups[number % len(groups)])
            number += 1
            if not self.trainer.on_cuda or number % len(groups) == 0:  # asking makes the host wait
                self._wait()
                rows.append({"step": number, "seconds": time.monotonic() - began})
        found = step_seconds(rows)
        return found if found is not None else rows[-1]["seconds"] / number, first

    def available(self) -> int | None:
        """Bytes that a run could have, weights included; None where nobody says."""
        if self.trainer.on_cuda:
            free, _ = torch.cuda.mem_get_info(self.device)
            return free + torch.cuda.memory_reserved(self.device)
        free = _of_kernel("/proc/meminfo", "MemAvailable")
        return None if free is None else free + self._weights

    def _wait(self) -> None:
        if self.trainer.on_cuda:
            torch.cuda.synchronize(self.device)

    def _begin(self) -> None:
        if self.trainer.on_cuda:
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats(self.device)
        else:
            forget_peak()

    def _peak(self) -> int:
        """With graphs on CUDA, recordings keep memory of their own, which counts as reserved."""
        if self.trainer.on_cuda:
            recorded = self.trainer.gradients.record
            most = torch.cuda.max_memory_reserved if recorded else torch.cuda.max_memory_allocated
            return most(self.device)
        return max(0, peak_bytes() - self._resident) + self._weights + self._lowered


def target_tokens(batches: Sequence[Batch]) -> float:
    """In the mean, without padding."""
    return float(np.mean([int((batch.target_out != PAD).sum()) for batch in batches]))


def _bytes(tensors) -> int:
    distinct = {t.data_ptr(): t for t in tensors if isinstance(t, Tensor) and t.numel()}  # tied tables count once
    return sum(t.numel() * t.element_size() for t in distinct.values())


def _of_kernel(path: str, name: str) -> int | None:
    """A number of kilobytes that Linux tells, in bytes."""
    try:
        for line in Path(path).read_text(encoding="ascii", errors="replace").splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) << 10
    except (OSError, ValueError, IndexError):
        pass
    return None


def resident_bytes() -> int:
    """Of this process, now."""
    return _of_kernel("/proc/self/status", "VmRSS") or peak_bytes()


def peak_bytes() -> int:
    """Of this process, at most so far."""
    found = _of_kernel("/proc/self/status", "VmHWM")
    if found is not None:
        return found
    import resource
    import sys

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak << 10


def forget_peak() -> None:
    """From now on, the peak is that of now; where the system does not allow that, peaks only grow."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
