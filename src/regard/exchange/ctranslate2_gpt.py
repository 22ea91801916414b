"""A GPT as a CTranslate2 model: a decoder without cross-attention, which its Generator opens."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from regard.core.types import BOS, EOS, PAD, SPECIALS, UNK
from regard.engines.ctranslate2_format import Variables, config_file, model_bytes, vocabulary_file
from regard.engines.ctranslate2_limits import ACTIVATIONS, MODEL, Compute
from regard.engines.ctranslate2_parts import Conversion, Weights
from regard.engines.transformer_settings import TransformerSettings
from regard.layers.output import SILENCE
from regard.models.gpt import NORM_EPS, GPTConfig

SPECIFICATION, REVISION = "TransformerDecoderSpec", 8
# Seen in 4.8.4: right in one pass over a text, log-probabilities wrong by 0.2 where it goes on from a prompt.
T5 = "it counts T5's distances wrongly in a text that goes on from more than two tokens"


def why_not_gpt(config: GPTConfig) -> str | None:
    """Why CTranslate2 cannot run such a GPT, in words; None where it can."""
    refused: list[tuple[bool, str]] = [
        (config.relative == "music", "relative='music'"),
        (config.relative == "t5", f"relative='t5': {T5}"),
        (config.relative == "shaw" and config.relative_per_head, "relative_per_head=true"),
        (config.activation not in ACTIVATIONS, f"activation={config.activation!r}"),
        (
            config.relative != "none" and config.positions != "none",
            f"positions={config.positions!r} where relative={config.relative!r}",
        ),
    ]
    return next((f"CTranslate2 cannot express {setting}" for wrong, setting in refused if wrong), None)


def gpt_files(config: GPTConfig, weights: Weights, tokens: Sequence[str], compute: Compute) -> dict[str, bytes]:
    """The files of a CTranslate2 model, by name. `tokens` are those of the vocabulary, by id. Nothing given is changed."""
    variables = _Gpt(config, weights, len(tokens)).converted()
    names = {"unk_token": SPECIALS[UNK], "bos_token": SPECIALS[BOS], "eos_token": SPECIALS[EOS]}
    grouped = config.kv_heads not in (0, config.heads)
    return {
        MODEL: model_bytes(variables, compute, SPECIFICATION, REVISION),
        **vocabulary_file(tokens),
        **config_file(names, NORM_EPS, translates=False, grouped=grouped),
    }


class _Gpt(Conversion):
    def __init__(self, config: GPTConfig, weights: Weights, vocabulary: int):
        settings = TransformerSettings(
            name="gpt",
            width=config.width,
            layers=config.layers,
            heads=config.heads,
            inner=config.inner_width,
            norm=config.norm,
            normalise=config.normalise,
            positions=config.positions,
            max_length=config.context,
            relative=config.relative,
            relative_distance=config.relative_distance,
            relative_buckets=config.relative_buckets,
            relative_to=config.relative_to,
            relative_per_head=config.relative_per_head,
            rotary_layout=config.rotary_layout,
            rotary_base=config.rotary_base,
            activation=config.activation,
        )
        super().__init__(settings, weights, longest=config.context, bias=config.bias)
        self.config, self.vocabulary = config, vocabulary

    def converted(self) -> Variables:
        self.stack("decoder", scaled=False)
        if self.config.norm == "pre":
            self.norm("norm", "decoder/layer_norm")
        if self.config.relative == "none":
            self.out.put("decoder/position_encodings/encodings", self.positions("positions.table.weight"))
        for i in range(self.config.layers):
            self._layer(i)
        table = self.take("embedding.weight", self.vocabulary, self.config.width)
        output = table if self.config.tie else self.take("output.weight", self.vocabulary, self.config.width)
        self.out.matrix("decoder/embeddings/weight", table)
        self.out.matrix("decoder/projection/weight", output)
        if self.config.silent:
            bias = np.zeros(self.vocabulary, np.float32)
            bias[[PAD, BOS, UNK]] = SILENCE
            self.out.put("decoder/projection/bias", bias)
        return self.done()

    def _layer(self, i: int) -> None:
        config, place, here = self.config, f"decoder/layer_{i}", f"decoder.{i}"
        width, groups = config.width, config.kv_heads or config.heads
        rows = (config.heads + 2 * groups) * config.head_width
        self.linear(f"{here}.attention.query_key_value", f"{place}/self_attention/linear_0", rows, width)
        self.linear(f"{here}.attention.out", f"{place}/self_attention/linear_1", width, width)
        if groups != config.heads:
            self.out.number(f"{place}/self_attention/num_heads_kv", groups, np.int32)
        if config.qk_norm:
            for part in ("query", "key"):
                scale = self.take(f"{here}.attention.{part}_norm.weight", config.head_width)
                self.out.put(f"{place}/self_attention/{part[0]}_norm/gamma", scale)
        self.norm(f"{here}.attention_norm", f"{place}/self_attention/layer_norm")
        self.relative("relative.schemes", i, f"{place}/self_attention", both=False)
        self.feedforward(f"{here}.feedforward", f"{place}/ffn")
        self.norm(f"{here}.feedforward_norm", f"{place}/ffn/layer_norm")
