"""A recurrent classifier: many to one, the label of a text from what a recurrent network keeps of it.

The form is older than any one paper. Dai and Le 2015 ("Semi-supervised Sequence Learning", arXiv 1511.01432) read the label of a
text from the last state of an LSTM:

    h_t = f(x_t, h_{t-1}),   P(y | x) = softmax(W p(h_1 .. h_n) + b)

    pool = "last"   p = h_n; of two directions [→h_n ; ←h_1], where each has read everything
    pool = "mean"   p = mean of h_1 .. h_n
    pool = "max"    p = the largest of each feature (Conneau et al. 2017, the BiLSTM-max sentence encoder)

Departs:
- `cell`, `layers` and `bidirectional` choose the reader: recurrent_reader.py, with where it departs.
- Dai and Le begin with pre-trained weights; here they start from nothing, but train.vectors can give the words' vectors.
"""

from __future__ import annotations

import dataclasses
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.core.types import PAD, Padded
from regard.layers.output import SoftmaxOutput
from regard.models.base import MODELS, Forced, Recorder
from regard.models.classifier import Classifier
from regard.models.recurrent_reader import RecurrentBody, RecurrentConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecurrentClassifierConfig(RecurrentConfig):
    """Sizes and choices of a recurrent classifier."""

    name: Literal["recurrent-classifier"] = "recurrent-classifier"
    layers: int = 1
    pool: Literal["last", "mean", "max"] = "max"  # of the states of a text


@MODELS.register("recurrent-classifier")
class RecurrentClassifier(Classifier):
    """Recurrent layers, one state of what they make of a text, and a softmax over labels."""

    Config = RecurrentClassifierConfig
    body: RecurrentBody

    def __init__(self, config: RecurrentClassifierConfig, *, vocabulary: int, labels: int):
        super().__init__()
        self.config = config
        self.body = RecurrentBody(config, vocabulary)
        self.dropout = nn.Dropout(config.classifier_dropout)
        self.output = SoftmaxOutput(config.width, labels, never=(PAD,))  # W, b

    def forward(self, source: Padded, target: Int[Tensor, "B 1"], record: Recorder | None = None) -> Forced:
        states, end = self.body.states(source, record)
        pooled = end if self.config.pool == "last" else pool(states, source.keep, self.config.pool)
        return Forced(self.dropout(pooled)[:, None], {})


def pool(
    states: Float[Tensor, "B S D"], keep: Bool[Tensor, "B S"], how: Literal["mean", "max"]
) -> Float[Tensor, "B D"]:
    """The mean or the largest of each feature over the tokens of a text, in which there is at least one."""
    kept = keep[..., None]
    if how == "max":
        return torch.where(kept, states, -torch.inf).amax(1)
    return (states * kept).sum(1) / kept.sum(1).clamp(min=1)
