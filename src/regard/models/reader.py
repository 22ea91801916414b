"""The contract of models that read a text and give a state for each of its tokens: taggers, and models that fill in words.

The source is the tokens of a text and nothing else; where there are two texts, EOS stands between them, and nowhere else. What a
model needs around them (BERT's [CLS] and [SEP]) it adds itself. Rows that only fill a batch up are one EOS.

`forward` is asked for the states at some places of the source, counted from 0, and `output` turns them into a loss or into
log-probabilities: of a tagger over labels, numbered from 1 (0, which is padding, means none and is never written); of a masked
model over the vocabulary. So what is trained on is a batch whose `target_in` are places, and whose `target_out` is what belongs
there; a place where `target_out` is padding does not count.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.core.types import Padded
from regard.layers.output import OutputLayer
from regard.models.base import Capability, Forced, Limits, Recorder


class Reader(nn.Module, ABC):
    """A model that gives a state for each token of a text."""

    Config: ClassVar[type]
    capabilities: ClassVar[frozenset[Capability]] = frozenset()
    depths: ClassVar[tuple[str, ...]] = ()  # settings of how deep stacks of layers are whose layers are all alike
    config: Any
    output: OutputLayer

    @property
    def limits(self) -> Limits:
        """Of the source: of two texts, with the EOS between them."""
        return Limits()

    @abstractmethod
    def states(self, source: Padded, record: Recorder | None = None) -> Float[Tensor, "B S D"]:
        """The last state of every token. A recorder gets those of all layers as `reader.I.states`, 0 being the embeddings."""

    def forward(self, source: Padded, target: Int[Tensor, "B T"], record: Recorder | None = None) -> Forced:
        """The states at the places that `target` names."""
        return Forced(at_places(self.states(source, record), target), {})

    def parameters_count(self) -> int:
        return sum(p.numel() for p in self.parameters())


class Tagger(Reader):
    """A reader that names a label for each word. It is built from (config, vocabulary, labels), `labels` with the one of none.

    A word may be several tokens: its label is read at the place of its first.
    """

    capabilities: ClassVar[frozenset[Capability]] = frozenset({"tags"})
    begins_with: ClassVar[str] = ""  # the model whose weights its `body` can begin with, by name; "": none
    body: Any  # a module, where `begins_with` names one


class MaskedModel(Reader):
    """A reader that says which words stood at hidden places. It is built from (config, vocabulary).

    The first column of `target` is no place: it says whether the second text follows the first in the document (1), does not
    (2), or that nothing is known of it (0). The hidden state there means nothing. A model that learns from it returns the loss
    as an auxiliary one, in training mode only.
    """

    capabilities: ClassVar[frozenset[Capability]] = frozenset({"fills"})


def at_places(states: Float[Tensor, "B S D"], places: Int[Tensor, "B T"]) -> Float[Tensor, "B T D"]:
    return states.gather(1, places[..., None].expand(-1, -1, states.shape[-1]))
