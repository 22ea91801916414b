"""A Transformer encoder as a classifier: many to one, the label of a text from the encoder's states.

The encoder is that of Vaswani et al. 2017, with weights that start from nothing:

    h_1 .. h_n = Encoder(x_1 .. x_n),   P(y | x) = softmax(W p + b)

    pool = "mean"    p = mean of h_1 .. h_n
    pool = "first"   p = h_0, the state of a vector that stands before every text, as BERT's [CLS] (Devlin et al. 2019)

Departs: as transformer_reader.py. BERT puts a tanh layer between h_0 and W; here there is none.
"""

from __future__ import annotations

import dataclasses
from typing import Literal

from jaxtyping import Int
from torch import Tensor, nn

from regard.core.errors import ConfigError
from regard.core.types import PAD, Padded
from regard.layers.output import SoftmaxOutput
from regard.models.base import MODELS, Forced, Limits, Recorder
from regard.models.classifier import Classifier
from regard.models.recurrent_classifier import pool
from regard.models.transformer_reader import LABEL_START, TransformerBody, TransformerReaderConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class TransformerClassifierConfig(TransformerReaderConfig):
    """Sizes and choices of a Transformer that classifies."""

    name: Literal["transformer-classifier"] = "transformer-classifier"
    pool: Literal["mean", "first"] = "mean"  # of the states of a text, or that of a vector before it

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.pool == "first" and self.positions == "learned" and self.max_length < 2:
            what = "learned positions leave no room for a text behind the first vector"
            raise ConfigError("setting model.max_length", what, "Give more than 1")


@MODELS.register("transformer-classifier")
class TransformerClassifier(Classifier):
    """An encoder, one state for the text, and a softmax over labels."""

    Config = TransformerClassifierConfig
    depths = ("layers",)
    body: TransformerBody

    def __init__(self, config: TransformerClassifierConfig, *, vocabulary: int, labels: int):
        super().__init__()
        self.config = config
        self.body = TransformerBody(config, vocabulary, first=config.pool == "first")
        self.dropout = nn.Dropout(config.classifier_dropout)
        self.output = SoftmaxOutput(config.width, labels, never=(PAD,))  # W, b
        nn.init.normal_(self.output.weight, std=LABEL_START)

    @property
    def limits(self) -> Limits:
        return Limits(source=self.body.limit)

    def forward(self, source: Padded, target: Int[Tensor, "B 1"], record: Recorder | None = None) -> Forced:
        states = self.body.states(source, record)
        pooled = states[:, 0] if self.config.pool == "first" else pool(states, source.keep, "mean")
        return Forced(self.dropout(pooled)[:, None], {})
