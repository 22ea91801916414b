"""The simple recurrent network over whole sequences is a loop that autograd goes back through."""

from __future__ import annotations

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from regard.layers.recurrent.simple import simple_recurrence

FUNCTIONS = {"sigmoid": torch.sigmoid, "tanh": torch.tanh, "relu": torch.relu}


def inputs() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    x, s, weight = (
        torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_()
        for shape in ((3, 7, 5), (3, 5), (5, 5))
    )
    return x, s, weight


def loop(x, s, weight, activation, cut):
    states = []
    for t, now in enumerate(x.unbind(1)):
        if cut and t and t % cut == 0:
            s = s.detach()
        s = FUNCTIONS[activation](now + s @ weight.t())
        states.append(s)
    return torch.stack(states, 1)


@pytest.mark.parametrize("cut", [0, 1, 3, 7])
@pytest.mark.parametrize("activation", ["sigmoid", "tanh", "relu"])
def test_states_and_all_gradients_are_those_of_a_plain_loop(activation, cut):
    wanted = torch.randn(3, 7, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    ours, theirs = inputs(), inputs()
    states, expected = simple_recurrence(*ours, activation, cut), loop(*theirs, activation, cut)
    torch.testing.assert_close(states, expected, rtol=0, atol=1e-12)
    (states * wanted).sum().backward()
    (expected * wanted).sum().backward()
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one.grad, other.grad, rtol=0, atol=1e-12)


def test_states_are_float32_where_products_are_not():
    x, s, weight = (tensor.detach().float() for tensor in inputs())
    expected = simple_recurrence(x, s, weight, "tanh")
    with torch.autocast("cpu", torch.bfloat16):
        states = simple_recurrence(x.bfloat16(), s, weight, "tanh")
    assert states.dtype == torch.float32
    torch.testing.assert_close(states, expected, rtol=0, atol=0.05)


def test_sixteen_bit_inputs_get_gradients_of_their_own_type():
    x, s, weight = (tensor.detach().float() for tensor in inputs())
    x = x.bfloat16().requires_grad_()
    simple_recurrence(x, s, weight, "tanh").sum().backward()
    assert x.grad is not None
    assert x.grad.dtype == torch.bfloat16


class Products(TorchDispatchMode):
    """Counts products of matrices."""

    count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += func in (torch.ops.aten.mm.default, torch.ops.aten.addmm.default)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    ("needed", "products"), [((True, True, True), 8), ((True, False, True), 7), ((True, False, False), 6)]
)
def test_gradients_that_nobody_asks_for_are_not_computed(needed, products):
    ours, expected = inputs(), inputs()
    simple_recurrence(*expected, "tanh").sum().backward()
    for tensor, wanted in zip(ours, needed, strict=True):
        tensor.requires_grad_(wanted)
    total = simple_recurrence(*ours, "tanh").sum()
    with Products() as seen:
        total.backward()
    assert seen.count == products  # six steps back, then one each for the state and the matrix
    for one, other, wanted in zip(ours, expected, needed, strict=True):
        assert (one.grad is not None) == wanted
        if wanted:
            torch.testing.assert_close(one.grad, other.grad, rtol=0, atol=1e-12)
