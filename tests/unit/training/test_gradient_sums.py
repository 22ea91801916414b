"""Gradients summed over workers: the same sums whether pieces travel during the backward pass or after it."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from regard.training.distributed import gradient_sums
from regard.training.distributed.gradient_sums import GradientSums


class Twins:
    """Two workers of whom the other always has what this one has: a sum is twice as much, when it has arrived."""

    def __init__(self) -> None:
        self.sent: list[torch.Tensor] = []
        self.added: list[list[int]] = []

    def send(self, tensor):
        self.sent.append(tensor)
        return tensor

    def await_sent(self, works):
        for tensor in works:
            tensor.mul_(2)

    def add(self, values):
        self.added.append(list(values))
        return [2 * value for value in values]


@pytest.fixture
def small_pieces(monkeypatch):
    monkeypatch.setattr(gradient_sums, "SHORTEST", 1)
    monkeypatch.setattr(gradient_sums, "LONGEST", 40)


class Chain(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.layers = nn.ModuleList(nn.Linear(3, 3) for _ in range(4))
        self.unused = nn.Parameter(torch.ones(2))

    def forward(self, x, sent=None):
        at = []
        for layer in self.layers:
            x = layer(x).tanh()
            if sent is not None:
                x.register_hook(lambda _: at.append(len(sent)))
        return x, at


def backward(model, x, sent=None):
    for p in model.parameters():
        p.grad = None
    y, at = model(x, sent)
    y.sum().backward()
    return at


def expected(model, x):
    backward(model, x)
    return {name: 2 * p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def check(model, sums, x):
    numbers = sums([torch.tensor(3.0), torch.tensor(4.0)])
    assert [float(number) for number in numbers] == [6.0, 8.0]
    for name, want in expected(twin(model), x).items():
        assert torch.equal(dict(model.named_parameters())[name].grad, want), name
    assert model.unused.grad is None


def twin(model):
    found = Chain()
    found.load_state_dict(model.state_dict())
    return found


def test_pieces_travel_while_the_backward_pass_goes_on(small_pieces):
    team, model = Twins(), Chain()
    sums = GradientSums(team, model.named_parameters())
    for step in range(3):
        x = torch.randn(5, 3)
        team.sent.clear()
        sums.begin()
        at = backward(model, x, team.sent)
        if step:
            assert at == [0, *sorted(at[1:])]
            assert at[-1] >= 2  # before the first layer's gradient is there, the last layers' are under way
        else:
            assert at == [0] * 4  # it is not known yet what is trained
        check(model, sums, x)
    assert len({tensor.data_ptr() for tensor in team.sent}) == len(sums.pieces) + 1  # each once, and the numbers
    assert len(sums.pieces) > 3


def test_without_a_word_nothing_is_sent_before_the_end(small_pieces):
    team, model = Twins(), Chain()
    sums = GradientSums(team, model.named_parameters())
    for _ in range(2):
        x = torch.randn(5, 3)
        team.sent.clear()
        assert backward(model, x, team.sent) == [0] * 4
        check(model, sums, x)


def test_what_was_read_anew_is_sent_anew(small_pieces):
    """As when a batch does not fit into memory: the first pass was in vain."""
    team, model = Twins(), Chain()
    sums = GradientSums(team, model.named_parameters())
    backward(model, torch.randn(5, 3))
    sums([torch.zeros(()), torch.zeros(())])
    sums.begin()
    backward(model, torch.randn(7, 3))
    x = torch.randn(5, 3)
    backward(model, x)
    check(model, sums, x)
    assert team.added[-1] == [1]
    sums.begin()
    backward(model, x)
    check(model, sums, x)
    assert team.added[-1] == [0]


def test_a_model_that_asks_the_others_as_it_goes_sends_at_the_end(small_pieces, monkeypatch):
    team, model = Twins(), Chain()
    sums = GradientSums(team, model.named_parameters())
    monkeypatch.setattr(gradient_sums.workers, "asked", gradient_sums.workers.asked + 1)
    for _ in range(2):
        x = torch.randn(5, 3)
        team.sent.clear()
        sums.begin()
        assert backward(model, x, team.sent) == [0] * 4
        check(model, sums, x)
