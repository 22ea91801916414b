"""Errors of the disk at any file operation that changes something, each write of a file included."""

from __future__ import annotations

import builtins
import io
import os
from typing import Any

import pytest

from faults import CHANGES, Faults


class DiskErrors(Faults):
    """As `Faults`, and a write counts as an operation: one that fails has written half of what it should.

    With `once`, only the n-th operation fails; otherwise all later ones do, too.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, number: int, once: bool = False):
        def fail() -> None:
            if self.count == self.at or not once:
                raise OSError(number, os.strerror(number))

        original = builtins.open

        def opened(file: Any, mode: str = "r", *arguments: Any, **named: Any) -> Any:
            found = original(file, mode, *arguments, **named)
            return _Failing(found, self) if set(mode) & set("wax+") else found

        super().__init__(monkeypatch, fail, CHANGES)
        for module in (builtins, io):
            monkeypatch.setattr(module, "open", opened)


class _Failing:
    """A file that is written to."""

    def __init__(self, file: Any, faults: DiskErrors):
        self._file = file
        self._write = faults._wrapped(file.write)

    def write(self, content: Any) -> int:
        try:
            return self._write(content)
        except OSError:
            self._file.write(content[: len(content) // 2])
            raise

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __enter__(self) -> _Failing:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def __iter__(self) -> Any:
        return iter(self._file)
