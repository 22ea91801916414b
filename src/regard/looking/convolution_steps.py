"""The steps of attention in ConvS2S: every layer of the decoder looks at the source (Gehring et al. 2017, section 3.3)."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import numpy as np
import torch.nn.functional as F
from torch import Tensor

from regard.core.errors import ModelError
from regard.layers.convolution import windows
from regard.looking.part import Part
from regard.looking.steps import Shown, Step, numbers

HALVED = 0.5**0.5


def _watched(layer: Any, number: int, kept: dict[int, Any]) -> Any:
    """A layer that puts what it is given where it can be found."""

    class Watched(type(layer)):
        def __call__(self, *inputs: Any) -> Any:
            kept[number] = inputs
            return super().__call__(*inputs)

    return Watched(**{field.name: getattr(layer, field.name) for field in dataclasses.fields(layer)})


class Convolved(NamedTuple):
    """What went into a layer of the decoder and out of its convolution, of all tokens that were read."""

    parts: Any
    both: Tensor  # [tokens, 2 D]: A and B, before the gate
    g: Tensor  # [tokens, F]: embeddings


def convolved(model: Any, read: Tensor, begin: Any) -> tuple[Any, list[Convolved]]:
    """The memory, and every layer of the decoder as it reads the target."""
    memory, state = begin()
    kept: dict[int, Any] = {}
    layers = tuple(_watched(one, number, kept) for number, one in enumerate(memory.decoder.layers))
    watched = dataclasses.replace(memory, decoder=dataclasses.replace(memory.decoder, layers=layers))
    model.advance(read[:, None], watched, state)
    found = []
    for number, parts in enumerate(memory.decoder.layers):
        seen, g, _ = kept[number]
        both = parts.convolution(windows(seen, seen.shape[2] - g.shape[2] + 1))
        found.append(Convolved(parts, both[0, 0], g[0, 0]))
    return memory, found


def convolution_steps(model: Any, read: Tensor, begin: Any, part: Part, layer: int, row: int) -> list[Step]:
    """What one layer sees of the source before one token is written."""
    memory, layers = convolved(model, read, begin)
    parts, both, g = layers[layer]
    a, b = both[row].chunk(2)
    h = F.glu(both[row], 0)
    query = (parts.query(h[None])[0] + g[row]) * HALVED
    keys, values = memory.z[0], memory.values[0]
    scores = keys @ query
    weights = part.weights[layer, 0, row]
    if not np.allclose(numbers(scores.softmax(0)), weights, atol=1e-5):
        raise ModelError("the steps", "they do not lead to the weights that were recorded", "Report this")
    products = weights[:, None] * numbers(values)
    added = parts.out((values * scores.softmax(0)[:, None]).sum(0)[None])[0]
    return [
        Step(
            "convolve",
            "A window of words through gates",
            "h = A ⊗ σ(B),  [A B] = W x + b",
            "What the layer makes of the last words: A, let through by the gate σ(B).",
            [Shown("A", numbers(a)), Shown("gate", numbers(b.sigmoid())), Shown("h", numbers(h))],
        ),
        Step(
            "project",
            "1 The layer asks",
            "q = (W h + b + g) √½,  kⱼ = zⱼ,  vⱼ = (zⱼ + eⱼ) √½ √m",
            "g is the embedding of the last word, z what the encoder gave, e the embeddings that it read, m the source's length.",
            [Shown("q", numbers(query)), Shown("k", numbers(keys), "keys"), Shown("v", numbers(values), "keys")],
        ),
        Step(
            "score",
            "2 Score",
            "sⱼ = q · kⱼ",
            "How well the query fits each key.",
            [Shown("scores", numbers(scores), "keys")],
        ),
        Step(
            "softmax",
            "4 Softmax",
            "αⱼ = exp(sⱼ) / Σ exp(s)",
            "Weights from 0 to 1 that sum to 1. Nothing is divided by √d here.",
            [Shown("weights", weights, "keys")],
        ),
        Step(
            "multiply",
            "5 Multiply each value by its weight",
            "αⱼ vⱼ",
            "Values of positions with little weight nearly vanish.",
            [Shown("products", products, "keys")],
        ),
        Step(
            "sum",
            "6 Sum",
            "c = Σ αⱼ vⱼ,  (h + W c) √½",
            "The context, and what the layer gives on, before its own input is added.",
            [Shown("c", products.sum(0)), Shown("given on", numbers((h + added) * HALVED))],
        ),
    ]
