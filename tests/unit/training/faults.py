"""Fault injection: file operations that fail from the n-th one on."""

import builtins
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

CHANGES = [(os, name) for name in ("mkdir", "replace", "rename", "fsync")]
OPERATIONS = [*CHANGES, (builtins, "open"), *((os, name) for name in ("open", "unlink", "rmdir", "scandir"))]


class Faults:
    """Counts file operations while armed, and calls `fail` before the n-th and all later ones."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, fail: Callable[[], object], operations=OPERATIONS):
        self.fail, self.at, self.count = fail, 0, 0
        for module, name in operations:
            original = getattr(module, name) if name != "fsync" else lambda _: None  # slow, and no power fails here
            monkeypatch.setattr(module, name, self._wrapped(original))

    def _wrapped(self, original: Callable) -> Callable:
        def operation(*args, **kwargs):
            if self.at:
                self.count += 1
                if self.count >= self.at:
                    self.fail()
            return original(*args, **kwargs)

        return operation

    @contextmanager
    def armed(self, at: int) -> Iterator[None]:
        self.at, self.count = at, 0
        try:
            yield
        finally:
            self.at = 0
