"""Texts from right to left."""

from __future__ import annotations


def backwards(text: str) -> str:
    """The words of a text, the last one first."""
    return " ".join(reversed(text.split()))
