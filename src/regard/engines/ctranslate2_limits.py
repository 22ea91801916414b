"""What CTranslate2 can express of a Transformer translator, and how long its texts may be; asked without NumPy or torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from regard.engines.transformer_settings import TransformerSettings, read_settings

Compute = Literal["int8", "int8_float32", "float32"]
MODEL = "model.bin"  # the file with the weights
POSITIONS = 1024  # rows of a table of waves: no longer text can be read or written
ACTIVATIONS = {"relu": 0, "gelu_tanh": 1, "swish": 2, "gelu": 3, "swiglu": 2}  # CTranslate2's numbers
WAVES = ("sinusoidal", "sinusoidal-halves", "sine")


def why_not(section: Mapping[str, Any]) -> str | None:
    """Why CTranslate2 cannot run the model of this `model` section, in words; None where it can."""
    if section.get("name") != "transformer":
        return f"CTranslate2 has no model like {section.get('name')!r}"
    settings = read_settings(section)
    if isinstance(settings, str):
        return settings
    refused: list[tuple[bool, str]] = [
        (settings.normalise not in ("layer", "rms"), f"normalise={settings.normalise!r}"),
        (settings.norm not in ("pre", "post"), f"norm={settings.norm!r}"),
        (not settings.residual, "residual=false"),
        (not settings.source_end, "source_end=false"),
        (settings.activation not in ACTIVATIONS, f"activation={settings.activation!r}"),
        (settings.positions not in (*WAVES, "learned", "none"), f"positions={settings.positions!r}"),
        (settings.relative not in ("none", "shaw", "t5", "alibi", "rotary"), f"relative={settings.relative!r}"),
        (settings.relative == "shaw" and settings.relative_per_head, "relative_per_head=true"),
        (settings.positions in WAVES[:2] and settings.width % 2 == 1, "sinusoids of an odd width"),
    ]
    for wrong, setting in refused:
        if wrong:
            return f"CTranslate2 cannot express {setting}"
    if settings.relative != "none" and settings.positions != "none":
        return f"CTranslate2 cannot add positions={settings.positions!r} where relative={settings.relative!r}"
    return None


def longest(section: Mapping[str, Any]) -> int:
    """The most tokens, BOS or EOS among them, that a converted model reads or writes."""
    learned = section.get("positions") == "learned"
    return int(section.get("max_length", TransformerSettings.max_length)) if learned else POSITIONS
