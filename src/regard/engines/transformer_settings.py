"""The settings of a Transformer translator, as a run's configuration holds them, for those who may not import torch."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any


@dataclasses.dataclass(frozen=True, kw_only=True)
class TransformerSettings:
    """What `models.transformer.TransformerConfig` holds, less dropout. That one's defaults; a test holds the two together."""

    name: str = "transformer"
    width: int = 256
    layers: int = 3
    encoder_layers: int = 0
    decoder_layers: int = 0
    heads: int = 4
    inner: int = 0
    norm: str = "pre"
    normalise: str = "layer"
    norm_epsilon: float = 1e-5
    residual: bool = True
    scaling: bool = True
    positions: str = "sinusoidal"
    max_length: int = 512
    relative: str = "none"
    relative_distance: int = 0
    relative_buckets: int = 32
    relative_to: str = "both"
    relative_per_head: bool = False
    rotary_layout: str = "interleaved"
    rotary_base: float = 10000.0
    activation: str = "relu"
    tie: str = "auto"
    source_end: bool = True

    @property
    def depth(self) -> tuple[int, int]:
        return self.encoder_layers or self.layers, self.decoder_layers or self.layers

    @property
    def head_width(self) -> int:
        return self.width // self.heads


TRAINING_ONLY = {"dropout", "attention_dropout", "activation_dropout"}
BOUNDS = {"width": (1, 1 << 14), "layers": (1, 1000), "encoder_layers": (0, 1000), "decoder_layers": (0, 1000),
          "heads": (1, 1 << 14), "max_length": (1, 1 << 20), "relative_distance": (0, 1 << 14),
          "relative_buckets": (4, 1 << 14)}  # fmt: skip


def read_settings(section: Mapping[str, Any]) -> TransformerSettings | str:
    """The settings in the `model` section of a configuration, or in words why they cannot be read."""
    kinds = {field.name: type(field.default) for field in dataclasses.fields(TransformerSettings)}
    values = {key: value for key, value in section.items() if key not in TRAINING_ONLY}
    for key, value in values.items():
        if key not in kinds:
            return f"it has a setting {key!r} that is not known here"
        if kinds[key] is float and type(value) is int:
            values[key] = float(value)
        elif type(value) is not kinds[key]:
            return f"its setting {key} is {value!r}"
    settings = TransformerSettings(**values)
    for key, (low, high) in BOUNDS.items():
        if not low <= getattr(settings, key) <= high:
            return f"its setting {key} is {getattr(settings, key)!r}"
    if settings.width % settings.heads:
        return f"{settings.heads} heads do not divide the width {settings.width}"
    return settings
