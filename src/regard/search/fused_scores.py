"""From logits to what a search needs of them, in one pass: their normaliser, bans, and the maxima of groups of tokens.

Rows x vocabulary is the largest tensor of a decoding step. Made of torch's own operations, the way from logits to ranked candidates
goes over it some six times, in float32. Here a row is read once, in the type that it has, and nothing of its size is written: bans
alone go into the logits, and tokens are then ranked by groups (see `ranking.largest`).

Triton is there where torch came with CUDA. Without it, and on a CPU, `usable` says no.
"""

# pyright: reportOptionalMemberAccess=false, reportInvalidTypeForm=false
from __future__ import annotations

import logging
from functools import cache

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.core.types import BOS, PAD, UNK
from regard.layers.decoding.triton_here import jit, tl, triton
from regard.search.ranking import GROUP

log = logging.getLogger(__name__)
MOST_GROUPS = 64  # of a row, in one turn
MOST_VOCABULARY = 1 << 20


@cache
def usable(device: str) -> bool:
    """Whether the kernel runs on a kind of device, and rightly: it is tried once."""
    if triton is None or device != "cuda" or torch.version.cuda is None or torch.cuda.get_device_capability() < (8, 0):
        return False
    try:
        with torch.inference_mode():
            return _is_right(torch.device(device))
    except Exception as error:  # whatever keeps a compiler from working here: there is another way
        log.warning("search: a kernel does not run here, and torch's own operations are taken: %s", str(error)[:300])
        return False


def _is_right(device: torch.device) -> bool:
    logits = torch.randn((3, 1000), device=device, generator=torch.Generator(device).manual_seed(1)).bfloat16()
    banned = torch.tensor([[0, 5], [3, 999], [64, 0]], device=device)
    expected = logits.float().logsumexp(-1, keepdim=True)
    left = logits.scatter(1, banned, float("-inf")).index_fill_(1, torch.tensor([0, 1], device=device), float("-inf"))
    norm, maxima = normalise_and_ban(logits, banned, False)
    groups = left[:, : maxima.shape[1] * GROUP].unflatten(-1, (-1, GROUP)).amax(-1)
    return bool((norm - expected).abs().max() < 1e-3) and torch.equal(maxima, groups) and torch.equal(logits, left)


def normalise_and_ban(
    logits: Float[Tensor, "N V"], banned: Int[Tensor, "N n"], unknown: bool
) -> tuple[Float[Tensor, "N 1"], Float[Tensor, "N G"]]:
    """log Σ exp of every row, in float32; then PAD, BOS, if so wanted UNK, and each row's `banned` become -inf, in place.

    Also the maxima of what is left, of every GROUP tokens that follow each other; a rest at the end has none.
    """
    rows, vocabulary = logits.shape
    assert logits.is_contiguous()
    assert banned.is_contiguous()
    norm = torch.empty((rows, 1), dtype=torch.float32, device=logits.device)
    maxima = torch.empty((rows, vocabulary // GROUP), dtype=logits.dtype, device=logits.device)
    groups = min(MOST_GROUPS, 1 << (-(-vocabulary // GROUP) - 1).bit_length())
    _normalise_and_ban[(rows,)](
        logits,
        banned,
        norm,
        maxima,
        VOCABULARY=vocabulary,
        UNKNOWN=UNK if unknown else PAD,
        FIRST=BOS + 1,  # PAD and BOS
        BANNED=banned.shape[1],
        GROUPS=groups,
        WIDTH=GROUP,
        num_warps=max(1, min(16, groups * GROUP // 512)),
    )
    return norm, maxima


@jit
def _normalise_and_ban(  # one program for each row
    logits,
    banned,
    norm,
    maxima,
    VOCABULARY: tl.constexpr,
    UNKNOWN: tl.constexpr,
    FIRST: tl.constexpr,
    BANNED: tl.constexpr,
    GROUPS: tl.constexpr,
    WIDTH: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    own = logits + row * VOCABULARY
    numbers = tl.arange(0, GROUPS)
    inside = numbers[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :]
    largest = -1e30  # finite: rows may begin with -inf
    total = 0.0
    for first in range(0, VOCABULARY, GROUPS * WIDTH):
        place = first + inside
        there = place < VOCABULARY
        raw = tl.load(own + place, mask=there, other=float("-inf"))
        z = raw.to(tl.float32)
        higher = tl.maximum(largest, tl.max(tl.max(z, axis=1), axis=0))
        total = total * tl.exp(largest - higher) + tl.sum(tl.sum(tl.exp(z - higher), axis=1), axis=0)
        largest = higher
        gone = (place < FIRST) | (place == UNKNOWN)
        for i in tl.static_range(BANNED):
            gone = gone | (place == tl.load(banned + row * BANNED + i))
        tl.store(own + place, tl.full((GROUPS, WIDTH), float("-inf"), raw.dtype), mask=gone & there)
        left = tl.max(tl.where(gone, float("-inf"), z), axis=1)
        group = first // WIDTH + numbers
        tl.store(maxima + row * (VOCABULARY // WIDTH) + group, left.to(raw.dtype), mask=group < VOCABULARY // WIDTH)
    tl.store(norm + row, largest + tl.log(total))
