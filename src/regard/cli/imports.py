"""Imports that Ctrl-C does not break."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator


@contextlib.contextmanager
def whole_imports() -> Iterator[None]:
    """Ctrl-C waits until the imports are done: some libraries swallow it half-way and are broken from then on."""
    received: list[int] = []
    try:
        before = signal.signal(signal.SIGINT, lambda number, _: received.append(number))
    except ValueError:  # not in the main thread: signals are not ours
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if received:
        raise KeyboardInterrupt
