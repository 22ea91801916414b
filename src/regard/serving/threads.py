"""The threads of one served model, and what event loops hand to them."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Crew(Generic[T]):
    """Threads that work on what is submitted; the first of them starts with the first of it. `ready` guards all of this."""

    def __init__(self, name: str):
        self.name = name
        self.inbox: deque[T] = deque()
        self.ready = threading.Condition()
        self.ended = False
        self._threads: list[threading.Thread] = []

    def submit(self, one: T) -> None:
        with self.ready:
            if not self._threads:
                self.grow(1)
            self.inbox.append(one)
            self.ready.notify()

    def grow(self, count: int) -> None:
        """Starts threads until there are so many."""
        while len(self._threads) < count:
            self._threads.append(threading.Thread(target=self.run, name=f"regard-{self.name}", daemon=True))
            self._threads[-1].start()

    def end(self, seconds: float | None = None) -> bool:
        """Ends the threads after what they compute at the moment. False: they did not end within so many seconds."""
        with self.ready:
            self.ended = True
            self.ready.notify_all()
        end = None if seconds is None else time.monotonic() + seconds
        for thread in self._threads:
            thread.join(None if end is None else max(0.0, end - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def run(self) -> None:
        """What each thread does, until `ended`."""
        raise NotImplementedError


def call_in(loop: asyncio.AbstractEventLoop, function: Callable[..., None], *values: Any) -> None:
    """Calls a function in an event loop, unless that has been closed meanwhile."""
    try:
        loop.call_soon_threadsafe(function, *values)
    except RuntimeError:
        if not loop.is_closed():
            raise
