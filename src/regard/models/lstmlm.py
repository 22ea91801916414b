"""The LSTM language model: "Recurrent Neural Network Regularization", Zaremba, Sutskever and Vinyals 2014 (arXiv 1409.2329).

Layers of LSTMs, of which each reads the outputs of the one below (section 3.1), with dropout D on what goes up, never on what
goes on in time (section 3.2):

    i, f, o = sigmoid(..), g = tanh(..) of T [D(h^{l-1}_t) ; h^l_{t-1}]
    c^l_t = f c^l_{t-1} + i g,   h^l_t = o tanh(c^l_t),   y_t = softmax(V D(h^L_t))

All weights and biases start from U(-initialise_range, initialise_range), those of the forget gates too, as in the authors' program.

Of 10,000 words the paper's models have 4,653,200 (small), 19,780,400 (medium) and 66,034,000 (large) parameters, with two bias
vectors for each layer as in the authors' program. Penn Treebank's 10,000 words have UNK and the end of a line among them. Of
regard's special tokens PAD and BOS come in addition, each with a row of words, a row of V and a bias: 2 (2 width + 1) more.

Departs:
- `tie="output"` makes V the table of words (Press and Wolf 2017; Inan et al. 2017); `variational` draws what is dropped once
  for all steps of a window (Gal and Ghahramani 2016); `weight_dropout` also drops weights from state to state (Merity et al. 2017).
  The paper has none of these.
- Default sizes are those of the paper's small model: 2 layers, width 200, range 0.1, no dropout. Its medium: width 650, range
  0.05, dropout 0.5. Its large: width 1500, range 0.04, dropout 0.65.
- The paper trains by plain gradient descent in windows of 20 (small) or 35 words, and cuts the norm of a gradient that is summed
  over the words of a window and divided by the rows alone. That is not part of the model.
"""

from __future__ import annotations

import dataclasses
from typing import Literal

from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import dropout

from regard.core.bounds import check_bounds
from regard.core.errors import ConfigError
from regard.core.tree import State
from regard.layers.output import SoftmaxOutput
from regard.layers.recurrent.cells import precise
from regard.layers.recurrent.layers import LSTM
from regard.layers.recurrent.weight_dropout import lstm_with_weight_dropout
from regard.models.base import MODELS, LanguageModel, NoMemory, Recorder

SIZES = {
    "embedding": (0, 1 << 14),
    "width": (1, 1 << 14),
    "layers": (1, 1000),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class LSTMLMConfig:
    """Sizes and choices of the LSTM language model."""

    name: Literal["lstmlm"] = "lstmlm"
    embedding: int = 0  # 0: as `width`
    width: int = 200  # of every layer
    layers: int = 2
    tie: Literal["none", "output"] = "none"  # output: V is the table of words; needs width = embedding
    dropout: float = 0.0  # on words, between layers, and on the way to the output
    variational: bool = False  # what is dropped is the same at all steps of a window
    weight_dropout: float = 0.0  # of weights from state to state
    initialise_range: float = 0.1

    def __post_init__(self) -> None:
        check_bounds("model", self, SIZES, parts=("dropout", "weight_dropout"))
        if not 0 < self.initialise_range <= 1:
            what = f"{self.initialise_range} is not above 0 and at most 1"
            raise ConfigError("setting model.initialise_range", what, "Give for example 0.05")
        if self.tie == "output" and self.words != self.width:
            what = f"the output's table can be that of words only if width ({self.width}) equals embedding"
            raise ConfigError("setting model.tie", f"{what} ({self.words})", "Set embedding=0 or tie=none")

    @property
    def words(self) -> int:
        """The width of the embeddings."""
        return self.embedding or self.width


@dataclasses.dataclass
class LSTMLMState(State):
    """Output h and cell c of every layer."""

    h: tuple[Float[Tensor, "B K D"], ...]
    c: tuple[Float[Tensor, "B K D"], ...]


@MODELS.register("lstmlm")
class LSTMLM(LanguageModel):
    """Layers of LSTMs that read a word and write the next one."""

    Config = LSTMLMConfig
    carries = True

    def __init__(self, config: LSTMLMConfig, *, vocabulary: int):
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(vocabulary, config.words)
        sizes = [config.words] + [config.width] * (config.layers - 1)
        self.layers = nn.ModuleList(LSTM(size, config.width, bias=True) for size in sizes)
        tied = self.embedding.weight if config.tie == "output" else None
        self.output = SoftmaxOutput(config.width, vocabulary, tied)  # V
        for p in self.parameters():
            nn.init.uniform_(p, -config.initialise_range, config.initialise_range)

    def begin(self, rows: int, *, beams: int = 1, capacity: int = 256) -> LSTMLMState:
        zeros = precise(self.embedding.weight.new_zeros(rows, beams, self.config.width))
        return LSTMLMState((zeros,) * len(self.layers), (zeros,) * len(self.layers))

    def advance(
        self, tokens: Int[Tensor, "B K T"], memory: NoMemory, state: LSTMLMState, record: Recorder | None = None
    ) -> tuple[Float[Tensor, "B K T D"], LSTMLMState]:
        rows = tokens.shape[:2]  # an LSTM takes hypotheses as sentences: B K -> BK
        x = self.embedding(tokens.flatten(0, 1))
        ends = []
        for layer, h, c in zip(self.layers, state.h, state.c, strict=True):
            x, (h, c) = self._read(layer, self._drop(x), (h.flatten(0, 1)[None], c.flatten(0, 1)[None]))
            ends.append((h[0].unflatten(0, rows), c[0].unflatten(0, rows)))
        h, c = zip(*ends, strict=True)
        return self._drop(x).unflatten(0, rows), LSTMLMState(h, c)

    def _read(self, layer: nn.Module, x: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        if self.training and self.config.weight_dropout and isinstance(layer, LSTM):
            return lstm_with_weight_dropout(layer, x, state, self.config.weight_dropout)
        return layer(x, state)

    def _drop(self, x: Float[Tensor, "N T D"]) -> Float[Tensor, "N T D"]:
        """D: of every step its own, or with `variational` the same at all steps."""
        if self.config.variational and self.training and self.config.dropout:
            return x * dropout(x.new_ones(x.shape[0], 1, x.shape[2]), self.config.dropout)
        return dropout(x, self.config.dropout, self.training)
