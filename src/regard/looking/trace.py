"""A model at work on one sentence: every attention weight that it recorded, with the texts that they are about.

Outputs with and without recording agree: what is recorded comes from one more pass over a text that was found before.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import torch

from regard.core.errors import ModelError
from regard.looking.convolution_steps import convolution_steps
from regard.looking.convolutions import convolutions_of, gated_layers
from regard.looking.part import TITLES, Part, Side
from regard.looking.pondering import Pondered, ponderings
from regard.looking.recurrent import Layer, recurrent_layers
from regard.looking.recurrent_steps import asks, local_windows, recurrent_steps
from regard.looking.steps import Step, words_steps
from regard.looking.texts import ShownText, merge_words, words_of
from regard.looking.transformer_steps import transformer_steps

NAME = re.compile(r"(\w+)\.(\d+)\.(self|cross)")
SMALLEST = 1e-12
GOES_ON = ("residual", "norm")  # last steps of attention that another attention follows in the same layer


@dataclasses.dataclass
class Trace:
    """What a model did with a sentence. `target` is None for models that only read."""

    source: ShownText
    target: ShownText | None
    parts: dict[str, Part]
    input: ShownText | None = None
    alignment: np.ndarray | None = None  # target by source
    answer: str | None = None  # a translation, labels, tags
    score: float | None = None
    log_prob: float | None = None
    finished: bool = True
    halting: dict[Side, np.ndarray] = dataclasses.field(default_factory=dict)  # [tokens, steps]: weights that sum to 1
    _layers: dict[str, Layer] | None = None
    _gated: dict[str, Layer] | None = None
    _beam: dict[str, Any] | None = None
    _pondered: dict[Side, Pondered] | None = None
    model: Any = None
    again: Callable[[], Any] = lambda: None  # lets the model read the text once more
    tree: Callable[[], dict[str, Any]] | None = None  # the search that found the target
    read: Any = None  # what the decoder reads, ids
    begin: Any = None  # memory and first state, to step with
    pieces: Callable[[Sequence[int]], list[str]] = lambda ids: [str(i) for i in ids]  # names of what it writes

    def header(self) -> dict[str, Any]:
        return {
            "source": self.source.to_plain(),
            "target": None if self.target is None else self.target.to_plain(),
            "input": None if self.input is None else self.input.to_plain(),
            "parts": [part.to_plain() for part in self.parts.values()],
            "alignment": self.alignment is not None,
            "finished": self.finished,
            "answer": self.answer,
            "score": self.score,
            "log_prob": self.log_prob,
            "statistics": {name: statistics(part) for name, part in self.parts.items()},
        }

    def part(self, name: str) -> Part:
        if name not in self.parts:
            known = ", ".join(self.parts) or "none"
            raise ModelError("the trace", f"it has no part {name!r}", f"Ask for one of: {known}")
        return self.parts[name]

    def head(self, name: str, layer: int, head: int) -> np.ndarray:
        """The weights of one head."""
        weights = self.part(name).weights
        for what, at, most in (("layer", layer, weights.shape[0]), ("head", head, weights.shape[1])):
            if not 0 <= at < most:
                raise ModelError("the trace", f"{name} has no {what} {at}", f"Give 0 to {most - 1}")
        return weights[layer, head]

    def overview(self, name: str, size: int) -> np.ndarray:
        """Every head as a small picture: the largest weight of each cell of at most size by size."""
        return shrunk(self.part(name).weights, size)

    def steps(self, name: str, layer: int, head: int, row: int) -> list[Step]:
        """What one head does for one token, step by step."""
        weights = self.head(name, layer, head)
        if not 0 <= row < len(weights):
            raise ModelError("the trace", f"{name} has no row {row}", f"Give 0 to {len(weights) - 1}")
        part, architecture = self.part(name), str(getattr(self.model.config, "name", ""))
        with torch.inference_mode():
            if architecture == "convs2s":
                steps = convolution_steps(self.model, self.read, self.begin, part, layer, row)
            elif asks(self.model, architecture) is not None:
                steps = recurrent_steps(self.model, architecture, self.read, self.begin, part, row)
            else:
                steps = transformer_steps(self.model, self.again, part, layer, head, row)
            last = layer == len(part.weights) - 1 and steps[-1].name not in GOES_ON
            hidden: Any = getattr(self.again(), "hidden", None) if last and name.startswith("decoder") else None
            if hidden is not None and hidden.shape[1] >= part.weights.shape[2]:  # not one state for the whole text
                chosen, averaged = self._written(row), bool(self.halting)
                steps += words_steps(self.model, steps[-1], hidden[0, row], self.pieces, chosen, averaged=averaged)
        return steps

    def _written(self, row: int) -> str | None:
        """The token that was written after this row was read; of a language model, the next one of the text."""
        if self.target is not None:
            return self.target.tokens[row]
        return self.source.tokens[row + 1] if row + 1 < len(self.source.tokens) else None

    def local(self) -> dict[str, Any]:
        return local_windows(self.model, str(getattr(self.model.config, "name", "")), self.read, self.begin)

    def pondered(self, side: Side) -> Pondered:
        """How likely each token was to halt at each step, and when it did; computed once."""
        if side not in self.halting:
            raise ModelError("the trace", "this model does not decide how long to think", "Choose another view")
        if self._pondered is None:
            self._pondered = ponderings(self.model, self.again, self.halting)
        return self._pondered[side]

    def recurrent(self) -> dict[str, Layer]:
        """The recurrent layers with their gates and states, computed once."""
        if self._layers is None:
            reads_only = self.target is None
            self._layers = recurrent_layers(self.model, self.again, self.read, self.begin, reads_only=reads_only)
        return self._layers

    def gate(self, layer: str, gate: str) -> np.ndarray:
        return _values(self.recurrent(), layer, gate)

    def beam(self) -> dict[str, Any]:
        """The search that found the target as a tree, made once."""
        if self.tree is None:
            raise ModelError("the trace", "this model does not search for a text", "Choose another view")
        if self._beam is None:
            self._beam = self.tree()
        return self._beam

    def convolutions(self) -> dict[str, Any]:
        found = convolutions_of(self.model, self.again, len(self.source.tokens))
        return {**found, "gates": [layer.to_plain() for layer in self._gated_layers().values()]}

    def _gated_layers(self) -> dict[str, Layer]:
        if self._gated is None:
            self._gated = gated_layers(self.model, self.again, self.read, self.begin)
        return self._gated

    def convolution_gate(self, layer: str, gate: str) -> np.ndarray:
        return _values(self._gated_layers(), layer, gate)

    def aligned(self, merge: Literal["tokens", "words"]) -> tuple[np.ndarray, list[str], list[str]]:
        """The alignment with the names of its rows (target) and columns (source)."""
        if self.alignment is None or self.target is None:
            raise ModelError("the trace", "this model does not align a target with a source", "Choose another view")
        if merge == "tokens":
            return self.alignment, self.target.tokens, self.source.tokens
        return merge_words(self.alignment, self.target, self.source), words_of(self.target), words_of(self.source)

    def text(self, side: Side) -> ShownText:
        """The text that rows or columns of a part are of."""
        found = getattr(self, side)
        assert found is not None
        return found


def _values(layers: Mapping[str, Layer], layer: str, gate: str) -> np.ndarray:
    if layer not in layers:
        raise ModelError("the trace", f"there is no layer {layer!r}", f"Ask for one of: {', '.join(layers)}")
    values = layers[layer].values
    if gate not in values:
        raise ModelError(layer, f"it has no {gate!r}", f"Ask for one of: {', '.join(values)}")
    return values[gate]


def parts_of(tensors: Mapping[str, torch.Tensor], *, reads_only: bool) -> dict[str, Part]:
    """The recorded weights of the first sentence, by kind. `reads_only`: there is one text, which all rows and columns are of."""
    layers: dict[str, dict[int, np.ndarray]] = {}
    for name, tensor in tensors.items():
        if (found := NAME.fullmatch(name)) is not None:
            side, layer, what = found.groups()
            layers.setdefault(f"{side}.{what}", {})[int(layer)] = tensor[0].float().cpu().numpy()
    parts = {}
    for name, by_layer in layers.items():
        weights = np.stack([by_layer[layer] for layer in sorted(by_layer)])
        of_decoder = name.startswith("decoder") and not reads_only
        of_itself = name.endswith("self")
        rows: Side = "source" if not of_decoder else "input" if of_itself else "target"
        columns: Side = "input" if of_decoder and of_itself else "source"
        parts[name] = Part(name, rows, columns, weights, name == "decoder.self")
    return dict(sorted(parts.items(), key=lambda item: list(TITLES).index(item[0]) if item[0] in TITLES else 9))


def statistics(part: Part) -> list[list[dict[str, float]]]:
    """Of every head: the mean entropy of its rows in bits, the weight near the diagonal, and that of the first column."""
    weights = part.weights
    rows, columns = weights.shape[2:]
    entropy = -(weights * np.log2(np.maximum(weights, SMALLEST))).sum(-1).mean(-1)
    place = np.arange(rows)[:, None] * (columns / max(1, rows))
    near = np.abs(np.arange(columns) - place) <= max(1.0, columns / max(1, rows))
    diagonal, first = (weights * near).sum(-1).mean(-1), weights[..., 0].mean(-1)
    return [
        [
            {"entropy": float(entropy[i, j]), "diagonal": float(diagonal[i, j]), "first": float(first[i, j])}
            for j in range(weights.shape[1])
        ]
        for i in range(weights.shape[0])
    ]


def shrunk(weights: np.ndarray, size: int) -> np.ndarray:
    """The last two dimensions in at most `size` cells each, of each the largest value."""
    for axis in (-2, -1):
        length = weights.shape[axis]
        if length > size:
            begins = np.arange(size) * length // size
            weights = np.maximum.reduceat(weights, begins, axis=axis)
    return weights
