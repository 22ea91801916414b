"""Matrix products inside a time loop, whose weight gets its gradient from one product after the loop.

Autograd would multiply a small matrix and add up a large one at every step back in time. Here each step keeps its input
and the gradient of its output, and when the last step is done, all of them meet in one product.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from regard.layers.cpu_products import dense, linear, suits, turned_product

Kept = tuple[int, Tensor, Tensor]  # by which pass backwards, the step's input, the gradient of its output


class Deferred:
    """x -> x Wᵀ, to be called at every step of one pass through time. Make a new one for every pass."""

    def __init__(self, weight: Float[Tensor, "O I"]):
        weight = _as_computed(weight)
        self.weight = weight.detach()
        if suits(self.weight, self.weight):
            self.weight = dense(self.weight)  # once, not at every step
        self._steps: list[Kept] = []
        self._anchor: Tensor | None = None
        if torch.is_grad_enabled() and weight.requires_grad:
            self._anchor = _Anchor.apply(weight, self._steps)  # type: ignore[assignment]

    def __call__(self, x: Float[Tensor, "*N I"]) -> Float[Tensor, "*N O"]:
        x = x.to(self.weight.dtype)
        if self._anchor is None:
            return linear(x, self.weight, None)
        return _Step.apply(x, self.weight, self._anchor, self._steps)  # type: ignore[return-value]


class DeferredMany:
    """x -> x W₁ᵀ, x W₂ᵀ, ... as one product. Where nothing is learnt they stay apart: joining the matrices costs a copy."""

    def __init__(self, *weights: Float[Tensor, "_ I"]):
        self._sizes = [len(weight) for weight in weights]
        together = torch.is_grad_enabled() and len(weights) > 1
        self._products = [Deferred(torch.cat(weights))] if together else [Deferred(weight) for weight in weights]

    def __call__(self, x: Float[Tensor, "*N I"]) -> tuple[Tensor, ...]:
        if len(self._products) < len(self._sizes):
            return self._products[0](x).split(self._sizes, -1)
        return tuple(product(x) for product in self._products)


class _Step(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, anchor, steps):
        ctx.save_for_backward(x, weight)
        ctx.steps = steps
        return linear(x, weight, None)

    @staticmethod
    @once_differentiable
    def backward(ctx, d_out):  # pyright: ignore[reportIncompatibleMethodOverride]
        x, weight = ctx.saved_tensors
        ctx.steps.append((_pass(), x, d_out))
        d_x = linear(d_out, weight.t(), None) if ctx.needs_input_grad[0] else None
        return d_x, None, None, None


class _Anchor(torch.autograd.Function):
    """A scalar that every step depends on: autograd comes here when all the steps are done."""

    @staticmethod
    def forward(ctx, weight, steps):
        ctx.steps = steps
        return weight.new_zeros(())

    @staticmethod
    @once_differentiable
    def backward(ctx, _):  # pyright: ignore[reportIncompatibleMethodOverride]
        steps = _taken(ctx.steps)
        inputs = torch.cat([x.flatten(0, -2) for x, _ in steps])
        gradients = torch.cat([d_out.flatten(0, -2) for _, d_out in steps])
        return turned_product(gradients, inputs), None


def _as_computed(tensor: Tensor) -> Tensor:
    """In the numbers that products are computed in, which autocast does not choose inside of functions of our own."""
    device = tensor.device.type
    return tensor.to(torch.get_autocast_dtype(device)) if torch.is_autocast_enabled(device) else tensor


def _pass() -> int:
    return torch._C._current_graph_task_id()


def _taken(steps: list[Kept]) -> list[tuple[Tensor, Tensor]]:
    """The steps of this pass backwards; an earlier one may have asked for the inputs' gradients alone and left its own."""
    now = [(x, d_out) for number, x, d_out in steps if number == _pass()]
    steps.clear()
    return now


class DeferredContext:
    """a -> a V per sentence, for weights of N queries at every step: V gets its gradient likewise, after the loop."""

    def __init__(self, values: Float[Tensor, "B S D"]):
        values = _as_computed(values)
        self.values = values.detach()
        self._steps: list[Kept] = []
        self._anchor: Tensor | None = None
        if torch.is_grad_enabled() and values.requires_grad:
            self._anchor = _ContextAnchor.apply(values, self._steps)  # type: ignore[assignment]

    def __call__(self, weights: Float[Tensor, "B N S"]) -> Float[Tensor, "B N D"]:
        weights = weights.to(self.values.dtype)
        if self._anchor is None:
            return weights @ self.values
        return _ContextStep.apply(weights, self.values, self._anchor, self._steps)  # type: ignore[return-value]


class _ContextStep(torch.autograd.Function):
    @staticmethod
    def forward(ctx, weights, values, anchor, steps):
        ctx.save_for_backward(weights, values)
        ctx.steps = steps
        return weights @ values

    @staticmethod
    @once_differentiable
    def backward(ctx, d_out):  # pyright: ignore[reportIncompatibleMethodOverride]
        weights, values = ctx.saved_tensors
        ctx.steps.append((_pass(), weights, d_out))
        return d_out @ values.transpose(1, 2), None, None, None


class _ContextAnchor(torch.autograd.Function):
    @staticmethod
    def forward(ctx, values, steps):
        ctx.steps = steps
        return values.new_zeros(())

    @staticmethod
    @once_differentiable
    def backward(ctx, _):  # pyright: ignore[reportIncompatibleMethodOverride]
        steps = _taken(ctx.steps)
        weights = torch.cat([w for w, _ in steps], 1)  # B NT S
        gradients = torch.cat([d_out for _, d_out in steps], 1)  # B NT D
        return weights.transpose(1, 2) @ gradients, None
