"""What recurrent models that name labels share: words, and recurrent layers that read them one way or both ways.

Elman 1990 (rnn), Hochreiter and Schmidhuber 1997 with the forget gate of Gers et al. 2000 (lstm), Cho et al. 2014 (gru); both ways:
Schuster and Paliwal 1997. Classifiers read their label from one state of a text, taggers from the state of each word.

Departs:
- The reset gate of the GRU acts after the matrix product, as in cuDNN.
- One bias for each gate, not two; they are weights of an input that is 1 at tokens, so that padding needs no packing.
- Two directions share `width`: each has half of it.
- Dropout is on words, between layers and on the states that labels are read from, never from step to step. `token_dropout`
  leaves out whole words (Iyyer et al. 2015; Gal and Ghahramani 2016), so that a model cannot rest on one of them.
"""

from __future__ import annotations

import dataclasses

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import dropout

from regard.core.bounds import check_bounds
from regard.core.errors import ConfigError
from regard.core.types import Padded
from regard.layers.recurrent.stack import Cell, RecurrentStack
from regard.models.base import Recorder

SIZES = {
    "embedding": (0, 1 << 14),
    "width": (1, 1 << 14),
    "layers": (1, 1000),
}
PARTS = ("dropout", "token_dropout", "classifier_dropout")


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecurrentConfig:
    """Sizes and choices of a recurrent model that reads."""

    cell: Cell = "lstm"
    embedding: int = 0  # of words; 0: as `width`
    width: int = 256  # of the states, of both directions together
    layers: int = 2
    bidirectional: bool = True
    dropout: float = 0.3  # on words, and between layers
    token_dropout: float = 0.0  # of whole words
    classifier_dropout: float = 0.3  # of the states that labels are read from

    def __post_init__(self) -> None:
        check_bounds("model", self, SIZES, parts=PARTS)
        if self.bidirectional and self.width % 2:
            what = f"two directions share the width, and {self.width} is odd"
            raise ConfigError("setting model.width", what, "Give an even one, or set bidirectional=false")


class RecurrentBody(nn.Module):
    """Words, and layers that read them."""

    def __init__(self, config: RecurrentConfig, vocabulary: int):
        super().__init__()
        self.config = config
        words = config.embedding or config.width
        self.embedding = nn.Embedding(vocabulary, words)
        nn.init.normal_(self.embedding.weight, std=words**-0.5)
        self.reader = RecurrentStack(config.cell, words, config.width, config.layers, config.bidirectional)
        self.dropout = nn.Dropout(config.dropout)

    def states(
        self, source: Padded, record: Recorder | None = None
    ) -> tuple[Float[Tensor, "B S D"], Float[Tensor, "B D"]]:
        """The last layer's states, zero at padding, and where it ends: see RecurrentStack. A recorder gets those of all layers."""
        words = self.embedding(source.tokens)
        x = self.dropout(without_tokens(words, self.config.token_dropout, self.training))
        layers, end = self.reader(x, source.keep, self.dropout)
        if record is not None:
            for i, states in enumerate((words, *layers)):
                record.add(f"reader.{i}.states", states)
        return layers[-1], end


def without_tokens(x: Float[Tensor, "B S D"], part: float, training: bool) -> Float[Tensor, "B S D"]:
    """Leaves out the vectors of some tokens in training; the others are not made larger, as a word more or less is no scale."""
    if not training or not part:
        return x
    return x * dropout(x.new_ones(*x.shape[:2], 1), part).clamp(max=1)
