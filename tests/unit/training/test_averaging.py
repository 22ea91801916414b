"""Averages of weights against their formulas."""

import pytest
import torch
from torch import nn

from regard.layers.batch_norm import BatchNorm
from regard.training.averaging import MovingAverage, mean_of


def test_moving_average_follows_its_formula():
    model = nn.Linear(3, 2)
    average = MovingAverage(model, decay=0.9)
    expected = model.weight.detach().double().clone()
    for step in range(1, 200):
        with torch.no_grad():
            model.weight.add_(torch.randn(2, 3, generator=torch.Generator().manual_seed(step)))
        average.update(step)
        decay = min(0.9, (1 + step) / (10 + step))
        expected = decay * expected + (1 - decay) * model.weight.detach().double()
    assert torch.allclose(average.average["weight"].double(), expected, atol=1e-5)
    assert not torch.allclose(average.average["weight"], model.weight, atol=0.1)


def test_early_steps_are_forgotten():
    model = nn.Linear(1, 1, bias=False)
    with torch.no_grad():
        model.weight.fill_(1000.0)
    average = MovingAverage(model, decay=0.9999)
    with torch.no_grad():
        model.weight.zero_()
    for step in range(1, 51):
        average.update(step)
    assert float(average.average["weight"].abs()) < 1  # with a constant decay, it would still be 995


def test_applied_gives_the_average_and_brings_the_weights_back():
    model = nn.Linear(2, 2)
    average = MovingAverage(model, decay=0.9)
    averaged = model.weight.detach().clone()
    with torch.no_grad():
        model.weight.add_(1)
    trained = model.weight.detach().clone()
    with average.applied():
        assert torch.equal(model.weight, averaged)
    assert torch.equal(model.weight, trained)
    with pytest.raises(RuntimeError, match="validation failed"), average.applied():
        raise RuntimeError("validation failed")
    assert torch.equal(model.weight, trained)
    assert torch.equal(average.average["weight"], averaged)


def test_mean_of_checkpoints_is_summed_exactly():
    many = [{"w": torch.tensor([1e8, 1.0])}, {"w": torch.tensor([1.0, 2.0])}, {"w": torch.tensor([-1e8, 6.0])}]
    mean = mean_of(iter(many))["w"]
    assert mean.dtype == torch.float32
    assert mean.tolist() == pytest.approx([1 / 3, 3.0])  # a float32 sum would lose the 1 beside 1e8
    assert many[0]["w"].tolist() == [1e8, 1.0]


def test_running_averages_of_batch_normalisation_go_with_the_weights():
    norm = BatchNorm(3)
    average = MovingAverage(norm, decay=0.9)
    with torch.no_grad():
        norm.running_mean += 2.0
    average.update(1000)
    torch.testing.assert_close(average.average["running_mean"], torch.full((3,), 0.2))
    with average.applied():
        torch.testing.assert_close(norm.running_mean, torch.full((3,), 0.2))
    torch.testing.assert_close(norm.running_mean, torch.full((3,), 2.0))


def test_buffers_that_are_made_anew_are_not_averaged():
    module = torch.nn.Linear(2, 2)
    module.register_buffer("table", torch.ones(2), persistent=False)
    assert set(MovingAverage(module, decay=0.9).average) == {"weight", "bias"}
