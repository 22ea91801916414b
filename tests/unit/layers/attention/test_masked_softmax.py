"""The softmax over what a query may see: exact zeros, rows without keys, gradients."""

from __future__ import annotations

import pytest
import torch

from regard.layers.attention.masked_softmax import masked_softmax


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_hidden_keys_get_exactly_zero_and_the_rest_sums_to_one(dtype, scale):
    torch.manual_seed(0)
    scores = (torch.randn(4, 5, 7) * scale).to(dtype)
    keep = torch.rand(4, 1, 7) > 0.4
    keep[:, :, 0] = True
    weights = masked_softmax(scores, keep)
    assert weights.dtype == dtype
    assert weights.masked_select(~keep).abs().max() == 0
    torch.testing.assert_close(weights.sum(-1), torch.ones(4, 5, dtype=dtype), rtol=0, atol=1e-3)
    for b in range(4):  # as if the hidden keys were not there
        seen = keep[b, 0]
        torch.testing.assert_close(weights[b][:, seen], scores[b][:, seen].softmax(-1))


def test_a_row_without_keys_is_all_zeros_and_leaves_gradients_finite():
    scores = torch.randn(2, 3, 4, requires_grad=True)
    keep = torch.tensor([[False] * 4, [True, True, False, False]])[:, None]
    weights = masked_softmax(scores, keep)
    assert weights[0].abs().max() == 0
    (weights * torch.randn(2, 3, 4)).sum().backward()
    assert scores.grad.isfinite().all()
    assert scores.grad[0].abs().max() == 0
    assert scores.grad[1, :, 2:].abs().max() == 0
    assert scores.grad[1, :, :2].abs().min() > 0


def test_what_is_hidden_may_be_anything():
    scores = torch.tensor([[0.0, 1.0, torch.nan, torch.inf]], requires_grad=True)
    weights = masked_softmax(scores, torch.tensor([[True, True, False, False]]))
    torch.testing.assert_close(weights[0, :2], torch.tensor([0.0, 1.0]).softmax(0))
    weights[0, 0].backward()
    assert scores.grad.isfinite().all()


def test_without_a_mask_it_is_the_softmax():
    scores = torch.randn(2, 3, 4)
    assert torch.equal(masked_softmax(scores), scores.softmax(-1))
    assert torch.equal(masked_softmax(scores, None), masked_softmax(scores, torch.ones(2, 1, 4, dtype=torch.bool)))


def test_each_query_may_have_a_mask_of_its_own():
    scores = torch.zeros(1, 2, 3)
    keep = torch.tensor([[[True, False, True], [False, True, False]]])
    assert masked_softmax(scores, keep).tolist() == [[[0.5, 0.0, 0.5], [0.0, 1.0, 0.0]]]
