"""Shows how a whole plan goes: a live line in a terminal, plain lines elsewhere. On standard error."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from typing import Any

from rich.progress import BarColumn, Progress, TextColumn

from regard.comparing.results import Entry, Plan, RunResult
from regard.core.visible_text import visible
from regard.training.progress import Reporter, clock

EVERY = 15.0  # seconds between plain lines


class PlanProgress:
    """Where a comparison says what it does. What is left is judged by what finished runs of an entry have taken."""

    def __init__(self, report: Reporter):
        self.report = report
        self.live: Progress | None = None
        self.taken: dict[str, list[float]] = {}  # seconds of whole runs, by slug
        self.left: list[Entry] = []
        self.number = self.total = 0
        self.where, self.entry = "", None
        self.began = self.spoke = time.monotonic()

    def begin(self, plan: Plan, left: list[tuple[Entry, int]]) -> None:
        """Before the first run; `left` are those that have no result yet."""
        self.total, self.number = len(plan.runs()), len(plan.runs()) - len(left)
        self.left = [entry for entry, _ in left]
        console = self.report.console
        if not self.report.quiet and console.is_terminal and not console.is_dumb_terminal:
            columns = (
                TextColumn("{task.fields[place]}", markup=False),
                BarColumn(bar_width=12),
                TextColumn("{task.fields[state]}", markup=False),
            )
            self.live = Progress(*columns, console=console, refresh_per_second=4, transient=True)
            self.task = self.live.add_task("compare", total=self.total, completed=self.number, place="", state="")
            self.report.live = self.live  # what is said appears above the line
            self.live.start()

    def begin_run(self, entry: Entry, seed: int, resumed: bool) -> None:
        self.number += 1
        self.entry, self.began = entry, time.monotonic()
        self.where = f"[{self.number}/{self.total}] {entry.name}, seed {seed}"
        self._show(0.0, "going on" if resumed else "starting")
        if self.live is None:
            self.report.say(f"{self.where}: {'going on' if resumed else 'training'}, {entry.steps:,} steps")
            self.spoke = time.monotonic()

    def update(self, row: Mapping[str, Any]) -> None:
        """Called again and again with the last line of the run's log."""
        assert self.entry is not None
        step, steps = int(row["step"]), max(1, self.entry.steps)
        state = f"step {step}/{steps}  loss {row.get('nll') or 0:.2f}"
        done = min(1.0, step / steps)
        left = self._seconds_left(done)
        self._show(done, state + (f"  {clock(left)} left" if left is not None else ""))
        if self.live is None and not self.report.quiet and time.monotonic() - self.spoke >= EVERY:
            self.spoke = time.monotonic()
            speed = f"  {row.get('tokens_per_second') or 0:,.0f} tokens/s"
            rest = f"  about {clock(left)} left for all" if left is not None else ""
            print(f"{self.where}: {state}{speed}{rest}", file=sys.stderr, flush=True)

    def measuring(self) -> None:
        self._show(1.0, "translating the test text")

    def finished(self, result: RunResult) -> None:
        assert self.entry is not None
        self.taken.setdefault(self.entry.slug, []).append(time.monotonic() - self.began)
        self.left = self.left[1:]
        bleu, chrf = (result.scores[name].value for name in ("bleu", "chrf"))
        self.report.say(
            f"{self.where}: BLEU {bleu:.2f}, chrF {chrf:.2f}; {result.parameters:,} parameters, "
            f"trained in {clock(result.training.seconds)} ({result.training.tokens_per_second:,.0f} tokens/s), "
            f"decodes {result.decoding.tokens_per_second:,.0f} tokens/s"
        )

    def failed(self, reason: str) -> None:
        self.left = self.left[1:]
        self.report.warn(f"{self.where} failed: {reason}")

    def end(self) -> None:
        if self.live is not None:
            self.live.stop()
            self.live = self.report.live = None

    def _show(self, done: float, state: str) -> None:
        if self.live is not None:
            self.live.update(self.task, completed=self.number - 1 + done, place=visible(self.where, 44), state=state)

    def _seconds_left(self, done: float) -> float | None:
        """Of the whole plan: this run's by its own speed, the others' by finished ones, or else as this one's."""
        if done <= 0 or self.entry is None:
            return None
        whole = (time.monotonic() - self.began) / done
        known = {slug: sum(taken) / len(taken) for slug, taken in self.taken.items()}
        known.setdefault(self.entry.slug, whole)
        usual = sum(known.values()) / len(known)
        return whole * (1 - done) + sum(known.get(entry.slug, usual) for entry in self.left[1:])
