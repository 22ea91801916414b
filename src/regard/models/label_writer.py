"""A recurrent network that writes a text from a label: one to many.

The shape is that of image captions ("Show and Tell", Vinyals et al. 2015, arXiv 1411.4555), with a label in the picture's place;
feeding it at every step is what Cho et al. 2014 (arXiv 1406.1078) do with their summary of a sentence:

    v = E_y y,   h_0 = tanh(V v + b),   h_t = f([e(w_{t-1}) ; v], h_{t-1}),   P(w_t | ..) = softmax(E W_o h_t)

The source is the label. It is read as a set: where it is several tokens (a label of two words, or two labels), v is the mean of
their vectors, and their order says nothing.

Departs:
- Vinyals et al. give the picture to the LSTM once, as its first input. Here v sets the first state of every layer, and with
  `feed` (the default) also stands beside every word.
- f is a simple RNN, a GRU (whose reset gate acts after the product) or an LSTM, whose cells start at 0, in one or more layers.
- The output's table is that of words, E, with a matrix W_o between where widths differ (`tie="none"`: a table of its own).
- Dropout on words and on what goes up: the papers have little or none (`dropout=0`).
"""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.core.bounds import check_bounds
from regard.core.tree import Memory, State
from regard.core.types import EOS, Padded
from regard.layers.output import SoftmaxOutput
from regard.layers.recurrent.cells import precise
from regard.layers.recurrent.layers import recurrent
from regard.layers.recurrent.stack import GATES, Cell
from regard.layers.starting import start_by_sizes, start_orthogonal
from regard.models.base import MODELS, Recorder, Writer

SIZES = {
    "embedding": (0, 1 << 14),
    "width": (1, 1 << 14),
    "layers": (1, 1000),
    "label": (0, 1 << 14),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class LabelWriterConfig:
    """Sizes and choices of a network that writes from a label."""

    name: Literal["label-writer"] = "label-writer"
    cell: Cell = "lstm"
    embedding: int = 0  # of words; 0: as `width`
    width: int = 256  # of every layer
    layers: int = 1
    label: int = 64  # of the label's vector v; 0: as `width`
    feed: bool = True  # v stands beside every word, too
    tie: Literal["output", "none"] = "output"  # output: its table is that of words
    dropout: float = 0.2

    def __post_init__(self) -> None:
        check_bounds("model", self, SIZES, parts=("dropout",))

    @property
    def words(self) -> int:
        """The width of the embeddings."""
        return self.embedding or self.width


@dataclasses.dataclass
class LabelMemory(Memory):
    """The label's vector."""

    v: Float[Tensor, "B L"]


@dataclasses.dataclass
class LabelState(State):
    """The state h of every layer, and the cell c of every LSTM."""

    h: tuple[Float[Tensor, "B K D"], ...]
    c: tuple[Float[Tensor, "B K D"], ...]


@MODELS.register("label-writer")
class LabelWriter(Writer):
    """Recurrent layers that begin with a label and write."""

    Config = LabelWriterConfig
    capabilities = frozenset({"composes"})

    def __init__(self, config: LabelWriterConfig, *, source_vocabulary: int, target_vocabulary: int, shared: bool):
        super().__init__()
        self.config = config
        words, width, label = config.words, config.width, config.label or config.width
        self.label_embedding = nn.Embedding(source_vocabulary, label)  # E_y
        self.embedding = nn.Embedding(target_vocabulary, words)  # E
        self.first = nn.Linear(label, config.layers * width)  # V, b of every layer
        sizes = [words + label * config.feed] + [width] * (config.layers - 1)
        self.decoder = nn.ModuleList(recurrent(config.cell, size, width, bias=True) for size in sizes)
        tied = config.tie == "output"
        self.readout = nn.Linear(width, words, bias=False) if tied and words != width else nn.Identity()  # W_o
        self.dropout = nn.Dropout(config.dropout)
        self.output = SoftmaxOutput(
            width if not tied else words, target_vocabulary, self.embedding.weight if tied else None
        )
        self._initialise()

    def _initialise(self) -> None:
        gates = GATES[self.config.cell]
        start_by_sizes(self, ("decoder",), gates)  # also opens forget gates
        for name, p in self.decoder.named_parameters():
            if name.endswith("weight_hh_l0"):
                start_orthogonal(p, gates)
        nn.init.normal_(self.label_embedding.weight)  # few rows: as far from each other as vectors are long

    def start(
        self, source: Padded, *, beams: int = 1, capacity: int = 256, target_length: int | None = None
    ) -> tuple[LabelMemory, LabelState]:
        named = (source.keep & (source.tokens != EOS))[..., None]
        v = (self.label_embedding(source.tokens) * named).sum(1) / named.sum(1).clamp(min=1)
        first = precise(self.first(v)).tanh()[:, None].expand(-1, beams, -1)
        h = first.chunk(self.config.layers, -1)
        cells = tuple(torch.zeros_like(one) for one in h) if self.config.cell == "lstm" else ()
        return LabelMemory(v), LabelState(h, cells)

    def advance(
        self, tokens: Int[Tensor, "B K T"], memory: LabelMemory, state: LabelState, record: Recorder | None = None
    ) -> tuple[Float[Tensor, "B K T D"], LabelState]:
        rows = tokens.shape[:2]  # the layers take hypotheses as sentences: B K -> BK
        x = self.dropout(self.embedding(tokens))
        if self.config.feed:
            x = torch.cat((x, memory.v[:, None, None].expand(*tokens.shape, -1).to(x.dtype)), -1)
        x = x.flatten(0, 1)
        h, c = [], []
        for i, layer in enumerate(self.decoder):
            x, end = layer(self.dropout(x) if i else x, self._before(state, i))
            after = end if isinstance(end, tuple) else (end,)
            for kept, one in zip((h, c), after, strict=False):
                kept.append(one[0].unflatten(0, rows))
        return self.readout(self.dropout(x)).unflatten(0, rows), LabelState(tuple(h), tuple(c))

    def _before(self, state: LabelState, layer: int) -> Any:
        """The state of one layer as the layer takes it."""
        h = state.h[layer].flatten(0, 1)[None].contiguous()
        return (h, state.c[layer].flatten(0, 1)[None].contiguous()) if state.c else h
