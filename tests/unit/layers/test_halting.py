"""Adaptive computation time against its definition, position by position, and at its edges."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from regard.layers.halting import halt, interpolate


def by_definition(h: list[float], epsilon: float) -> tuple[list[float], int, float]:
    """p_1 .. p_T, N and R of one position, from its chances h_1 .. h_T."""
    total, n = 0.0, 1
    while n < len(h) and not math.fsum(h[:n]) > 1 - epsilon:
        n += 1
    total = math.fsum(h[: n - 1])
    return [*h[: n - 1], 1 - total, *[0.0] * (len(h) - n)], n, 1 - total


@pytest.mark.parametrize("epsilon", [0.0, 0.01, 0.4])
def test_positions_halt_as_defined(epsilon):
    rng = np.random.default_rng(0)
    chances = rng.random((6, 5, 7)) ** 2
    halted = halt(torch.from_numpy(chances), epsilon)
    for b, i in np.ndindex(5, 7):
        p, n, r = by_definition(chances[:, b, i].tolist(), epsilon)
        np.testing.assert_allclose(halted.weights[:, b, i].numpy(), p, atol=1e-14)
        assert int(halted.steps[b, i]) == n
        assert float(halted.remainder[b, i]) == pytest.approx(r, abs=1e-14)
        assert float(halted.ponder[b, i]) == pytest.approx(n + r, abs=1e-14)
    assert len(halted.steps.unique()) > 2
    torch.testing.assert_close(halted.weights.sum(0), torch.ones(5, 7, dtype=torch.float64))


@pytest.mark.parametrize(
    ("h", "epsilon", "p", "n"),
    [
        ([0.995, 0.5, 0.5], 0.01, [1.0, 0.0, 0.0], 1),  # at once
        (
            [1.0, 1.0, 1.0],
            0.0,
            [1.0, 0.0, 0.0],
            2,
        ),  # exactly the threshold is not more than it: the next step gets nothing
        ([0.5, 0.25, 0.9], 0.25, [0.5, 0.25, 0.25], 3),  # so here: two steps make 0.75 = 1 - epsilon
        ([0.5, 0.25, 0.9], 0.26, [0.5, 0.5, 0.0], 2),
        ([0.1, 0.2, 0.3], 0.01, [0.1, 0.2, 0.7], 3),  # never: the last step gets what is left
        ([0.0, 0.0, 0.0], 0.01, [0.0, 0.0, 1.0], 3),
        ([0.2], 0.01, [1.0], 1),  # the only step
    ],
)
def test_edges(h, epsilon, p, n):
    halted = halt(torch.tensor(h, dtype=torch.float64), epsilon)
    torch.testing.assert_close(halted.weights, torch.tensor(p, dtype=torch.float64))
    assert int(halted.steps) == n


def test_only_chances_before_the_last_step_have_a_gradient():
    """ponder = N + 1 - Σ h_n over n < N: minus one for each of these, nothing for the rest."""
    chances = torch.tensor([[0.3, 0.995, 0.1], [0.4, 0.6, 0.1], [0.5, 0.2, 0.1]], dtype=torch.float64)
    chances.requires_grad_()
    halted = halt(chances, 0.01)
    assert halted.steps.tolist() == [3, 1, 3]
    halted.ponder.sum().backward()
    assert chances.grad is not None
    assert chances.grad.tolist() == [[-1, 0, -1], [-1, 0, -1], [0, 0, 0]]


def test_interpolation_is_what_mixing_step_by_step_gives():
    rng = np.random.default_rng(1)
    chances, values = rng.random((5, 9)), rng.normal(size=(5, 9))
    weights = halt(torch.from_numpy(chances), 0.01).weights
    shares = interpolate(weights)
    for i in range(9):
        y = 0.0
        for p, v in zip(weights[:, i].tolist(), values[:, i], strict=True):
            y = p * v + (1 - p) * y
        assert float(shares[:, i] @ torch.from_numpy(values[:, i])) == pytest.approx(y, abs=1e-14)
    assert float(shares.sum(0).max()) <= 1 + 1e-12
    assert float(shares.sum(0).min()) < 0.95


def test_gradients_stay_finite_where_a_weight_is_one():
    chances = torch.tensor([[0.9999], [0.5], [0.5]], dtype=torch.float64, requires_grad=True)
    (interpolate(halt(chances, 0.01).weights) * torch.tensor([[1.0], [2.0], [3.0]])).sum().backward()
    assert chances.grad is not None
    assert torch.isfinite(chances.grad).all()
