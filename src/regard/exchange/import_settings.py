"""Settings of other programs' checkpoints: namespaces, dictionaries and omegaconf's nodes, asked in one way."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from regard.core.errors import CheckpointError
from regard.exchange.restricted_unpickling import Record, TensorView
from regard.exchange.restricted_unpickling_torch import TorchFile


class Settings:
    """Named values of a checkpoint. Asking for one of another type than it should have is an error that names it."""

    def __init__(self, values: Any, where: Path):
        plain = _plain(values)
        if not isinstance(plain, Mapping):
            raise CheckpointError(where, "its settings are missing, or none that are known", "Give a whole checkpoint")
        self._values, self.where = plain, where

    def whole(self, *names: str, usual: int) -> int:
        """A whole number, by the first of some names that is there."""
        value = self._first(names, usual)
        if type(value) is not int:
            raise self._wrong(names[0], value)
        return value

    def yes(self, name: str, usual: bool = False) -> bool:
        value = self._first((name,), usual)
        if type(value) not in (bool, int):
            raise self._wrong(name, value)
        return bool(value)

    def text(self, *names: str, usual: str = "") -> str:
        value = self._first(names, usual)
        if not isinstance(value, str):
            raise self._wrong(names[0], value)
        return value

    def fraction(self, name: str, usual: float) -> float:
        value = self._first((name,), usual)
        if type(value) not in (int, float):
            raise self._wrong(name, value)
        return float(value)

    def refuse(self, name: str, *allowed: Any) -> None:
        """Refuses every value of a setting but these; one that is not there is none of the others."""
        value = self._first((name,), None)
        if value is not None and value not in allowed:
            raise CheckpointError(
                self.where,
                f"{name}={str(value)[:60]!r} is not supported",
                f"Only {' or '.join(map(str, allowed)) or 'a model without it'} can be computed by regard's Transformer",
            )

    def _first(self, names: tuple[str, ...], usual: Any) -> Any:
        return next((self._values[name] for name in names if self._values.get(name) is not None), usual)

    def _wrong(self, name: str, value: Any) -> CheckpointError:
        return CheckpointError(self.where, f"its setting {name}={str(value)[:60]!r} is of the wrong kind", "Check it")


def _plain(values: Any, depth: int = 0) -> Any:
    """What an inert record holds: of a namespace its attributes, of omegaconf's nodes their content."""
    if depth > 8 or not isinstance(values, Record):
        return values
    state = values.state
    if isinstance(state, dict) and isinstance(content := state.get("_content"), dict):
        return {key: _plain(value, depth + 1) for key, value in content.items()}
    if isinstance(state, dict) and "_val" in state:
        return state["_val"]
    return state


def plain_section(values: Any, name: str) -> Any:
    """A section of settings that may be a dictionary, a namespace or a node."""
    found = _plain(values)
    return found.get(name) if isinstance(found, Mapping) else None


def tensors_of(file: TorchFile, table: Any, what: str) -> dict[str, TensorView]:
    """A table of weights; anything else is an error."""
    if not isinstance(table, dict) or not table or not all(isinstance(name, str) for name in table):
        raise CheckpointError(file.path, f"it has no {what}", "Give a whole checkpoint")
    return {name: view for name, view in table.items() if isinstance(view, TensorView)}


class Weights:
    """The tensors of a checkpoint, taken one by one by their own names; none may be left over."""

    def __init__(self, file: TorchFile, views: Mapping[str, TensorView]):
        self.file, self.views = file, views
        self._left = set(views)

    def __contains__(self, name: str) -> bool:
        return name in self.views

    def take(self, name: str, *shape: int) -> Tensor:
        """A tensor in float32; `shape` is what it should have, where that is known."""
        if name not in self.views:
            raise CheckpointError(self.file.path, f"tensor {name!r} is missing", "Give a whole checkpoint")
        if shape and self.views[name].shape != shape:
            what = f"tensor {name!r} has shape {list(self.views[name].shape)}, the settings say {list(shape)}"
            raise CheckpointError(self.file.path, what, "Give a whole checkpoint")
        self._left.discard(name)
        tensor = self.file.tensor(self.views[name])
        if not tensor.is_floating_point():
            raise CheckpointError(self.file.path, f"tensor {name!r} holds {tensor.dtype}", "Use plain weights")
        return tensor

    def same(self, one: str, other: str) -> bool:
        """Whether two names mean one tensor, or two that are equal."""
        if one not in self.views or other not in self.views or self.views[one].shape != self.views[other].shape:
            return False
        if self.views[one] == self.views[other]:
            return True
        first, second = self.file.tensor(self.views[one]), self.file.tensor(self.views[other])
        return bool((first == second).all())

    def skip(self, *endings: str) -> None:
        """Leaves out what changes nothing."""
        self._left = {name for name in self._left if not name.endswith(endings)}

    def done(self) -> None:
        if self._left:
            what = f"tensor {min(self._left)[:80]!r} has no place in regard's Transformer"
            raise CheckpointError(self.file.path, what, "Only plain Transformer translators are read")
