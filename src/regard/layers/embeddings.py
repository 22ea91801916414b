"""Embedding tables of both sides and of the output, each of its own or one for several."""

from __future__ import annotations

from typing import Literal, NamedTuple

from torch import Tensor, nn

from regard.core.errors import ConfigError

Tie = Literal["auto", "all", "target", "none"]


class Tables(NamedTuple):
    """The tables of the source and the target, and the one that the output layer shares, if any."""

    source: nn.Embedding
    target: nn.Embedding
    output: Tensor | None


def embedding_tables(source: int, target: int, width: int, tie: Tie, shared: bool) -> Tables:
    """Tables for two vocabularies; `shared` says that these are one. "auto" ties all that can be tied."""
    if tie == "auto":
        tie = "all" if shared else "target"
    if tie == "all" and not shared:
        raise ConfigError(
            "setting model.tie", "'all' needs one vocabulary for both sides", "Set tokenizer.joint=true or tie=target"
        )
    of_target = nn.Embedding(target, width)
    of_source = of_target if tie == "all" else nn.Embedding(source, width)
    return Tables(of_source, of_target, None if tie == "none" else of_target.weight)
