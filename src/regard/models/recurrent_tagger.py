"""A recurrent tagger: many to many in step, a label for each word as it is read.

Graves and Schmidhuber 2005 classified every frame of speech by a bidirectional LSTM; for words, Huang, Xu and Yu 2015
(arXiv 1508.01991, the BI-LSTM without a CRF):

    →h_t = f(x_t, →h_{t-1}),   ←h_t = f(x_t, ←h_{t+1}),   P(y_t | x) = softmax(W [→h_t ; ←h_t] + b)

Departs:
- `cell`, `layers` and `bidirectional` choose the reader: recurrent_reader.py, with where it departs. One direction sees no word
  to the right.
- The paper adds features of spelling and pre-trained vectors. Here a word may be several pieces, which carry its spelling; its
  label is read at its first piece. One direction has not seen the others then.
- Labels are chosen each for itself: no CRF, no rule about which may follow which.
- The recurrent papers have no dropout; `dropout=0 classifier_dropout=0 token_dropout=0` is theirs.
"""

from __future__ import annotations

import dataclasses
from typing import Literal

from jaxtyping import Float
from torch import Tensor, nn

from regard.core.types import PAD, Padded
from regard.layers.output import SoftmaxOutput
from regard.models.base import MODELS, Recorder
from regard.models.reader import Tagger
from regard.models.recurrent_reader import RecurrentBody, RecurrentConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecurrentTaggerConfig(RecurrentConfig):
    """Sizes and choices of a recurrent tagger."""

    name: Literal["recurrent-tagger"] = "recurrent-tagger"


@MODELS.register("recurrent-tagger")
class RecurrentTagger(Tagger):
    """Recurrent layers, and a softmax over labels at every word."""

    Config = RecurrentTaggerConfig
    body: RecurrentBody

    def __init__(self, config: RecurrentTaggerConfig, *, vocabulary: int, labels: int):
        super().__init__()
        self.config = config
        self.body = RecurrentBody(config, vocabulary)
        self.dropout = nn.Dropout(config.classifier_dropout)
        self.output = SoftmaxOutput(config.width, labels, never=(PAD,))  # W, b

    def states(self, source: Padded, record: Recorder | None = None) -> Float[Tensor, "B S D"]:
        states, _ = self.body.states(source, record)
        return self.dropout(states)
