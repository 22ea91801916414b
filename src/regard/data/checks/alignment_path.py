"""The most likely course of an alignment through a corpus: which shift holds where, by dynamic programming."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

_BLOCK = 512  # lines of which the states are decided at once
_MARGIN = 256  # lines before and after a block that help to decide it
_BLOCKS = 128  # side by side


def best_path(emissions: Callable[[int, int], np.ndarray], lines: int, states: int, penalty: float) -> np.ndarray:
    """The state of each line under which the sum of emissions, less a penalty for each change of state, is greatest.

    `emissions(begin, end)` gives [end - begin, states]. The path begins in state 0, or pays the penalty. Blocks of
    lines are decided side by side, each with a margin of its neighbours' lines: what is further away does not matter.
    """
    path = np.zeros(lines, dtype=np.int64)
    for begin in range(0, lines, _BLOCK * _BLOCKS):
        end = min(lines, begin + _BLOCK * _BLOCKS)
        low, high = max(0, begin - _MARGIN), min(lines, end + _MARGIN)
        blocks = -(-(end - begin) // _BLOCK)
        padded = np.zeros((blocks * _BLOCK + 2 * _MARGIN, states), dtype=np.float32)
        offset = low - (begin - _MARGIN)
        padded[offset : offset + high - low] = emissions(low, high)
        steps = _BLOCK + 2 * _MARGIN
        rows = np.arange(blocks) * _BLOCK + np.arange(steps)[:, None]
        path[begin:end] = _decide(padded[rows], penalty)[_MARGIN:-_MARGIN].T.reshape(-1)[: end - begin]
    return path


def _decide(emissions: np.ndarray, penalty: float) -> np.ndarray:
    """Viterbi's algorithm for [steps, blocks, states] -> states [steps, blocks]."""
    steps, blocks, states = emissions.shape
    value = np.zeros((blocks, states), dtype=np.float32)
    value[:, 1:] = -penalty
    stayed = np.empty((steps, blocks, states), dtype=bool)
    came_from = np.empty((steps, blocks), dtype=np.int64)
    every = np.arange(blocks)
    for step in range(steps):
        best = value.argmax(axis=1)
        switched = (value[every, best] - penalty)[:, None]
        np.greater_equal(value, switched, out=stayed[step])
        came_from[step] = best
        value = np.maximum(value, switched) + emissions[step]
        value -= value.max(axis=1, keepdims=True)  # keeps single precision exact
    path = np.empty((steps, blocks), dtype=np.int64)
    state = value.argmax(axis=1)
    for step in range(steps - 1, -1, -1):
        path[step] = state
        state = np.where(stayed[step, every, state], state, came_from[step])
    return path
