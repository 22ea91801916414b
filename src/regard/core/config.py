"""Configuration as data: TOML and `a.b=c` overrides into frozen dataclasses, with a closed schema.

A default lives in its dataclass and nowhere else. An unknown key is an error that names the nearest known one.
Nothing in a configuration is ever imported or evaluated.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import re
import tomllib
import types
import typing
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from regard.core.errors import ConfigError
from regard.core.type_hints import type_hints

C = TypeVar("C")
MAX_CONFIG_BYTES = 1 << 20
_NUMBER = re.compile(r"[+-]?(\d+\.|\.\d+)([eE][+-]?\d+)?", re.ASCII)


def build(cls: type[C], values: Mapping[str, Any], where: str = "") -> C:
    """Makes a configuration dataclass from plain values, checking every key and type."""
    assert dataclasses.is_dataclass(cls)
    hints = type_hints(cls)
    known = {f.name for f in dataclasses.fields(cls) if f.init}
    kwargs: dict[str, Any] = {}
    for key, value in values.items():
        path = f"{where}.{key}" if where else key
        if key not in known:
            raise ConfigError(f"setting {path}", "there is no such setting", _nearest(key, known, where))
        kwargs[key] = _convert(hints[key], value, path)
    try:
        return cls(**kwargs)
    except TypeError as error:  # a required setting is missing
        raise ConfigError(f"section {where or 'top'}", str(error).split("__init__() ")[-1], "Add it") from None


def _nearest(key: str, known: Iterable[str], where: str) -> str:
    near = difflib.get_close_matches(key, list(known), n=1, cutoff=0.5)
    prefix = f"{where}." if where else ""
    if near:
        return f"Perhaps you mean {prefix}{near[0]}"
    return f"Known settings of {where or 'a recipe'}: {', '.join(sorted(known))}"


def _convert(hint: Any, value: Any, path: str) -> Any:
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        if isinstance(value, hint):
            return value
        if not isinstance(value, Mapping):
            raise ConfigError(f"setting {path}", f"a section is expected, got {value!r}", "Set one of its keys instead")
        return build(hint, value, path)
    if origin in (typing.Union, types.UnionType):
        if value is None and type(None) in args:
            return None
        for arg in args:
            if arg is not type(None):
                try:
                    return _convert(arg, value, path)
                except ConfigError:
                    continue
        raise _wrong_type(path, hint, value)
    if origin is typing.Literal:
        if value in args and type(value) in {type(a) for a in args}:
            return value
        known = [str(a).lower() if isinstance(a, bool) else str(a) for a in args]
        near = difflib.get_close_matches(str(value), known, n=1)
        advice = f"Perhaps you mean {near[0]!r}" if near else "Use one of " + ", ".join(known)
        raise ConfigError(f"setting {path}", f"{value!r} is not one of {', '.join(known)}", advice)
    if origin is tuple:
        items = value if isinstance(value, (list, tuple)) else [value]
        return tuple(_convert(args[0], item, f"{path}[{i}]") for i, item in enumerate(items))
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:
            raise ConfigError(f"setting {path}", "the number is too large", "Give a smaller one") from None
    if hint is float and isinstance(value, float) and not math.isfinite(value):
        raise ConfigError(f"setting {path}", f"{value} is not a finite number", "Give a finite number")
    if hint is int and isinstance(value, float) and value.is_integer():
        return int(value)
    if hint in (int, float, str, bool) and type(value) is hint:
        return value
    raise _wrong_type(path, hint, value)


def _wrong_type(path: str, hint: Any, value: Any) -> ConfigError:
    name = {int: "a whole number", float: "a number", str: "a text", bool: "true or false"}.get(hint, str(hint))
    whole, bracket, _ = path.partition("[")  # an item of a list
    example = f"{whole}=[{_example(hint)}]" if bracket else f"{path}={_example(hint)}"
    return ConfigError(f"setting {path}", f"{name} is expected, got {value!r}", f"Write for example {example}")


def _example(hint: Any) -> str:
    return {int: "8", float: "0.1", str: "name", bool: "true"}.get(hint, "...")


def to_plain(config: Any) -> Any:
    """A configuration as plain dicts, lists and scalars, ready for JSON."""
    if dataclasses.is_dataclass(config) and not isinstance(config, type):
        return {f.name: to_plain(getattr(config, f.name)) for f in dataclasses.fields(config) if f.init}
    if isinstance(config, Mapping):
        return {key: to_plain(value) for key, value in config.items()}
    if isinstance(config, (list, tuple)):
        return [to_plain(value) for value in config]
    return config


def parse_override(text: str) -> tuple[list[str], Any]:
    """`a.b=c` into a path and a value. The value is read as TOML, or as plain text where it is not TOML."""
    path, equals, raw = text.partition("=")
    keys = [key.strip() for key in path.split(".")]
    if not equals or not all(keys):
        raise ConfigError(
            f"override {text!r}", "it is not of the form section.key=value", "Write for example train.steps=1000"
        )
    try:
        value = tomllib.loads(f"v = {raw.strip()}")["v"]
    except (tomllib.TOMLDecodeError, RecursionError):
        value = _loose(raw.strip())
    return keys, value


def _loose(text: str) -> bool | float | str:
    """What people write and TOML does not know: True, FALSE, .5, 1. and plain text."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    return float(text) if _NUMBER.fullmatch(text) else text


def apply_overrides(values: Mapping[str, Any], overrides: Iterable[str]) -> dict[str, Any]:
    """A copy of nested plain values with `a.b=c` overrides set."""
    result = _copy(values)
    for text in overrides:
        keys, value = parse_override(text)
        place = result
        for key in keys[:-1]:
            place = place.setdefault(key, {})
            if not isinstance(place, dict):
                raise ConfigError(
                    f"override {text!r}", f"{key!r} is a value, not a section", "Check the setting's name"
                )
        place[keys[-1]] = value
    return result


def merge(base: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """Nested plain values, those of `more` going over those of `base`."""
    result = _copy(base)
    for key, value in more.items():
        if isinstance(value, Mapping) and isinstance(result.get(key), Mapping):
            result[key] = merge(result[key], value)
        else:
            result[key] = _copy(value) if isinstance(value, Mapping) else value
    return result


def _copy(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _copy(value) if isinstance(value, Mapping) else value for key, value in values.items()}


def read_toml(path: Path) -> dict[str, Any]:
    """Reads a TOML file of bounded size."""
    try:
        if path.stat().st_size > MAX_CONFIG_BYTES:
            raise ConfigError(path, "the recipe is larger than 1 MiB", "Check that it is a recipe")
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except IsADirectoryError:
        raise ConfigError(
            path, "it is a directory, not a recipe", "Give a .toml file or the name of a recipe"
        ) from None
    except OSError as error:
        raise ConfigError(path, f"the recipe cannot be read ({error.strerror})", "Check the path") from None
    except UnicodeDecodeError:
        raise ConfigError(path, "the recipe is not UTF-8 text", "Save it as UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(path, f"the recipe is not valid TOML ({error})", "Mend that line") from None
    except RecursionError:
        raise ConfigError(path, "the recipe is nested too deeply", "Check that it is a recipe") from None
