"""Kernels of a decoder's step: by Triton's interpreter against their references, which searches are tested by."""

from __future__ import annotations

import pytest
import torch
from interpreted import interpreted

from regard.layers.decoding import triton_here
from regard.layers.decoding.attention import attend_cache, attend_memory
from regard.layers.decoding.products import Linear, Norm, product
from regard.layers.decoding.vocabulary import forbid, logits


@pytest.mark.skipif(triton_here.triton is None, reason="needs Triton")
def test_the_kernels_by_tritons_interpreter() -> None:
    assert interpreted("decoding_cases.py") == "equal"


def test_kernels_run_where_they_can() -> None:
    assert triton_here.runs_on(torch.zeros(1)) == triton_here.INTERPRETED
    assert not triton_here.usable("cpu")
    if torch.cuda.is_available():
        assert triton_here.usable("cuda") == (triton_here.triton is not None)
    assert [triton_here.power_of_2(n) for n in (0, 1, 2, 3, 64, 65)] == [1, 1, 2, 4, 64, 128]


def test_the_reference_of_a_product() -> None:
    x, w, b, r = torch.randn(3, 5), torch.randn(4, 5), torch.randn(4), torch.randn(3, 4)
    norm, after = Norm(torch.ones(5), None, 1e-5, True), Norm(torch.ones(4), torch.zeros(4), 1e-5, False)
    z = x / (x.square().mean(1, keepdim=True) + 1e-5).sqrt()
    expected = (z @ w.t() + b).relu() + (r - r.mean(1, keepdim=True)) / (
        r.var(1, correction=0, keepdim=True) + 1e-5
    ).sqrt()
    found = product(x, Linear(w, b), norm=norm, activation="relu", residual=r, residual_norm=after)
    torch.testing.assert_close(found, expected)


def test_the_reference_of_attention() -> None:
    """Two hypotheses, of which the second follows the first at position 0 and itself at position 1."""
    keys, values = torch.zeros(1, 1, 4, 2, 2), torch.zeros(1, 1, 4, 2, 2)
    keys[0, 0, :2], values[0, 0, :2] = torch.randn(2, 2, 2), torch.randn(2, 2, 2)
    hidden = torch.full((1, 2, 4, 2), -torch.inf)
    hidden[0, 0, [0, 1, 2], [0, 0, 0]] = hidden[0, 1, [0, 1, 2], [0, 1, 1]] = 0.0
    x = torch.randn(2, 6)
    found = attend_cache(x, keys, values, hidden.flatten(2), torch.tensor([2]), 1, 0.5, 3)
    for k, slots in ((0, (0, 0)), (1, (0, 1))):
        q, own_key, own_value = x[k].split(2)
        key = torch.stack([keys[0, 0, 0, slots[0]], keys[0, 0, 1, slots[1]], own_key])
        value = torch.stack([values[0, 0, 0, slots[0]], values[0, 0, 1, slots[1]], own_value])
        torch.testing.assert_close(found[k], (key @ q * 0.5).softmax(0) @ value)
        assert torch.equal(keys[0, 0, 2, k], own_key)
        assert torch.equal(values[0, 0, 2, k], own_value)
    memory = torch.randn(2, 1, 3, 2)
    keep = torch.tensor([[True, True, False]])
    found = attend_memory(x[:, :2], memory[:1], memory[1:], keep, 0.5)
    weights = (x[:, :2] @ memory[0, 0, :2].t() * 0.5).softmax(-1)
    torch.testing.assert_close(found, weights @ memory[1, 0, :2])


def test_the_references_of_logits() -> None:
    x, linear = torch.randn(3, 8), Linear(torch.randn(70, 8), None)
    values = x @ linear.weight.t()
    left = values.clone()
    left[:, [0, 1, 3]] = left[0, 7] = left[1, 69] = left[2, 0] = -torch.inf
    banned = torch.tensor([[7], [69], [0]])
    for found in (logits(x, linear, None, banned, 2, 3), forbid(values.clone(), banned, 2, 3)):
        torch.testing.assert_close(found.values, left)
        torch.testing.assert_close(found.normaliser(), values.logsumexp(1, keepdim=True))
        assert torch.equal(found.maxima[:, 0], found.values[:, : found.group].amax(1))
        assert found.maxima.shape[1] == -(-70 // found.group)


def test_parts_of_the_vocabulary_that_are_impossible() -> None:
    values = torch.randn(2, 200)
    values[:, 60:] = -torch.inf
    found = forbid(values.clone(), torch.zeros(2, 0, dtype=torch.long), 2, 0)
    torch.testing.assert_close(found.normaliser(), values.logsumexp(1, keepdim=True))
    assert found.maxima[:, 1:].eq(-torch.inf).all()
