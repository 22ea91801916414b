"""Products inside time loops: the same values and gradients as plain autograd gives, from one product after the loop."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch

from regard.layers.recurrent.deferred import Deferred, DeferredContext

STEPS, WIDTH = 5, 4


def inputs(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64).requires_grad_()


def through_time(product, xs: torch.Tensor) -> torch.Tensor:
    """h_t = tanh(x_t + W h_{t-1}), all h_t."""
    h, states = torch.zeros_like(xs[0]), []
    for x in xs:
        h = torch.tanh(x + product(h))
        states.append(h)
    return torch.stack(states)


@pytest.mark.parametrize("rows", [(3,), (3, 2), (1,)])
def test_equals_plain_autograd(rows):
    torch.manual_seed(0)
    xs, weight = inputs(STEPS, *rows, WIDTH), inputs(WIDTH, WIDTH)
    by = torch.randn(STEPS, *rows, WIDTH, dtype=torch.float64)
    plain = through_time(lambda h: h @ weight.t(), xs)
    expected = torch.autograd.grad((plain * by).sum(), (xs, weight))
    deferred = through_time(Deferred(weight), xs)
    found = torch.autograd.grad((deferred * by).sum(), (xs, weight))
    torch.testing.assert_close(deferred, plain, rtol=0, atol=0)
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-13)


def test_gradcheck():
    torch.manual_seed(0)
    xs, weight = inputs(3, 2, WIDTH), inputs(WIDTH, WIDTH)
    assert torch.autograd.gradcheck(lambda x, w: through_time(Deferred(w), x), (xs, weight))
    first, second = inputs(2, 3), inputs(2, 3)

    def oblong(w, a, b):
        product = Deferred(w)
        return product(a) * product(b) + product(a + b)

    assert torch.autograd.gradcheck(oblong, (inputs(5, 3), first, second))


def test_steps_whose_outputs_nobody_uses_add_nothing():
    torch.manual_seed(0)
    weight, xs = inputs(3, WIDTH), inputs(4, 2, WIDTH)
    product = Deferred(weight)
    outputs = [product(x) for x in xs]
    found = torch.autograd.grad(outputs[1].sum() + 2 * outputs[3].sum(), (weight, xs))
    plain = [x @ weight.t() for x in xs]
    expected = torch.autograd.grad(plain[1].sum() + 2 * plain[3].sum(), (weight, xs))
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-13)


def test_a_weight_made_of_several_gives_each_its_part():
    torch.manual_seed(0)
    one, two, x = inputs(2, WIDTH), inputs(3, WIDTH), inputs(6, WIDTH)
    product = Deferred(torch.cat((one, two)))
    a, b = product(x).split((2, 3), -1)
    found = torch.autograd.grad(a.sin().sum() + b.pow(2).sum(), (one, two, x))
    expected = torch.autograd.grad((x @ one.t()).sin().sum() + (x @ two.t()).pow(2).sum(), (one, two, x))
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-13)


def test_gradients_add_up_in_parameters_over_passes():
    torch.manual_seed(0)
    weight, xs = inputs(WIDTH, WIDTH), torch.randn(STEPS, 2, WIDTH, dtype=torch.float64)
    for _ in range(2):
        through_time(Deferred(weight), xs).sum().backward()
    kept = through_time(Deferred(weight), xs).sum()
    kept.backward(retain_graph=True)
    kept.backward()
    (once,) = torch.autograd.grad(through_time(lambda h: h @ weight.t(), xs).sum(), weight)
    torch.testing.assert_close(weight.grad, 4 * once, rtol=0, atol=1e-12)


def test_inputs_or_weights_may_be_constant():
    torch.manual_seed(0)
    weight, x = inputs(3, WIDTH), inputs(2, WIDTH)
    (d_weight,) = torch.autograd.grad(Deferred(weight)(x.detach()).sin().sum(), weight)
    torch.testing.assert_close(d_weight, torch.autograd.grad((x @ weight.t()).sin().sum(), weight)[0])
    (d_x,) = torch.autograd.grad(Deferred(weight.detach())(x).sin().sum(), x)
    torch.testing.assert_close(d_x, torch.autograd.grad((x @ weight.t()).sin().sum(), x)[0])


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_nothing_is_kept_without_gradients(mode):
    weight, x = inputs(3, WIDTH), torch.randn(2, WIDTH, dtype=torch.float64)
    with mode():
        out = Deferred(weight)(x)
    assert not out.requires_grad
    torch.testing.assert_close(out, (x @ weight.t()).detach())


def test_what_was_kept_is_let_go_after_the_backward_pass():
    weight, x = inputs(3, WIDTH), torch.randn(2, WIDTH, dtype=torch.float64)
    product = Deferred(weight)
    middle = product(x).sin()
    gone = weakref.ref(x)
    middle.sum().backward()
    del x, middle
    gc.collect()
    assert gone() is None, "the inputs of all steps would stay until the pass itself is forgotten"


def test_a_pass_for_the_inputs_alone_leaves_nothing_behind():
    torch.manual_seed(0)
    xs, weight = inputs(STEPS, 3, WIDTH), inputs(WIDTH, WIDTH)
    (expected,) = torch.autograd.grad(through_time(lambda h: h @ weight.t(), xs).sum(), weight)
    total = through_time(Deferred(weight), xs).sum()
    torch.autograd.grad(total, xs, retain_graph=True)
    for _ in range(2):
        (found,) = torch.autograd.grad(total, weight, retain_graph=True)
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-13)


def test_contexts_equal_plain_autograd():
    """Weights that depend on the context before, for two queries of each sentence."""
    torch.manual_seed(0)
    values, first = inputs(3, 5, WIDTH), inputs(3, 2, 5)

    def through(product):
        weights, contexts = first, []
        for _ in range(STEPS):
            contexts.append(product(weights.softmax(-1)))
            weights = weights * contexts[-1].sum(-1, keepdim=True).tanh() + first
        return torch.stack(contexts)

    by = torch.randn(STEPS, 3, 2, WIDTH, dtype=torch.float64)
    plain, deferred = through(lambda a: a @ values), through(DeferredContext(values))
    torch.testing.assert_close(deferred, plain, rtol=0, atol=0)
    expected = torch.autograd.grad((plain * by).sum(), (values, first))
    found = torch.autograd.grad((deferred * by).sum(), (values, first))
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-13)
    with torch.no_grad():
        torch.testing.assert_close(through(DeferredContext(values)), plain, rtol=0, atol=0)
