"""The GRU as it was first written, against float64 NumPy, unit by unit."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

from regard.layers.recurrent.gru import ResetBeforeGRU, ResetBeforeStep

ROWS, LENGTH, INPUTS, WIDTH = 3, 5, 4, 6


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def step(w: np.ndarray, u: np.ndarray, x: np.ndarray, h: np.ndarray) -> np.ndarray:
    """r = σ(W_r x + U_r h), z = σ(W_z x + U_z h), n = tanh(W x + U (r h)), h' = z h + (1 - z) n. Rows of w and u: r, z, n."""
    r = np.array([sigmoid(w[j] @ x + u[j] @ h) for j in range(WIDTH)])
    z = [sigmoid(w[WIDTH + j] @ x + u[WIDTH + j] @ h) for j in range(WIDTH)]
    n = [math.tanh(w[2 * WIDTH + j] @ x + u[2 * WIDTH + j] @ (r * h)) for j in range(WIDTH)]
    return np.array([z[j] * h[j] + (1 - z[j]) * n[j] for j in range(WIDTH)])


def layer() -> ResetBeforeGRU:
    torch.manual_seed(0)
    made = ResetBeforeGRU(INPUTS, WIDTH).double()
    for p in made.parameters():
        nn.init.normal_(p, std=0.8)
    return made


@pytest.mark.parametrize("start", [False, True])
@torch.no_grad()
def test_equals_the_equations(start):
    gru = layer()
    w, u = gru.weight_ih_l0.numpy(), gru.weight_hh_l0.numpy()
    x = torch.randn(ROWS, LENGTH, INPUTS, dtype=torch.float64)
    h = torch.randn(1, ROWS, WIDTH, dtype=torch.float64) if start else None
    outputs, last = gru(x, h)
    assert last.shape == (1, ROWS, WIDTH)
    for row in range(ROWS):
        state = np.zeros(WIDTH) if h is None else h[0, row].numpy()
        for t in range(LENGTH):
            state = step(w, u, x[row, t].numpy(), state)
            np.testing.assert_allclose(outputs[row, t].numpy(), state, rtol=0, atol=1e-13)
        np.testing.assert_allclose(last[0, row].numpy(), state, rtol=0, atol=1e-13)
    other = nn.GRU(INPUTS, WIDTH, batch_first=True, bias=False).double()
    other.load_state_dict(gru.state_dict())  # the same parameters, but not the same function
    assert not torch.allclose(other(x, h)[0], outputs, atol=1e-3)


def test_gradcheck():
    gru = layer()
    x = torch.randn(2, 3, INPUTS, dtype=torch.float64, requires_grad=True)
    h = torch.randn(1, 2, WIDTH, dtype=torch.float64, requires_grad=True)
    weights = tuple(p.detach().requires_grad_() for p in gru.parameters())

    def run(x, h, *weights):
        names = [name for name, _ in gru.named_parameters()]
        return torch.func.functional_call(gru, dict(zip(names, weights, strict=True)), (x, h))

    assert torch.autograd.gradcheck(run, (x, h, *weights))


@torch.no_grad()
def test_a_step_takes_hypotheses():
    """Rows may be [B, K]: as in the layer, so in the step that decoders use."""
    gru = layer()
    u = gru.weight_hh_l0
    gates, h = torch.randn(2, 3, 3 * WIDTH, dtype=torch.float64), torch.randn(2, 3, WIDTH, dtype=torch.float64)
    found = ResetBeforeStep(u)(gates, h)
    for b in range(2):
        for k in range(3):
            one = step(np.eye(3 * WIDTH), u.numpy(), gates[b, k].numpy(), h[b, k].numpy())
            np.testing.assert_allclose(found[b, k].numpy(), one, rtol=0, atol=1e-13)


def test_it_starts_as_torchs_does():
    torch.manual_seed(0)
    gru = ResetBeforeGRU(50, 64)
    for p in gru.parameters():
        assert p.abs().max().item() == pytest.approx(1 / 8, rel=0.01)
        assert p.mean().abs().item() < 0.01
