"""Weights that were moved or exchanged are noticed, however that was done."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from regard.search.weight_places import WeightPlaces


def model() -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 4), nn.Sequential(nn.Linear(4, 4, bias=False), nn.BatchNorm1d(4)), nn.ReLU())


def exchanged(one: nn.Sequential) -> None:
    one[1] = nn.Sequential(nn.Linear(4, 4, bias=False), nn.BatchNorm1d(4))


def wrapped(one: nn.Sequential) -> None:
    one[1][0] = nn.Sequential(one[1][0])  # type: ignore[index]


def moved(one: nn.Sequential) -> None:
    one[0].weight.data = one[0].weight.data.clone()


def replaced(one: nn.Sequential) -> None:
    one[0].bias = nn.Parameter(torch.zeros(4))


def another_buffer(one: nn.Sequential) -> None:
    one[1][1].running_mean = torch.zeros(4)  # type: ignore[index]


def a_bias_more(one: nn.Sequential) -> None:
    one[1][0].bias = nn.Parameter(torch.zeros(4))  # type: ignore[index]


def a_bias_less(one: nn.Sequential) -> None:
    one[0].bias = None


def longer(one: nn.Sequential) -> None:
    one.append(nn.Tanh())


def other_numbers(one: nn.Sequential) -> None:
    one.double()


CHANGES = [exchanged, wrapped, moved, replaced, another_buffer, a_bias_more, a_bias_less, longer, other_numbers]


@pytest.mark.parametrize("change", CHANGES)
def test_changes_are_noticed(change: Callable[[nn.Sequential], None]) -> None:
    one = model()
    places, old = WeightPlaces(one), [parameter.data for parameter in one.parameters()]
    assert places.stayed()
    change(one)
    assert not places.stayed()
    assert WeightPlaces(one).stayed()
    assert old


def test_training_in_place_is_none() -> None:
    one = model()
    places = WeightPlaces(one)
    optimizer = torch.optim.SGD(one.parameters(), lr=0.1)
    one(torch.ones(5, 3)).sum().backward()
    optimizer.step()
    one.eval()
    assert places.stayed()
