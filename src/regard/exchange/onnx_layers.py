"""Layers as ONNX wants them: recurrent ones as ONNX's own operators, and positions without a choice by length.

PyTorch's exporter unrolls a recurrent layer, or freezes the length of the example, depending on what was exported before. Here
each layer of a copy of the model calls an operator of ours instead, whose shapes follow from its inputs and which becomes one
ONNX operator (LSTM, GRU, RNN). Nothing is packed: padding goes first (layers/recurrent/padding.py).

Gates stand in ONNX's order, i o f c and z r h; torch's are i f g o and r z n.
"""

from __future__ import annotations

import copy
import functools
from typing import Any

import torch
from torch import Tensor, nn

from regard.layers.attention.cache import CacheState
from regard.layers.attention.scores.additive import Additive
from regard.layers.positions import SinusoidalPositions
from regard.layers.recurrent.gru import ResetBeforeGRU
from regard.layers.recurrent.layers import GRU, LSTM, RNN

GATES = {"lstm": (0, 3, 1, 2), "gru": (1, 0, 2), "rnn": (0,)}  # ONNX's order of torch's gates
LGAMMA_ROWS = 1 << 16  # whole numbers whose log-gamma is tabled


@functools.cache
def operators() -> dict[str, Any]:
    """The operators that stand for recurrent layers while a model is exported. They only know shapes: nothing runs them."""

    @torch.library.custom_op("regard_onnx::lstm", mutates_args=())
    def lstm(x: Tensor, w: Tensor, r: Tensor, b: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        raise NotImplementedError("this operator stands for ONNX's LSTM")

    @lstm.register_fake
    def _(x: Tensor, w: Tensor, r: Tensor, b: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return x.new_empty(x.shape[0], x.shape[1], r.shape[2]), torch.empty_like(h), torch.empty_like(c)

    def two(name: str) -> Any:
        @torch.library.custom_op(f"regard_onnx::{name}", mutates_args=())
        def layer(x: Tensor, w: Tensor, r: Tensor, b: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
            raise NotImplementedError("this operator stands for one of ONNX's")

        @layer.register_fake
        def _(x: Tensor, w: Tensor, r: Tensor, b: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
            return x.new_empty(x.shape[0], x.shape[1], r.shape[2]), torch.empty_like(h)

        return layer

    return {"lstm": lstm, **{name: two(name) for name in ("gru", "gru_reset_before", "rnn")}}


def translations() -> dict[Any, Any]:
    """What PyTorch's exporter shall make of operators: ours, and some that it does not know, or not with sizes that are free.

    The logarithm of the gamma function is that of whole numbers.
    """
    from onnxscript import opset18

    op: Any = opset18

    def steps_first(x: Any) -> Any:
        return op.Transpose(x, perm=[1, 0, 2])

    def rows_first(y: Any) -> Any:  # S 1 B D -> B S D
        return op.Transpose(op.Squeeze(y, op.Constant(value_ints=[1])), perm=[1, 0, 2])

    def lstm(x: Any, w: Any, r: Any, b: Any, h: Any, c: Any) -> Any:
        y, h, c = op.LSTM(steps_first(x), w, r, b, None, h, c, hidden_size=r.shape[2])
        return rows_first(y), h, c

    def gru(x: Any, w: Any, r: Any, b: Any, h: Any) -> Any:
        y, h = op.GRU(steps_first(x), w, r, b, None, h, hidden_size=r.shape[2], linear_before_reset=1)
        return rows_first(y), h

    def gru_reset_before(x: Any, w: Any, r: Any, b: Any, h: Any) -> Any:
        y, h = op.GRU(steps_first(x), w, r, b, None, h, hidden_size=r.shape[2], linear_before_reset=0)
        return rows_first(y), h

    def rnn(x: Any, w: Any, r: Any, b: Any, h: Any) -> Any:
        y, h = op.RNN(steps_first(x), w, r, b, None, h, hidden_size=r.shape[2])
        return rows_first(y), h

    def lgamma(x: Any) -> Any:
        import onnx

        values = torch.lgamma(torch.arange(LGAMMA_ROWS, dtype=torch.float64)).float().numpy()
        values[0] = 0.0
        table = op.Constant(value=onnx.numpy_helper.from_array(values))
        return op.Gather(table, op.Cast(x, to=onnx.TensorProto.INT64))

    def remainder(x: Any, divisor: Any) -> Any:  # of whole numbers, by a size
        return op.Mod(x, op.CastLike(divisor, x))

    def sort(x: Any, stable: Any = None, dim: int = -1, descending: bool = False) -> Any:
        """TopK takes the lower place of equal values first, so that it is stable."""
        count = op.Gather(op.Shape(x), op.Constant(value_ints=[dim]))
        return op.TopK(x, count, axis=dim, largest=int(descending), sorted=1)

    named = {"lstm": lstm, "gru": gru, "gru_reset_before": gru_reset_before, "rnn": rnn}
    operators()
    ours = {getattr(torch.ops.regard_onnx, name).default: function for name, function in named.items()}
    others = {"lgamma": ("default", lgamma), "remainder": ("Scalar", remainder), "sort": ("stable", sort)}
    aten = {getattr(getattr(torch.ops.aten, name), form): function for name, (form, function) in others.items()}
    return {**ours, **aten}


def prepared(model: nn.Module) -> Any:
    """A copy of the model whose layers can be exported. The model itself is not touched."""
    model = copy.deepcopy(model).cpu().float().eval().requires_grad_(False)
    layers: list[Any] = list(model.modules())
    for module in layers:
        if isinstance(module, LSTM):
            module.forward = functools.partial(_lstm, module, *_weights(module, "lstm"))
        elif isinstance(module, GRU):
            module.forward = functools.partial(_layer, "gru", *_weights(module, "gru"))
        elif isinstance(module, RNN):
            module.forward = functools.partial(_layer, "rnn", *_weights(module, "rnn"))
        elif isinstance(module, ResetBeforeGRU):
            module.forward = functools.partial(_layer, "gru_reset_before", *_weights(module, "gru"))
        elif isinstance(module, SinusoidalPositions):
            module.forward = functools.partial(_waves, module.wave, module.width)
        elif isinstance(module, Additive):
            vars(module)["compare"] = functools.partial(_compare, module.v)
    return model


def _weights(layer: Any, kind: str) -> tuple[Tensor, Tensor, Tensor]:
    """W, R and B as ONNX has them: with one direction in front, and gates in its order."""

    def ordered(matrix: Tensor) -> Tensor:
        parts = matrix.detach().chunk(len(GATES[kind]))
        return torch.cat([parts[i] for i in GATES[kind]])[None].contiguous()

    w, r = ordered(layer.weight_ih_l0), ordered(layer.weight_hh_l0)
    if getattr(layer, "bias", False):
        return w, r, torch.cat((ordered(layer.bias_ih_l0), ordered(layer.bias_hh_l0)), 1)
    return w, r, w.new_zeros(1, 2 * w.shape[1])


def _lstm(layer: Any, w: Tensor, r: Tensor, b: Tensor, x: Tensor, state: Any = None) -> Any:
    if state is not None and x.shape[1] == 1:
        return layer._step(x, *state)
    h, c = state if state is not None else (x.new_zeros(1, x.shape[0], r.shape[2]) for _ in range(2))
    y, h, c = operators()["lstm"](x, w, r, b, h, c)
    return y, (h, c)


def _layer(name: str, w: Tensor, r: Tensor, b: Tensor, x: Tensor, h: Tensor | None = None) -> tuple[Tensor, Tensor]:
    h = x.new_zeros(1, x.shape[0], r.shape[2]) if h is None else h
    return operators()[name](x, w, r, b, h)


def _compare(v: Tensor, query: Tensor, prepared: Tensor) -> Tensor:
    """All at once: how many at once would be a choice by size."""
    return (query[:, :, None] + prepared[:, None]).tanh() @ v


def _waves(wave: Any, width: int, positions: Tensor, longest: int, keep: Tensor | None = None) -> Tensor:
    """Always computed: a table would be a choice by length."""
    return wave(positions, width)


class GrowingCache(CacheState):
    """Keys and values of the target so far, which grow by one position in a step: see layers/attention/cache.py.

    `hidden` is [B, K, L, K]: 0 where a hypothesis finds its own past among the K slots of a position, -inf elsewhere.
    """

    @property
    def filled(self) -> Any:
        return self.hidden.shape[2]

    @filled.setter
    def filled(self, value: Any) -> None:  # pyright: ignore[reportIncompatibleVariableOverride]
        """It is what `hidden` says."""

    def within(self, span: int) -> GrowingCache:
        return self

    @property
    def capacity(self) -> Any:
        return self.filled + 1

    def next_positions(self, count: int) -> Tensor:
        return self.positions[:, None]

    def stored_positions(self, count: int) -> Tensor:
        slots = self.hidden.shape[1]
        return torch.arange(self.filled + 1)[:, None].expand(-1, slots).reshape(1, -1)

    def visible(self, count: int) -> Tensor:
        rows, slots = self.hidden.shape[:2]
        own = torch.arange(slots)[:, None, None] == torch.arange(slots)
        own = torch.zeros(slots, 1, slots).masked_fill(~own, float("-inf"))
        self._hidden = torch.cat((self.hidden, own[None].expand(rows, -1, -1, -1)), 2)
        self._keys, self._values = list(self.keys), list(self.values)
        return self._hidden.flatten(2)[:, None]

    def write(self, layer: int, key: Tensor, value: Tensor, count: int) -> tuple[Tensor, Tensor]:
        self._keys[layer] = torch.cat((self.keys[layer], key[:, :, None]), 2)
        self._values[layer] = torch.cat((self.values[layer], value[:, :, None]), 2)
        return self._keys[layer].flatten(2, 3), self._values[layer].flatten(2, 3)

    def advanced(self, count: int) -> GrowingCache:
        return GrowingCache(tuple(self._keys), tuple(self._values), self._hidden, self.positions + 1)
