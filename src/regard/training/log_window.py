"""What the log is about to say of the steps since its last line: their loss, and how fast they were."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

import torch
from torch import Tensor

from regard.training.run_progress import Progress


class LogWindow:
    """Sums over the steps since the last line of the log, which a checkpoint keeps in the run's progress."""

    def __init__(self, progress: Progress, device: torch.device):
        self.progress, self.device = progress, device
        self._sums: Tensor | None = None
        self._tokens = 0  # of this process
        self._clock, self._busy = time.monotonic(), 0.0

    def begin(self) -> None:
        """The run begins now."""
        self._clock = time.monotonic()

    def add(self, tokens: int, loss: Tensor, nll: Tensor) -> None:
        """Counts a step. Sums stay on the device: asking for them at every step would make the host wait."""
        self.progress.tokens += tokens
        self._tokens += tokens
        if self._sums is None:
            self._sums = torch.tensor([self.progress.loss, self.progress.nll], device=self.device)
        self._sums += torch.stack((loss, nll))

    def read(self) -> None:
        """Brings the sums into the run's progress."""
        if self._sums is not None:
            self.progress.loss, self.progress.nll = self._sums.tolist()

    @contextlib.contextmanager
    def left_out(self) -> Iterator[None]:
        """For validation and saving, whose time is the run's but does not count into tokens per second."""
        self._busy += self._tick()
        yield
        self._tick()

    def tokens_per_second(self) -> int:
        return round(self._tokens / max(1e-9, self._busy + self._tick()))

    def _tick(self) -> float:
        now = time.monotonic()
        elapsed, self._clock = now - self._clock, now
        self.progress.seconds += elapsed
        return elapsed

    def clear(self) -> None:
        """The log has said it."""
        self.progress.loss = self.progress.nll = 0.0
        self.progress.tokens = self._tokens = 0
        self._busy = 0.0
        if self._sums is not None:
            self._sums.zero_()
