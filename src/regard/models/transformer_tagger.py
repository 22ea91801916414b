"""A Transformer encoder as a tagger: many to many in step, a label for each word from the encoder's state there.

The encoder is that of Vaswani et al. 2017; a softmax over labels at every token is what BERT does to tag (Devlin et al. 2019,
section 5.3), here with weights that start from nothing:

    h_1 .. h_n = Encoder(x_1 .. x_n),   P(y_t | x) = softmax(W h_t + b)

Departs: as transformer_reader.py. The label of a word of several pieces is read at its first piece, as in BERT.
"""

from __future__ import annotations

import dataclasses
from typing import Literal

from jaxtyping import Float
from torch import Tensor, nn

from regard.core.types import PAD, Padded
from regard.layers.output import SoftmaxOutput
from regard.models.base import MODELS, Limits, Recorder
from regard.models.reader import Tagger
from regard.models.transformer_reader import LABEL_START, TransformerBody, TransformerReaderConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class TransformerTaggerConfig(TransformerReaderConfig):
    """Sizes and choices of a Transformer that tags."""

    name: Literal["transformer-tagger"] = "transformer-tagger"


@MODELS.register("transformer-tagger")
class TransformerTagger(Tagger):
    """An encoder, and a softmax over labels at every word."""

    Config = TransformerTaggerConfig
    depths = ("layers",)
    body: TransformerBody

    def __init__(self, config: TransformerTaggerConfig, *, vocabulary: int, labels: int):
        super().__init__()
        self.config = config
        self.body = TransformerBody(config, vocabulary)
        self.dropout = nn.Dropout(config.classifier_dropout)
        self.output = SoftmaxOutput(config.width, labels, never=(PAD,))  # W, b
        nn.init.normal_(self.output.weight, std=LABEL_START)

    @property
    def limits(self) -> Limits:
        return Limits(source=self.body.limit)

    def states(self, source: Padded, record: Recorder | None = None) -> Float[Tensor, "B S D"]:
        return self.dropout(self.body.states(source, record))
