"""The simple recurrent network (Elman 1990) over whole sequences: s_t = f(x_t + W s_{t-1}), with the products of x outside.

Both ways a step is one product and one function, and W gets its gradient from one product after the last step back. Nothing
asks the device for values, so that a pass can be recorded. cuDNN has no such layer with a sigmoid, nor one without a product
of the inputs.
"""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from regard.layers.recurrent.cells import precise

Activation = Literal["sigmoid", "tanh", "relu"]


def simple_recurrence(
    x: Float[Tensor, "B T D"],
    s: Float[Tensor, "B D"],
    weight: Float[Tensor, "D D"],
    activation: Activation,
    cut: int = 0,
) -> Float[Tensor, "B T D"]:
    """All states s_1 .. s_T that follow s = s_0, in float32 at least.

    With `cut` = k, errors do not flow from step k + 1 to step k, from 2 k + 1 to 2 k, .. (truncated back-propagation through
    time): of k steps, they reach the first, whose own inputs still count.
    """
    with torch.autocast(x.device.type, enabled=False):
        return _Recurrence.apply(precise(x), precise(s), precise(weight), activation, cut)  # type: ignore[return-value]


class _Recurrence(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, s, weight, activation, cut):
        states = torch.empty((x.shape[1], *s.shape), dtype=x.dtype, device=x.device)  # T B D: each step in one piece
        matrix, last = weight.t(), s
        for now, state in zip(x.unbind(1), states, strict=True):
            torch.addmm(now, last, matrix, out=state)
            last = _FUNCTIONS[activation](state)
        ctx.save_for_backward(states, s, weight)
        ctx.activation, ctx.cut = activation, cut
        return states.transpose(0, 1)

    @staticmethod
    @once_differentiable
    def backward(ctx, d_states):  # pyright: ignore[reportIncompatibleMethodOverride]
        states, s, weight = ctx.saved_tensors
        slope = _SLOPES[ctx.activation]
        d_states = d_states.transpose(0, 1)
        d_x = torch.empty_like(states)
        flowing = d_states[-1]
        for t in range(len(states) - 1, -1, -1):
            torch.mul(flowing, slope(states[t]), out=d_x[t])
            if ctx.cut and t % ctx.cut == 0:
                flowing = d_states[t - 1]
            elif t:
                flowing = torch.addmm(d_states[t - 1], d_x[t], weight)
        d_s = d_x[0] @ weight if ctx.needs_input_grad[1] else None  # a state that was carried in asks for none
        d_weight = None
        if ctx.needs_input_grad[2]:
            d_weight = d_x.flatten(0, 1).t() @ torch.cat((s[None], states[:-1])).flatten(0, 1)
        return d_x.transpose(0, 1), d_s, d_weight, None, None


_FUNCTIONS = {"sigmoid": torch.sigmoid_, "tanh": torch.tanh_, "relu": torch.relu_}
_SLOPES = {  # by the value of the function
    "sigmoid": lambda s: torch.addcmul(s, s, s, value=-1),
    "tanh": lambda s: 1 - s * s,
    "relu": lambda s: (s > 0).to(s.dtype),
}
