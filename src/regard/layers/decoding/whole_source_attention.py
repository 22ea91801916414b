"""Attention of few rows over the source, with the products before and after it, in one kernel: see `whole_attention`."""

# pyright: reportOptionalMemberAccess=false, reportInvalidTypeForm=false, reportPossiblyUnboundVariable=false
from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from regard.layers.decoding.attention import PLACES, attend_memory, look_over
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
from regard.layers.decoding.products import Linear, Norm, tile_product
from regard.layers.decoding.triton_here import jit, launch, power_of_2, ready, runs_on, tl
from regard.layers.decoding.whole_attention import parts_of_heads


def attend_source(
    pending: Pending,
    norm: Norm | None,
    query: Linear,
    out: Linear,
    keys: Float[Tensor, "B H S Dh"],
    values: Float[Tensor, "B H S Dh"],
    keep: Bool[Tensor, "B S"],
    *,
    scale: float,
    after: Norm | None,
    residual: bool,
) -> Pending:
    """See `attend_memory`, which this does with the products before and after it."""
    x, weight = pending.x, query.weight
    sentences, heads, length, head = keys.shape
    if not runs_on(x):
        total, z = pending.read(norm)
        mixed = attend_memory(query(z.to(weight.dtype)), keys, values, keep, scale)
        return Pending(total, parts_of_heads(mixed, out, heads), out.bias, after, residual)
    beams = len(x) // sentences
    read = reading(pending, norm, sentences * heads, beams, weight.dtype)
    parts = x.new_empty((heads, *x.shape), dtype=torch.float32)
    cells = max(16, power_of_2(head))
    launch(
        _attend_source,
        (sentences, heads),
        *read.tensors,
        weight,
        weight if query.bias is None else query.bias,
        out.weight,
        keys,
        values,
        keep.view(torch.uint8),
        parts,
        scale,
        length,
        *keys.stride()[:3],
        *values.stride()[:3],
        keep.stride(0),
        **read.shape,
        HEADS=heads,
        BEAMS=beams,
        HEAD=head,
        BIAS=query.bias is not None,
        TILE=max(16, power_of_2(beams)),
        CELLS=cells,
        CHUNK=turn(cells, weight),
        COLUMNS=turn(cells, out.weight.t()),
        PLACES=min(PLACES, max(16, power_of_2(length))),
        **ahead(weight, out.weight),
        num_warps=8,
        num_stages=STAGES,
    )
    return Pending(read.total, parts, out.bias, after, residual)


@jit
def _attend_source(
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
    keep,
    parts,
    scale,
    length,
    key_sentence,
    key_head,
    key_place,
    value_sentence,
    value_head,
    value_place,
    keep_sentence,
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
    beam, cell = tl.arange(0, TILE), tl.arange(0, CELLS)
    present, inside, mine = beam < BEAMS, cell < HEAD, head * HEAD + cell
    touch(weight, head * HEAD, HEAD, WIDTH, LINE, AHEAD)
    touch_columns(out_weight, head * HEAD, WIDTH, WIDTH_CELLS, HEADS * HEAD, CELLS, LINE, AHEAD)
    if BIAS:
        added = tl.load(bias + mine, mask=inside, other=0.0).to(tl.float32)[None, :]
    ready(EARLY)
    own += (sentence * HEADS + head) * BEAMS * WIDTH
    read_rows(
        x, before, part_bias, norm_weight, norm_bias, total, own, sentence * BEAMS, rows, head == 0,
        BEAMS, WIDTH, PARTS, ADDED, PART_BIAS, NORM, EPS, AFTER, CHANGES, ROW_CELLS, WIDTH_CELLS,
    )  # fmt: skip
    q = tile_product(
        own, weight, norm_weight, norm_bias, beam, present, mine, WIDTH, HEADS * HEAD, 0, EPS, TILE, CELLS, CHUNK
    )
    if BIAS:
        q += added
    q = q.to(weight.dtype.element_ty)
    best = tl.sum(q.to(tl.float32), axis=1) * 0.0 - 1e30
    best, share, mixed = look_over(
        q, keys, values, keep, sentence, head, cell, 0, length, scale, key_sentence, key_head, key_place,
        value_sentence, value_head, value_place, keep_sentence, best, best * 0.0, tl.zeros((TILE, CELLS), tl.float32),
        HEAD, TILE, PLACES,
    )  # fmt: skip
    mixed = mixed / share[:, None]
    give_part(
        mixed, out_weight, parts + head * rows * WIDTH, sentence * BEAMS + beam, present, mine, inside,
        HEADS * HEAD, WIDTH, COLUMNS,
    )  # fmt: skip
