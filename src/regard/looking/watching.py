"""Sees what goes into the parts of a model and what comes out of them, while it runs once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Self

from torch import Tensor, nn


class Call(NamedTuple):
    """One use of a part."""

    inputs: tuple[Any, ...]
    output: Any


class Watched:
    """A context in which every call of the named parts is kept, in order. Nothing is changed, and nothing is left behind."""

    def __init__(self, parts: Mapping[str, nn.Module]):
        self.parts = parts
        self.calls: dict[str, list[Call]] = {name: [] for name in parts}
        self._handles: list[Any] = []

    def __enter__(self) -> Self:
        for name, module in self.parts.items():

            def keep(module: nn.Module, inputs: Any, output: Any, name: str = name) -> None:
                self.calls[name].append(Call(inputs, output))

            self._handles.append(module.register_forward_hook(keep))
        return self

    def __exit__(self, *_: object) -> None:
        for handle in self._handles:
            handle.remove()

    def input(self, name: str, call: int = 0) -> Tensor:
        return self.calls[name][call].inputs[0]

    def output(self, name: str, call: int = 0) -> Tensor:
        found = self.calls[name][call].output
        return found[0] if isinstance(found, tuple) else found
