"""Recurrent layers one above the other, over texts with padding: what recurrent models that read are made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from regard.layers.recurrent.cells import open_forget_gate
from regard.layers.recurrent.layers import LSTM, Bidirectional, recurrent
from regard.layers.recurrent.padding import PaddedFirst
from regard.layers.starting import start_orthogonal

Cell = Literal["rnn", "gru", "lstm"]
GATES = {"rnn": 1, "gru": 3, "lstm": 4}


class RecurrentStack(nn.Module):
    """Layers of one kind of cell. With `bidirectional`, each has one half that reads from the end, and both share the width.

    Padding changes nothing, in either direction. Matrices start by Glorot's rule, those from state to state orthogonal, each
    gate's on its own; biases at 0, but the forget gates of LSTMs open.
    """

    def __init__(self, cell: Cell, inputs: int, width: int, layers: int, bidirectional: bool):
        super().__init__()
        self.bidirectional = bidirectional
        sizes = [inputs] + [width] * (layers - 1)
        if bidirectional:
            self.layers = nn.ModuleList(Bidirectional(cell, size, width // 2, bias=True) for size in sizes)
        else:
            self.layers = nn.ModuleList(recurrent(cell, size, width, bias="input") for size in sizes)
        self._initialise(GATES[cell])

    def _initialise(self, gates: int) -> None:
        for name, p in self.named_parameters():
            if name.endswith("weight_hh_l0"):
                start_orthogonal(p, gates)
            else:
                for matrix in p.data.chunk(gates):
                    nn.init.xavier_uniform_(matrix)
                    nn.init.zeros_(matrix[:, -1])  # the weights of the input that is 1: biases
        for module in self.modules():
            if isinstance(module, LSTM) and module.biases is not None:
                open_forget_gate(module.biases)

    def forward(
        self, x: Float[Tensor, "B S I"], keep: Bool[Tensor, "B S"], between: Callable[[Tensor], Tensor]
    ) -> tuple[list[Float[Tensor, "B S D"]], Float[Tensor, "B D"]]:
        """The states of every layer, zero at padding, and where the last layer ends.

        `between` is applied to what each layer but the first reads. The end is the state after the last token; of two directions,
        each has its own: the backward one ends at the first token.
        """
        way, found, last = PaddedFirst(keep), [], None
        for i, layer in enumerate(self.layers):
            x = between(x) if i else x
            if self.bidirectional:
                x, last = layer(x, keep)
            else:
                x, last = layer(way.with_ones(way.there(x)))
                x, last = way.back(x), (last,)
            found.append(x)
        return found, torch.cat([_output(end) for end in last or ()], -1)


def _output(end: Tensor | tuple[Tensor, Tensor]) -> Float[Tensor, "B D"]:
    """h of a layer's last state; an LSTM has a cell beside it."""
    return (end[0] if isinstance(end, tuple) else end)[0]
