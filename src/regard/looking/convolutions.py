"""Convolutions over a text: how far each layer sees, and which words won the maximum of a text CNN."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from regard.core.errors import ModelError
from regard.layers.convolution import TextConvolution
from regard.looking.watching import Watched

MOST_WINNERS = 100


@torch.inference_mode()
def convolutions_of(model: Any, again: Any, tokens: int) -> dict[str, Any]:
    """`layers`: their kernels, from the bottom; `winners`: the windows of words whose value was a filter's largest, and above 0."""
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
    winners.sort(key=lambda one: -one["score"])
    layers = [{"kernel": kernel, "dilation": 1} for kernel in kernels or [m.width for m in filters.values()]]
    return {"layers": layers, "winners": winners[:MOST_WINNERS]}


def _kernels(model: Any) -> list[int]:
    """The kernels of stacked layers, such as those of ConvS2S' encoder."""
    kernels, encoder = getattr(model.config, "kernels", None), getattr(model, "encoder", None)
    return [kernels[0]] * len(encoder) if kernels and isinstance(encoder, nn.ModuleList) else []
