"""From states to logits, with what a search reads of them made small: for few rows in one kernel, for many in two.

Besides the logits, each program leaves of the tokens that are its own: the largest logit and the sum of exponentials, from which
whoever reads them has the normaliser; and the largest logits that are not forbidden, of groups of tokens, so that the likeliest
tokens are found without reading all.
"""

# pyright: reportOptionalMemberAccess=false, reportInvalidTypeForm=false, reportPossiblyUnboundVariable=false
from __future__ import annotations

from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.layers.decoding.kernel_choice import chosen
from regard.layers.decoding.pending import ahead, touch
from regard.layers.decoding.products import (
    FEWEST,
    MOST_CELLS,
    Linear,
    Norm,
    around,
    normalised,
    tensors_of,
    tile_product,
    tiling,
)
from regard.layers.decoding.triton_here import jit, launch, power_of_2, ready, runs_on, tl

NEVER = float("-inf")
LOWEST = -1e30  # below all logits that are possible; what is subtracted must be finite
APART = 64  # logits, of which rows that are apart begin at multiples: a line of memory
GROUP = 64  # tokens of which maxima are known, where rows are many
PART, WARPS = 4096, 8  # tokens that a program reads, where rows are many, and its warps
CROWD, CROWD_PART, CROWD_WARPS = 1024, 2048, 2  # from so many rows on: as many tokens and warps


class Logits(NamedTuple):
    """Logits of rows, -inf where forbidden, and what is known of every `group` tokens that follow each other."""

    values: Float[Tensor, "N V"]
    maxima: Float[Tensor, "N G"]  # of what is not forbidden
    highest: Float[Tensor, "N P"]  # of parts of the vocabulary, forbidden or not
    sums: Float[Tensor, "N P"]  # of exp(logit - highest)
    group: int

    def normaliser(self) -> Float[Tensor, "N 1"]:
        """log Σ exp of all logits, forbidden or not."""
        return (self.highest + self.sums.log()).logsumexp(-1, keepdim=True)


def singly(rows: int) -> bool:
    """Whether rows are multiplied one by one, without tensor cores."""
    return rows <= FEWEST and not chosen().tiles


def group_of(rows: int, inputs: int) -> int:
    """How many tokens a program of `logits` has."""
    cells = MOST_CELLS // (1 if rows <= 2 else 2)
    return max(1, min(GROUP, cells // power_of_2(inputs))) if singly(rows) else GROUP


def logits(
    x: Float[Tensor, "N D"],
    linear: Linear,
    norm: Norm | None,
    banned: Int[Tensor, "N n"],
    specials: int,
    also: int,
) -> Logits:
    """Of norm(x). Forbidden are the tokens below `specials`, the token `also`, and each row's own, `banned`. In float32."""
    rows, inputs = x.shape
    outputs = len(linear.weight)
    few, group = singly(rows), group_of(rows, inputs)
    blocks = -(-outputs // group)
    if not runs_on(x):
        return _forbid(linear(x if norm is None else norm(x)).float(), banned, specials, also, group)
    values = x.new_empty((rows, outputs), dtype=torch.float32)
    maxima, highest, sums = (x.new_empty((rows, blocks), dtype=torch.float32) for _ in range(3))
    weight, bias = linear
    launch(
        _one_by_one if few else _tiles,
        (blocks,),
        x,
        weight,
        weight if bias is None else bias,
        *tensors_of(norm, x),
        banned,
        values,
        maxima,
        highest,
        sums,
        **around(x, linear, norm),
        SPECIALS=specials,
        ALSO=also,
        BANNED=banned.shape[1],
        **tiling(rows, inputs, group, few),
        **({} if few else _ahead(weight)),
    )
    return Logits(values, maxima, highest, sums, group)


def _ahead(weight: Tensor) -> dict[str, Any]:
    """Only together with `tiles`: more rows have never been measured so."""
    found = ahead(weight)
    return found | {"AHEAD": found["AHEAD"] and chosen().tiles}


def forbid(
    values: Float[Tensor, "N V"],
    banned: Int[Tensor, "N n"],
    specials: int,
    also: int,
    rest: tuple[Float[Tensor, "N D"], Linear] | None = None,
) -> Logits:
    """Of logits that are there, of any type: forbidden ones become -inf in place. Their rows may be apart.

    `rest`: the last tokens' logits are not there yet, and are those of these states by this product.
    """
    if not runs_on(values):
        if rest is not None:
            x, linear = rest
            values[:, values.shape[1] - len(linear.weight) :] = linear(x)
        return _forbid(values, banned, specials, also, GROUP)
    rows, vocabulary = values.shape
    x, (weight, bias) = (values, Linear(values, None)) if rest is None else rest
    inputs, tokens = (0, 0) if rest is None else (x.shape[1], len(weight))
    part, warps = (CROWD_PART, CROWD_WARPS) if rows >= CROWD else (PART, WARPS)
    parts, groups = -(-vocabulary // part), -(-vocabulary // GROUP)
    assert vocabulary - tokens >= part * (parts - 1)  # the last program has them all
    maxima = values.new_empty((rows, groups), dtype=torch.float32)
    highest, sums = (values.new_empty((rows, parts), dtype=torch.float32) for _ in range(2))
    launch(
        _forbid_in_place,
        (rows, parts),
        values,
        banned,
        maxima,
        highest,
        sums,
        x,
        weight,
        values if bias is None else bias,
        VOCABULARY=vocabulary,
        STRIDE=values.stride(0),
        ALL_GROUPS=groups,
        SPECIALS=specials,
        ALSO=also,
        BANNED=banned.shape[1],
        GROUPS=part // GROUP,
        GROUP=GROUP,
        REST=tokens,
        REST_CELLS=power_of_2(tokens),
        INPUTS=inputs,
        CELLS=min(512, power_of_2(inputs)),
        BIAS=bias is not None,
        num_warps=warps,
    )
    return Logits(values, maxima, highest, sums, GROUP)


def _forbid(values: Tensor, banned: Tensor, specials: int, also: int, group: int) -> Logits:
    """What the kernels do, by torch's own operations."""
    more = -values.shape[1] % group
    parts = torch.nn.functional.pad(values.float(), (0, more), value=NEVER).unflatten(1, (-1, group))
    highest = parts.amax(-1)
    sums = (parts - highest[..., None].clamp(min=LOWEST)).exp().sum(-1)
    values.scatter_(1, banned, NEVER)
    values[:, :specials].fill_(NEVER)
    values[:, also].fill_(NEVER)
    maxima = torch.nn.functional.pad(values.float(), (0, more), value=NEVER).unflatten(1, (-1, group)).amax(-1)
    return Logits(values, maxima, highest, sums, group)


@jit
def write_rest(
    values, x, weight, bias,
    REST: tl.constexpr, REST_CELLS: tl.constexpr, INPUTS: tl.constexpr, CELLS: tl.constexpr, BIAS: tl.constexpr,
):  # fmt: skip
    """The logits of a few tokens in one row."""
    token = tl.arange(0, REST_CELLS)
    there = token < REST
    y = tl.zeros((REST_CELLS,), tl.float32)
    for first in range(0, INPUTS, CELLS):
        cell = first + tl.arange(0, CELLS)
        inside = cell < INPUTS
        z = tl.load(x + cell, mask=inside, other=0.0).to(tl.float32)
        mask = there[:, None] & inside[None, :]
        w = tl.load(weight + token[:, None] * INPUTS + cell[None, :], mask=mask, other=0.0)
        y += tl.sum(w.to(tl.float32) * z[None, :], axis=1)
    if BIAS:
        y += tl.load(bias + token, mask=there, other=0.0).to(tl.float32)
    tl.store(values + token, y.to(values.dtype.element_ty), mask=there)


@jit
def _forbid_in_place(
    values,
    banned,
    maxima,
    highest,
    sums,
    x,
    weight,
    bias,
    VOCABULARY: tl.constexpr,
    STRIDE: tl.constexpr,
    ALL_GROUPS: tl.constexpr,
    SPECIALS: tl.constexpr,
    ALSO: tl.constexpr,
    BANNED: tl.constexpr,
    GROUPS: tl.constexpr,
    GROUP: tl.constexpr,
    REST: tl.constexpr,
    REST_CELLS: tl.constexpr,
    INPUTS: tl.constexpr,
    CELLS: tl.constexpr,
    BIAS: tl.constexpr,
    EARLY: tl.constexpr,
):
    ready(EARLY)
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    if REST:
        if part == tl.num_programs(1) - 1:
            write_rest(
                values + row * STRIDE + (VOCABULARY - REST), x + row * INPUTS, weight, bias,
                REST, REST_CELLS, INPUTS, CELLS, BIAS,
            )  # fmt: skip
        tl.debug_barrier()  # other threads of the program read what was written
    first = part * (GROUPS * GROUP)
    group = part * GROUPS + tl.arange(0, GROUPS)
    place = group[:, None] * GROUP + tl.arange(0, GROUP)[None, :]
    there = place < VOCABULARY
    raw = tl.load(values + row * STRIDE + place, mask=there, other=float("-inf"))
    y = raw.to(tl.float32)
    left = tl.max(y, axis=1)
    top = tl.max(left, axis=0)
    total = tl.sum(tl.sum(tl.exp(y - tl.maximum(top, -1e30)), axis=1), axis=0)
    some = (first < SPECIALS) | ((first <= ALSO) & (first + GROUPS * GROUP > ALSO))
    for i in tl.static_range(BANNED):
        one = tl.load(banned + row * BANNED + i)
        some = some | ((one >= first) & (one < first + GROUPS * GROUP))
    if some:  # most programs have nothing that is forbidden
        gone = (place < SPECIALS) | (place == ALSO)
        for i in tl.static_range(BANNED):
            gone = gone | (place == tl.load(banned + row * BANNED + i))
        never = tl.full((GROUPS, GROUP), float("-inf"), raw.dtype)
        tl.store(values + row * STRIDE + place, never, mask=gone & there)
        left = tl.max(tl.where(gone, float("-inf"), y), axis=1)
    tl.store(maxima + row * ALL_GROUPS + group, left, mask=group < ALL_GROUPS)
    at = row * tl.num_programs(1) + part
    tl.store(highest + at, top)
    tl.store(sums + at, total)


@jit
def _one_by_one(
    x,
    weight,
    bias,
    norm_weight,
    norm_bias,
    banned,
    values,
    maxima,
    highest,
    sums,
    INPUTS: tl.constexpr,
    OUTPUTS: tl.constexpr,
    BIAS: tl.constexpr,
    NORM: tl.constexpr,
    EPS: tl.constexpr,
    SPECIALS: tl.constexpr,
    ALSO: tl.constexpr,
    BANNED: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    CELLS: tl.constexpr,
    EARLY: tl.constexpr,
):
    block, blocks = tl.program_id(0), tl.num_programs(0)
    columns = block * COLUMNS + tl.arange(0, COLUMNS)
    cells = tl.arange(0, CELLS)
    there, whole = columns < OUTPUTS, cells < INPUTS
    place = columns[:, None].to(tl.int64) * INPUTS + cells[None, :]
    w = tl.load(weight + place, mask=there[:, None] & whole[None, :], other=0.0)
    ready(EARLY)
    for row in tl.static_range(ROWS):
        z = tl.load(x + row * INPUTS + cells, mask=whole, other=0.0).to(tl.float32)
        if NORM:
            z = normalised(z, norm_weight, norm_bias, cells, whole, INPUTS, NORM, EPS)
        y = tl.sum(w.to(tl.float32) * z[None, :], axis=1)
        if BIAS:
            y += tl.load(bias + columns, mask=there, other=0.0).to(tl.float32)
        y = tl.where(there, y, float("-inf"))
        top = tl.max(y, axis=0)
        gone = (columns < SPECIALS) | (columns == ALSO)
        for i in tl.static_range(BANNED):
            gone = gone | (columns == tl.load(banned + row * BANNED + i))
        left = tl.where(gone, float("-inf"), y)
        tl.store(values + row * OUTPUTS + columns, left, mask=there)
        tl.store(maxima + row * blocks + block, tl.max(left, axis=0))
        tl.store(highest + row * blocks + block, top)
        tl.store(sums + row * blocks + block, tl.sum(tl.exp(y - tl.maximum(top, -1e30)), axis=0))


@jit
def _tiles(
    x,
    weight,
    bias,
    norm_weight,
    norm_bias,
    banned,
    values,
    maxima,
    highest,
    sums,
    rows_there,
    INPUTS: tl.constexpr,
    OUTPUTS: tl.constexpr,
    BIAS: tl.constexpr,
    NORM: tl.constexpr,
    EPS: tl.constexpr,
    SPECIALS: tl.constexpr,
    ALSO: tl.constexpr,
    BANNED: tl.constexpr,
    TILE: tl.constexpr,
    COLUMNS: tl.constexpr,
    CELLS: tl.constexpr,
    AHEAD: tl.constexpr,
    LINE: tl.constexpr,
    EARLY: tl.constexpr,
):
    block, blocks = tl.program_id(0), tl.num_programs(0)
    columns = block * COLUMNS + tl.arange(0, COLUMNS)
    rows = tl.arange(0, TILE)
    present, there = rows < rows_there, columns < OUTPUTS
    touch(weight, block * COLUMNS, tl.minimum(COLUMNS, OUTPUTS - block * COLUMNS), INPUTS, LINE, AHEAD)
    ready(EARLY)
    y = tile_product(
        x, weight, norm_weight, norm_bias, rows, present, columns,
        INPUTS, OUTPUTS, NORM, EPS, TILE, COLUMNS, CELLS,
    )  # fmt: skip
    if BIAS:
        y += tl.load(bias + columns, mask=there, other=0.0).to(tl.float32)[None, :]
    y = tl.where(there[None, :], y, float("-inf"))
    top = tl.max(y, axis=1)
    gone = ((columns < SPECIALS) | (columns == ALSO))[None, :] & (rows >= 0)[:, None]
    for i in tl.static_range(BANNED):
        own = tl.load(banned + rows * BANNED + i, mask=present, other=0)
        gone = gone | (columns[None, :] == own[:, None])
    left = tl.where(gone, float("-inf"), y)
    tl.store(values + rows[:, None] * OUTPUTS + columns[None, :], left, mask=present[:, None] & there[None, :])
    at = rows * blocks + block
    tl.store(maxima + at, tl.max(left, axis=1), mask=present)
    tl.store(highest + at, top, mask=present)
    finite = tl.maximum(top, -1e30)
    tl.store(sums + at, tl.sum(tl.exp(y - finite[:, None]), axis=1), mask=present)
