"""Ctrl-C and SIGTERM while training: the first asks for a checkpoint and an orderly end, the second ends at once."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

from regard.core.files import quoted

SHOW_CURSOR = "\x1b[?25h"  # the live display hides it, and nothing else brings it back where a process ends at once


class Terminated(KeyboardInterrupt):
    """SIGTERM outside of the training loop, where there is nothing to save."""


@contextlib.contextmanager
def terminable() -> Iterator[None]:
    """A context in which SIGTERM ends the work as Ctrl-C does: by an exception."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def on_signal(_number: int, _frame: Any) -> NoReturn:
        raise Terminated

    before = signal.signal(signal.SIGTERM, on_signal)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


class Interruption:
    """A context in which `received` becomes the number of the first SIGINT or SIGTERM.

    The second one ends the process at once and says how the run in `folder` goes on.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self.received: int | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interruption:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._on_signal)
        return self

    def _on_signal(self, number: int, _frame: Any) -> None:
        if self.received is not None:
            with contextlib.suppress(OSError):  # the terminal may be gone
                os.write(2, self._last_words().encode(errors="backslashreplace"))
            os._exit(128 + number)
        self.received = number

    def _last_words(self) -> str:
        resume = f"; go on with: regard train --resume {quoted(self._folder)}" if self._folder is not None else "."
        return ("\n" + SHOW_CURSOR if os.isatty(2) else "") + f"Stopped at once{resume}\n"

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
