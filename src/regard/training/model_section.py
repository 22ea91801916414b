"""The model's section of a recipe: which settings it may have depends on the model that its `name` asks for."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from regard.core import config as configuration
from regard.core.errors import ConfigError
from regard.models.base import MODELS

DEFAULT = "transformer"


def build_model_config(section: Mapping[str, Any]) -> Any:
    """The section's plain values into the checked configuration of its model."""
    cls = config_class(section)
    known = settings_of(cls)
    for key in section:
        if key not in known and (others := models_with(key)):
            name = section.get("name", DEFAULT)
            what = f"it is a setting of {', '.join(others)}, not of {name}"
            todo = f"Leave it out, or set model.name; settings of {name}: {', '.join(sorted(known))}"
            raise ConfigError(f"setting model.{key}", what, todo)
    return configuration.build(cls, section, "model")


def config_class(section: Mapping[str, Any]) -> type:
    """The configuration class of the model that a section names; without a name, the Transformer's."""
    name = section.get("name", DEFAULT)
    if not isinstance(name, str):
        raise ConfigError(
            "setting model.name", f"a text is expected, got {name!r}", f"Write for example model.name={DEFAULT}"
        )
    return MODELS.get(name).Config


def settings_of(cls: type) -> set[str]:
    """The names of a configuration's settings."""
    return {field.name for field in dataclasses.fields(cls)}


def models_with(setting: str) -> list[str]:
    """The models that have a setting of this name."""
    return [name for name in MODELS.names() if setting in settings_of(MODELS.get(name).Config)]
