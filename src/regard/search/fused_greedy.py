"""The end of a greedy step in one kernel, in place: the likeliest token, and what it changes. See `GreedySearch.extend`."""

# pyright: reportOptionalMemberAccess=false, reportInvalidTypeForm=false
from __future__ import annotations

import torch
from torch import Tensor

from regard.core.types import EOS
from regard.layers.decoding.triton_here import jit, launch, ready, tl
from regard.layers.decoding.vocabulary import Logits
from regard.search.fused_ranking import (
    index_of,
    keyed,
    keys_of_groups,
    normaliser,
    sizes_of,
    tensors_of,
    value_of,
)
from regard.search.greedy import GreedyWork


def write_likeliest(work: GreedyWork, logits: Logits, positions: Tensor) -> None:
    """Writes a token of every text into `work`, and counts it in the state's `positions`."""
    live = work.live
    launch(
        _write_likeliest,
        (len(work.at),),
        *tensors_of(logits),
        live.tokens,
        live.log_probs,
        live.total,
        work.at,
        work.limit,
        work.done.view(torch.uint8),
        work.broken.view(torch.uint8),
        work.finished.view(torch.uint8),
        positions,
        live.tokens.shape[-1],
        live.log_probs.shape[-1],
        **sizes_of(logits),
        END=EOS,
        num_warps=4,
    )


@jit
def _write_likeliest(
    values,
    maxima,
    highest,
    sums,
    tokens,
    log_probs,
    totals,
    lengths,
    limits,
    dones,
    brokens,
    finisheds,
    positions,
    places,
    room,
    VOCABULARY: tl.constexpr,
    STRIDE: tl.constexpr,
    GROUPS: tl.constexpr,
    GROUP_CELLS: tl.constexpr,
    GROUP: tl.constexpr,
    PARTS: tl.constexpr,
    PART_CELLS: tl.constexpr,
    END: tl.constexpr,
    EARLY: tl.constexpr,
):
    ready(EARLY)
    row = tl.program_id(0).to(tl.int64)
    subtracted = normaliser(highest, sums, row, PARTS, PART_CELLS)
    group = index_of(tl.max(keys_of_groups(maxima, row, GROUPS, GROUP_CELLS), axis=0))
    place = group * GROUP + tl.arange(0, GROUP)
    there = place < VOCABULARY
    value = tl.load(values + row * STRIDE + place, mask=there, other=0.0).to(tl.float32)
    best = tl.max(tl.where(there, keyed(value, place), -0x7FFFFFFFFFFFFFFF), axis=0)
    token = index_of(best)
    own = value_of(best) - subtracted
    at, limit = tl.load(lengths + row), tl.load(limits + row)
    old = tl.load(totals + row)
    total = old + own.to(old.dtype)
    is_open, is_end = tl.load(dones + row) == 0, token == END
    broken = (tl.load(brokens + row) != 0) | ((total != total) & is_open)
    written = is_open & (total > float("-inf")) & (is_end | (at < limit))
    finished = (tl.load(finisheds + row) != 0) | (written & is_end)
    tl.store(totals + row, tl.where(written, total, old))
    tl.store(tokens + row * places + (places - room) + at, token)
    tl.store(log_probs + row * room + at, own)
    tl.store(dones + row, tl.where(written & (token != END), 0, 1).to(tl.uint8))
    tl.store(brokens + row, tl.where(broken, 1, 0).to(tl.uint8))
    tl.store(finisheds + row, tl.where(finished, 1, 0).to(tl.uint8))
    tl.store(lengths + row, at + tl.where(is_open, 1, 0))
    tl.store(positions + row, tl.load(positions + row) + 1)
