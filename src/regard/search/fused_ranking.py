"""The likeliest tokens of each row in one kernel, from logits of which the maxima of groups are known.

What is among the n largest is in one of the n groups with the largest maxima. Of equal values, those of lower tokens come first,
which is also how groups are chosen: so the choice is exact, and the same every time.
"""

# pyright: reportOptionalMemberAccess=false, reportInvalidTypeForm=false
from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.layers.decoding.triton_here import jit, launch, power_of_2, ready, tl
from regard.layers.decoding.vocabulary import Logits

FEW_ROWS = 256  # rows up to here get a program of several warps each


class Candidates(NamedTuple):
    """The likeliest tokens of each row, best first, and their log-probabilities."""

    own: Float[Tensor, "N C"]
    tokens: Int[Tensor, "N C"]


def likeliest(logits: Logits, count: int) -> Candidates:
    """By kernels: where there are none, `ranking.best` does it."""
    rows = len(logits.values)
    own = logits.values.new_empty((rows, count), dtype=torch.float32)
    tokens = torch.empty((rows, count), dtype=torch.long, device=own.device)
    launch(
        _likeliest,
        (rows,),
        *tensors_of(logits),
        own,
        tokens,
        **sizes_of(logits),
        COUNT=count,
        CANDIDATES=power_of_2(count),
        num_warps=4 if rows <= FEW_ROWS else 1,
    )
    return Candidates(own, tokens)


def tensors_of(logits: Logits) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return logits.values, logits.maxima, logits.highest, logits.sums


def sizes_of(logits: Logits) -> dict[str, int]:
    """What kernels that read logits know of them beforehand."""
    vocabulary, groups = logits.values.shape[1], logits.maxima.shape[1]
    parts = logits.highest.shape[1]
    return {
        "VOCABULARY": vocabulary,
        "STRIDE": logits.values.stride(0),
        "GROUPS": groups,
        "GROUP_CELLS": power_of_2(groups),
        "GROUP": logits.group,
        "PARTS": parts,
        "PART_CELLS": power_of_2(parts),
    }


@jit
def ordered(value):
    """A float32 as a number that is larger if it is; nan is the largest, and the zeros are one."""
    value = tl.where(value == 0.0, 0.0, value)
    bits = value.to(tl.int32, bitcast=True)
    bits = tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits)
    return tl.where(value != value, 0x7FC00000, bits)


@jit
def keyed(value, index):
    """A value and its index as one number: it is larger if the value is, or of equal values if the index is lower."""
    return (ordered(value).to(tl.int64) << 32) | (0x7FFFFFFF - index).to(tl.int64)


@jit
def value_of(key):
    bits = (key >> 32).to(tl.int32)
    return tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits).to(tl.float32, bitcast=True)


@jit
def index_of(key):
    return 0x7FFFFFFF - (key & 0x7FFFFFFF)


@jit
def normaliser(highest, sums, row, PARTS: tl.constexpr, PART_CELLS: tl.constexpr):
    part = tl.arange(0, PART_CELLS)
    high = tl.load(highest + row * PARTS + part, mask=part < PARTS, other=float("-inf"))
    some = tl.load(sums + row * PARTS + part, mask=part < PARTS, other=0.0)
    top = tl.max(high, axis=0)
    return top + tl.log(tl.sum(some * tl.exp(high - top), axis=0))


@jit
def keys_of_groups(maxima, row, GROUPS: tl.constexpr, GROUP_CELLS: tl.constexpr):
    number = tl.arange(0, GROUP_CELLS)
    value = tl.load(maxima + row * GROUPS + number, mask=number < GROUPS, other=0.0).to(tl.float32)
    return tl.where(number < GROUPS, keyed(value, number), -0x7FFFFFFFFFFFFFFF)


@jit
def _likeliest(
    values,
    maxima,
    highest,
    sums,
    own,
    tokens,
    VOCABULARY: tl.constexpr,
    STRIDE: tl.constexpr,
    GROUPS: tl.constexpr,
    GROUP_CELLS: tl.constexpr,
    GROUP: tl.constexpr,
    PARTS: tl.constexpr,
    PART_CELLS: tl.constexpr,
    COUNT: tl.constexpr,
    CANDIDATES: tl.constexpr,
    EARLY: tl.constexpr,
):
    ready(EARLY)
    row = tl.program_id(0).to(tl.int64)
    subtracted = normaliser(highest, sums, row, PARTS, PART_CELLS)
    number = tl.arange(0, CANDIDATES)
    groups = keys_of_groups(maxima, row, GROUPS, GROUP_CELLS)
    chosen = number.to(tl.int64) * 0 - 1
    for i in range(COUNT):
        key = tl.max(groups, axis=0)
        chosen = tl.where((number == i) & (key > -0x7FFFFFFFFFFFFFFF), index_of(key), chosen)
        groups = tl.where(groups == key, -0x7FFFFFFFFFFFFFFF, groups)
    place = chosen[:, None] * GROUP + tl.arange(0, GROUP)[None, :]
    there = (chosen >= 0)[:, None] & (place < VOCABULARY)
    value = tl.load(values + row * STRIDE + place, mask=there, other=0.0).to(tl.float32)
    keys = tl.where(there, keyed(value, place), -0x7FFFFFFFFFFFFFFF)
    best = chosen * 0
    for i in range(COUNT):
        key = tl.max(tl.max(keys, axis=1), axis=0)
        best = tl.where(number == i, key, best)
        keys = tl.where(keys == key, -0x7FFFFFFFFFFFFFFF, keys)
    tl.store(own + row * COUNT + number, value_of(best) - subtracted, mask=number < COUNT)
    tl.store(tokens + row * COUNT + number, index_of(best), mask=number < COUNT)
