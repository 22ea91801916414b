"""Recurrent layers over time: the gates and states of every step.

What a layer read and gave is what the model read and gave; its gates follow from both, since each depends on a step's input and on
the state before it (torch's equations, `docs` of nn.LSTM, nn.GRU and nn.RNN; the cell of an LSTM is followed through the steps):

    LSTM   i, f, o = sigmoid(W x_t + U h_{t-1} + b),   g = tanh(..),   c_t = f c_{t-1} + i g,   h_t = o tanh(c_t)
    GRU    r, z = sigmoid(..),   n = tanh(W x_t + r (U h_{t-1})),   h_t = (1 - z) n + z h_{t-1}

Decoders that look at the source while they write take each step by itself (layers/recurrent/cells.py): their gates are those of
the step. What else they carry from step to step is shown as it is.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from regard.core.errors import ModelError
from regard.layers.recurrent.cells import gru_gates, lstm_gates, watched_cells
from regard.looking.part import Side
from regard.looking.watching import Watched

Values = dict[str, np.ndarray]  # gate -> [steps, width]


@dataclasses.dataclass(frozen=True)
class Layer:
    """A layer's gates and states, in the order of the text."""

    name: str
    tokens: Side
    values: Values

    def repeats(self, other: Layer) -> bool:
        """Whether all that this one shows, the other shows too."""
        return all(any(_close(mine, its) for its in other.values.values()) for mine in self.values.values())

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
        carried = _carried(model, read, memory_of, "source" if reads_only else "input")
        found |= {name: layer for name, layer in carried.items() if not any(map(layer.repeats, found.values()))}
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
        shown = lstm_gates(from_input, from_state)
        cell, cells = first[1] if first else torch.zeros_like(h[0]), []
        for t in range(len(h)):
            cell = shown["forget gate"][t] * cell + shown["input gate"][t] * shown["candidate"][t]
            cells.append(cell)
        shown |= {"cell": torch.stack(cells), "state": h}
    elif isinstance(module, nn.GRU):
        shown = {**gru_gates(from_input, from_state), "state": h}
    else:
        shown = {"state": h}
    return {name: tensor.cpu().numpy() for name, tensor in shown.items()}


def _carried(model: Any, read: Tensor, memory_of: Any, side: Side) -> dict[str, Layer]:
    """A decoder's steps, one for each token that it reads: the gates of its cells, and what else it carries."""
    memory, state = memory_of()
    cells: dict[str, dict[str, list[np.ndarray]]] = {}
    steps: dict[str, list[np.ndarray]] = {}
    for t in range(read.shape[1]):
        with watched_cells() as seen:
            _, state = model.advance(read[:, None, t : t + 1], memory, state)
        for i, gates_ in enumerate(seen):
            rows = cells.setdefault("decoder" if len(seen) == 1 else f"decoder.{i}", {})
            for gate, tensor in gates_.items():
                rows.setdefault(gate, []).append(_row(tensor))
        for name, tensor in _vectors(state):
            steps.setdefault(name, []).append(_row(tensor))
    found = {name: Layer(name, side, {k: np.stack(v) for k, v in rows.items()}) for name, rows in cells.items()}
    for name, rows in steps.items():
        layer = Layer(name, side, {"state": np.stack(rows)})
        if not any(map(layer.repeats, found.values())):
            found[name] = layer
    return found


def _close(one: np.ndarray, other: np.ndarray) -> bool:
    return one.shape == other.shape and np.allclose(one, other, atol=1e-5)


def _row(tensor: Tensor) -> np.ndarray:
    """The only row, [width]."""
    return tensor.reshape(-1, tensor.shape[-1])[0].float().cpu().numpy()


def _vectors(state: Any) -> list[tuple[str, Tensor]]:
    """The vectors [1, 1, D] of a state, by the names of its fields."""
    found = []
    for field in dataclasses.fields(state):
        value = getattr(state, field.name)
        for i, tensor in enumerate(value if isinstance(value, tuple) else (value,)):
            if isinstance(tensor, Tensor) and tensor.dim() == 3 and tensor.is_floating_point():
                found.append((f"decoder.{field.name}{i if isinstance(value, tuple) else ''}", tensor))
    return found
