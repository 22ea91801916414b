"""The GRU as Cho et al. 2014 wrote it: the reset gate acts on the state before the matrix product."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.layers.cpu_products import linear
from regard.layers.recurrent.cells import reset_before_step
from regard.layers.recurrent.deferred import Deferred


class ResetBeforeGRU(nn.Module):
    """r, z = σ(W x + U h), n = tanh(W x + U (r h)), h' = (1 - z) n + z h, with the parameters of a bias-free `nn.GRU`.

    cuDNN knows only the other form, n = tanh(W x + r (U h)); this one runs step by step. Cho et al. write
    h' = z h + (1 - z) n as here, Bahdanau et al. call 1 - z what is z here: the models are the same.
    """

    def __init__(self, inputs: int, width: int):
        super().__init__()
        bound = width**-0.5
        self.weight_ih_l0 = nn.Parameter(torch.empty(3 * width, inputs).uniform_(-bound, bound))
        self.weight_hh_l0 = nn.Parameter(torch.empty(3 * width, width).uniform_(-bound, bound))

    def forward(
        self, x: Float[Tensor, "B S I"], h: Float[Tensor, "1 B D"] | None = None
    ) -> tuple[Float[Tensor, "B S D"], Float[Tensor, "1 B D"]]:
        gates = linear(x, self.weight_ih_l0, None).transpose(0, 1).unbind(0)
        step = ResetBeforeStep(self.weight_hh_l0)
        state = self.weight_hh_l0.new_zeros(len(x), self.weight_hh_l0.shape[1]) if h is None else h[0]
        outputs = []
        for from_input in gates:
            state = step(from_input, state)
            outputs.append(state)
        return torch.stack(outputs, 1), state[None]


class ResetBeforeStep:
    """One step of it, for loops that do more: the matrices of a pass through time."""

    def __init__(self, weight: Float[Tensor, "G D"]):
        width = weight.shape[1]
        self.gates, self.candidate = (Deferred(part) for part in weight.split((2 * width, width)))

    def __call__(self, from_input: Float[Tensor, "*N G"], h: Float[Tensor, "*N D"]) -> Float[Tensor, "*N D"]:
        return reset_before_step(from_input, self.gates, self.candidate, h)
