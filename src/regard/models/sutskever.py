"""The deep LSTM: "Sequence to Sequence Learning with Neural Networks", Sutskever, Vinyals and Le 2014 (arXiv 1409.3215).

One stack of LSTMs reads the source from its end; the states it is left in start another stack, which writes the target. The
paper puts one end-of-sentence mark between the two sentences. Here the source ends with a mark of its own, and BOS, with
which the target begins, stands where the paper's mark does. The mark of the source is turned round with its text, and the
encoder reads "EOS x_S ... x_1": so x_1 is as near to the first word of the target as in the paper (section 3.3).

Departs:
- Dropout on what goes up, between the layers (Zaremba et al. 2014): the paper has none (`dropout=0`).
- Default sizes are for small corpora. The paper's: embedding 1000, width 1000, layers 4.
- The output layer has a bias. The LSTMs have none, so that padding needs no packing; nor do the paper's 384 million count any.
- `initialise="paper"` is the paper's U(-0.08, 0.08). By default matrices start by their sizes: small models learn much faster so.
- The paper trains with plain gradient descent (rate 0.7, halved from epoch 5, gradients cut at norm 5); any optimizer can be
  used here.
"""

from __future__ import annotations

import dataclasses
from typing import Literal

from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.core.bounds import check_bounds
from regard.core.errors import ConfigError
from regard.core.tree import Memory, State
from regard.core.types import Padded
from regard.layers.embeddings import Tie, embedding_tables
from regard.layers.output import SoftmaxOutput
from regard.layers.recurrent.layers import recurrent
from regard.layers.recurrent.padding import PaddedFirst, backwards
from regard.layers.starting import start_by_sizes
from regard.models.base import MODELS, Recorder, Writer

SIZES = {
    "embedding": (0, 1 << 14),
    "width": (1, 1 << 14),
    "layers": (1, 1000),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class SutskeverConfig:
    """Sizes and choices of the deep LSTM."""

    name: Literal["sutskever"] = "sutskever"
    embedding: int = 0  # 0: as `width`
    width: int = 512  # of every LSTM
    layers: int = 2
    reverse: bool = True  # read the source from its end, as the paper does
    tie: Tie = "none"  # which tables are one; needs width = embedding
    dropout: float = 0.0
    initialise: Literal["paper", "scaled"] = "scaled"  # scaled: matrices by their sizes (Glorot)

    def __post_init__(self) -> None:
        check_bounds("model", self, SIZES, parts=("dropout",))
        if self.tie != "none" and self.width != self.words:
            what = f"tables can be one only if width ({self.width}) equals embedding ({self.words})"
            raise ConfigError("setting model.tie", what, "Make them equal or set tie=none")

    @property
    def words(self) -> int:
        """The width of the embeddings."""
        return self.embedding or self.width


@dataclasses.dataclass
class SutskeverState(State):
    """Output h and cell c of every layer of the decoder: all that is known, of the source too."""

    h: tuple[Float[Tensor, "B K n"], ...]
    c: tuple[Float[Tensor, "B K n"], ...]


@MODELS.register("sutskever")
class Sutskever(Writer):
    """Two stacks of LSTMs, the second of which goes on from where the first ended (section 2, figure 1)."""

    Config = SutskeverConfig
    capabilities = frozenset({"translates"})

    def __init__(self, config: SutskeverConfig, *, source_vocabulary: int, target_vocabulary: int, shared: bool):
        super().__init__()
        self.config = config
        tables = embedding_tables(source_vocabulary, target_vocabulary, config.words, config.tie, shared)
        self.target_embedding, self.source_embedding = tables.target, tables.source
        self.encoder, self.decoder = _stack(config), _stack(config)
        self.dropout = nn.Dropout(config.dropout)
        self.output = SoftmaxOutput(config.width, target_vocabulary, tables.output)
        self._initialise()

    def _initialise(self) -> None:
        """Section 3.4: all parameters from U(-0.08, 0.08)."""
        if self.config.initialise == "scaled":
            start_by_sizes(self, ("coder",), 4)
        else:
            for p in self.parameters():
                nn.init.uniform_(p, -0.08, 0.08)

    def start(
        self, source: Padded, *, beams: int = 1, capacity: int = 256, target_length: int | None = None
    ) -> tuple[Memory, SutskeverState]:
        x = self.source_embedding(source.tokens)
        # Both ways padding comes first, so that the last state is that after the last word read.
        x = backwards(x, source.keep) if self.config.reverse else PaddedFirst(source.keep).there(x)
        ends = []
        for layer in self.encoder:
            x, (h, c) = layer(self.dropout(x))
            ends.append((h[0], c[0]))
        h, c = (tuple(end[:, None].expand(-1, beams, -1) for end in kind) for kind in zip(*ends, strict=True))
        return Memory(), SutskeverState(h, c)

    def advance(
        self, tokens: Int[Tensor, "B K T"], memory: Memory, state: SutskeverState, record: Recorder | None = None
    ) -> tuple[Float[Tensor, "B K T D"], SutskeverState]:
        rows = tokens.shape[:2]  # nn.LSTM takes hypotheses as sentences: B K -> BK
        x = self.target_embedding(tokens.flatten(0, 1))
        ends = []
        for layer, h, c in zip(self.decoder, state.h, state.c, strict=True):
            x, (h, c) = layer(self.dropout(x), (h.flatten(0, 1)[None], c.flatten(0, 1)[None]))
            ends.append((h[0].unflatten(0, rows), c[0].unflatten(0, rows)))
        h, c = zip(*ends, strict=True)
        return self.dropout(x).unflatten(0, rows), SutskeverState(h, c)


def _stack(config: SutskeverConfig) -> nn.ModuleList:
    sizes = [config.words] + [config.width] * config.layers
    return nn.ModuleList(recurrent("lstm", size, config.width, bias=False) for size in sizes[:-1])
