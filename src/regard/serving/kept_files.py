"""Translated files that wait to be fetched: in memory, few, under names that cannot be guessed, and not for long."""

from __future__ import annotations

import secrets
import time
from collections import OrderedDict
from collections.abc import Callable

KEPT_SECONDS = 900.0


class KeptFiles:
    """At most `most` files. Where there are more, the oldest goes."""

    def __init__(self, most: int, clock: Callable[[], float] = time.monotonic):
        self.most, self._clock = most, clock
        self._files: OrderedDict[str, tuple[float, bytes, str]] = OrderedDict()

    def keep(self, content: bytes, ending: str, media_type: str) -> str:
        """Keeps a file; its name."""
        self._forget()
        name = secrets.token_urlsafe(24) + ending
        self._files[name] = (self._clock() + KEPT_SECONDS, content, media_type)
        while len(self._files) > self.most:
            self._files.popitem(last=False)
        return name

    def get(self, name: str) -> tuple[bytes, str] | None:
        """A file's content and type."""
        self._forget()
        found = self._files.get(name)
        return None if found is None else found[1:]

    def _forget(self) -> None:
        now = self._clock()
        while self._files and next(iter(self._files.values()))[0] <= now:
            self._files.popitem(last=False)
