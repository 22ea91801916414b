"""Attention with one query, for many short texts of one hypothesis each: what `attention` does, by narrower programs.

With thousands of programs of a few kilobytes each, time goes into waiting: for how long a text is, then for keys, then for values,
while four warps meet at barriers and fill their multiprocessor's registers. Here a program has a warp, asks for keys and values at
once, and sums within its warp, so that many times as many bytes are under way.
"""

# pyright: reportOptionalMemberAccess=false, reportInvalidTypeForm=false, reportPossiblyUnboundVariable=false
from __future__ import annotations

from torch import Tensor

from regard.layers.decoding.kernel_choice import chosen
from regard.layers.decoding.triton_here import jit, launch, power_of_2, ready, tl

MOST_PLACES = 256  # of a head: beyond, a warp would take too many turns
PLACES = 32  # looked at in one turn


def fits(places: int, beams: int) -> bool:
    """Whether heads with so many places are attended to here."""
    return chosen().narrow and places <= MOST_PLACES and beams == 1


def attend_cache(
    projected: Tensor, keys: Tensor, values: Tensor, positions: Tensor, heads: int, scale: float
) -> Tensor:
    """See `attention.attend_cache`."""
    sentences, groups, capacity, _, width = keys.shape
    out = projected.new_empty((len(projected), heads * width))
    launch(
        _looks_back,
        (sentences, heads),
        projected,
        keys,
        values,
        positions,
        out,
        scale,
        capacity,
        HEADS=heads,
        GROUPS=groups,
        **_shape(width, MOST_PLACES),
    )
    return out


def attend_memory(query: Tensor, keys: Tensor, values: Tensor, keep: Tensor, scale: float) -> Tensor:
    """See `attention.attend_memory`; `keep` of bytes."""
    sentences, heads, length, width = keys.shape
    out = query.new_empty((len(query), heads * width))
    launch(
        _looks_over,
        (sentences, heads),
        query,
        keys,
        values,
        keep,
        out,
        scale,
        length,
        *keys.stride()[:3],
        *values.stride()[:3],
        keep.stride(0),
        HEADS=heads,
        **_shape(width, length),
    )
    return out


def _shape(width: int, places: int) -> dict[str, int]:
    return {
        "WIDTH": width,
        "CELLS": max(16, power_of_2(width)),
        "PLACES": min(PLACES, max(16, power_of_2(places))),
        "num_warps": 1,
        "num_stages": 1,
    }


@jit
def _looks(q, k, v, seen, scale, best, total, mixed):
    """Some places: what they change in the largest score, the sum of weights and the mixed values of one query."""
    scores = tl.sum(k.to(tl.float32) * q[None, :], axis=1) * scale
    scores = tl.where(seen, scores, float("-inf"))
    higher = tl.maximum(best, tl.max(scores, axis=0))
    weights = tl.exp(scores - higher)
    share = tl.exp(best - higher)
    more = tl.sum(weights[:, None] * v.to(tl.float32), axis=0)
    return higher, total * share + tl.sum(weights, axis=0), mixed * share + more


@jit
def _looks_back(
    projected,
    keys,
    values,
    positions,
    out,
    scale,
    capacity,
    HEADS: tl.constexpr,
    GROUPS: tl.constexpr,
    WIDTH: tl.constexpr,
    CELLS: tl.constexpr,
    PLACES: tl.constexpr,
    EARLY: tl.constexpr,
):
    ready(EARLY)
    sentence, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    group, cell = head // (HEADS // GROUPS), tl.arange(0, CELLS)
    inside = cell < WIDTH
    at = tl.minimum(tl.load(positions + sentence), capacity - 1)
    own = projected + sentence * ((HEADS + 2 * GROUPS) * WIDTH) + cell
    q = tl.load(own + head * WIDTH, mask=inside, other=0.0).to(tl.float32)
    k = tl.load(own + (HEADS + group) * WIDTH, mask=inside, other=0.0)
    v = tl.load(own + (HEADS + GROUPS + group) * WIDTH, mask=inside, other=0.0)
    cache = (sentence * GROUPS + group) * capacity * WIDTH
    if head % (HEADS // GROUPS) == 0:
        tl.store(keys + cache + at * WIDTH + cell, k.to(keys.dtype.element_ty), mask=inside)
        tl.store(values + cache + at * WIDTH + cell, v.to(values.dtype.element_ty), mask=inside)
    # a text sees what it writes now, and all that was written before
    best = tl.sum(q * k.to(tl.float32), axis=0) * scale
    total, mixed = best * 0.0 + 1.0, v.to(tl.float32)
    for start in range(0, at, PLACES):
        place = start + tl.arange(0, PLACES)
        seen = place < at
        stored, there = cache + place[:, None] * WIDTH + cell[None, :], seen[:, None] & inside[None, :]
        old_key = tl.load(keys + stored, mask=there, other=0.0)
        old_value = tl.load(values + stored, mask=there, other=0.0)
        best, total, mixed = _looks(q, old_key, old_value, seen, scale, best, total, mixed)
    tl.store(out + (sentence * HEADS + head) * WIDTH + cell, (mixed / total).to(out.dtype.element_ty), mask=inside)


@jit
def _looks_over(
    query,
    keys,
    values,
    keep,
    out,
    scale,
    length,
    key_sentence,
    key_head,
    key_place,
    value_sentence,
    value_head,
    value_place,
    keep_sentence,
    HEADS: tl.constexpr,
    WIDTH: tl.constexpr,
    CELLS: tl.constexpr,
    PLACES: tl.constexpr,
    EARLY: tl.constexpr,
):
    ready(EARLY)
    sentence, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    cell = tl.arange(0, CELLS)
    inside = cell < WIDTH
    at = (sentence * HEADS + head) * WIDTH + cell
    q = tl.load(query + at, mask=inside, other=0.0).to(tl.float32)
    keys += sentence * key_sentence + head * key_head
    values += sentence * value_sentence + head * value_head
    best, total, mixed = tl.sum(q, axis=0) * 0.0 - 1e30, tl.sum(q, axis=0) * 0.0, q * 0.0
    for start in range(0, length, PLACES):
        place = start + tl.arange(0, PLACES)
        there = (place < length)[:, None] & inside[None, :]
        k = tl.load(keys + place[:, None] * key_place + cell[None, :], mask=there, other=0.0)
        v = tl.load(values + place[:, None] * value_place + cell[None, :], mask=there, other=0.0)
        kept = tl.load(keep + sentence * keep_sentence + place, mask=place < length, other=0) != 0
        best, total, mixed = _looks(q, k, v, kept, scale, best, total, mixed)
    tl.store(out + at, (mixed / total).to(out.dtype.element_ty), mask=inside)
