"""Parts of a Transformer on their way into a CTranslate2 model: what translators, language models and BERTs have in common.

NumPy only, no torch. `take` checks the shape of every array, and `done` that none is left over.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from regard.core.distances import bucket_starts, slopes
from regard.core.errors import CheckpointError
from regard.engines.ctranslate2_format import Variables
from regard.engines.ctranslate2_limits import ACTIVATIONS, POSITIONS
from regard.engines.transformer_settings import TransformerSettings

Weights = Mapping[str, np.ndarray]


class Conversion:
    """A model on its way. `longest` is the most tokens that it reads or writes; `bias`: its matrices and norms have biases."""

    def __init__(self, settings: TransformerSettings, weights: Weights, *, longest: int = POSITIONS, bias: bool = True):
        self.settings, self.weights, self.longest, self.bias = settings, weights, longest, bias
        self.left = set(weights)
        self.out = Variables()
        self.tables: dict[str, np.ndarray] = {}

    def done(self) -> Variables:
        if self.left:
            raise misfit(min(self.left), "belongs to another model")
        return self.out

    def take(self, name: str, *shape: int) -> np.ndarray:
        """A copy in float32: whatever is done to it, the model given stays as it is."""
        if name not in self.tables:
            if name not in self.weights:
                raise misfit(name, "is missing")
            array = self.weights[name]
            if array.shape != shape:
                raise misfit(name, f"has shape {list(array.shape)}, the configuration says {list(shape)}")
            self.left.discard(name)
            self.tables[name] = np.ascontiguousarray(array.astype(np.float32))
        return self.tables[name]

    def stack(self, stack: str, *, scaled: bool = True) -> None:
        """The settings of an encoder or decoder; `scaled`: embeddings are multiplied by √width."""
        settings, out = self.settings, self.out
        out.number(f"{stack}/num_heads", settings.heads, np.int16)
        out.number(f"{stack}/pre_norm", settings.norm == "pre")
        out.number(f"{stack}/activation", ACTIVATIONS[settings.activation])
        out.number(f"{stack}/scale_embeddings", scaled)
        if stack == "encoder":
            out.number("encoder/embeddings_merge", 0)
            out.number("encoder/multi_query_attention", False)
        else:
            for name in ("alibi", "alibi_use_positive_positions", "scale_alibi", "start_from_zero_embedding"):
                out.number(f"decoder/{name}", False)
            out.number("decoder/alignment_layer", -1, np.int16)
            out.number("decoder/alignment_heads", 1, np.int16)

    def linear(self, name: str, place: str, rows: int, columns: int) -> None:
        self.out.matrix(f"{place}/weight", self.take(f"{name}.weight", rows, columns))
        if self.bias:
            self.out.put(f"{place}/bias", self.take(f"{name}.bias", rows))

    def feedforward(self, name: str, place: str) -> None:
        width, inner = self.settings.width, self.settings.inner or 4 * self.settings.width
        if self.settings.activation == "swiglu":  # the first half goes through the activation
            weight = self.take(f"{name}.inner.weight", 2 * inner, width)
            bias = self.take(f"{name}.inner.bias", 2 * inner) if self.bias else None
            for part, rows in (("linear_0", slice(inner)), ("linear_0_noact", slice(inner, None))):
                self.out.matrix(f"{place}/{part}/weight", weight[rows])
                if bias is not None:
                    self.out.put(f"{place}/{part}/bias", bias[rows])
        else:
            self.linear(f"{name}.inner", f"{place}/linear_0", inner, width)
        self.linear(f"{name}.out", f"{place}/linear_1", width, inner)

    def norm(self, name: str, place: str) -> None:
        width = self.settings.width
        self.out.put(f"{place}/gamma", self.take(f"{name}.weight", width))
        if self.settings.normalise == "layer":
            beta = self.take(f"{name}.bias", width) if self.bias else np.zeros(width, np.float32)
            self.out.put(f"{place}/beta", beta)

    def scale(self, place: str) -> None:
        if not self.settings.scaling:
            self.out.number(f"{place}/queries_scale", 1.0, np.float32)

    def positions(self, learned: str) -> np.ndarray:
        """The table of absolute positions; `learned` is the name of trained ones."""
        settings = self.settings
        if settings.positions == "learned":
            return self.take(learned, settings.max_length, settings.width)
        if "waves" not in self.tables:  # one array for both stacks
            self.tables["waves"] = position_table(settings.positions, settings.width, self.longest)
        return self.tables["waves"]

    def relative(self, schemes: str, i: int, place: str, *, both: bool) -> None:
        """What layer i sees of distances. `schemes` is the name of its stack's; `both`: words before and behind are seen."""
        settings = self.settings
        if settings.relative == "shaw":
            labels = 2 * (settings.relative_distance or 16) + 1
            for part, absent in (("key", "values"), ("value", "keys")):
                vectors = np.zeros((labels, settings.head_width), np.float32)
                if settings.relative_to != absent:
                    vectors = self.take(f"{schemes}.{i}.a_{part}", 1, labels, settings.head_width)
                self.out.put(f"{place}/relative_position_{part}s", vectors.reshape(labels, settings.head_width))
        elif settings.relative in ("t5", "alibi"):
            if f"{schemes} bias" not in self.tables:  # one array for all layers
                self.tables[f"{schemes} bias"] = self._bias(schemes, both)
            self.out.put(f"{place}/relative_attention_bias", self.tables[f"{schemes} bias"])
            self.out.number(f"{place}/relative_attention_max_distance", 2 * self.longest, np.int32)
        elif settings.relative == "rotary":
            self.out.number(f"{place}/rotary_dim", settings.head_width, np.int32)
            self.out.number(f"{place}/rotary_interleave", settings.rotary_layout == "interleaved")
            self.out.number(f"{place}/rotary_base", settings.rotary_base, np.float32)

    def _bias(self, schemes: str, both: bool) -> np.ndarray:
        """What is added to scores, [bucket, head], with a bucket for each distance below `longest`.

        CTranslate2 has the first half of the buckets of a direction for single distances: the others are never met.
        In encoders, the second half of all buckets is for later words.
        """
        of_distance = self._t5(schemes, both) if self.settings.relative == "t5" else self._alibi()
        table = np.zeros(((4 if both else 2) * self.longest, self.settings.heads), np.float32)
        distances = np.arange(self.longest)
        table[: self.longest] = of_distance(-distances)
        if both:
            table[2 * self.longest : 3 * self.longest] = of_distance(distances)
        return table

    def _t5(self, schemes: str, both: bool) -> Callable[[np.ndarray], np.ndarray]:
        settings = self.settings
        buckets, distance = settings.relative_buckets, settings.relative_distance or 128
        table = self.take(f"{schemes}.0.table.weight", buckets, settings.heads)
        each_way = buckets // 2 if both else buckets
        starts = np.asarray(bucket_starts(each_way, distance))
        return lambda places: table[
            np.searchsorted(starts, np.abs(places), side="right") + (each_way if both else 0) * (places > 0)
        ]

    def _alibi(self) -> Callable[[np.ndarray], np.ndarray]:
        steep = np.asarray(slopes(self.settings.heads), np.float32)
        return lambda places: -np.abs(places)[:, None].astype(np.float32) * steep


def position_table(kind: str, width: int, rows: int = POSITIONS) -> np.ndarray:
    """The vectors of the first positions, as in layers/positions.py."""
    if kind == "none":
        return np.zeros((rows, width), np.float32)
    steps, divisor = np.arange(0, width, 2), width
    if kind == "sinusoidal-halves":
        steps, divisor = np.arange(width // 2), max(width // 2 - 1, 1)
    elif kind == "sine":
        steps = np.arange(width)
    rates = np.exp(steps.astype(np.float32) * np.float32(-math.log(10000.0) / divisor))
    angles = np.arange(rows, dtype=np.float32)[:, None] * rates
    if kind == "sine":
        return np.sin(angles)
    if kind == "sinusoidal-halves":
        return np.concatenate((np.sin(angles), np.cos(angles)), axis=1)
    return np.stack((np.sin(angles), np.cos(angles)), axis=-1).reshape(rows, width)


def misfit(name: str, what: str) -> CheckpointError:
    advice = "Use the weights and the config.json of one run together"
    return CheckpointError(f"tensor {name!r}", f"the weights do not fit the configuration: it {what}", advice)
