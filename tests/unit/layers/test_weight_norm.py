"""Weight normalisation against torch's own, and the output layer against a plain one with the same matrix."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from regard.layers.output import SoftmaxOutput
from regard.layers.weight_norm import NormalisedLinear, NormalisedOutput


def test_a_normalised_layer_is_torchs():
    torch.manual_seed(0)
    ours, theirs = NormalisedLinear(5, 4).double(), nn.utils.parametrizations.weight_norm(nn.Linear(5, 4).double())
    length, direction = theirs.parametrizations["weight"].original0, theirs.parametrizations["weight"].original1
    with torch.no_grad():
        ours.g.copy_(torch.tensor([1.0, -2.0, 0.5, 3.0]))
        length.copy_(ours.g[:, None])
        direction.copy_(ours.v)
        theirs.bias.copy_(ours.bias.normal_())
    x = torch.randn(3, 2, 5, dtype=torch.float64)
    torch.testing.assert_close(ours(x), theirs(x))
    torch.testing.assert_close(ours.ready()(x), theirs(x))
    for layer in (ours, theirs):
        layer(x).square().sum().backward()
    torch.testing.assert_close(ours.g.grad, length.grad[:, 0])
    torch.testing.assert_close(ours.v.grad, direction.grad)
    torch.testing.assert_close(ours.bias.grad, theirs.bias.grad)


@pytest.mark.parametrize("kind", [NormalisedLinear, NormalisedOutput])
@torch.no_grad()
def test_a_drawn_matrix_is_what_the_layer_starts_from(kind):
    torch.manual_seed(0)
    layer = kind(40, 50)
    layer.start_from(0.7)
    weight = layer.ready().weight if kind is NormalisedLinear else layer.weight
    torch.testing.assert_close(weight, layer.v)
    assert float(weight.std()) == pytest.approx(0.7, rel=0.05)


def test_a_normalised_output_is_a_plain_one_with_its_matrix():
    torch.manual_seed(0)
    ours = NormalisedOutput(5, 9)
    with torch.no_grad():
        ours.g.normal_()
        ours.bias.normal_()
    plain = SoftmaxOutput(5, 9)
    with torch.no_grad():
        plain.weight.copy_(ours.weight)
        plain.bias.copy_(ours.bias)
    hidden, target = torch.randn(2, 6, 5), torch.randint(0, 9, (2, 6))
    torch.testing.assert_close(ours.scores(hidden), plain.scores(hidden))
    for smoothing in (0.0, 0.1):
        found, expected = (layer.loss(hidden, target, smoothing) for layer in (ours, plain))
        torch.testing.assert_close(found.loss, expected.loss)
        torch.testing.assert_close(found.nll, expected.nll)
        ours.zero_grad(), plain.zero_grad()
        found.loss.backward(), expected.loss.backward()
        unit = ours.v / ours.v.norm(dim=1, keepdim=True)  # how the matrix changes with g
        torch.testing.assert_close(ours.g.grad, (plain.weight.grad * unit).sum(1))
        torch.testing.assert_close(ours.bias.grad, plain.bias.grad)
        assert float((ours.v.grad * ours.v.detach()).sum(1).abs().max()) < 1e-4, "a longer v is the same v"
