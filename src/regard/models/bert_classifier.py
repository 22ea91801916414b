"""BERT fine-tuned to classify: "BERT: Pre-training of Deep Bidirectional Transformers ...", Devlin et al. 2018, figures 4a and 4b.

A pre-trained BERT reads one text or two, and a new linear layer reads what its pooler makes of the first token, C:

    P(y | x) = softmax(W tanh(W_p C + b_p) + b)

Departs:
- The paper writes softmax(C Wᵀ); the pooler, dropout before the layer and its bias are the released code's.
- A body that was pre-trained without a pooler gets a new one.
- The heads that the body was pre-trained with stay with it as they were: kept in the run's files, not trained, not counted.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar, Literal

from jaxtyping import Int
from torch import Tensor, nn

from regard.core.bounds import check_bounds
from regard.core.types import PAD, Padded
from regard.layers.output import SoftmaxOutput
from regard.models.base import MODELS, Forced, Limits, Recorder
from regard.models.bert import START, Bert, BertConfig, Pooler, start_small
from regard.models.classifier import Classifier


@dataclasses.dataclass(frozen=True, kw_only=True)
class BertClassifierConfig(BertConfig):
    """Sizes and choices of a BERT, and how it is fine-tuned."""

    name: Literal["bert-classifier"] = "bert-classifier"  # pyright: ignore[reportIncompatibleVariableOverride]
    head: bool = False  # kept from pre-training; nothing here reads it
    next_sentence: bool = False  # likewise
    classifier_dropout: float = 0.1  # of the state that the label is read from

    def __post_init__(self) -> None:
        super().__post_init__()
        check_bounds("model", self, {}, parts=("classifier_dropout",))


@MODELS.register("bert-classifier")
class BertClassifier(Classifier):
    """A BERT with a linear layer over labels."""

    Config = BertClassifierConfig
    begins_with: ClassVar[str] = "bert"
    depths = ("layers",)
    body: Bert

    def __init__(self, config: BertClassifierConfig, *, vocabulary: int, labels: int):
        super().__init__()
        self.config = config
        self.body = Bert(config, vocabulary=vocabulary)
        self.body.keep_unread("head", "next_sentence")
        self.pooler = Pooler(config.width) if self.body.pooler is None else None
        self.dropout = nn.Dropout(config.classifier_dropout)
        self.output = SoftmaxOutput(config.width, labels, never=(PAD,))  # W
        if self.pooler is not None:
            start_small(self.pooler)
        nn.init.normal_(self.output.weight, std=START)  # pyright: ignore[reportArgumentType]

    @property
    def limits(self) -> Limits:
        return self.body.limits

    def forward(self, source: Padded, target: Int[Tensor, "B 1"], record: Recorder | None = None) -> Forced:
        if self.pooler is None:
            pooled = self.body.pooled(source, record)
        else:
            pooled = self.pooler(self.body.whole_states(source, record)[0])
        return Forced(self.dropout(pooled)[:, None], {})
