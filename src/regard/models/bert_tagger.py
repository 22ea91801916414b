"""BERT fine-tuned to tag: "BERT: Pre-training of Deep Bidirectional Transformers ...", Devlin et al. 2018, figure 4d, section 5.3.

A pre-trained BERT reads the text, and a new linear layer reads the last state of each word's first piece:

    P(y_i | x) = softmax(W T_i + b)

Departs:
- Dropout before the layer, as in the released code for classification; the paper says nothing of it here.
- The heads that the body was pre-trained with, its pooler too, stay with it as they were: kept in the run's files, not trained,
  not counted.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar, Literal

from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.core.bounds import check_bounds
from regard.core.types import PAD, Padded
from regard.layers.output import SoftmaxOutput
from regard.models.base import MODELS, Forced, Limits, Recorder
from regard.models.bert import START, Bert, BertConfig
from regard.models.reader import Tagger, at_places


@dataclasses.dataclass(frozen=True, kw_only=True)
class BertTaggerConfig(BertConfig):
    """Sizes and choices of a BERT, and how it is fine-tuned."""

    name: Literal["bert-tagger"] = "bert-tagger"  # pyright: ignore[reportIncompatibleVariableOverride]
    head: bool = False  # kept from pre-training; nothing here reads it
    next_sentence: bool = False  # likewise
    classifier_dropout: float = 0.1  # of the states that labels are read from

    def __post_init__(self) -> None:
        super().__post_init__()
        check_bounds("model", self, {}, parts=("classifier_dropout",))


@MODELS.register("bert-tagger")
class BertTagger(Tagger):
    """A BERT with a linear layer over labels at each word."""

    Config = BertTaggerConfig
    begins_with: ClassVar[str] = "bert"
    depths = ("layers",)
    body: Bert

    def __init__(self, config: BertTaggerConfig, *, vocabulary: int, labels: int):
        super().__init__()
        self.config = config
        self.body = Bert(config, vocabulary=vocabulary)
        self.body.keep_unread("head", "next_sentence", "pooler")
        self.dropout = nn.Dropout(config.classifier_dropout)
        self.output = SoftmaxOutput(config.width, labels, never=(PAD,))  # W
        nn.init.normal_(self.output.weight, std=START)  # pyright: ignore[reportArgumentType]

    @property
    def limits(self) -> Limits:
        return self.body.limits

    def states(self, source: Padded, record: Recorder | None = None) -> Float[Tensor, "B S D"]:
        return self.body.states(source, record)

    def forward(self, source: Padded, target: Int[Tensor, "B T"], record: Recorder | None = None) -> Forced:
        return Forced(self.dropout(at_places(self.states(source, record), target)), {})
