"""Kernels of short attention against the reference, for Triton's interpreter (see test_short_attention)."""

from __future__ import annotations

import itertools
from unittest.mock import Mock

import torch
from torch import Tensor

from regard.core.types import Spans
from regard.layers.attention.relative.rotary import Rotary, turns
from regard.layers.decoding import triton_here
from regard.layers.training import short_attention
from regard.layers.training.short_attention import cross_attention, self_attention
from regard.layers.training.turned import Turning

# sentences, queries, keys, heads, head width: tiles that are full and not, one block of queries and several
SIZES = ((2, 5, 7, 2, 16), (1, 16, 16, 1, 32), (2, 33, 20, 3, 16), (1, 1, 40, 1, 64), (1, 100, 65, 1, 32))
HALF_SIZES = ((1, 100, 65, 1, 64), (2, 20, 33, 2, 128))
LAUNCH = short_attention._launch


def both(function, *given: Tensor) -> None:
    """Results and gradients of kernels, and of the reference."""
    found, launch = [], Mock(wraps=LAUNCH)
    short_attention._launch = launch
    for here in (True, False):
        short_attention.runs_on = lambda tensor, here=here: here  # type: ignore[attr-defined]
        own = [x.clone().requires_grad_() for x in given]
        out = function(*(x.clone() for x in own))  # some may be changed in place
        d_out = torch.arange(out.numel()).sin().view(out.shape)
        found.append((out, *torch.autograd.grad(out, own, d_out.to(out.dtype))))
    assert launch.call_count == 2  # forward and backward
    near = 2e-5 if given[0].dtype == torch.float32 else 5e-3
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=near, atol=near)


def check(dtype: torch.dtype, sentences: int, tokens: int, keys: int, heads: int, width: int) -> None:
    for hides in (False, True):
        keep = torch.rand(sentences, keys) > 0.3 if hides else None
        if keep is not None:
            keep[0] = False  # a source of which nothing is seen
        query = torch.randn(sentences, tokens, heads * width).to(dtype)
        memory = torch.randn(sentences, keys, 2 * heads * width).to(dtype)
        both(lambda q, kv, keep=keep: cross_attention(q, kv, heads, keep), query, memory)
        keep = torch.rand(sentences, tokens) > 0.3 if hides else None
        packed = torch.randn(sentences, tokens, 3 * heads * width).to(dtype)
        for causal, turning in itertools.product((False, True), turnings(tokens, width)):
            given = heads, keep, causal, None, turning
            both(lambda x, given=given: self_attention(x, *given), packed)


def turnings(tokens: int, width: int) -> list[Turning | None]:
    """None, and those of rotary positions in both layouts."""
    by, layouts = turns(torch.arange(tokens)[None], width, 100.0), ("interleaved", "halves")
    return [None, *(Turning.of(Rotary(width, layout=layout, base=100.0), by) for layout in layouts)]


def check_strides() -> None:
    """Tensors that are parts of others, or turned; a gradient that is one number, and a mask that is every second one."""
    packed, keep = torch.randn(2, 9, 200), torch.rand(2, 18) > 0.3
    both(lambda x: self_attention(x[..., 8:], 4, keep[:, ::2], False), packed)
    both(lambda x: self_attention(x.transpose(0, 1), 1, None, True), torch.randn(9, 2, 48))
    both(lambda x: self_attention(x.transpose(1, 2), 1, None, True), torch.randn(2, 48, 9))
    both(lambda x: self_attention(x, 1, keep[:, :9], True).sum(), torch.randn(2, 9, 48))
    both(lambda x: cross_attention(x[:, :, :32], x[:, 3:, 40:104], 2, keep[:, 2:8]), packed[..., :104])


def spans(lengths: tuple[int, ...], longest: int) -> Spans:
    starts = torch.tensor([0, *itertools.accumulate(lengths)], dtype=torch.int32)
    return Spans(starts, torch.cat([torch.arange(n, dtype=torch.int32) for n in lengths]), longest)


def check_packed(dtype: torch.dtype, longest: int, width: int) -> None:
    """Sentences one behind the other: of one token, of as many as there may be, of none on a side or on both."""
    read, written = spans((3, longest, 0, 1, 9, 0), longest), spans((longest, 5, 7, 1, 0, 0), longest)
    query, memory = (torch.randn(1, len(one.places), n * width).to(dtype) for one, n in ((written, 2), (read, 5)))
    both(lambda q, x: cross_attention(q, x[..., width:], 2, None, spans=(written, read)), query, memory)
    packed = torch.randn(1, len(read.places), 3 * 2 * width).to(dtype)
    for causal, turning in itertools.product((False, True), turnings(longest, width)):
        given = 2, None, causal, None, None if turning is None else turning._replace(places=read.places), read
        both(lambda x, given=given: self_attention(x, *given), packed)


if __name__ == "__main__":
    assert triton_here.INTERPRETED
    torch.manual_seed(0)
    for sizes in SIZES:
        check(torch.float32, *sizes)
    for sizes in HALF_SIZES:
        check(torch.half, *sizes)
    check_strides()
    torch.use_deterministic_algorithms(True)  # memory is full of nan where nothing was written
    for longest, width in ((16, 16), (100, 32)):
        check_packed(torch.float32, longest, width)
    check_packed(torch.half, 40, 64)
    print("equal")
