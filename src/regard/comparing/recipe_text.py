"""Settings as the text of a recipe: TOML that reads back as the same values."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any


def to_toml(values: Mapping[str, Any], about: str = "") -> str:
    """Sections of plain values (texts, numbers, truths, lists and tables of them). What is None is left out."""
    parts = [f"about = {_value(about)}\n"] if about else []
    for name, section in values.items():
        lines = [f"{_key(key)} = {_value(value)}" for key, value in section.items() if value is not None]
        parts.append("\n".join([f"[{_key(name)}]", *lines]) + "\n")
    return "\n".join(parts)


def _key(name: str) -> str:
    return name if name and all(c.isascii() and (c.isalnum() or c in "_-") for c in name) else _value(name)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace(
            "\x7f", "\\u007f"
        )  # JSON escapes as TOML does, but for DEL
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    if isinstance(value, Mapping):
        inner = ", ".join(f"{_key(key)} = {_value(item)}" for key, item in value.items() if item is not None)
        return "{" + inner + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_value(item) for item in value) + "]"
    return repr(value)
