"""The contract of models that read a text and name its label.

A classifier has one output: over labels. They are numbered from 1; 0, which is padding, means none and is never written. So a
label is a text of one token to all that trains: `forward` gives hidden states [B, 1, D], and `output` turns them into a loss or
into log-probabilities.

The source is the tokens of a text and nothing else; where there are two texts, EOS stands between them, and nowhere else.
Rows that only fill a batch up are one EOS.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

from jaxtyping import Int
from torch import Tensor, nn

from regard.core.types import Padded
from regard.layers.output import OutputLayer
from regard.models.base import Capability, Forced, Limits, Recorder


class Classifier(nn.Module, ABC):
    """A model that names the label of a text. It is built from (config, vocabulary, labels), `labels` with the one of none."""

    Config: ClassVar[type]
    capabilities: ClassVar[frozenset[Capability]] = frozenset({"classifies"})
    depths: ClassVar[tuple[str, ...]] = ()  # settings of how deep stacks of layers are whose layers are all alike
    begins_with: ClassVar[str] = ""  # the model whose weights its `body` can begin with, by name; "": none
    body: Any  # a module, where `begins_with` names one
    config: Any
    output: OutputLayer

    @property
    def limits(self) -> Limits:
        """Of the source: of two texts, with the EOS between them."""
        return Limits()

    @abstractmethod
    def forward(self, source: Padded, target: Int[Tensor, "B 1"], record: Recorder | None = None) -> Forced:
        """One hidden state for each text. `target` only says how many rows there are.

        Auxiliary losses are weighted already, a mean per token, and there are none in evaluation mode.
        """

    def parameters_count(self) -> int:
        return sum(p.numel() for p in self.parameters())
