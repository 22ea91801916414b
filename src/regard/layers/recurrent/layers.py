"""Recurrent layers over whole sequences: single ones and pairs that read both ways. cuDNN runs them on CUDA."""

from __future__ import annotations

from typing import Any, Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn.functional import linear

from regard.layers.recurrent.cells import lstm_step, precise, without_autocast
from regard.layers.recurrent.gru import ResetBeforeGRU
from regard.layers.recurrent.padding import PaddedFirst, backwards

Kind = Literal["lstm", "gru", "gru_reset_before", "rnn"]
Bias = bool | Literal["input"]  # "input": the weights of one more, last input, which is 1 but at padding


class LSTM(nn.LSTM):
    """One layer, batch first, in float32 even under autocast (which would take float16 here, never bfloat16)."""

    weight_ih_l0: Tensor
    weight_hh_l0: Tensor
    bias_ih_l0: Tensor
    bias_hh_l0: Tensor

    def __init__(self, inputs: int, width: int, bias: Bias):
        super().__init__(inputs + (bias == "input"), width, batch_first=True, bias=bias is True)
        self._one_input = bias == "input"

    @property
    def biases(self) -> Tensor | None:
        """Those of the gates, wherever they are."""
        if self._one_input:
            return self.weight_ih_l0[:, -1]
        return self.bias_ih_l0 if self.bias else None

    def forward(self, x: Any, state: Any = None) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        with without_autocast(x):
            x, state = precise(x), None if state is None else tuple(precise(part) for part in state)
            return self._step(x, *state) if state is not None and x.shape[1] == 1 else super().forward(x, state)

    def _step(self, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """A single step without the library's own, which on a CPU packs the matrices anew at every call."""
        bias_ih, bias_hh = (self.bias_ih_l0, self.bias_hh_l0) if self.bias else (None, None)
        h, c = lstm_step(linear(x[:, 0], self.weight_ih_l0, bias_ih), linear(h[0], self.weight_hh_l0, bias_hh), c[0])
        return h[:, None], (h[None], c[None])


class GRU(nn.GRU):
    """One layer, batch first, in float32 likewise. Its reset gate acts after the matrix product."""

    def __init__(self, inputs: int, width: int, bias: Bias):
        super().__init__(inputs + (bias == "input"), width, batch_first=True, bias=bias is True)

    def forward(self, x: Any, state: Any = None) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        with without_autocast(x):
            return super().forward(precise(x), None if state is None else precise(state))


class RNN(nn.RNN):
    """One simple recurrent layer with tanh (Elman 1990), batch first, in float32 likewise."""

    def __init__(self, inputs: int, width: int, bias: Bias):
        super().__init__(inputs + (bias == "input"), width, batch_first=True, bias=bias is True)

    def forward(self, x: Any, state: Any = None) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        with without_autocast(x):
            return super().forward(precise(x), None if state is None else precise(state))


def recurrent(kind: Kind, inputs: int, width: int, bias: Bias) -> Any:
    """One layer, batch first. Only layers with `bias` False or "input" may read padding (see `padding`)."""
    if kind == "gru_reset_before":
        if bias is True:
            raise ValueError("this form of the GRU has no biases")
        return ResetBeforeGRU(inputs + (bias == "input"), width)
    return {"lstm": LSTM, "gru": GRU, "rnn": RNN}[kind](inputs, width, bias)


class Bidirectional(nn.Module):
    """Two layers, one of which reads from the end; their outputs side by side, [→h ; ←h]."""

    def __init__(self, kind: Kind, inputs: int, width: int, bias: bool = False):
        super().__init__()
        self.bias = bias
        self.forwards = recurrent(kind, inputs, width, bias="input" if bias else False)
        self.backwards = recurrent(kind, inputs, width, bias="input" if bias else False)

    def forward(
        self, x: Float[Tensor, "B S I"], keep: Bool[Tensor, "B S"]
    ) -> tuple[Float[Tensor, "B S D"], tuple[Any, Any]]:
        """Outputs (zero at padding), and the last state of each direction: the backward one's is that of the first token."""
        way = PaddedFirst(keep)
        there, back = way.there(x), backwards(x, keep)
        if self.bias:
            there, back = way.with_ones(there), way.with_ones(back)
        there, last = self.forwards(there)
        back, first = self.backwards(back)
        return torch.cat((way.back(there), back.flip(1)), -1), (last, first)
