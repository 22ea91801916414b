"""The fused output layer: exact loss and gradients, whatever the chunks, padding, smoothing and consistency."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from regard.core.types import PAD
from regard.layers import linear_cross_entropy as output_module
from regard.layers.output import SoftmaxOutput


def _case(rows=14, width=6, vocabulary=11, dtype=torch.float64):
    torch.manual_seed(3)
    layer = SoftmaxOutput(width, vocabulary).to(dtype)
    torch.nn.init.normal_(layer.bias)
    hidden = torch.randn(rows, width, dtype=dtype, requires_grad=True)
    target = torch.randint(1, vocabulary, (rows,))
    target[rows // 2 - 2 : rows // 2] = PAD
    target[-2:] = PAD
    return layer, hidden, target


def _plain(layer, hidden, target, smoothing):
    logits = F.linear(hidden, layer.weight, layer.bias)
    return F.cross_entropy(logits, target, ignore_index=PAD, label_smoothing=smoothing, reduction="sum")


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("elements", [1, 30, 10_000])
def test_loss_and_gradients_equal_cross_entropy(monkeypatch, smoothing, elements):
    monkeypatch.setitem(output_module.CHUNK_ELEMENTS, "cpu", elements)
    layer, hidden, target = _case()
    sums = layer.loss(hidden, target, smoothing)
    expected = _plain(layer, hidden, target, smoothing)
    assert sums.loss.item() == pytest.approx(expected.item(), rel=1e-6)
    assert sums.nll.item() == pytest.approx(_plain(layer, hidden, target, 0.0).item(), rel=1e-6)
    assert sums.tokens.item() == (target != PAD).sum()
    leaves = [hidden, layer.weight, layer.bias]
    ours = torch.autograd.grad(sums.loss / 3, leaves)
    theirs = torch.autograd.grad(expected / 3, leaves)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


def test_padding_between_rows_counts_for_nothing_where_rows_are_not_skipped(monkeypatch):
    """On a GPU the padding stays in: the function itself must give it no weight."""
    layer, hidden, target = _case()
    loss, nll = output_module.LinearCrossEntropy.apply(hidden, layer.weight, layer.bias, target, 0.1, 0.0)
    assert loss.item() == pytest.approx(_plain(layer, hidden, target, 0.1).item(), rel=1e-6)
    assert nll.item() == pytest.approx(_plain(layer, hidden, target, 0.0).item(), rel=1e-6)
    gradient = torch.autograd.grad(loss, hidden)[0]
    assert gradient[target == PAD].abs().max() == 0


@pytest.mark.parametrize("elements", [30, 10_000])
@pytest.mark.parametrize("skip", [True, False])
def test_consistency_equals_the_two_way_divergence(monkeypatch, elements, skip):
    monkeypatch.setitem(output_module.CHUNK_ELEMENTS, "cpu", elements)
    layer, hidden, target = _case()
    half = len(target) // 2
    target[half:] = target[:half]
    if skip:
        loss = layer.loss(hidden, target, 0.1, consistency=5.0).loss
    else:
        loss, _ = output_module.LinearCrossEntropy.apply(hidden, layer.weight, layer.bias, target, 0.1, 5.0)
    p, q = F.linear(hidden, layer.weight, layer.bias)[target != PAD].log_softmax(-1).chunk(2)
    both = F.kl_div(p, q, log_target=True, reduction="sum") + F.kl_div(q, p, log_target=True, reduction="sum")
    expected = _plain(layer, hidden, target, 0.1) + 2.5 * both
    assert loss.item() == pytest.approx(expected.item(), rel=1e-6)
    leaves = [hidden, layer.weight, layer.bias]
    for a, b in zip(torch.autograd.grad(loss, leaves), torch.autograd.grad(expected, leaves), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


def test_scores_are_log_probabilities():
    layer, hidden, _ = _case(dtype=torch.float32)
    scores = layer.scores(hidden)
    torch.testing.assert_close(scores.exp().sum(-1), torch.ones(len(hidden)))
    torch.testing.assert_close(scores, F.linear(hidden, layer.weight, layer.bias).log_softmax(-1))


def test_full_logits_are_never_kept(monkeypatch):
    """With chunks of one row, no tensor of rows x vocabulary may be saved for the backward pass."""
    monkeypatch.setitem(output_module.CHUNK_ELEMENTS, "cpu", 1)
    layer, hidden, target = _case(rows=40, vocabulary=50, dtype=torch.float32)
    saved = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t.numel()) or t, lambda t: t):
        layer.loss(hidden, target, 0.1)
    assert max(saved) < 36 * 50
