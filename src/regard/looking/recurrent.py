"""Recurrent layers over time: the gates and states of every step.

What a layer read and gave is what the model read and gave; its gates follow from both, since each depends on a step's input and on
the state before it (torch's equations, `docs` of nn.LSTM, nn.GRU and nn.RNN; the cell of an LSTM is followed through the steps):

    LSTM   i, f, o = sigmoid(W x_t + U h_{t-1} + b),   g = tanh(..),   c_t = f c_{t-1} + i g,   h_t = o tanh(c_t)
    GRU    r, z = sigmoid(..),   n = tanh(W x_t + r (U h_{t-1})),   h_t = (1 - z) n + z h_{t-1}

Decoders that look at the source while they write are shown by the states that they carry from step to step.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from regard.core.errors import ModelError
from regard.looking.part import Side
from regard.looking.watching import Watched

Values = dict[str, np.ndarray]  # gate -> [steps, width]


@dataclasses.dataclass(frozen=True)
class Layer:
    """A layer's gates and states, in the order of the text."""

    name: str
    tokens: Side
    values: Values

    def to_plain(self) -> dict[str, Any]:
        width = next(iter(self.values.values())).shape[-1]
        return {"name": self.name, "gates": list(self.values), "tokens": self.tokens, "width": width}


@torch.inference_mode()
def recurrent_layers(model: Any, again: Any, read: Any, memory_of: Any, *, reads_only: bool) -> dict[str, Layer]:
    """All recurrent layers of a model. `read`: what the decoder reads, ids; `memory_of()`: memory and first state to step with."""
    inner = {name: m for name, m in model.named_modules() if isinstance(m, nn.LSTM | nn.GRU | nn.RNN)}
    with Watched(inner) as seen:
        again()
    found: dict[str, Layer] = {}
    for name, module in inner.items():
        if len(seen.calls[name]) == 1 and seen.input(name).shape[1] > 0:
            of_source = reads_only or "decoder" not in name
            reverse = "backwards" in name or (of_source and bool(getattr(model.config, "reverse", False)))
            values = gates(module, seen.input(name)[0].float(), seen.output(name)[0].float(), _first(seen, name))
            if reverse:
                values = {gate: array[::-1].copy() for gate, array in values.items()}
            found[name] = Layer(name, "source" if of_source else "input", values)
    if read is not None:
        found |= _carried(model, read, memory_of, "source" if reads_only else "input")
    if not found:
        raise ModelError("the trace", "this model has no recurrent layers", "Choose another view")
    return found


def _first(seen: Watched, name: str) -> list[Tensor]:
    """The state that a layer began with, and of an LSTM its cell, both [width]; nothing where it began with zeros."""
    given = seen.calls[name][0].inputs[1:]
    parts = given[0] if given and isinstance(given[0], tuple) else given
    return [part[0, 0].float() for part in parts if part is not None]


def gates(module: Any, x: Tensor, h: Tensor, first: Sequence[Tensor] = ()) -> Values:
    """The gates of one layer for each step, from what it read, what it gave, and the state that it began with."""
    before = torch.cat((first[0][None] if first else torch.zeros_like(h[:1]), h[:-1]))
    from_input = nn.functional.linear(x, module.weight_ih_l0, module.bias_ih_l0 if module.bias else None)
    from_state = nn.functional.linear(before, module.weight_hh_l0, module.bias_hh_l0 if module.bias else None)
    if isinstance(module, nn.LSTM):
        i, f, g, o = (from_input + from_state).chunk(4, -1)
        i, f, o, g = i.sigmoid(), f.sigmoid(), o.sigmoid(), g.tanh()
        cell, cells = first[1] if first else torch.zeros_like(h[0]), []
        for t in range(len(h)):
            cell = f[t] * cell + i[t] * g[t]
            cells.append(cell)
        shown = {
            "input gate": i,
            "forget gate": f,
            "output gate": o,
            "candidate": g,
            "cell": torch.stack(cells),
            "state": h,
        }
    elif isinstance(module, nn.GRU):
        (r, z, n), (from_r, from_z, from_n) = from_input.chunk(3, -1), from_state.chunk(3, -1)
        r, z = (r + from_r).sigmoid(), (z + from_z).sigmoid()
        shown = {"reset gate": r, "update gate": z, "candidate": (n + r * from_n).tanh(), "state": h}
    else:
        shown = {"state": h}
    return {name: tensor.cpu().numpy() for name, tensor in shown.items()}


def _carried(model: Any, read: Tensor, memory_of: Any, side: Side) -> dict[str, Layer]:
    """The states that a decoder carries, after each token that it reads."""
    memory, state = memory_of()
    steps: dict[str, list[np.ndarray]] = {}
    for t in range(read.shape[1]):
        _, state = model.advance(read[:, None, t : t + 1], memory, state)
        for name, tensor in _vectors(state):
            steps.setdefault(name, []).append(tensor[0, 0].float().cpu().numpy())
    return {name: Layer(name, side, {"state": np.stack(rows)}) for name, rows in steps.items()}


def _vectors(state: Any) -> list[tuple[str, Tensor]]:
    """The vectors [1, 1, D] of a state, by the names of its fields."""
    found = []
    for field in dataclasses.fields(state):
        value = getattr(state, field.name)
        for i, tensor in enumerate(value if isinstance(value, tuple) else (value,)):
            if isinstance(tensor, Tensor) and tensor.dim() == 3 and tensor.is_floating_point():
                found.append((f"decoder.{field.name}{i if isinstance(value, tuple) else ''}", tensor))
    return found
