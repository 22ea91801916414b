"""How far a long reading is: a live line in a terminal, a plain line every few seconds elsewhere. On standard error."""

from __future__ import annotations

import sys
import time
from types import TracebackType

from rich.console import Console
from rich.status import Status


class LineProgress:
    """Call it with the number of lines so far. Used with `with`, so that the terminal is left as it was."""

    def __init__(self, what: str, every: float = 5.0):
        self.what, self.every = what, every
        self.console = Console(stderr=True, highlight=False)
        self.live: Status | None = None
        if self.console.is_terminal and not self.console.is_dumb_terminal:
            self.live = Status(what, console=self.console)
        self.said = time.monotonic()

    def __enter__(self) -> LineProgress:
        if self.live is not None:
            self.live.start()
        return self

    def __call__(self, lines: int) -> None:
        text = f"{self.what}: {lines:,} lines so far"
        now = time.monotonic()
        if self.live is not None:
            self.live.update(text)
        elif now - self.said >= self.every:
            self.said = now
            print(text, file=sys.stderr, flush=True)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if self.live is not None:
            self.live.stop()
