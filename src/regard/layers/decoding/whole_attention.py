"""Attention of few rows over the text so far, with the products before and after it, in one kernel.

A program has one head of one sentence with all its hypotheses: it reads and normalises the states, multiplies them with its head's
part of the matrices, attends (see `attention`), and multiplies what it finds with its head's part of the last matrix. So each head
leaves one part of the sum that the next kernel adds up (see `pending`). Heads of queries that share keys and values compute these
each for itself; the first of them writes them.
"""

# pyright: reportOptionalMemberAccess=false, reportInvalidTypeForm=false, reportPossiblyUnboundVariable=false
from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.layers.decoding.attention import PLACES, attend_cache, look_back
from regard.layers.decoding.pending import (
    STAGES,
    Pending,
    ahead,
    give_part,
    read_rows,
    reading,
    touch,
    touch_columns,
    turn,
)
from regard.layers.decoding.products import Linear, Norm
from regard.layers.decoding.triton_here import jit, launch, power_of_2, ready, runs_on, tl


def attend_text(
    pending: Pending,
    norm: Norm | None,
    projections: Linear,
    out: Linear,
    keys: Float[Tensor, "B G L K Dh"],
    values: Float[Tensor, "B G L K Dh"],
    hidden: Float[Tensor, "B K LK"],
    positions: Int[Tensor, "B"],
    *,
    heads: int,
    scale: float,
    longest: int,
    after: Norm | None,
    residual: bool,
) -> Pending:
    """See `attend_cache`, which this does with the products before and after it. The norm stands before it or `after`."""
    x, weight = pending.x, projections.weight
    if not runs_on(x):
        total, z = pending.read(norm)
        projected = projections(z.to(weight.dtype))
        mixed = attend_cache(projected, keys, values, hidden, positions, heads, scale, longest)
        return Pending(total, parts_of_heads(mixed, out, heads), out.bias, after, residual)
    sentences, groups, capacity, beams, head = keys.shape
    read = reading(pending, norm, sentences * heads, beams, weight.dtype)
    parts = x.new_empty((heads, *x.shape), dtype=torch.float32)
    cells = max(16, power_of_2(head))
    launch(
        _attend_text,
        (sentences, heads),
        *read.tensors,
        weight,
        weight if projections.bias is None else projections.bias,
        out.weight,
        keys,
        values,
        hidden,
        positions,
        parts,
        scale,
        capacity,
        **read.shape,
        HEADS=heads,
        GROUPS=groups,
        BEAMS=beams,
        HEAD=head,
        BIAS=projections.bias is not None,
        TILE=max(16, power_of_2(beams)),
        CELLS=cells,
        CHUNK=turn(cells, weight, 3),
        COLUMNS=turn(cells, out.weight.t()),
        PLACES=PLACES,
        **ahead(weight, out.weight),
        num_warps=8,
        num_stages=STAGES,
    )
    return Pending(read.total, parts, out.bias, after, residual)


def parts_of_heads(mixed: Tensor, out: Linear, heads: int) -> Float[Tensor, "H N D"]:
    """What each head's values give."""
    split = zip(mixed.chunk(heads, 1), out.weight.chunk(heads, 1), strict=True)
    return torch.stack([(one @ weight.t()).float() for one, weight in split])


@jit
def _attend_text(
    x,
    before,
    part_bias,
    norm_weight,
    norm_bias,
    total,
    own,
    weight,
    bias,
    out_weight,
    keys,
    values,
    hidden,
    positions,
    parts,
    scale,
    capacity,
    WIDTH: tl.constexpr,
    PARTS: tl.constexpr,
    ADDED: tl.constexpr,
    PART_BIAS: tl.constexpr,
    NORM: tl.constexpr,
    EPS: tl.constexpr,
    AFTER: tl.constexpr,
    CHANGES: tl.constexpr,
    ROW_CELLS: tl.constexpr,
    WIDTH_CELLS: tl.constexpr,
    HEADS: tl.constexpr,
    GROUPS: tl.constexpr,
    BEAMS: tl.constexpr,
    HEAD: tl.constexpr,
    BIAS: tl.constexpr,
    TILE: tl.constexpr,
    CELLS: tl.constexpr,
    CHUNK: tl.constexpr,
    COLUMNS: tl.constexpr,
    PLACES: tl.constexpr,
    AHEAD: tl.constexpr,
    LINE: tl.constexpr,
    EARLY: tl.constexpr,
):
    sentence, head, rows = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.num_programs(0) * BEAMS
    group = head // (HEADS // GROUPS)
    beam, cell = tl.arange(0, TILE), tl.arange(0, CELLS)
    present, inside = beam < BEAMS, cell < HEAD
    query, key, value = head * HEAD + cell, (HEADS + group) * HEAD + cell, (HEADS + GROUPS + group) * HEAD + cell
    touch(weight, head * HEAD, HEAD, WIDTH, LINE, AHEAD)
    touch(weight, (HEADS + group) * HEAD, HEAD, WIDTH, LINE, AHEAD)
    touch(weight, (HEADS + GROUPS + group) * HEAD, HEAD, WIDTH, LINE, AHEAD)
    touch_columns(out_weight, head * HEAD, WIDTH, WIDTH_CELLS, HEADS * HEAD, CELLS, LINE, AHEAD)
    q = tl.zeros((TILE, CELLS), tl.float32)
    k = tl.zeros((TILE, CELLS), tl.float32)
    v = tl.zeros((TILE, CELLS), tl.float32)
    if BIAS:
        q += tl.load(bias + query, mask=inside, other=0.0).to(tl.float32)[None, :]
        k += tl.load(bias + key, mask=inside, other=0.0).to(tl.float32)[None, :]
        v += tl.load(bias + value, mask=inside, other=0.0).to(tl.float32)[None, :]
    ready(EARLY)
    at = tl.minimum(tl.load(positions + sentence), capacity - 1)
    own += (sentence * HEADS + head) * BEAMS * WIDTH
    read_rows(
        x, before, part_bias, norm_weight, norm_bias, total, own, sentence * BEAMS, rows, head == 0,
        BEAMS, WIDTH, PARTS, ADDED, PART_BIAS, NORM, EPS, AFTER, CHANGES, ROW_CELLS, WIDTH_CELLS,
    )  # fmt: skip
    for first in range(0, WIDTH, CHUNK):
        some = first + tl.arange(0, CHUNK)
        whole = some < WIDTH
        z = tl.load(own + beam[:, None] * WIDTH + some[None, :], mask=present[:, None] & whole[None, :], other=0.0)
        mask = inside[:, None] & whole[None, :]
        w = tl.load(weight + query[:, None] * WIDTH + some[None, :], mask=mask, other=0.0)
        q = tl.dot(z, tl.trans(w), q, input_precision="ieee")
        w = tl.load(weight + key[:, None] * WIDTH + some[None, :], mask=mask, other=0.0)
        k = tl.dot(z, tl.trans(w), k, input_precision="ieee")
        w = tl.load(weight + value[:, None] * WIDTH + some[None, :], mask=mask, other=0.0)
        v = tl.dot(z, tl.trans(w), v, input_precision="ieee")
    q, k, v = q.to(weight.dtype.element_ty), k.to(weight.dtype.element_ty), v.to(weight.dtype.element_ty)
    cache = (sentence * GROUPS + group) * (capacity * BEAMS) * HEAD
    if head % (HEADS // GROUPS) == 0:
        new = cache + (at * BEAMS + beam[:, None]) * HEAD + cell[None, :]
        mine = present[:, None] & inside[None, :]
        tl.store(keys + new, k.to(keys.dtype.element_ty), mask=mine)
        tl.store(values + new, v.to(values.dtype.element_ty), mask=mine)
    # a hypothesis sees what it writes now, and nothing of what the others do
    best = tl.sum(q.to(tl.float32) * k.to(tl.float32), axis=1) * scale
    share = best * 0.0 + 1.0
    row = sentence * BEAMS + beam
    best, share, mixed = look_back(
        q, keys, values, hidden, cache, row, beam, cell, 0, at * BEAMS, capacity, scale, best, share, v.to(tl.float32),
        BEAMS, HEAD, TILE, PLACES, False,
    )  # fmt: skip
    mixed = mixed / share[:, None]
    give_part(
        mixed, out_weight, parts + head * rows * WIDTH, row, present, head * HEAD + cell, inside,
        HEADS * HEAD, WIDTH, COLUMNS,
    )  # fmt: skip
