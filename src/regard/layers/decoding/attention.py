"""Attention with one query of each hypothesis: over what its text has so far, and over the source.

A program does one head of one sentence, for all its K hypotheses: so what they share is read once. What is new goes into the cache
on the way. Where sentences are few and texts long, several programs share the places of one head, and what each found is joined
after (flash-decoding, Dao et al. 2023). Scores, weights' sums and mixed values are float32.

The cached keys and values are those of `layers.attention.cache`: slot k of position l is what hypothesis k wrote there, and
`hidden` says which of all slots each hypothesis may see. How far texts have come is read on the device, sentence by sentence:
nothing beyond is read.
"""

# pyright: reportOptionalMemberAccess=false, reportInvalidTypeForm=false, reportPossiblyUnboundVariable=false
from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.layers.attention.multihead import attend_heads, merge_heads
from regard.layers.decoding import narrow_attention
from regard.layers.decoding.triton_here import jit, launch, power_of_2, ready, runs_on, tl

PLACES = 64  # looked at in one turn
CROWD = 2048  # programs of a beam from so many on: more of them should run at once
PROGRAMS = 264  # as many as run at once; fewer share places
FEWEST_PLACES = 256  # of a program that shares
MOST_PARTS = 16


class Cut(NamedTuple):
    """How programs are cut."""

    places: int = PLACES  # that are looked at in one turn
    warps: int = 4
    stages: int = 2  # turns whose keys and values are asked for at once
    skips: bool = False  # cached slots that no hypothesis of the beam sees any more are not read


USUAL = Cut()
BACK = OVER = Cut(warps=2)  # of a crowd: over the text, over the source


def attend_cache(
    projected: Float[Tensor, "N W"],
    keys: Float[Tensor, "B G L K Dh"],
    values: Float[Tensor, "B G L K Dh"],
    hidden: Float[Tensor, "B K LK"],
    positions: Int[Tensor, "B"],
    heads: int,
    scale: float,
    longest: int,
    cut: Cut | None = None,
) -> Float[Tensor, "N D"]:
    """Queries over their own past, and over themselves. `projected` are queries, keys and values of the B K = N next tokens.

    Writes keys and values at `positions` (at the last place there is, for rows that have gone beyond) into the caches. No text that
    counts has more than `longest` tokens, with the new one.
    """
    if not runs_on(projected):
        return _attend_cache_plainly(projected, keys, values, hidden, positions, heads, scale, longest)
    sentences, groups, capacity, beams, width = keys.shape
    if narrow_attention.fits(longest, beams):
        return narrow_attention.attend_cache(projected, keys, values, positions, heads, scale)
    parts = _parts(sentences * heads, longest * beams)
    cut = cut or _cut(sentences * heads * parts, beams, BACK)
    out, found = _results(projected, heads * width, heads, parts)
    launch(
        _attend_cache,
        (sentences, heads, parts),
        projected,
        keys,
        values,
        hidden,
        positions,
        *found,
        scale,
        capacity,
        HEADS=heads,
        GROUPS=groups,
        BEAMS=beams,
        WIDTH=width,
        PARTS=parts,
        TILE=_tile(beams),
        CELLS=max(16, power_of_2(width)),
        PLACES=cut.places,
        SKIPS=cut.skips and beams > 1,
        num_warps=cut.warps,
        num_stages=cut.stages,
    )
    return _joined(out, found, parts, heads, width)


def attend_memory(
    query: Float[Tensor, "N D"],
    keys: Float[Tensor, "B H S Dh"],
    values: Float[Tensor, "B H S Dh"],
    keep: Bool[Tensor, "B S"],
    scale: float,
    cut: Cut | None = None,
) -> Float[Tensor, "N D"]:
    """Queries of B K = N tokens over the source, of which `keep` says what is there."""
    if not runs_on(query):
        return _attend_memory_plainly(query, keys, values, keep, scale)
    sentences, heads, length, width = keys.shape
    beams = len(query) // sentences
    if narrow_attention.fits(length, beams):
        return narrow_attention.attend_memory(query, keys, values, keep.view(torch.uint8), scale)
    parts = _parts(sentences * heads, length)
    cut = cut or _cut(sentences * heads * parts, beams, OVER)
    out, found = _results(query, heads * width, heads, parts)
    launch(
        _attend_memory,
        (sentences, heads, parts),
        query,
        keys,
        values,
        keep.view(torch.uint8),
        *found,
        scale,
        length,
        *keys.stride()[:3],
        *values.stride()[:3],
        keep.stride(0),
        HEADS=heads,
        BEAMS=beams,
        WIDTH=width,
        PARTS=parts,
        TILE=_tile(beams),
        CELLS=max(16, power_of_2(width)),
        PLACES=min(cut.places, max(16, power_of_2(length))),
        num_warps=cut.warps,
        num_stages=cut.stages,
    )
    return _joined(out, found, parts, heads, width)


def _tile(beams: int) -> int:
    """Queries of a program: 1, or as many as tensor cores take."""
    return 1 if beams == 1 else max(16, power_of_2(beams))


def _cut(programs: int, beams: int, crowd: Cut) -> Cut:
    return crowd if beams > 1 and programs >= CROWD else USUAL


def _parts(programs: int, places: int) -> int:
    """How many programs share the places of a head: a power of 2."""
    return 1 << max(1, min(MOST_PARTS, PROGRAMS // programs, places // FEWEST_PLACES)).bit_length() - 1


def _results(like: Tensor, width: int, heads: int, parts: int) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """Where results go: at once, or first what each part finds, with its largest score and sum of weights."""
    rows = len(like)
    out = like.new_empty((rows, width))
    if parts == 1:
        return out, (out, out)
    mixed = like.new_empty((parts, rows, width), dtype=torch.float32)
    return out, (mixed, like.new_empty((parts, rows, heads, 2), dtype=torch.float32))


def _joined(out: Tensor, found: tuple[Tensor, Tensor], parts: int, heads: int, width: int) -> Tensor:
    if parts > 1:
        shape = {"HEADS": heads, "WIDTH": width, "CELLS": power_of_2(width), "PARTS": parts}
        launch(_join, (len(out), heads), *found, out, len(out), **shape, num_warps=1)
    return out


def _attend_cache_plainly(
    projected: Tensor,
    keys: Tensor,
    values: Tensor,
    hidden: Tensor,
    positions: Tensor,
    heads: int,
    scale: float,
    longest: int,
) -> Tensor:
    sentences, groups, capacity, beams, width = keys.shape
    longest = min(longest, capacity)
    split = projected.unflatten(0, (sentences, beams)).unflatten(-1, (-1, width)).transpose(1, 2)
    query, key, value = split.split((heads, groups, groups), 1)  # B H K Dh
    place = positions.clamp(max=capacity - 1)[:, None, None, None, None].expand(*key.shape[:2], 1, *key.shape[2:])
    for cache, new in ((keys, key), (values, value)):
        cache.scatter_(2, place, new[:, :, None].to(cache.dtype))
    key, value = (cache[:, :, :longest].flatten(2, 3) for cache in (keys, values))
    # `attend_heads` divides by the root of the width
    mixed = attend_heads(query * (scale * width**0.5), key, value, hidden[:, None, :, : longest * beams])[0]
    return merge_heads(mixed).flatten(0, 1)


def _attend_memory_plainly(query: Tensor, keys: Tensor, values: Tensor, keep: Tensor, scale: float) -> Tensor:
    heads, width = keys.shape[1], keys.shape[3]
    split = query.unflatten(0, (len(keys), -1)).unflatten(-1, (heads, width)).transpose(1, 2)
    return merge_heads(attend_heads(split * (scale * width**0.5), keys, values, keep[:, None, None])[0]).flatten(0, 1)


@jit
def looked(scores, v, best, total, mixed, TILE: tl.constexpr):
    """Some more places: what they change in the largest score, the sum of weights and the mixed values."""
    higher = tl.maximum(best, tl.max(scores, axis=1))
    weights = tl.exp(scores - higher[:, None])
    share = tl.exp(best - higher)
    total = total * share + tl.sum(weights, axis=1)
    if TILE == 1:
        more = tl.sum(tl.trans(weights) * v.to(tl.float32), axis=0)[None, :]
    else:
        more = tl.dot(weights.to(v.dtype), v, input_precision="ieee")
    return higher, total, mixed * share[:, None] + more


@jit
def scored(q, k, scale, TILE: tl.constexpr):
    if TILE == 1:
        found = tl.sum(k.to(tl.float32) * q.to(tl.float32), axis=1)[None, :]
    else:
        found = tl.dot(q, tl.trans(k), input_precision="ieee")
    return found * scale


@jit
def look_back(
    q, keys, values, hidden, cache, row, beam, cell, low, high, capacity, scale, best, total, mixed,
    BEAMS: tl.constexpr, WIDTH: tl.constexpr, TILE: tl.constexpr, PLACES: tl.constexpr, SKIPS: tl.constexpr,
):  # fmt: skip
    """At the places of a head from `low` on, below `high`, that were written before."""
    for start in range(low, high, PLACES):
        place = start + tl.arange(0, PLACES)
        there = place < high
        seen = (beam < BEAMS)[:, None] & there[None, :]
        read = there
        if SKIPS:  # what somebody sees
            hides = tl.load(hidden + row[:, None] * (capacity * BEAMS) + place[None, :], mask=seen, other=float("-inf"))
            read = tl.max(hides.to(tl.float32), axis=0) > float("-inf")
        inside = read[:, None] & (cell < WIDTH)[None, :]
        stored = cache + place[:, None] * WIDTH + cell[None, :]
        old = tl.load(keys + stored, mask=inside, other=0.0)
        scores = scored(q, old.to(q.dtype), scale, TILE)
        if BEAMS > 1:  # a single one sees all that it wrote
            if not SKIPS:
                hides = tl.load(
                    hidden + row[:, None] * (capacity * BEAMS) + place[None, :], mask=seen, other=float("-inf")
                )
            scores += hides.to(tl.float32)
        else:
            scores = tl.where(seen, scores, float("-inf"))
        old = tl.load(values + stored, mask=inside, other=0.0).to(q.dtype)
        best, total, mixed = looked(scores, old, best, total, mixed, TILE)
    return best, total, mixed


@jit
def look_over(
    q, keys, values, keep, sentence, head, cell, low, high, scale, key_sentence, key_head, key_place,
    value_sentence, value_head, value_place, keep_sentence, best, total, mixed,
    WIDTH: tl.constexpr, TILE: tl.constexpr, PLACES: tl.constexpr,
):  # fmt: skip
    """At the places of a source from `low` on, below `high`."""
    for start in range(low, high, PLACES):
        place = start + tl.arange(0, PLACES)
        there = place < high
        inside = there[:, None] & (cell < WIDTH)[None, :]
        k = tl.load(
            keys + sentence * key_sentence + head * key_head + place[:, None] * key_place + cell[None, :],
            mask=inside,
            other=0.0,
        )
        kept = tl.load(keep + sentence * keep_sentence + place, mask=there, other=0)
        scores = tl.where((kept != 0)[None, :], scored(q, k.to(q.dtype), scale, TILE), float("-inf"))
        v = tl.load(
            values + sentence * value_sentence + head * value_head + place[:, None] * value_place + cell[None, :],
            mask=inside,
            other=0.0,
        )
        best, total, mixed = looked(scores, v.to(q.dtype), best, total, mixed, TILE)
    return best, total, mixed


@jit
def given(
    out, sums, part, row, head, beam, cell, best, total, mixed, rows,
    HEADS: tl.constexpr, WIDTH: tl.constexpr, PARTS: tl.constexpr, BEAMS: tl.constexpr,
):  # fmt: skip
    inside = (beam < BEAMS)[:, None] & (cell < WIDTH)[None, :]
    place = row[:, None] * (HEADS * WIDTH) + head * WIDTH + cell[None, :]
    if PARTS == 1:
        mixed = mixed / total[:, None]
        tl.store(out + place, mixed.to(out.dtype.element_ty), mask=inside)
    else:
        tl.store(out + part * rows * (HEADS * WIDTH) + place, mixed, mask=inside)
        at = ((part * rows + row) * HEADS + head) * 2
        tl.store(sums + at, best, mask=beam < BEAMS)
        tl.store(sums + at + 1, total, mask=beam < BEAMS)


@jit
def _attend_cache(
    projected,
    keys,
    values,
    hidden,
    positions,
    out,
    sums,
    scale,
    capacity,
    HEADS: tl.constexpr,
    GROUPS: tl.constexpr,
    BEAMS: tl.constexpr,
    WIDTH: tl.constexpr,
    PARTS: tl.constexpr,
    TILE: tl.constexpr,
    CELLS: tl.constexpr,
    PLACES: tl.constexpr,
    SKIPS: tl.constexpr,
    EARLY: tl.constexpr,
):
    ready(EARLY)
    sentence, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    part = tl.program_id(2)
    group = head // (HEADS // GROUPS)
    beam, cell = tl.arange(0, TILE), tl.arange(0, CELLS)
    at = tl.minimum(tl.load(positions + sentence), capacity - 1)
    row = sentence * BEAMS + beam
    mine = (beam < BEAMS)[:, None] & (cell < WIDTH)[None, :]
    own = projected + row[:, None] * ((HEADS + 2 * GROUPS) * WIDTH) + cell[None, :]
    q = tl.load(own + head * WIDTH, mask=mine, other=0.0)
    k = tl.load(own + (HEADS + group) * WIDTH, mask=mine, other=0.0)
    v = tl.load(own + (HEADS + GROUPS + group) * WIDTH, mask=mine, other=0.0)
    # a hypothesis sees what it writes now, and nothing of what the others do
    first = part == 0
    best = tl.where(first, tl.sum(q.to(tl.float32) * k.to(tl.float32), axis=1) * scale, -1e30)
    total = tl.where(first, tl.zeros((TILE,), tl.float32) + 1.0, 0.0)
    mixed = tl.where(first, v.to(tl.float32), 0.0)
    cache = (sentence * GROUPS + group) * (capacity * BEAMS) * WIDTH
    if (part == 0) & (head % (HEADS // GROUPS) == 0):
        new = cache + (at * BEAMS + beam[:, None]) * WIDTH + cell[None, :]
        tl.store(keys + new, k.to(keys.dtype.element_ty), mask=mine)
        tl.store(values + new, v.to(values.dtype.element_ty), mask=mine)
    places = at * BEAMS  # that were written before
    share = tl.cdiv(tl.cdiv(places, PARTS), PLACES) * PLACES
    low = part * share
    high = tl.minimum(places, low + share)
    best, total, mixed = look_back(
        q, keys, values, hidden, cache, row, beam, cell, low, high, capacity, scale, best, total, mixed,
        BEAMS, WIDTH, TILE, PLACES, SKIPS,
    )  # fmt: skip
    rows = tl.num_programs(0) * BEAMS
    given(out, sums, part, row, head, beam, cell, best, total, mixed, rows, HEADS, WIDTH, PARTS, BEAMS)


@jit
def _attend_memory(
    query,
    keys,
    values,
    keep,
    out,
    sums,
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
    BEAMS: tl.constexpr,
    WIDTH: tl.constexpr,
    PARTS: tl.constexpr,
    TILE: tl.constexpr,
    CELLS: tl.constexpr,
    PLACES: tl.constexpr,
    EARLY: tl.constexpr,
):
    ready(EARLY)
    sentence, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    part = tl.program_id(2)
    beam, cell = tl.arange(0, TILE), tl.arange(0, CELLS)
    row = sentence * BEAMS + beam
    mine = (beam < BEAMS)[:, None] & (cell < WIDTH)[None, :]
    q = tl.load(query + row[:, None] * (HEADS * WIDTH) + head * WIDTH + cell[None, :], mask=mine, other=0.0)
    best = tl.sum(q.to(tl.float32), axis=1) * 0.0 - 1e30
    total = tl.zeros((TILE,), tl.float32)
    mixed = tl.zeros((TILE, CELLS), tl.float32)
    share = tl.cdiv(tl.cdiv(length, PARTS), PLACES) * PLACES
    low = part * share
    high = tl.minimum(length, low + share)
    best, total, mixed = look_over(
        q, keys, values, keep, sentence, head, cell, low, high, scale, key_sentence, key_head, key_place,
        value_sentence, value_head, value_place, keep_sentence, best, total, mixed, WIDTH, TILE, PLACES,
    )  # fmt: skip
    rows = tl.num_programs(0) * BEAMS
    given(out, sums, part, row, head, beam, cell, best, total, mixed, rows, HEADS, WIDTH, PARTS, BEAMS)


@jit
def _join(
    mixed,
    sums,
    out,
    rows,
    HEADS: tl.constexpr,
    WIDTH: tl.constexpr,
    CELLS: tl.constexpr,
    PARTS: tl.constexpr,
    EARLY: tl.constexpr,
):
    ready(EARLY)
    row, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    part, cell = tl.arange(0, PARTS), tl.arange(0, CELLS)
    at = ((part * rows + row) * HEADS + head) * 2
    best = tl.load(sums + at)
    share = tl.exp(best - tl.max(best, axis=0))
    total = tl.sum(tl.load(sums + at + 1) * share, axis=0)
    place = (part * rows + row)[:, None] * (HEADS * WIDTH) + head * WIDTH + cell[None, :]
    found = tl.load(mixed + place, mask=(part < PARTS)[:, None] & (cell < WIDTH)[None, :], other=0.0)
    z = tl.sum(found * share[:, None], axis=0) / total
    tl.store(out + row * (HEADS * WIDTH) + head * WIDTH + cell, z.to(out.dtype.element_ty), mask=cell < WIDTH)
