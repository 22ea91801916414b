"""A Transformer translator as a CTranslate2 model: what can be expressed, and how. NumPy only, no torch.

    files = converted(config["model"], weights, source_tokens, target_tokens, "int8")   # name -> content

What is expressed was compared with the torch model (tests/unit/engines): log-probabilities agree to 1e-4 in float32.

- Absolute positions are always written as a table; without any, a table of zeros. CTranslate2 reads no absolute positions where
  attention sees distances, so the two together cannot be expressed.
- T5's buckets and ALiBi's slopes become a table with an entry for every distance up to POSITIONS: so no rounding of a logarithm
  decides a bucket, and encoders have ALiBi too, which CTranslate2 knows in decoders only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from regard.core.distances import bucket_starts, slopes
from regard.core.errors import CheckpointError, ModelError
from regard.core.specials import BOS, EOS, SPECIALS, UNK
from regard.engines.ctranslate2_format import (
    Variables,
    config_file,
    model_bytes,
    vocabulary_files,
)
from regard.engines.ctranslate2_limits import ACTIVATIONS, MODEL, POSITIONS, Compute, why_not
from regard.engines.transformer_settings import TransformerSettings, read_settings

EPSILON = 1e-5  # of layers/normalise.py
Weights = Mapping[str, np.ndarray]


def converted(
    section: Mapping[str, Any], weights: Weights, source: Sequence[str], target: Sequence[str], compute: Compute
) -> dict[str, bytes]:
    """The files of a CTranslate2 model, by name. `source` and `target` are the tokens of the vocabularies, by id.

    Nothing given is changed. Weights that do not fit the settings are a CheckpointError.
    """
    reason = why_not(section)
    settings = read_settings(section)
    if reason is not None or isinstance(settings, str):
        raise ModelError("the model", str(reason), "Use the torch engine")
    variables = _Conversion(settings, weights, len(source), len(target)).variables()
    specials = {"unk_token": UNK, "bos_token": BOS, "eos_token": EOS, "decoder_start_token": BOS}
    names = {key: SPECIALS[i] for key, i in specials.items()}
    try:
        content = model_bytes(variables, compute)
    except ValueError as error:
        raise ModelError("the model", str(error), "Use the torch engine") from None
    return {MODEL: content, **vocabulary_files(source, target), **config_file(names, EPSILON)}


class _Conversion:
    """One model on its way: checks the shape of every array it takes, and that none is left over."""

    def __init__(self, settings: TransformerSettings, weights: Weights, source: int, target: int):
        self.settings, self.weights, self.sizes = settings, weights, (source, target)
        self.left = set(weights)
        self.out = Variables()
        self.tables: dict[str, np.ndarray] = {}

    def variables(self) -> Variables:
        for stack, layers in zip(("encoder", "decoder"), self.settings.depth, strict=True):
            if layers > len(self.weights):
                raise _misfit(f"{stack} layer {layers - 1}", "is missing")
            self._stack(stack)
            for i in range(layers):
                self._layer(stack, i)
        self._tables()
        if self.left:
            raise _misfit(min(self.left), "belongs to another model")
        return self.out

    def take(self, name: str, *shape: int) -> np.ndarray:
        if name not in self.tables:
            if name not in self.weights:
                raise _misfit(name, "is missing")
            array = self.weights[name]
            if array.shape != shape:
                raise _misfit(name, f"has shape {list(array.shape)}, the configuration says {list(shape)}")
            self.left.discard(name)
            self.tables[name] = np.ascontiguousarray(array.astype(np.float32))
        return self.tables[name]

    def _stack(self, stack: str) -> None:
        settings, out = self.settings, self.out
        out.number(f"{stack}/num_heads", settings.heads, np.int16)
        out.number(f"{stack}/pre_norm", settings.norm == "pre")
        out.number(f"{stack}/activation", ACTIVATIONS[settings.activation])
        out.number(f"{stack}/scale_embeddings", True)
        if stack == "encoder":
            out.number("encoder/embeddings_merge", 0)
            out.number("encoder/multi_query_attention", False)
        else:
            for name in ("alibi", "alibi_use_positive_positions", "scale_alibi", "start_from_zero_embedding"):
                out.number(f"decoder/{name}", False)
            out.number("decoder/alignment_layer", -1, np.int16)
            out.number("decoder/alignment_heads", 1, np.int16)
        if settings.norm == "pre":
            self._norm(f"{stack}_norm", f"{stack}/layer_norm")
        if settings.relative == "none":
            out.put(f"{stack}/position_encodings/encodings", self._positions(stack))

    def _tables(self) -> None:
        """Embeddings and the output layer; a table that is tied stands in the weights once, under the target's name."""
        (source, target), width = self.sizes, self.settings.width
        of_target = self.take("target_embedding.weight", target, width)
        tied = "source_embedding.weight" not in self.weights
        of_source = of_target if tied else self.take("source_embedding.weight", source, width)
        if tied and source != target:
            raise _misfit("source_embedding.weight", "is missing")
        output = self.take("output.weight", target, width) if "output.weight" in self.weights else of_target
        self.out.matrix("encoder/embeddings_0/weight", of_source)
        self.out.matrix("decoder/embeddings/weight", of_target)
        self.out.matrix("decoder/projection/weight", output)
        self.out.put("decoder/projection/bias", self.take("output.bias", target))

    def _layer(self, stack: str, i: int) -> None:
        width, place, here = self.settings.width, f"{stack}/layer_{i}", f"{stack}.{i}"
        self._linear(f"{here}.attention.query_key_value", f"{place}/self_attention/linear_0", 3 * width, width)
        self._linear(f"{here}.attention.out", f"{place}/self_attention/linear_1", width, width)
        self._norm(f"{here}.around_attention.norm", f"{place}/self_attention/layer_norm")
        self._scale(f"{place}/self_attention")
        self._relative(stack, i, f"{place}/self_attention")
        if stack == "decoder":
            self._linear(f"{here}.cross.query", f"{place}/attention/linear_0", width, width)
            self._linear(f"{here}.cross.key_value", f"{place}/attention/linear_1", 2 * width, width)
            self._linear(f"{here}.cross.out", f"{place}/attention/linear_2", width, width)
            self._norm(f"{here}.around_cross.norm", f"{place}/attention/layer_norm")
            self._scale(f"{place}/attention")
        self._feedforward(f"{here}.feedforward", f"{place}/ffn")
        self._norm(f"{here}.around_feedforward.norm", f"{place}/ffn/layer_norm")

    def _linear(self, name: str, place: str, rows: int, columns: int) -> None:
        self.out.matrix(f"{place}/weight", self.take(f"{name}.weight", rows, columns))
        self.out.put(f"{place}/bias", self.take(f"{name}.bias", rows))

    def _feedforward(self, name: str, place: str) -> None:
        width, inner = self.settings.width, self.settings.inner or 4 * self.settings.width
        if self.settings.activation == "swiglu":  # the first half goes through the activation
            weight = self.take(f"{name}.inner.weight", 2 * inner, width)
            bias = self.take(f"{name}.inner.bias", 2 * inner)
            for part, rows in (("linear_0", slice(inner)), ("linear_0_noact", slice(inner, None))):
                self.out.matrix(f"{place}/{part}/weight", weight[rows])
                self.out.put(f"{place}/{part}/bias", bias[rows])
        else:
            self._linear(f"{name}.inner", f"{place}/linear_0", inner, width)
        self._linear(f"{name}.out", f"{place}/linear_1", width, inner)

    def _norm(self, name: str, place: str) -> None:
        self.out.put(f"{place}/gamma", self.take(f"{name}.weight", self.settings.width))
        if self.settings.normalise == "layer":
            self.out.put(f"{place}/beta", self.take(f"{name}.bias", self.settings.width))

    def _scale(self, place: str) -> None:
        if not self.settings.scaling:
            self.out.number(f"{place}/queries_scale", 1.0, np.float32)

    def _positions(self, stack: str) -> np.ndarray:
        settings = self.settings
        if settings.positions == "learned":
            side = {"encoder": "source", "decoder": "target"}[stack]
            return self.take(f"{side}_positions.table.weight", settings.max_length, settings.width)
        if "waves" not in self.tables:  # one array for both stacks
            self.tables["waves"] = position_table(settings.positions, settings.width)
        return self.tables["waves"]

    def _relative(self, stack: str, i: int, place: str) -> None:
        settings = self.settings
        if settings.relative == "shaw":
            labels = 2 * (settings.relative_distance or 16) + 1
            for part, absent in (("key", "values"), ("value", "keys")):
                vectors = np.zeros((labels, settings.head_width), np.float32)
                if settings.relative_to != absent:
                    vectors = self.take(
                        f"{stack}_relative.schemes.{i}.a_{part}", 1, labels, settings.head_width
                    ).reshape(vectors.shape)
                self.out.put(f"{place}/relative_position_{part}s", vectors)
        elif settings.relative in ("t5", "alibi"):
            if f"{stack} bias" not in self.tables:  # one array for all layers
                self.tables[f"{stack} bias"] = self._bias(stack)
            self.out.put(f"{place}/relative_attention_bias", self.tables[f"{stack} bias"])
            self.out.number(f"{place}/relative_attention_max_distance", 2 * POSITIONS, np.int32)
        elif settings.relative == "rotary":
            self.out.number(f"{place}/rotary_dim", settings.head_width, np.int32)
            self.out.number(f"{place}/rotary_interleave", settings.rotary_layout == "interleaved")
            self.out.number(f"{place}/rotary_base", settings.rotary_base, np.float32)

    def _bias(self, stack: str) -> np.ndarray:
        """What is added to scores, [bucket, head], with a bucket for each distance below POSITIONS.

        CTranslate2 has the first half of the buckets of a direction for single distances: the others are never met.
        In encoders, the second half of all buckets is for later words.
        """
        both = stack == "encoder"
        of_distance = self._t5(stack) if self.settings.relative == "t5" else self._alibi()
        table = np.zeros(((4 if both else 2) * POSITIONS, self.settings.heads), np.float32)
        distances = np.arange(POSITIONS)
        table[:POSITIONS] = of_distance(-distances)
        if both:
            table[2 * POSITIONS : 3 * POSITIONS] = of_distance(distances)
        return table

    def _t5(self, stack: str) -> Callable[[np.ndarray], np.ndarray]:
        settings, both = self.settings, stack == "encoder"
        buckets, distance = settings.relative_buckets, settings.relative_distance or 128
        table = self.take(f"{stack}_relative.schemes.0.table.weight", buckets, settings.heads)
        each_way = buckets // 2 if both else buckets
        starts = np.asarray(bucket_starts(each_way, distance))
        return lambda places: table[
            np.searchsorted(starts, np.abs(places), side="right") + (each_way if both else 0) * (places > 0)
        ]

    def _alibi(self) -> Callable[[np.ndarray], np.ndarray]:
        steep = np.asarray(slopes(self.settings.heads), np.float32)
        return lambda places: -np.abs(places)[:, None].astype(np.float32) * steep


def position_table(kind: str, width: int) -> np.ndarray:
    """The vectors of the first POSITIONS positions, as in layers/positions.py."""
    if kind == "none":
        return np.zeros((POSITIONS, width), np.float32)
    steps, divisor = np.arange(0, width, 2), width
    if kind == "sinusoidal-halves":
        steps, divisor = np.arange(width // 2), max(width // 2 - 1, 1)
    elif kind == "sine":
        steps = np.arange(width)
    rates = np.exp(steps.astype(np.float32) * np.float32(-math.log(10000.0) / divisor))
    angles = np.arange(POSITIONS, dtype=np.float32)[:, None] * rates
    if kind == "sine":
        return np.sin(angles)
    if kind == "sinusoidal-halves":
        return np.concatenate((np.sin(angles), np.cos(angles)), axis=1)
    return np.stack((np.sin(angles), np.cos(angles)), axis=-1).reshape(POSITIONS, width)


def _misfit(name: str, what: str) -> CheckpointError:
    advice = "Use the weights and the config.json of one run together"
    return CheckpointError(f"tensor {name!r}", f"the weights do not fit the configuration: it {what}", advice)
