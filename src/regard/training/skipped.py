"""Names the batches of steps that were skipped since their loss or gradient was not finite."""

from __future__ import annotations

from typing import Any, NamedTuple

from regard.data.batching import Drawn, Place
from regard.training.progress import Reporter

MOST_NAMED = 5  # batches, and rows of each


class _Taken(NamedTuple):
    place: Place
    rows: list[int]

    def __str__(self) -> str:
        rows = ", ".join(map(str, self.rows[:MOST_NAMED]))
        more = f" and {len(self.rows) - MOST_NAMED} more" if len(self.rows) > MOST_NAMED else ""
        return f"epoch {self.place.epoch}, batch {self.place.position}" + (f" (rows {rows}{more})" if rows else "")


class SkippedBatches:
    """Remembers the batches since it last told of any.

    The optimizer counts on its device. On the CPU every skipped step is known; elsewhere, only the last one before telling is,
    since asking after every step would make the host wait.
    """

    def __init__(self, optimizer: Any, report: Reporter):
        self.optimizer, self.report = optimizer, report
        self._told = int(optimizer.skipped)
        self._taken: dict[int, _Taken] = {}
        self._bad: dict[int, _Taken] = {}

    def remember(self, step: int, epoch: int, position: int, drawn: list[Drawn]) -> None:
        """Before a step: what it is taken with."""
        if self.optimizer.skipped.device.type == "cpu":
            self._note(step - 1)
            self._taken.clear()
        self._taken[step] = _Taken(Place(epoch, position), [row for batch, _, _ in drawn for row in batch.rows])

    def _note(self, step: int) -> None:
        last = int(self.optimizer.last_bad)
        if last in self._taken and last >= step and len(self._bad) < MOST_NAMED:
            self._bad[last] = self._taken[last]

    def tell(self) -> None:
        """Warns of what was skipped since the last time."""
        skipped = int(self.optimizer.skipped)
        if skipped > self._told:
            self._note(0)
            named = "; ".join(f"step {step}: {taken}" for step, taken in self._bad.items())
            self.report.warn(
                f"loss or gradient is not finite, and the weights were left as they were: {named or 'earlier steps'}. "
                f"{skipped} {'step was' if skipped == 1 else 'steps were'} skipped so far, {skipped - self._told} of them now."
            )
        self._told = skipped
        self._taken.clear()
        self._bad.clear()
