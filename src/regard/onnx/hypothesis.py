"""What search returns, and the beginning that all methods of search have in common."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from regard.core.errors import ModelError
from regard.core.search_config import SearchConfig


class Hypothesis(NamedTuple):
    """One text that search found, with its scores: as `regard.search.hypothesis` has it."""

    tokens: list[int]  # without BOS and EOS
    score: float  # what it was ranked by
    log_prob: float
    token_log_probs: list[float]  # one per token, then that of EOS if finished
    finished: bool  # False: cut at the maximum length, or where the constraints left no token to write


def hypothesis(tokens: np.ndarray, log_probs: Sequence[float], score: Any, finished: bool) -> Hypothesis:
    return Hypothesis(tokens.tolist(), float(score), math.fsum(log_probs), list(log_probs), finished)


def normalised(config: SearchConfig, total: np.ndarray, length: np.ndarray | int) -> np.ndarray:
    """log P / lp(n). An empty cut hypothesis (n = 0) is divided as if n were 1."""
    return total / config.length_divisor(np.maximum(length, 1).astype(np.float64))


def largest(values: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """The `count` largest of each row and a few more, and their places, in the order of places."""
    wanted = min(count + 8, values.shape[-1])
    if wanted < values.shape[-1]:
        places = np.argpartition(values, -wanted, -1)[..., -wanted:]
        places.sort(-1)
    else:
        places = np.broadcast_to(np.arange(values.shape[-1]), values.shape)
    return np.take_along_axis(values, places, -1), places


def check_numbers(scores: np.ndarray) -> None:
    if np.isnan(scores).any():
        raise ModelError("search", "the model's scores are not numbers", "Check how it was trained")
