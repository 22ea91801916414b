"""Steps of an LSTM and a GRU against torch's own cells and finite differences."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from regard.layers.recurrent.cells import gru_step, lstm_step

WIDTH = 4


def inputs(*shape: int) -> torch.Tensor:
    return (1.5 * torch.randn(*shape, dtype=torch.float64)).requires_grad_()


@pytest.mark.parametrize("rows", [(3,), (2, 3)])
def test_lstm_step_is_that_of_torch(rows):
    torch.manual_seed(0)
    cell = nn.LSTMCell(5, WIDTH).double()
    x, h, c = inputs(*rows, 5), inputs(*rows, WIDTH), inputs(*rows, WIDTH)
    ours = lstm_step(
        nn.functional.linear(x, cell.weight_ih, cell.bias_ih), nn.functional.linear(h, cell.weight_hh, cell.bias_hh), c
    )
    flat = cell(x.reshape(-1, 5), (h.reshape(-1, WIDTH), c.reshape(-1, WIDTH)))
    theirs = [part.reshape(*rows, WIDTH) for part in flat]
    weights = [torch.randn(*rows, WIDTH, dtype=torch.float64) for _ in range(2)]
    wanted = (x, h, c, *cell.parameters())
    for choice in ((1, 0), (0, 1), (1, 1)):  # of h' alone, of c' alone, of both
        found, expected = (
            torch.autograd.grad(
                sum(on * (part * by).sum() for on, part, by in zip(choice, parts, weights, strict=True)),  # type: ignore[arg-type]
                wanted,
                retain_graph=True,
            )
            for parts in (ours, theirs)
        )
        for mine, other in zip(found, expected, strict=True):
            torch.testing.assert_close(mine, other, rtol=0, atol=1e-13)
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other, rtol=0, atol=1e-14)


@pytest.mark.parametrize("rows", [(3,), (2, 3)])
def test_gru_step_is_that_of_torch(rows):
    torch.manual_seed(0)
    cell = nn.GRUCell(5, WIDTH).double()
    x, h = inputs(*rows, 5), inputs(*rows, WIDTH)
    ours = gru_step(
        nn.functional.linear(x, cell.weight_ih, cell.bias_ih), nn.functional.linear(h, cell.weight_hh, cell.bias_hh), h
    )
    theirs = cell(x.reshape(-1, 5), h.reshape(-1, WIDTH)).reshape(*rows, WIDTH)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-14)
    weight = torch.randn(*rows, WIDTH, dtype=torch.float64)
    wanted = (x, h, *cell.parameters())
    found = torch.autograd.grad((ours * weight).sum(), wanted)
    expected = torch.autograd.grad((theirs * weight).sum(), wanted)
    for mine, other in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, other, rtol=0, atol=1e-13)


def test_gradcheck():
    torch.manual_seed(0)
    assert torch.autograd.gradcheck(lstm_step, (inputs(2, 4 * 3), inputs(2, 4 * 3), inputs(2, 3)))
    assert torch.autograd.gradcheck(gru_step, (inputs(2, 3 * 3), inputs(2, 3 * 3), inputs(2, 3)))


def test_inputs_stay_as_they_are():
    """The steps compute in place, but never in what they were given."""
    torch.manual_seed(0)
    for step, gates in ((lstm_step, 4), (gru_step, 3)):
        given = (inputs(2, gates * WIDTH).detach(), inputs(2, gates * WIDTH).detach(), inputs(2, WIDTH).detach())
        before = [part.clone() for part in given]
        step(*given)
        for part, copy in zip(given, before, strict=True):
            torch.testing.assert_close(part, copy, rtol=0, atol=0)
