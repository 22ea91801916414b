"""A model that writes, in fewer bits than it was trained with: faster, and almost the same texts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from regard.core import config as configuration
from regard.core.device import why_no_bfloat16
from regard.core.errors import ConfigError
from regard.core.number_formats import Asked, check_asked
from regard.models.base import MODELS, Writer


def in_numbers(model: Writer, device: torch.device, compute: Asked, note: str = "") -> Writer:
    """The model as `compute` asks for, to be used on a device. `note` is in words why another engine was not taken."""
    check_asked(compute)
    if compute == "int8_float32":
        raise ConfigError("compute", note or "int8_float32 is of CTranslate2, not of torch", "Use int8 or float32")
    if compute == "int8":
        from regard.layers.int8_linear import quantise

        if device.type != "cpu":
            raise ConfigError("compute", f"int8 is for a CPU, and {device} is none", "Use bfloat16, auto or device cpu")
        return quantise(model)
    if compute == "bfloat16":
        if (reason := model.needs_float32(model.config) or why_no_bfloat16(device)) is not None:
            raise ConfigError("compute", f"bfloat16 cannot be used: {reason}", "Use float32 or auto")
        return model.to(torch.bfloat16)
    return model


def why_float32(section: Mapping[str, Any]) -> str | None:
    """Why the model of a `model` section cannot write in bfloat16, found out without its weights; None where it can."""
    kind = MODELS.get(str(section.get("name")))
    if not issubclass(kind, Writer):
        return None
    return kind.needs_float32(configuration.build(kind.Config, section, "model"))
