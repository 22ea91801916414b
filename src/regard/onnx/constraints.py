"""What may be written next, as `regard.search.constraints` has it: specials, minimum length, repeated n-grams, loops, prefixes."""

from __future__ import annotations

import numpy as np

from regard.core.search_config import SearchConfig
from regard.core.specials import BOS, EOS, PAD, UNK

LOOP_SIZES = (1, 2, 3, 4)
NEVER = -np.inf


def forbid(
    config: SearchConfig, scores: np.ndarray, history: np.ndarray, given: np.ndarray, forced: np.ndarray | None
) -> None:
    """Sets the scores [B, K, V] of what may not follow the histories [B, K, T] to -inf, in place.

    `given` says how many tokens at the beginning of each text do not count for the minimum length. `forced` is the token of each
    sentence that must come next; -1: none must.
    """
    rows, beams, at = history.shape
    own = None
    if forced is not None:  # forced tokens may be banned ones
        place = np.broadcast_to(np.maximum(forced, 0)[:, None, None], (rows, beams, 1))
        own = np.take_along_axis(scores, place, -1)
    scores[..., [PAD, BOS, UNK] if config.ban_unknown else [PAD, BOS]] = NEVER
    if config.min_length:
        scores[at - given < config.min_length, :, EOS] = NEVER
    whole = np.concatenate([np.full((rows, beams, 1), BOS), history], 2)
    if config.no_repeat_ngram:
        _no_repeat(scores, whole, config.no_repeat_ngram)
    if config.max_repeat:
        _no_loops(scores, whole, config.max_repeat)
    if forced is not None and own is not None:
        for b in np.flatnonzero(forced >= 0):
            scores[b] = NEVER
            scores[b, :, forced[b]] = own[b, :, 0]


def end_at(scores: np.ndarray, limits: np.ndarray, at: int) -> None:
    """Texts of a given length: no EOS before as many tokens as they may have, and nothing else after."""
    for b, limit in enumerate(limits):
        if at < limit:
            scores[b, :, EOS] = NEVER
        else:
            scores[b, :, :EOS] = NEVER
            scores[b, :, EOS + 1 :] = NEVER


def _no_repeat(scores: np.ndarray, whole: np.ndarray, size: int) -> None:
    """No n-gram of this size a second time; BOS counts as what stands before the text."""
    length = whole.shape[-1]
    count = length - (size - 1)
    if count <= 0:
        return
    same = np.ones((*whole.shape[:2], count), np.bool_)
    for i in range(size - 1):
        same &= whole[..., i : i + count] == whole[..., count + i, None]
    b, k, start = np.nonzero(same)
    scores[b, k, whole[b, k, start + size - 1]] = NEVER


def _no_loops(scores: np.ndarray, whole: np.ndarray, most: int) -> None:
    """No 1- to 4-gram more than `most` times in a row."""
    length = whole.shape[-1]
    for size in LOOP_SIZES:
        pairs = size * most - 1
        if length >= pairs + size:
            early = whole[..., length - pairs - size : length - size]
            b, k = np.nonzero((whole[..., length - pairs :] == early).all(-1))
            scores[b, k, whole[b, k, length - size]] = NEVER
