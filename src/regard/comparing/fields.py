"""The fields of a file of a comparison, checked and bounded as they are read."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from regard.core.errors import CheckpointError
from regard.core.files import read_json

FORMAT = 1
MENDING = "Restore it from a copy, or remove it and run the comparison again"
LONGEST = 100_000  # characters of a text


def is_number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)


@dataclasses.dataclass(frozen=True)
class Fields:
    """The fields of a JSON object from a file; one of the wrong type says which file and which field."""

    path: Path
    values: dict[str, Any]

    @classmethod
    def of(cls, path: Path) -> Fields:
        values = read_json(path)
        if not isinstance(values, dict):
            raise CheckpointError(path, "it is not what a comparison writes", MENDING)
        if values.get("format") != FORMAT:
            what = f"its format is {values.get('format')!r}, this version reads {FORMAT}"
            raise CheckpointError(path, what, "Use the version of regard that wrote it")
        return cls(path, values)

    def damaged(self, key: str) -> CheckpointError:
        return CheckpointError(self.path, f"the file is damaged: {key!r} is not what it should be", MENDING)

    def text(self, key: str) -> str:
        value = self.values.get(key)
        if not isinstance(value, str) or len(value) > LONGEST:
            raise self.damaged(key)
        return value

    def one_of(self, key: str, known: Sequence[str]) -> str:
        if self.text(key) not in known:
            raise self.damaged(key)
        return self.text(key)

    def truth(self, key: str) -> bool:
        value = self.values.get(key)
        if not isinstance(value, bool):
            raise self.damaged(key)
        return value

    def whole(self, key: str, optional: bool = False) -> Any:
        """A whole number that is not negative."""
        value = self.values.get(key)
        if value is None and optional:
            return None
        if type(value) is not int or not 0 <= value < 1 << 53:
            raise self.damaged(key)
        return value

    def number(self, key: str, optional: bool = False) -> Any:
        value = self.values.get(key)
        if value is None and optional:
            return None
        if not is_number(value):
            raise self.damaged(key)
        return float(value)  # type: ignore[arg-type]

    def listed(self, key: str, most: int) -> list[Any]:
        value = self.values.get(key)
        if not isinstance(value, list) or len(value) > most:
            raise self.damaged(key)
        return value

    def texts(self, key: str, most: int) -> list[str]:
        items = self.listed(key, most)
        if not all(isinstance(item, str) and len(item) <= LONGEST for item in items):
            raise self.damaged(key)
        return items

    def wholes(self, key: str, most: int) -> list[int]:
        items = self.listed(key, most)
        if not all(type(item) is int for item in items):
            raise self.damaged(key)
        return items

    def section(self, key: str) -> Fields:
        value = self.values.get(key)
        if not isinstance(value, Mapping):
            raise self.damaged(key)
        return Fields(self.path, dict(value))

    def sections(self, key: str, most: int) -> list[Fields]:
        items = self.listed(key, most)
        if not all(isinstance(item, dict) for item in items):
            raise self.damaged(key)
        return [Fields(self.path, item) for item in items]

    def named_texts(self, key: str) -> dict[str, str]:
        section = self.section(key)
        return {name: section.text(name) for name in section.values}
