"""Shows how training goes: a live display in a terminal, plain lines elsewhere."""

from __future__ import annotations

import math
import sys
import time
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn


class Reporter:
    """Where a run says what it does. `quiet` says nothing but warnings."""

    def __init__(self, quiet: bool = False):
        self.quiet, self.silent = quiet, False
        self.console = Console(stderr=True, highlight=False, soft_wrap=True)
        self.live: Progress | None = None
        self.last_line = 0.0

    def say(self, text: str) -> None:
        if not self.quiet:
            self._print(text)

    def warn(self, text: str) -> None:
        if not self.silent:
            self._print(f"Warning: {text}")

    def silence(self) -> None:
        """Of a worker that does what another one tells about."""
        self.quiet = self.silent = True

    def _print(self, text: str) -> None:
        if self.live is not None:
            self.live.console.print(text, markup=False)
        else:
            self.console.print(text, markup=False)

    def begin(self, steps: int, done: int) -> None:
        self.steps, self.began, self.begun_at = steps, time.monotonic(), done
        if not self.quiet and self.console.is_terminal and not self.console.is_dumb_terminal:
            columns = (
                TextColumn("step {task.completed}/{task.total}"),
                BarColumn(bar_width=30),
                TextColumn("{task.fields[state]}"),
            )
            self.live = Progress(*columns, console=self.console, refresh_per_second=4, transient=False)
            self.task = self.live.add_task("train", total=steps, completed=done, state="")
            self.live.start()

    def update(self, step: int, values: dict[str, Any]) -> None:
        """Called whenever a line of the log is written."""
        elapsed = time.monotonic() - self.began
        left = elapsed / max(1, step - self.begun_at) * (self.steps - step)
        state = f"loss {values['nll']:.3f}  {values['tokens_per_second']:,.0f} tokens/s  {clock(left)} left"
        if self.live is not None:
            self.live.update(self.task, completed=step, state=state)
        elif not self.quiet and (elapsed - self.last_line >= 5 or step >= self.steps):
            self.last_line = elapsed
            print(f"step {step}/{self.steps}  {state}", file=sys.stderr, flush=True)

    def end(self) -> None:
        if self.live is not None:
            self.live.stop()
            self.live = None


def clock(seconds: float) -> str:
    if not math.isfinite(seconds):
        return "?"
    minutes, seconds = divmod(int(seconds + 0.5), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"
