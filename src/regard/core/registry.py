"""Registries that find their members by module name, so that adding one takes one file and no list to edit."""

from __future__ import annotations

import difflib
import importlib
import pkgutil
from collections.abc import Callable, Iterable
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
        """Puts a class under its name. It may come again, as when a notebook's cell is run again; another may not."""

        def add(member: T) -> T:
            if name in self._members and not _same_place(self._members[name], member):
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
            raise ConfigError(f"{self.kind} {name!r}", "there is none of that name", self.advice(name))
        return self._members[name]

    def advice(self, name: str, also: Iterable[str] = ()) -> str:
        """What to do about an unknown name. `also`: further names that are understood."""
        names = list(dict.fromkeys([*also, *self.names()]))
        known = "known: " + ", ".join(names)
        if name in self._modules():
            return f"{name}.py is there, but registers no such name: put `.register({name!r})` over its class ({known})"
        near = difflib.get_close_matches(name, names, n=1)
        return f"Perhaps you mean {near[0]!r} ({known})" if near else f"Choose one that is {known}"


def _same_place(one: object, other: object) -> bool:
    """Two classes of one name in one module: the second was written over the first."""
    places = [(getattr(x, "__module__", None), getattr(x, "__qualname__", None)) for x in (one, other)]
    return places[0] == places[1] and None not in places[0]
