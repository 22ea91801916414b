"""Pooling over time against plain Python: the order is kept, each text has its own k, and padding never wins."""

from __future__ import annotations

import pytest
import torch

from regard.layers.pooling import k_max, max_over_time


def plain_k_max(values: list[float], k: int) -> list[float]:
    """The k largest, the earlier of equal ones, in their order."""
    best = sorted(range(len(values)), key=lambda i: (-values[i], i))[:k]
    return [values[i] for i in sorted(best)]


def test_the_largest_of_negative_values_is_not_padding():
    x = torch.tensor([[[-3.0, 1.0], [-2.0, -5.0], [0.0, 7.0]], [[-1.0, -4.0], [9.0, 9.0], [9.0, 9.0]]])
    assert max_over_time(x, torch.tensor([2, 1])).tolist() == [[-2.0, 1.0], [-1.0, -4.0]]


def test_values_stay_in_the_order_in_which_they_stand():
    x = torch.tensor([[4.0, -1.0, 9.0, 2.0, 7.0]])
    found, counts = k_max(x, torch.tensor([5]), torch.tensor([3]), 3)
    assert (found.tolist(), counts.tolist()) == ([[4.0, 9.0, 7.0]], [3])


@pytest.mark.parametrize("most", [5, 6, 20])
def test_each_text_has_its_own_k_and_its_own_length(most):
    counts, k = [7, 2, 5, 1, 7], [5, 4, 1, 1, 3]
    x = torch.randn(5, 2, 3, 7, generator=torch.Generator().manual_seed(1))
    found, taken = k_max(x, torch.tensor(counts), torch.tensor(k), most)
    assert found.shape == (5, 2, 3, min(most, 7))
    assert taken.tolist() == [min(pair) for pair in zip(counts, k, strict=True)]
    for text in range(5):
        for j in range(2):
            for row in range(3):
                expected = plain_k_max(x[text, j, row, : counts[text]].tolist(), k[text])
                expected += [0.0] * (found.shape[-1] - len(expected))
                assert found[text, j, row].tolist() == expected


def test_of_equal_values_the_earlier_is_taken_however_wide_the_batch_is():
    values = [1.0, 2.0, 1.0, 3.0, 1.0, 2.0, 1.0]
    for more in (0, 1, 50):
        x = torch.cat([torch.tensor([values]), torch.full((1, more), 5.0)], 1)
        x.requires_grad_()
        found, _ = k_max(x, torch.tensor([7]), torch.tensor([5]), 5)
        assert found.tolist() == [[1.0, 2.0, 1.0, 3.0, 2.0]]
        found.sum().backward()
        assert x.grad is not None
        assert x.grad[0].tolist() == [1, 1, 1, 1, 0, 1, 0, *[0] * more]


def test_gradients_go_to_what_was_taken_and_padding_gets_none():
    x = torch.randn(3, 4, 6, generator=torch.Generator().manual_seed(2), dtype=torch.float64, requires_grad=True)
    counts, k = torch.tensor([6, 3, 1]), torch.tensor([2, 4, 3])
    assert torch.autograd.gradcheck(lambda x: k_max(x, counts, k, 4)[0], x)
    (gradient,) = torch.autograd.grad(k_max(x, counts, k, 4)[0].sum(), x)
    assert (gradient != 0).sum(-1).tolist() == [[2] * 4, [3] * 4, [1] * 4]
    assert not gradient[1, :, 3:].any()
