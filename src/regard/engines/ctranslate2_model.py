"""A Transformer translator as a CTranslate2 model: what can be expressed, and how. NumPy only, no torch.

    files = converted(config["model"], weights, source_tokens, target_tokens, "int8")   # name -> content

What is expressed was compared with the torch model (tests/unit/engines): log-probabilities agree to 1e-4 in float32.

- Absolute positions are always written as a table; without any, a table of zeros. CTranslate2 reads no absolute positions where
  attention sees distances, so the two together cannot be expressed.
- T5's buckets and ALiBi's slopes become a table with an entry for every distance up to POSITIONS: so no rounding of a logarithm
  decides a bucket, and encoders have ALiBi too, which CTranslate2 knows in decoders only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from regard.core.errors import ModelError
from regard.core.specials import BOS, EOS, SPECIALS, UNK
from regard.engines.ctranslate2_format import (
    Variables,
    config_file,
    model_bytes,
    vocabulary_files,
)
from regard.engines.ctranslate2_limits import MODEL, Compute, why_not
from regard.engines.ctranslate2_parts import Conversion, Weights, misfit, position_table
from regard.engines.transformer_settings import TransformerSettings, read_settings

__all__ = ["converted", "position_table"]


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
    variables = _Translator(settings, weights, len(source), len(target)).variables()
    specials = {"unk_token": UNK, "bos_token": BOS, "eos_token": EOS, "decoder_start_token": BOS}
    names = {key: SPECIALS[i] for key, i in specials.items()}
    try:
        content = model_bytes(variables, compute)
    except ValueError as error:
        raise ModelError("the model", str(error), "Use the torch engine") from None
    return {MODEL: content, **vocabulary_files(source, target), **config_file(names, settings.norm_epsilon)}


class _Translator(Conversion):
    """An encoder and a decoder."""

    def __init__(self, settings: TransformerSettings, weights: Weights, source: int, target: int):
        super().__init__(settings, weights)
        self.sizes = source, target

    def variables(self) -> Variables:
        for stack, layers in zip(("encoder", "decoder"), self.settings.depth, strict=True):
            if layers > len(self.weights):
                raise misfit(f"{stack} layer {layers - 1}", "is missing")
            self.stack(stack)
            if self.settings.norm == "pre":
                self.norm(f"{stack}_norm", f"{stack}/layer_norm")
            if self.settings.relative == "none":
                side = {"encoder": "source", "decoder": "target"}[stack]
                table = self.positions(f"{side}_positions.table.weight")
                self.out.put(f"{stack}/position_encodings/encodings", table)
            for i in range(layers):
                self._layer(stack, i)
        self._tables()
        return self.done()

    def _tables(self) -> None:
        """Embeddings and the output layer; a table that is tied stands in the weights once, under the target's name."""
        (source, target), width = self.sizes, self.settings.width
        of_target = self.take("target_embedding.weight", target, width)
        tied = "source_embedding.weight" not in self.weights
        of_source = of_target if tied else self.take("source_embedding.weight", source, width)
        if tied and source != target:
            raise misfit("source_embedding.weight", "is missing")
        output = self.take("output.weight", target, width) if "output.weight" in self.weights else of_target
        self.out.matrix("encoder/embeddings_0/weight", of_source)
        self.out.matrix("decoder/embeddings/weight", of_target)
        self.out.matrix("decoder/projection/weight", output)
        self.out.put("decoder/projection/bias", self.take("output.bias", target))

    def _layer(self, stack: str, i: int) -> None:
        width, place, here = self.settings.width, f"{stack}/layer_{i}", f"{stack}.{i}"
        self.linear(f"{here}.attention.query_key_value", f"{place}/self_attention/linear_0", 3 * width, width)
        self.linear(f"{here}.attention.out", f"{place}/self_attention/linear_1", width, width)
        self.norm(f"{here}.around_attention.norm", f"{place}/self_attention/layer_norm")
        self.scale(f"{place}/self_attention")
        self.relative(f"{stack}_relative.schemes", i, f"{place}/self_attention", both=stack == "encoder")
        if stack == "decoder":
            self.linear(f"{here}.cross.query", f"{place}/attention/linear_0", width, width)
            self.linear(f"{here}.cross.key_value", f"{place}/attention/linear_1", 2 * width, width)
            self.linear(f"{here}.cross.out", f"{place}/attention/linear_2", width, width)
            self.norm(f"{here}.around_cross.norm", f"{place}/attention/layer_norm")
            self.scale(f"{place}/attention")
        self.feedforward(f"{here}.feedforward", f"{place}/ffn")
        self.norm(f"{here}.around_feedforward.norm", f"{place}/ffn/layer_norm")
