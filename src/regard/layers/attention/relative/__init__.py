"""Relative positions in self-attention, one file for each scheme, found by name."""

from regard.layers.attention.relative._base import (
    RELATIVE,
    AddedTo,
    Layout,
    Places,
    Relative,
    RelativeSettings,
    RelativeStack,
    SchemeAtPlaces,
)

__all__ = ["RELATIVE", "AddedTo", "Layout", "Places", "Relative", "RelativeSettings", "RelativeStack", "SchemeAtPlaces"]
