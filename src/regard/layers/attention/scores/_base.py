"""What every attention score keeps to: keys are prepared once per sentence, then compared with any number of queries."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.core.errors import ConfigError, ModelError
from regard.core.registry import Registry

SCORES: Registry[Any] = Registry("attention score", "regard.layers.attention.scores")


class Score(nn.Module, ABC):
    """a(q, k), any real number. `score(query, score.prepare(keys))` compares N queries with S keys per sentence."""

    limit: int | None = None  # the most keys that it can tell apart; None where the equation sets no limit

    @classmethod
    @abstractmethod
    def make(cls, *, query_width: int, key_width: int, width: int, limit: int) -> Score:
        """A score of these sizes. Each takes those it needs: `width` is that of a hidden layer, `limit` that of keys."""

    def prepare(self, keys: Float[Tensor, "B S Dk"]) -> Float[Tensor, "B S A"]:
        """What of the comparison needs no query, computed once per sentence."""
        return keys

    @abstractmethod
    def forward(self, query: Float[Tensor, "B N Dq"], prepared: Float[Tensor, "B S A"]) -> Float[Tensor, "B N S"]: ...


class EqualWidths(Score):
    """A score without parameters, which compares queries and keys number by number: both need one width."""

    @classmethod
    def make(cls, *, query_width: int, key_width: int, width: int, limit: int) -> Score:
        if query_width != key_width:
            raise ConfigError(
                "setting model.score",
                f"{cls.__name__} needs queries and keys of one width, got {query_width} and {key_width}",
                "Choose bilinear, additive or concat, or make the widths equal",
            )
        return cls()

    def forward(self, query: Float[Tensor, "B N D"], prepared: Float[Tensor, "B S D"]) -> Float[Tensor, "B N S"]:
        return query @ prepared.transpose(1, 2)


def make_score(name: str, *, query_width: int, key_width: int, width: int, limit: int) -> Score:
    """The score of that name, freshly initialised, for queries and keys of these widths, tried once: does it give B x N x S?"""
    score = SCORES.get(name).make(query_width=query_width, key_width=key_width, width=width, limit=limit)
    query, keys = torch.zeros(1, 2, query_width), torch.zeros(1, min(3, limit), key_width)
    if not query.is_meta:
        with torch.no_grad():
            given = tuple(score(query, score.prepare(keys)).shape)
        if given != (expected := (1, 2, keys.shape[1])):
            what = f"of 2 queries and {expected[-1]} keys it made numbers of shape {given}"
            raise ModelError(f"attention score {name!r}", what, f"Return one for each query and key: {expected}")
    return score
