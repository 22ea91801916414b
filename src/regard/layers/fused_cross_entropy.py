"""Cross-entropy and its gradient by the logits in one kernel, in place: logits go in, their gradients come out.

Rows x vocabulary is the largest tensor of training, and every pass over it takes as long as some layers do. Made of torch's own
operations, the way from logits to gradients goes over it eight times, in float32. Here a row is read twice, the second time from
the cache, and written once, in the type that it has; inside, everything is float32.

Triton is there where torch came with CUDA. Without it, and on a CPU, `usable` says no.
"""

# pyright: reportOptionalMemberAccess=false, reportInvalidTypeForm=false, reportMissingImports=false
from __future__ import annotations

import inspect
from functools import cache
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.core.types import PAD
from regard.layers.training.tiling import options, tiles_of

try:
    import triton
    import triton.language as tl
except ImportError:  # torch for CPUs comes without it
    triton = tl = None

MOST_COLUMNS = 8192  # of a row, in one turn
MOST_VOCABULARY = 1 << 20


@cache
def usable(device: str, vocabulary: int) -> bool:
    """Whether the kernel runs on a kind of device, and rightly: it is tried once."""
    if triton is None or device != "cuda" or not 2 <= vocabulary <= MOST_VOCABULARY:
        return False
    return torch.version.cuda is not None and torch.cuda.get_device_capability() >= (8, 0) and _works(device)


@cache
def _works(device: str) -> bool:
    try:
        with torch.inference_mode(), torch.autocast(device, enabled=False):
            return _is_right(torch.device(device))
    except Exception:  # whatever keeps a compiler from working (Triton needs one for C, too): there is another way
        return False


def _is_right(device: torch.device, dtype: torch.dtype = torch.bfloat16) -> bool:
    generator = torch.Generator(device).manual_seed(1)
    logits = torch.randn((3, 1000), device=device, generator=generator).to(dtype)
    bias = torch.randn(1000, device=device, generator=generator)
    target = torch.tensor([5, PAD, 999], device=device)
    z, real = logits.float() + bias, target != PAD
    d_z = (z.softmax(-1) - 0.9 * (torch.arange(1000, device=device) == target[:, None])) * real[:, None]
    lse, right = cross_entropy_in_place(logits, bias, target, 0.1)
    pairs = ((lse, z.logsumexp(-1) * real), (right, z.gather(1, target[:, None])[:, 0] * real), (logits.float(), d_z))
    return all(bool((found - expected).abs().max() < 5e-3) for found, expected in pairs)


def cross_entropy_in_place(
    logits: Float[Tensor, "N V"], bias: Float[Tensor, "V"] | None, target: Int[Tensor, "N"], smoothing: float
) -> tuple[Float[Tensor, "N"], Float[Tensor, "N"]]:
    """lse(z) and z_y of each row of z = logits + bias, in float32; the logits become softmax(z) - (1 - smoothing) onehot(y).

    The part of smoothing that is the same for a whole row is left to the caller. Rows whose target is padding become 0, and so do
    their lse and z_y.
    """
    rows, vocabulary = logits.shape
    assert logits.is_contiguous()
    assert target.is_contiguous()
    lse, right = (torch.empty(rows, dtype=torch.float32, device=logits.device) for _ in range(2))
    if not rows:
        return lse, right
    tiles = tiles_of("loss")
    columns = min(tiles.columns, 1 << (vocabulary - 1).bit_length())
    _kernel(_cross_entropy)[(rows,)](
        logits,
        target,
        lse if bias is None else bias,
        lse,
        right,
        vocabulary,
        smoothing - 1.0,
        HAS_BIAS=bias is not None,
        PADDING=PAD,
        COLUMNS=columns,
        **options(tiles, max(1, min(tiles.warps, columns // 512))),
    )
    return lse, right


def consistent_cross_entropy_in_place(
    logits: Float[Tensor, "N V"],
    bias: Float[Tensor, "V"] | None,
    target: Int[Tensor, "N"],
    smoothing: float,
    weight: float,
) -> tuple[Float[Tensor, "N"], Float[Tensor, "N"], Float[Tensor, "M"]]:
    """Likewise, where the second half of the rows repeats the first under another dropout (R-Drop).

    `weight` times the two-way divergence of each pair of rows comes third; the gradients that the logits become count it in.
    """
    rows, vocabulary = logits.shape
    assert logits.is_contiguous()
    assert target.is_contiguous()
    assert rows % 2 == 0
    lse, right = (torch.empty(rows, dtype=torch.float32, device=logits.device) for _ in range(2))
    divergence = torch.empty(rows // 2, dtype=torch.float32, device=logits.device)
    if rows:
        columns = min(MOST_COLUMNS // 2, 1 << (vocabulary - 1).bit_length())
        _kernel(_consistent)[(rows // 2,)](
            logits,
            target,
            lse if bias is None else bias,
            lse,
            right,
            divergence,
            rows // 2,
            vocabulary,
            smoothing - 1.0,
            weight,
            HAS_BIAS=bias is not None,
            PADDING=PAD,
            COLUMNS=columns,
            num_warps=max(1, min(16, columns // 256)),
        )
    return lse, right, divergence


@cache
def _kernel(function: Any) -> Any:
    """A kernel is compiled for each kind of input at its first use."""
    assert triton is not None
    return triton.jit(
        inspect.unwrap(function)
    )  # tests wrap functions to check shapes, and compilers want the function itself


def _cross_entropy(  # one program for each row
    logits,
    target,
    bias,
    lse,
    right,
    vocabulary,
    less,
    HAS_BIAS: tl.constexpr,  # type: ignore
    PADDING: tl.constexpr,  # type: ignore
    COLUMNS: tl.constexpr,  # type: ignore
):
    row = tl.program_id(0)
    begin = logits + row.to(tl.int64) * vocabulary
    y = tl.load(target + row)
    steps = tl.arange(0, COLUMNS)
    if y == PADDING:
        for at in range(0, vocabulary, COLUMNS):
            columns = at + steps
            none = tl.zeros((COLUMNS,), dtype=begin.dtype.element_ty)
            tl.store(begin + columns, none, mask=columns < vocabulary)
        tl.store(lse + row, 0.0)
        tl.store(right + row, 0.0)
    else:
        z_y = tl.load(begin + y).to(
            tl.float32
        )  # before anything is overwritten: the reductions below wait for all warps
        if HAS_BIAS:
            z_y += tl.load(bias + y).to(tl.float32)
        highest = -float("inf")
        total = 0.0
        for at in range(0, vocabulary, COLUMNS):
            columns = at + steps
            inside = columns < vocabulary
            z = tl.load(begin + columns, mask=inside, other=-float("inf")).to(tl.float32)
            if HAS_BIAS:
                z += tl.load(bias + columns, mask=inside, other=0.0).to(tl.float32)
            higher = tl.maximum(highest, tl.max(z, axis=0))
            total = total * tl.exp(highest - higher) + tl.sum(tl.exp(z - higher), axis=0)
            highest = higher
        sum_of_all = highest + tl.log(total)
        for at in range(0, vocabulary, COLUMNS):
            columns = at + steps
            inside = columns < vocabulary
            z = tl.load(begin + columns, mask=inside, other=-float("inf")).to(tl.float32)
            if HAS_BIAS:
                z += tl.load(bias + columns, mask=inside, other=0.0).to(tl.float32)
            d_z = tl.exp(z - sum_of_all) + tl.where(columns == y, less, 0.0)
            tl.store(begin + columns, d_z.to(begin.dtype.element_ty), mask=inside)
        tl.store(lse + row, sum_of_all)
        tl.store(right + row, z_y)


def _consistent(  # one program for each pair of rows
    logits,
    target,
    bias,
    lse,
    right,
    divergence,
    pairs,
    vocabulary,
    less,
    weight,
    HAS_BIAS: tl.constexpr,  # type: ignore
    PADDING: tl.constexpr,  # type: ignore
    COLUMNS: tl.constexpr,  # type: ignore
):
    row = tl.program_id(0)
    other = row + pairs
    first = logits + row.to(tl.int64) * vocabulary
    second = logits + other.to(tl.int64) * vocabulary
    y = tl.load(target + row)
    steps = tl.arange(0, COLUMNS)
    if y == PADDING:
        for at in range(0, vocabulary, COLUMNS):
            columns = at + steps
            none = tl.zeros((COLUMNS,), dtype=first.dtype.element_ty)
            tl.store(first + columns, none, mask=columns < vocabulary)
            tl.store(second + columns, none, mask=columns < vocabulary)
        tl.store(lse + row, 0.0)
        tl.store(lse + other, 0.0)
        tl.store(right + row, 0.0)
        tl.store(right + other, 0.0)
        tl.store(divergence + row, 0.0)
    else:
        a_y = tl.load(first + y).to(tl.float32)  # before anything is overwritten, as above
        b_y = tl.load(second + y).to(tl.float32)
        if HAS_BIAS:
            bias_y = tl.load(bias + y).to(tl.float32)
            a_y += bias_y
            b_y += bias_y
        a_highest = -float("inf")
        b_highest = -float("inf")
        a_total = 0.0
        b_total = 0.0
        for at in range(0, vocabulary, COLUMNS):
            columns = at + steps
            inside = columns < vocabulary
            a = tl.load(first + columns, mask=inside, other=-float("inf")).to(tl.float32)
            b = tl.load(second + columns, mask=inside, other=-float("inf")).to(tl.float32)
            if HAS_BIAS:
                added = tl.load(bias + columns, mask=inside, other=0.0).to(tl.float32)
                a += added
                b += added
            a_higher = tl.maximum(a_highest, tl.max(a, axis=0))
            b_higher = tl.maximum(b_highest, tl.max(b, axis=0))
            a_total = a_total * tl.exp(a_highest - a_higher) + tl.sum(tl.exp(a - a_higher), axis=0)
            b_total = b_total * tl.exp(b_highest - b_higher) + tl.sum(tl.exp(b - b_higher), axis=0)
            a_highest = a_higher
            b_highest = b_higher
        a_lse = a_highest + tl.log(a_total)
        b_lse = b_highest + tl.log(b_total)
        a_to_b = 0.0  # KL(a || b), without the bias: it is the same in both
        b_to_a = 0.0
        for at in range(0, vocabulary, COLUMNS):
            columns = at + steps
            inside = columns < vocabulary
            a = tl.load(first + columns, mask=inside, other=0.0).to(tl.float32)
            b = tl.load(second + columns, mask=inside, other=0.0).to(tl.float32)
            gap = (a - a_lse) - (b - b_lse)
            if HAS_BIAS:
                added = tl.load(bias + columns, mask=inside, other=0.0).to(tl.float32)
                a += added
                b += added
            a_to_b += tl.sum(tl.where(inside, tl.exp(a - a_lse) * gap, 0.0), axis=0)
            b_to_a -= tl.sum(tl.where(inside, tl.exp(b - b_lse) * gap, 0.0), axis=0)
        for at in range(0, vocabulary, COLUMNS):
            columns = at + steps
            inside = columns < vocabulary
            a = tl.load(first + columns, mask=inside, other=0.0).to(tl.float32)
            b = tl.load(second + columns, mask=inside, other=0.0).to(tl.float32)
            gap = (a - a_lse) - (b - b_lse)
            if HAS_BIAS:
                added = tl.load(bias + columns, mask=inside, other=0.0).to(tl.float32)
                a += added
                b += added
            p = tl.exp(a - a_lse)
            q = tl.exp(b - b_lse)
            right_one = tl.where(columns == y, less, 0.0)
            d_a = p * (1.0 + weight * (gap + 1.0 - a_to_b)) - weight * q + right_one
            d_b = q * (1.0 + weight * (1.0 - gap - b_to_a)) - weight * p + right_one
            tl.store(first + columns, d_a.to(first.dtype.element_ty), mask=inside)
            tl.store(second + columns, d_b.to(second.dtype.element_ty), mask=inside)
        tl.store(lse + row, a_lse)
        tl.store(lse + other, b_lse)
        tl.store(right + row, a_y)
        tl.store(right + other, b_y)
        tl.store(divergence + row, weight * (a_to_b + b_to_a))
