"""Kernels for many rows against references, for Triton's interpreter (see test_many_rows)."""

from __future__ import annotations

from typing import Any

import torch
from decoding_cases import both, close
from torch import Tensor

from regard.layers.decoding import attention, many_logits, narrow_attention, triton_here, vocabulary
from regard.layers.decoding.kernel_choice import Kernels, using
from regard.layers.decoding.products import Linear

INF = float("inf")
SHAPES = [(2, 2, 16, 40), (4, 2, 8, 5), (1, 1, 24, 34)]  # heads, groups, width of a head, capacity


def cached(heads: int, groups: int, width: int, capacity: int) -> tuple[Any, ...]:
    """What `attend_cache` is given for three sentences: at the beginning, beyond the end, and in between."""
    positions = torch.tensor([0, capacity + 3, capacity // 2])
    x = torch.randn(3, (heads + 2 * groups) * width)
    keys, values = (torch.randn(3, groups, capacity, 1, width) for _ in range(2))
    ends = positions.clamp(max=capacity - 1)[:, None, None]
    hidden = torch.zeros(3, 1, capacity).masked_fill(torch.arange(capacity) > ends, -INF)
    return x, keys, values, hidden, positions, heads, 0.3, capacity


def check_narrow_attention() -> None:
    launched: list[str] = []
    usual = narrow_attention.launch

    def launch(kernel: Any, *arguments: Any, **named: Any) -> None:
        launched.append(kernel.fn.__name__)
        usual(kernel, *arguments, **named)

    narrow_attention.launch = launch  # type: ignore[attr-defined]
    for shape in SHAPES:
        heads, _, width, length = shape
        close(*both(attention.attend_cache, *cached(*shape)))
        query = torch.randn(3, heads * width)
        memory = [torch.randn(3, length, heads, width).transpose(1, 2) for _ in range(2)]
        keep = torch.arange(length) < torch.tensor([[length], [1], [length // 2]])
        close(*both(attention.attend_memory, query, *memory, keep, 0.4))
    assert set(launched) == {"_looks_back", "_looks_over"}


def check_halves() -> None:
    """Numbers of 16 bits go in and come out; sums are of float32."""
    for shape in SHAPES:
        arguments = cached(*shape)
        halves = [a.half() if isinstance(a, Tensor) and a.is_floating_point() else a for a in arguments]
        found, expected = both(attention.attend_cache, *halves)[0], both(attention.attend_cache, *arguments)[1]
        assert found[0].dtype == torch.half
        for one, other in zip((found[0], *found[1][1:3]), (expected[0], *expected[1][1:3]), strict=True):
            torch.testing.assert_close(one.float(), other, rtol=0.01, atol=0.01)


def check_many_logits() -> None:
    """Rows of logits that are apart: with and without a rest that the product leaves, a bias, and programs that share a row."""
    torch.use_deterministic_algorithms(True)  # memory is full of nan where nothing was written
    vocabulary.PART, vocabulary.CROWD_PART = 128, 64
    for tokens, inputs, crowd in ((70, 20, 9), (301, 600, 9), (263, 33, 9), (301, 40, 1)):
        vocabulary.CROWD = crowd
        x, banned = torch.randn(5, inputs) / 4, torch.randint(0, tokens, (5, 2))
        banned[0, 0] = tokens - 1
        for bias in (torch.randn(tokens), None):
            linear = Linear(torch.randn(tokens, inputs), bias)
            (found, _), (expected, _) = both(many_logits.many_logits, x, linear, banned, 2, 3)
            plain = vocabulary.forbid(linear(x), banned, 2, 3)
            for other in (expected, plain):
                close(
                    (found.values, found.maxima, found.normaliser()), (other.values, other.maxima, other.normaliser())
                )
            for one in (found, expected):
                stride = one.values.stride(0)
                assert stride % 64 == 0
                assert one.values.as_strided((5, stride), (stride, 1))[:, tokens:].isnan().all()
    torch.use_deterministic_algorithms(False)
    vocabulary.PART, vocabulary.CROWD = 4096, 1024


if __name__ == "__main__":
    assert triton_here.INTERPRETED
    torch.manual_seed(0)
    with using(Kernels(narrow=True, aligned=True)):
        check_narrow_attention()
        check_halves()
        check_many_logits()
    print("equal")
