"""A BERT as a CTranslate2 model: an encoder with a pooler, which its Encoder opens.

It gives last states, and the pooler's vector where there is one. CTranslate2 has no masked-word head and no layer of labels.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from regard.core.types import BOS, EOS, SPECIALS, UNK
from regard.engines.ctranslate2_format import Variables, config_file, model_bytes, vocabulary_file
from regard.engines.ctranslate2_limits import MODEL, Compute
from regard.engines.ctranslate2_parts import Conversion, Weights
from regard.engines.transformer_settings import TransformerSettings
from regard.models.bert import NORM_EPS, BertConfig

SPECIFICATION, REVISION = "TransformerEncoderSpec", 1
ADD, TANH = 1, 5  # CTranslate2's numbers: of embeddings that are added, and of the pooler's activation


def bert_files(config: BertConfig, weights: Weights, tokens: Sequence[str], compute: Compute) -> dict[str, bytes]:
    """The files of a CTranslate2 model, by name. `tokens` are those of the vocabulary, by id. Nothing given is changed."""
    variables = _Bert(config, weights, len(tokens)).converted()
    names = {"unk_token": SPECIALS[UNK], "bos_token": SPECIALS[BOS], "eos_token": SPECIALS[EOS]}
    return {
        MODEL: model_bytes(variables, compute, SPECIFICATION, REVISION),
        **vocabulary_file(tokens),
        **config_file(names, NORM_EPS, translates=False),
    }


class _Bert(Conversion):
    def __init__(self, config: BertConfig, weights: Weights, vocabulary: int):
        settings = TransformerSettings(
            name="bert",
            width=config.width,
            layers=config.layers,
            heads=config.heads,
            inner=config.inner_width,
            norm="post",
            positions="learned",
            max_length=config.context,
            activation=config.activation,
        )
        unread = ("head.", "next_sentence.", "output.")  # CTranslate2 has no place for them
        read = {name: array for name, array in weights.items() if not name.startswith(unread)}
        super().__init__(settings, read, longest=config.context)
        self.config, self.vocabulary = config, vocabulary

    def converted(self) -> Variables:
        config, width = self.config, self.config.width
        self.stack("encoder", scaled=False)
        self.out.number("encoder/embeddings_merge", ADD)
        self.out.matrix("encoder/embeddings_0/weight", self.take("embedding.weight", self.vocabulary, width))
        self.out.matrix("encoder/embeddings_1/weight", self.take("segments.weight", config.segments, width))
        self.out.put("encoder/position_encodings/encodings", self.take("positions.weight", config.context, width))
        self.norm("norm", "encoder/layernorm_embedding")
        for i in range(config.layers):
            here, place = f"encoder.{i}", f"encoder/layer_{i}"
            self.linear(f"{here}.attention.query_key_value", f"{place}/self_attention/linear_0", 3 * width, width)
            self.linear(f"{here}.attention.out", f"{place}/self_attention/linear_1", width, width)
            self.norm(f"{here}.attention_norm", f"{place}/self_attention/layer_norm")
            self.feedforward(f"{here}.feedforward", f"{place}/ffn")
            self.norm(f"{here}.feedforward_norm", f"{place}/ffn/layer_norm")
        if "pooler.dense.weight" in self.weights:
            self.linear("pooler.dense", "pooler_dense", width, width)
            self.out.number("pooler_activation", TANH, np.int8)
        return self.done()
