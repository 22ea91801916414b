"""The class-factored output layer: a proper distribution, and exact loss and gradients, whatever the chunks and the way."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from regard.core.types import PAD
from regard.layers import output_classes
from regard.layers.output_classes import ClassOutput


def _case(rows=14, width=6, vocabulary=11, classes=0):
    torch.manual_seed(3)
    layer = ClassOutput(width, vocabulary, classes).double()
    for p in layer.parameters():
        torch.nn.init.normal_(p)
    hidden = torch.randn(rows, width, dtype=torch.float64, requires_grad=True)
    target = torch.randint(1, vocabulary, (rows,))
    target[rows // 2 - 2 : rows // 2] = PAD
    target[-2:] = PAD
    return layer, hidden, target


def _log_p(layer, hidden):
    """Word by word: log P(class) + log P(word | class)."""
    classes = F.linear(hidden, layer.class_weight, layer.class_bias).log_softmax(-1)
    columns = []
    for word in range(layer.vocabulary):
        first = word // layer.size * layer.size
        mates = slice(first, min(first + layer.size, layer.vocabulary))
        logits = F.linear(hidden, layer.weight[mates], layer.bias[mates])
        columns.append(classes[..., word // layer.size] + logits.log_softmax(-1)[..., word - first])
    return torch.stack(columns, -1)


@pytest.mark.parametrize("classes", [0, 1, 3, 11, 100])
@torch.no_grad()
def test_scores_are_a_distribution(classes):
    layer, hidden, _ = _case(classes=classes)
    scores = layer.scores(hidden)
    torch.testing.assert_close(scores.exp().sum(-1), torch.ones(len(hidden)))
    torch.testing.assert_close(scores.double(), _log_p(layer, hidden), rtol=1e-5, atol=1e-5)


def test_classes_are_about_as_many_as_words_in_each():
    assert [(ClassOutput(2, v).classes, ClassOutput(2, v).size) for v in (1, 9, 10, 11, 1000)] == [
        (1, 1), (3, 3), (4, 3), (4, 3), (32, 32)
    ]  # fmt: skip
    layer = ClassOutput(2, 11, 4)
    assert (layer.classes, layer.size) == (4, 3)
    assert ClassOutput(2, 10, 6).classes == 5  # six classes of two words would leave one empty
    tied = torch.nn.Parameter(torch.ones(11, 2))
    assert ClassOutput(2, 11, tied=tied).weight is tied
    assert tied.eq(1).all()


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("elements", [1, 30, 10_000])
@pytest.mark.parametrize("classes", [0, 11])
def test_loss_and_gradients_equal_the_plain_ones(monkeypatch, smoothing, elements, classes):
    monkeypatch.setitem(output_classes.CHUNK_ELEMENTS, "cpu", elements)
    layer, hidden, target = _case(classes=classes)
    sums = layer.loss(hidden, target, smoothing)
    log_p, real = _log_p(layer, hidden), target != PAD
    nll = F.nll_loss(log_p, target, ignore_index=PAD, reduction="sum")
    expected = (1 - smoothing) * nll - smoothing * log_p.mean(-1)[real].sum()
    assert sums.loss.item() == pytest.approx(expected.item(), rel=1e-6)
    assert sums.nll.item() == pytest.approx(nll.item(), rel=1e-6)
    assert not sums.nll.requires_grad
    assert sums.tokens.item() == real.sum()
    leaves = [hidden, *layer.parameters()]
    ours, theirs = (torch.autograd.grad(loss / 3, leaves) for loss in (sums.loss, expected))
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("consistency", [0.0, 5.0])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_padding_counts_for_nothing_where_rows_are_not_skipped(smoothing, consistency):
    """On a GPU the padding stays in: the chunks themselves must give it no weight."""
    layer, hidden, target = _case()
    half = len(target) // 2
    target[half:] = target[:half]
    rows = (2, half) if consistency else (1, 2 * half)
    loss, nll = layer._part(hidden.unflatten(0, rows), target.unflatten(0, rows), smoothing, consistency)
    sums = layer.loss(hidden, target, smoothing, consistency)
    assert loss.item() == pytest.approx(sums.loss.item(), rel=1e-6)
    assert nll.item() == pytest.approx(sums.nll.item(), rel=1e-6)
    gradient = torch.autograd.grad(loss, hidden)[0]
    assert gradient[target == PAD].abs().max() == 0


@pytest.mark.parametrize("elements", [30, 10_000])
def test_consistency_equals_the_two_way_divergence(monkeypatch, elements):
    monkeypatch.setitem(output_classes.CHUNK_ELEMENTS, "cpu", elements)
    layer, hidden, target = _case()
    half = len(target) // 2
    target[half:] = target[:half]
    loss = layer.loss(hidden, target, 0.1, consistency=5.0).loss
    log_p = _log_p(layer, hidden)[target != PAD]
    p, q = log_p.chunk(2)
    both = F.kl_div(p, q, log_target=True, reduction="sum") + F.kl_div(q, p, log_target=True, reduction="sum")
    nll = F.nll_loss(log_p, target[target != PAD], reduction="sum")
    expected = 0.9 * nll - 0.1 * log_p.mean(-1).sum() + 2.5 * both
    assert loss.item() == pytest.approx(expected.item(), rel=1e-6)
    leaves = [hidden, *layer.parameters()]
    for a, b in zip(torch.autograd.grad(loss, leaves), torch.autograd.grad(expected, leaves), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_full_logits_are_never_kept(monkeypatch, smoothing):
    """All that is kept for the way back, in chunks of one row: far less than rows x vocabulary."""
    monkeypatch.setitem(output_classes.CHUNK_ELEMENTS, "cpu", 1)
    layer, hidden, target = _case(rows=40, vocabulary=900)
    saved = {}

    def keep(tensor):
        saved[tensor.data_ptr()] = tensor.numel()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda t: t):
        layer.loss(hidden, target, smoothing)
    parameters = sum(p.numel() for p in layer.parameters())
    assert sum(saved.values()) < parameters + 40 * 900 / 4


def test_the_first_guess_is_that_of_equal_classes():
    torch.manual_seed(0)
    layer = ClassOutput(16, 1000)
    nll = layer.loss(torch.randn(50, 16).tanh(), torch.randint(1, 960, (50,))).nll.item() / 50
    assert nll == pytest.approx(math.log(32 * 32), rel=0.1)
