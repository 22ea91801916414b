"""Kernels of whole sub-layers: by Triton's interpreter against their references, and these against what they stand for."""

from __future__ import annotations

import pytest
import torch
from interpreted import interpreted

from regard.layers.decoding import pending, triton_here
from regard.layers.decoding.pending import Pending, settle
from regard.layers.decoding.products import Linear, Norm
from regard.layers.decoding.whole_attention import attend_text
from regard.layers.decoding.whole_feed_forward import feed, units_of
from regard.layers.decoding.whole_source_attention import attend_source

WIDTH = 6
PLAIN = Norm(torch.ones(WIDTH), None, 1e-5, rms=True)


@pytest.fixture(autouse=True)
def the_same_numbers_each_time() -> None:
    torch.manual_seed(0)


@pytest.mark.skipif(triton_here.triton is None, reason="needs Triton")
def test_the_kernels_of_whole_sub_layers_by_tritons_interpreter() -> None:
    assert interpreted("whole_cases.py") == "equal"


def rms(x: torch.Tensor) -> torch.Tensor:
    return x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt()


def test_states_are_added_up_and_normalised_before_or_after() -> None:
    x, parts, bias = torch.randn(3, WIDTH), torch.randn(4, 3, WIDTH), torch.randn(WIDTH)
    total = x + parts[0] + parts[1] + parts[2] + parts[3] + bias
    torch.testing.assert_close(Pending(x, parts, bias).read(PLAIN), (total, rms(total)))
    torch.testing.assert_close(Pending(x, parts, bias, PLAIN).read(None), (rms(total), rms(total)))
    torch.testing.assert_close(Pending(x, parts, bias, residual=False).read(None)[0], total - x)
    torch.testing.assert_close(Pending(x, residual=False).read(None)[0], x)  # before the first sub-layer
    found = settle(Pending(x, parts, bias), PLAIN, torch.float64)
    assert found.dtype == torch.float64
    torch.testing.assert_close(found.float(), rms(total))


def test_the_reference_of_a_feed_forward_sub_layer() -> None:
    x, inner, outer = torch.randn(2, WIDTH), torch.randn(20, WIDTH), torch.randn(WIDTH, 20)
    b, c = torch.randn(20), torch.randn(WIDTH)
    found = feed(Pending(x), PLAIN, Linear(inner, b), Linear(outer, c), "relu", after=None, residual=True)
    assert found.parts is not None
    assert len(found.parts) == 2  # of 16 and 4 units
    expected = x + (rms(x) @ inner.t() + b).relu() @ outer.t() + c
    torch.testing.assert_close(found.read(None)[0], expected)


def test_the_reference_of_attention_sub_layers() -> None:
    """Two heads, each of which leaves a part; what is new is seen and written."""
    x, qkv, out, c = torch.randn(1, WIDTH), torch.randn(12, WIDTH), torch.randn(WIDTH, 4), torch.randn(WIDTH)
    keys, values = torch.randn(1, 2, 3, 1, 2), torch.randn(1, 2, 3, 1, 2)
    projected = (rms(x) @ qkv.t())[0].view(3, 2, 2)  # queries, keys, values of two heads
    mixed = []
    for head in range(2):
        query, key, value = projected[:, head]
        key, value = torch.stack([keys[0, head, 0, 0], key]), torch.stack([values[0, head, 0, 0], value])
        mixed.append((key @ query * 0.5).softmax(0) @ value)
    hidden, at = torch.tensor([[[0.0, 0.0, -torch.inf]]]), torch.tensor([1])
    found = attend_text(
        Pending(x), PLAIN, Linear(qkv, None), Linear(out, c), keys, values, hidden, at,
        heads=2, scale=0.5, longest=2, after=None, residual=True,
    )  # fmt: skip
    assert found.parts is not None
    torch.testing.assert_close(found.parts[1, 0], out[:, 2:] @ mixed[1])
    torch.testing.assert_close(found.read(None)[0], x + out @ torch.cat(mixed) + c)
    torch.testing.assert_close(keys[0, :, 1, 0], projected[1])
    torch.testing.assert_close(values[0, :, 1, 0], projected[2])
    keep = torch.tensor([[True, True, False]])
    found = attend_source(
        Pending(x), PLAIN, Linear(qkv[:4], None), Linear(out, c), keys[:, :, :, 0], values[:, :, :, 0], keep,
        scale=0.5, after=None, residual=True,
    )  # fmt: skip
    mixed = [(keys[0, head, :2, 0] @ projected[0, head] * 0.5).softmax(0) @ values[0, head, :2, 0] for head in range(2)]
    torch.testing.assert_close(found.read(None)[0], x + out @ torch.cat(mixed) + c)


def test_how_a_feed_forward_sub_layer_is_shared() -> None:
    assert [units_of(rows, inner) for rows, inner in ((1, 2048), (4, 2048), (1, 3072), (1, 20), (8, 8192))] == [
        64, 128, 128, 16, 512
    ]  # fmt: skip


def test_turns_fit_a_programs_memory() -> None:
    """Three stages of what is asked for at once, and what else a kernel keeps, have to be less than 227 KiB."""
    for columns in (16, 64, 128, 512):
        for matrices in (1, 3):
            weight = torch.zeros(columns, 512, dtype=torch.bfloat16)
            turn = pending.turn(columns, weight, matrices)
            assert turn & (turn - 1) == 0
            assert turn == 16 or matrices * columns * turn * 2 <= pending.STAGE
    assert pending.turn(16, torch.zeros(16, 20)) == 32  # no more than there is
