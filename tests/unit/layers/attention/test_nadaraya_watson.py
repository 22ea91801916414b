"""Nadaraya-Watson regression: shapes, a curve that it finds, and places without data."""

from __future__ import annotations

import inspect

import pytest
import torch

import regard
from regard.core.errors import ConfigError, ModelError
from regard.layers.attention.nadaraya_watson import nadaraya_watson


@pytest.mark.parametrize("kernel", ["gaussian", "boxcar", "triangular", "epanechnikov"])
def test_it_finds_a_sine_in_noise(kernel):
    generator = torch.Generator().manual_seed(0)
    x_train = 6 * torch.rand(400, generator=generator)
    y_train = x_train.sin() + 0.2 * torch.randn(400, generator=generator)
    x = torch.linspace(0.5, 5.5, 50)
    estimate = nadaraya_watson(x, x_train, y_train, kernel=kernel, bandwidth=0.3)
    error = (estimate - x.sin()).square().mean().sqrt().item()
    average = nadaraya_watson(x, x_train, y_train, kernel="average")
    assert error < 0.1
    assert (average - x.sin()).square().mean().sqrt().item() > 0.5
    torch.testing.assert_close(average, y_train.mean().expand(50))


def test_shapes():
    points, places = torch.randn(7, 2), torch.randn(3, 2)
    assert nadaraya_watson(places, points, torch.randn(7)).shape == (3,)
    assert nadaraya_watson(places, points, torch.randn(7, 4)).shape == (3, 4)
    assert nadaraya_watson(places[:, 0], points[:, 0], torch.randn(7)).shape == (3,)
    assert nadaraya_watson(places[:, 0], points[:, 0], torch.randn(7, 1)).shape == (3, 1)


def test_a_place_without_data_is_nan_unless_told():
    x_train, y_train = torch.tensor([0.0, 1.0]), torch.tensor([3.0, 5.0])
    x = torch.tensor([0.1, 9.0])
    estimate = nadaraya_watson(x, x_train, y_train, kernel="boxcar", bandwidth=0.5)
    assert estimate[0] == 3
    assert estimate[1].isnan()
    for empty, expected in (("zero", 0.0), ("mean", 4.0), ("nearest", 5.0)):
        assert nadaraya_watson(x, x_train, y_train, kernel="boxcar", bandwidth=0.5, empty=empty)[1] == expected
    assert nadaraya_watson(x, x_train, y_train, bandwidth=0.5)[1] == 5  # a Gaussian always has neighbours


def test_a_bandwidth_can_be_learned():
    x_train, y_train = torch.tensor([0.0, 1.0, 3.0]), torch.tensor([0.0, 1.0, -1.0])
    bandwidth = torch.tensor(0.8, requires_grad=True)
    nadaraya_watson(torch.tensor([0.4]), x_train, y_train, bandwidth=bandwidth).sum().backward()
    assert bandwidth.grad.abs() > 1e-3


def test_what_it_refuses():
    unchecked = inspect.unwrap(nadaraya_watson)
    x = torch.zeros(3)
    with pytest.raises(ConfigError, match=r"kernel: there is no 'dot'. Choose one of gaussian"):
        unchecked(x, x, x, kernel="dot")
    with pytest.raises(ModelError, match=r"nadaraya_watson, x_train: got a list. Pass a tensor \[points\]"):
        unchecked(x, [1.0], x)
    with pytest.raises(ModelError, match=r"nadaraya_watson, y_train: got shape \(1, 2, 3\)"):
        unchecked(x, x, torch.zeros(1, 2, 3))
    with pytest.raises(ModelError, match="there are 3 keys and 2 values"):
        unchecked(x, x, x[:2])
    assert regard.nadaraya_watson is nadaraya_watson
