"""Bounds of settings: configurations come with files from elsewhere, and none may ask for more than a machine has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from regard.core.errors import ConfigError


def check_bounds(section: str, config: Any, sizes: Mapping[str, tuple[int, int]], parts: Iterable[str] = ()) -> None:
    """Raises unless every size lies between its least and most, and every part in [0, 1)."""
    for name, (least, most) in sizes.items():
        value = getattr(config, name)
        if value > most:
            raise ConfigError(f"setting {section}.{name}", f"{value} is more than {most}", "Give a smaller number")
        if value < least:
            wrong = "is negative" if least == 0 else f"is less than {least}"
            todo = f"Give {least} or more" if least == 0 else f"Give at least {least}"
            raise ConfigError(f"setting {section}.{name}", f"{value} {wrong}", todo)
    for name in parts:
        if not 0 <= getattr(config, name) < 1:
            what = f"{getattr(config, name)} is not in [0, 1)"
            raise ConfigError(f"setting {section}.{name}", what, "Give for example 0.1")
