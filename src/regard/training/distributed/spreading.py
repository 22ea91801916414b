"""Work on many things that do not depend on each other (sentences to decode, say), spread over the workers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import torch

from regard.training.distributed.team import current_team

T = TypeVar("T")
R = TypeVar("R")


def spread(items: Sequence[T], work: Callable[[list[T]], Sequence[R]]) -> list[R]:
    """`work` on all items, in their order: each worker takes every so manieth of them.

    All workers call it with the same items, and get all results. What `work` gives for an item has to be plain: numbers, texts and
    lists of them.
    """
    team = current_team()
    if not team.several:
        return list(work(list(items)))
    own = list(items[team.rank :: team.size])
    parts = team.gather(list(work(own)) if own else [])
    return [parts[i % team.size][i // team.size] for i in range(len(items))]


def summed(*numbers: float) -> list[float]:
    """Numbers, each summed over the workers."""
    team = current_team()
    return team.sum(torch.tensor(numbers, dtype=torch.float64)).tolist() if team.several else list(numbers)
