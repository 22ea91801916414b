"""Convolutions over a text: how far each layer sees, what its gates let through, and which words won a text CNN's maximum."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from regard.core.errors import ModelError
from regard.layers.convolution import TextConvolution
from regard.looking.convolution_steps import convolved
from regard.looking.part import Side
from regard.looking.recurrent import Layer
from regard.looking.watching import Watched

MOST_WINNERS = 100
GATE, OUT = "gate σ(B)", "A ⊗ σ(B)"


@torch.inference_mode()
def convolutions_of(model: Any, again: Any, tokens: int) -> dict[str, Any]:
    """`layers`: their kernels, from the bottom; `winners`: the windows of words whose value was a filter's largest, and above 0."""
    if str(model.config.name) == "dcnn":
        return _folded(model, again, tokens)
    filters = {name: m for name, m in model.named_modules() if isinstance(m, TextConvolution)}
    kernels = _kernels(model)
    if not filters and not kernels:
        raise ModelError("the trace", "this model has no convolutions", "Choose another view")
    winners: list[dict[str, Any]] = []
    first = 0
    with Watched(filters) as seen:
        again()
    for name, module in filters.items():
        if not seen.calls[name]:
            continue
        values = seen.output(name)[0]  # places, filters
        count = int(seen.calls[name][0].output[1][0])
        best, where = values[:count].max(0)
        for i, (score, place) in enumerate(zip(best.tolist(), where.tolist(), strict=True)):
            begin = place * module.stride - module.around
            end = min(tokens, begin + module.width)
            if score > 0 and end > max(0, begin):
                winners.append({"filter": first + i, "begin": max(0, begin), "end": end, "score": score})
        first += values.shape[1]
    layers = [{"kernel": kernel, "dilation": 1} for kernel in kernels or [m.width for m in filters.values()]]
    return {"layers": layers, "winners": _best(winners)}


def _best(winners: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(winners, key=lambda one: -one["score"])[:MOST_WINNERS]


def _folded(model: Any, again: Any, tokens: int) -> dict[str, Any]:
    """The lowest layer of a DCNN, of which each row of each map keeps its k largest values: where the largest of each was."""
    layer = model.layers[0]
    with Watched({"convolution": layer.convolution, "layer": layer}) as seen:
        again()
    values = seen.output("convolution")[:, 0]  # rows, places, maps
    values = values[0::2] + values[1::2] if layer.folding else values
    count, kept = (int(seen.calls[name][0].output[1][0]) for name in ("convolution", "layer"))
    best, where = values[:, :count].max(1)
    module, winners = layer.convolution, []
    for row in range(best.shape[0]):
        for number in range(best.shape[1]):
            begin = int(where[row, number]) * module.stride - module.around
            end = min(tokens, begin + module.width)
            if end > max(0, begin):
                score = float(best[row, number])
                filter_ = number * best.shape[0] + row
                winners.append({"filter": filter_, "begin": max(0, begin), "end": end, "score": score})
    note = (
        f"The lowest of {len(model.layers)} layers. Each filter keeps its {kept} largest values; the largest is shown."
    )
    return {"layers": [{"kernel": module.width, "dilation": 1}], "winners": _best(winners), "note": note}


def gated_layers(model: Any, again: Any, read: Any, begin: Any) -> dict[str, Layer]:
    """The gated linear units of ConvS2S, A ⊗ σ(B), of every token and channel; nothing for other models."""
    if not _kernels(model) or read is None:
        return {}
    inner = {f"encoder.{i}": module for i, module in enumerate(model.encoder)}
    with torch.inference_mode():
        with Watched(inner) as seen:
            again()
        found = {name: _gated(name, "source", seen.output(name)[0]) for name in inner}
        _, layers = convolved(model, read, begin)
    for i, layer in enumerate(layers):
        found[f"decoder.{i}"] = _gated(f"decoder.{i}", "input", layer.both)
    return found


def _gated(name: str, side: Side, both: Tensor) -> Layer:
    a, b = both.float().chunk(2, -1)
    gate = b.sigmoid()
    return Layer(name, side, {GATE: gate.cpu().numpy(), "A": a.cpu().numpy(), OUT: (a * gate).cpu().numpy()})


def _kernels(model: Any) -> list[int]:
    """The kernels of stacked layers, such as those of ConvS2S' encoder."""
    kernels, encoder = getattr(model.config, "kernels", None), getattr(model, "encoder", None)
    return [kernels[0]] * len(encoder) if kernels and isinstance(encoder, nn.ModuleList) else []
