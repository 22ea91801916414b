"""Kernels for many rows against references, for Triton's interpreter (see test_many_rows)."""

from __future__ import annotations

from typing import Any

import torch
from decoding_cases import both, close
from torch import Tensor

from regard.layers.decoding import attention, looking_logits, many_logits, narrow_attention, triton_here, vocabulary
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


def check_logits_that_are_looked_at() -> None:
    """Tiles that end beyond the rows, beyond the vocabulary or with both; what is forbidden in some tiles, in all, or hardly."""
    torch.use_deterministic_algorithms(True)  # memory is full of nan where nothing was written
    tile = looking_logits.Tiles(rows=16, columns=128, depth=32)
    for rows, tokens, inputs, bans in ((16, 256, 32, 2), (37, 301, 40, 1), (5, 70, 20, 0), (20, 130, 72, 3)):
        x, banned = torch.randn(rows, inputs) / 4, torch.randint(0, tokens, (rows, bans))
        banned[-1:] = tokens - 1
        for bias, also in ((torch.randn(tokens), 3), (None, tokens - 1)):
            linear = Linear(torch.randn(tokens, inputs), bias)
            assert looking_logits.takes(x, linear)
            found = looking_logits.logits(x, linear, banned, 2, also, tile)
            vocabulary.runs_on = lambda tensor: False  # type: ignore[attr-defined]
            expected = vocabulary.forbid(linear(x), banned, 2, also)
            vocabulary.runs_on = triton_here.runs_on  # type: ignore[attr-defined]
            close(
                (found.values, found.maxima, found.normaliser()),
                (expected.values, expected.maxima, expected.normaliser()),
            )
            stride = found.values.stride(0)
            assert stride % 64 == 0
            assert found.values.as_strided((rows, stride), (stride, 1))[:, tokens:].isnan().all()
    torch.use_deterministic_algorithms(False)


def check_logits_of_16_bits() -> None:
    """Maxima and the normaliser are those of the logits that are written."""
    x, linear = torch.randn(5, 64).half(), Linear(torch.randn(200, 64).half(), torch.randn(200).half())
    found = looking_logits.logits(x, linear, torch.zeros(5, 0).long(), 0, 199, looking_logits.Tiles(rows=16))
    written = found.values.float()
    torch.testing.assert_close(written[:, :199], linear(x).float()[:, :199], rtol=0.01, atol=0.01)
    torch.testing.assert_close(found.maxima[:, :3], written[:, :192].unflatten(1, (3, 64)).amax(-1), rtol=0, atol=0)
    whole = torch.cat((written[:, :199], linear(x).float()[:, 199:]), 1)
    torch.testing.assert_close(found.normaliser(), whole.logsumexp(-1, keepdim=True), rtol=1e-3, atol=1e-3)


if __name__ == "__main__":
    assert triton_here.INTERPRETED
    torch.manual_seed(0)
    with using(Kernels(narrow=True, aligned=True)):
        check_narrow_attention()
        check_halves()
        check_many_logits()
    check_logits_that_are_looked_at()
    check_logits_of_16_bits()
    print("equal")
