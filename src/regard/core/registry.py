"""Registries that find their members by module name, so that adding one takes one file and no list to edit."""

from __future__ import annotations

import difflib
import importlib
import pkgutil
from collections.abc import Callable
from typing import Generic, TypeVar

from regard.core.errors import ConfigError

T = TypeVar("T")


class Registry(Generic[T]):
    """Names to classes. A name is looked up in the module of that name inside `package`, imported when first asked for.

    A module may register further names (`transformer_big` in `transformer.py`): these are found by importing all.
    Names come from configurations, so they are only ever compared with the files that the package really has.
    """

    def __init__(self, kind: str, package: str):
        self.kind, self.package = kind, package
        self._members: dict[str, T] = {}

    def register(self, name: str) -> Callable[[T], T]:
        def add(member: T) -> T:
            if name in self._members:
                raise ValueError(f"{self.kind} {name!r} is registered twice")
            self._members[name] = member
            return member

        return add

    def _modules(self) -> list[str]:
        package = importlib.import_module(self.package)
        return [m.name for m in pkgutil.iter_modules(package.__path__) if not m.name.startswith("_")]

    def names(self) -> list[str]:
        """All registered names; imports the whole package."""
        for module in self._modules():
            importlib.import_module(f"{self.package}.{module}")
        return sorted(self._members)

    def get(self, name: str) -> T:
        if name not in self._members and name in self._modules():
            importlib.import_module(f"{self.package}.{name}")
        if name not in self._members and name not in self.names():
            raise ConfigError(f"{self.kind} {name!r}", "there is none of that name", self._advice(name))
        return self._members[name]

    def _advice(self, name: str) -> str:
        near = difflib.get_close_matches(name, self.names(), n=1)
        known = "known: " + ", ".join(self.names())
        return f"Perhaps you mean {near[0]!r} ({known})" if near else f"Choose one that is {known}"
