"""Attention with one query of each hypothesis, for many rows with short texts: what `attention` does, by narrower programs.

With thousands of programs of a few kilobytes each, time goes into waiting: for how long a text is, then for keys, then for values,
while four warps meet at barriers and fill their multiprocessor's registers. Here a program has a warp (with beams two), asks for
keys and values at once, and sums within its warp, so that many times as many bytes are under way.

With beams, half of the cached slots or more are of hypotheses that nobody goes on from: those are not read.
"""

# pyright: reportOptionalMemberAccess=false, reportInvalidTypeForm=false, reportPossiblyUnboundVariable=false
from __future__ import annotations

from torch import Tensor

from regard.layers.decoding.kernel_choice import chosen
from regard.layers.decoding.triton_here import jit, launch, power_of_2, ready, tl

MOST_PLACES = 256  # of a head: beyond, a warp would take too many turns
PLACES = 32  # looked at in one turn
WARPS, WARPS_OF_BEAMS = 1, 2


def fits(places: int) -> bool:
    """Whether heads with so many places are attended to here."""
    return chosen().narrow and places <= MOST_PLACES


def attend_cache(
    projected: Tensor, keys: Tensor, values: Tensor, hidden: Tensor, positions: Tensor, heads: int, scale: float
) -> Tensor:
    """See `attention.attend_cache`."""
    sentences, groups, capacity, beams, width = keys.shape
    out = projected.new_empty((len(projected), heads * width))
    launch(
        _one_looks_back if beams == 1 else _beams_look_back,
        (sentences, heads),
        projected,
        keys,
        values,
        *([] if beams == 1 else [hidden]),
        positions,
        out,
        scale,
        capacity,
        HEADS=heads,
        GROUPS=groups,
        **_shape(beams, width, MOST_PLACES),
    )
    return out


def attend_memory(query: Tensor, keys: Tensor, values: Tensor, keep: Tensor, scale: float) -> Tensor:
    """See `attention.attend_memory`; `keep` of bytes."""
    sentences, heads, length, width = keys.shape
    beams = len(query) // sentences
    out = query.new_empty((len(query), heads * width))
    launch(
        _one_looks_over if beams == 1 else _beams_look_over,
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
        **_shape(beams, width, length),
    )
    return out


def _shape(beams: int, width: int, places: int) -> dict[str, int]:
    shape = {
        "WIDTH": width,
        "CELLS": max(16, power_of_2(width)),
        "PLACES": min(PLACES, max(16, power_of_2(places))),
        "num_warps": WARPS if beams == 1 else WARPS_OF_BEAMS,
        "num_stages": 1 if beams == 1 else 2,
    }
    return shape if beams == 1 else shape | {"BEAMS": beams, "TILE": max(16, power_of_2(beams))}


@jit
def _one_looks(q, k, v, seen, scale, best, total, mixed):
    """Some places: what they change in the largest score, the sum of weights and the mixed values of one query."""
    scores = tl.sum(k.to(tl.float32) * q[None, :], axis=1) * scale
    scores = tl.where(seen, scores, float("-inf"))
    higher = tl.maximum(best, tl.max(scores, axis=0))
    weights = tl.exp(scores - higher)
    share = tl.exp(best - higher)
    more = tl.sum(weights[:, None] * v.to(tl.float32), axis=0)
    return higher, total * share + tl.sum(weights, axis=0), mixed * share + more


@jit
def _beams_look(q, k, v, hides, scale, best, total, mixed):
    """The same of several queries; `hides` is added to scores."""
    scores = tl.dot(q, tl.trans(k), input_precision="ieee") * scale + hides
    higher = tl.maximum(best, tl.max(scores, axis=1))
    weights = tl.exp(scores - higher[:, None])
    share = tl.exp(best - higher)
    more = tl.dot(weights.to(v.dtype), v, input_precision="ieee")
    return higher, total * share + tl.sum(weights, axis=1), mixed * share[:, None] + more


@jit
def _one_looks_back(
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
        best, total, mixed = _one_looks(q, old_key, old_value, seen, scale, best, total, mixed)
    tl.store(out + (sentence * HEADS + head) * WIDTH + cell, (mixed / total).to(out.dtype.element_ty), mask=inside)


@jit
def _one_looks_over(
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
        best, total, mixed = _one_looks(q, k, v, kept, scale, best, total, mixed)
    tl.store(out + at, (mixed / total).to(out.dtype.element_ty), mask=inside)


@jit
def _beams_look_back(
    projected,
    keys,
    values,
    hidden,
    positions,
    out,
    scale,
    capacity,
    HEADS: tl.constexpr,
    GROUPS: tl.constexpr,
    WIDTH: tl.constexpr,
    CELLS: tl.constexpr,
    PLACES: tl.constexpr,
    BEAMS: tl.constexpr,
    TILE: tl.constexpr,
    EARLY: tl.constexpr,
):
    ready(EARLY)
    sentence, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    group, beam, cell = head // (HEADS // GROUPS), tl.arange(0, TILE), tl.arange(0, CELLS)
    present, inside = beam < BEAMS, cell < WIDTH
    mine = present[:, None] & inside[None, :]
    row = sentence * BEAMS + beam
    at = tl.minimum(tl.load(positions + sentence), capacity - 1)
    own = projected + row[:, None] * ((HEADS + 2 * GROUPS) * WIDTH) + cell[None, :]
    q = tl.load(own + head * WIDTH, mask=mine, other=0.0)
    k = tl.load(own + (HEADS + group) * WIDTH, mask=mine, other=0.0)
    v = tl.load(own + (HEADS + GROUPS + group) * WIDTH, mask=mine, other=0.0)
    cache = (sentence * GROUPS + group) * (capacity * BEAMS) * WIDTH
    if head % (HEADS // GROUPS) == 0:
        new = cache + (at * BEAMS + beam[:, None]) * WIDTH + cell[None, :]
        tl.store(keys + new, k.to(keys.dtype.element_ty), mask=mine)
        tl.store(values + new, v.to(values.dtype.element_ty), mask=mine)
    # a hypothesis sees what it writes now, and nothing of what the others do
    best = tl.sum(q.to(tl.float32) * k.to(tl.float32), axis=1) * scale
    total, mixed = best * 0.0 + 1.0, v.to(tl.float32)
    places = at * BEAMS  # that were written before
    for start in range(0, places, PLACES):
        place = start + tl.arange(0, PLACES)
        seen = present[:, None] & (place < places)[None, :]
        hides = tl.load(hidden + row[:, None] * (capacity * BEAMS) + place[None, :], mask=seen, other=float("-inf"))
        hides = hides.to(tl.float32)
        live = tl.max(hides, axis=0) > float("-inf")  # somebody sees them
        stored, there = cache + place[:, None] * WIDTH + cell[None, :], live[:, None] & inside[None, :]
        old_key = tl.load(keys + stored, mask=there, other=0.0).to(q.dtype)
        old_value = tl.load(values + stored, mask=there, other=0.0).to(q.dtype)
        best, total, mixed = _beams_look(q, old_key, old_value, hides, scale, best, total, mixed)
    result = out + row[:, None] * (HEADS * WIDTH) + head * WIDTH + cell[None, :]
    tl.store(result, (mixed / total[:, None]).to(out.dtype.element_ty), mask=mine)


@jit
def _beams_look_over(
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
    BEAMS: tl.constexpr,
    TILE: tl.constexpr,
    EARLY: tl.constexpr,
):
    ready(EARLY)
    sentence, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    beam, cell = tl.arange(0, TILE), tl.arange(0, CELLS)
    inside = cell < WIDTH
    mine = (beam < BEAMS)[:, None] & inside[None, :]
    at = (sentence * BEAMS + beam)[:, None] * (HEADS * WIDTH) + head * WIDTH + cell[None, :]
    q = tl.load(query + at, mask=mine, other=0.0)
    keys += sentence * key_sentence + head * key_head
    values += sentence * value_sentence + head * value_head
    best = tl.sum(q.to(tl.float32), axis=1) * 0.0 - 1e30
    total, mixed = tl.zeros((TILE,), tl.float32), tl.zeros((TILE, CELLS), tl.float32)
    for start in range(0, length, PLACES):
        place = start + tl.arange(0, PLACES)
        there = (place < length)[:, None] & inside[None, :]
        k = tl.load(keys + place[:, None] * key_place + cell[None, :], mask=there, other=0.0).to(q.dtype)
        v = tl.load(values + place[:, None] * value_place + cell[None, :], mask=there, other=0.0).to(q.dtype)
        kept = tl.load(keep + sentence * keep_sentence + place, mask=place < length, other=0)
        hides = tl.where(kept != 0, 0.0, float("-inf"))[None, :]
        best, total, mixed = _beams_look(q, k, v, hides, scale, best, total, mixed)
    tl.store(out + at, (mixed / total[:, None]).to(out.dtype.element_ty), mask=mine)
