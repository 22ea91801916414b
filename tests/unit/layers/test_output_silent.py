"""Tokens that are never written: no probability, no gradient, no part of the smoothing, and nothing that is not finite."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from regard.layers.output import SoftmaxOutput

WIDTH, V, NEVER = 6, 11, (0, 1, 3)
OTHERS = [i for i in range(V) if i not in NEVER]


def make(bias: bool, never: tuple[int, ...] = NEVER) -> tuple[SoftmaxOutput, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    layer = SoftmaxOutput(WIDTH, V, bias=bias, never=never)
    if bias:
        torch.nn.init.normal_(layer.bias)  # type: ignore[arg-type]
    hidden = torch.randn(7, WIDTH, requires_grad=True)
    return layer, hidden, torch.tensor([2, 4, 5, 10, 7, 2, 6])


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_others_are_a_vocabulary_of_their_own(bias, smoothing):
    layer, hidden, target = make(bias)
    sums = layer.loss(hidden, target, smoothing)
    sums.loss.backward()
    found = [hidden.grad, layer.weight.grad, *([layer.bias.grad] if bias else [])]  # type: ignore[union-attr]
    small = torch.tensor([OTHERS.index(int(y)) for y in target])
    h, w = hidden.detach().clone().requires_grad_(), layer.weight.detach().clone().requires_grad_()
    b = layer.bias.detach().clone().requires_grad_() if bias else None  # type: ignore[union-attr]
    logits = F.linear(h, w[OTHERS], None if b is None else b[OTHERS])
    expected = F.cross_entropy(logits, small, reduction="sum", label_smoothing=smoothing)
    expected.backward()
    torch.testing.assert_close(sums.loss, expected)
    torch.testing.assert_close(sums.nll, F.cross_entropy(logits, small, reduction="sum"))
    for ours, theirs in zip(found, [h.grad, w.grad, *([] if b is None else [b.grad])], strict=True):
        torch.testing.assert_close(ours, theirs)
    assert layer.weight.grad[list(NEVER)].abs().max() == 0  # type: ignore[index]
    scores = layer.scores(hidden)
    torch.testing.assert_close(scores[:, OTHERS], logits.log_softmax(-1))
    assert scores.exp()[:, list(NEVER)].max() == 0
    assert torch.isfinite(scores).all()


def test_two_passes_of_a_silent_layer_diverge_as_those_of_its_other_tokens():
    layer, hidden, target = make(bias=False)
    hidden, target = hidden[:6], target[:3].repeat(2)
    sums = layer.loss(hidden, target, 0.1, 2.0)
    small = SoftmaxOutput(WIDTH, V - len(NEVER) + 1, bias=False, never=(0,))  # PAD stays the token that is left out
    small.weight.data[1:] = layer.weight.data[OTHERS]
    again = torch.tensor([1 + OTHERS.index(int(y)) for y in target])
    torch.testing.assert_close(sums.loss, small.loss(hidden, again, 0.1, 2.0).loss)
    assert torch.isfinite(sums.loss)


def test_silence_is_not_saved_and_holds_in_sixteen_bits():
    layer, hidden, target = make(bias=False)
    assert list(layer.state_dict()) == ["weight"]
    assert list(SoftmaxOutput(WIDTH, V, bias=False).buffers()) == []
    with torch.autocast("cpu", torch.float16):
        scores, sums = layer.scores(hidden), layer.loss(hidden, target, 0.1)
    assert torch.isfinite(scores).all()
    assert torch.isfinite(sums.loss)
    assert scores.exp()[:, list(NEVER)].max() == 0
    half = layer.half().scores(hidden.half())
    assert torch.isfinite(half).all()


def test_a_silent_target_costs_much_but_is_finite():
    layer, hidden, target = make(bias=False)
    target[0] = 3
    assert 9000 < float(layer.loss(hidden, target).nll.detach()) < 11000
