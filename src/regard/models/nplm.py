"""The neural probabilistic language model: "A Neural Probabilistic Language Model", Bengio, Ducharme, Vincent and Jauvin 2003
(JMLR 3).

The last n - 1 words, each as a vector, side by side, are read by one hidden layer (section 2, equation 1):

    x = [C(w_{t-1}) ; C(w_{t-2}) ; .. ; C(w_{t-n+1})]
    y = b + W x + U tanh(d + H x),   P(w_t | w_{t-1}, .., w_{t-n+1}) = softmax(y)

The direct connections W go around the tanh: with them the hidden states that this model gives are [x ; tanh(d + H x)], and
the matrix of the output layer is [W U].

Departs:
- Before the first word of a text there is nothing: the vectors there are zero. (The state says PAD there, whose vector is zero
  whatever its row of the table is.) A context goes on over the end of a document as over any word, which is read as BOS.
- Dropout on x and on the hidden layer: the paper has none (`dropout=0`).
- `tie="output"` makes U the table C (Press and Wolf 2017), as wide as the hidden layer then has to be. The paper has two.
- Where weights start is not said in the paper: tables from N(0, 1/m), and H by its sizes (Glorot); biases are 0.
- The paper trains by plain gradient descent, its rate falling as 1/(1 + r t), and mixes the model with a trigram
  (`evaluation/trigram.py`). Any optimizer can be used here. Its weight decay leaves biases out.
- Default sizes are for small corpora. The paper's: order 5, embedding 30, width 100 (its best on Brown, without W), or order 6,
  embedding 100, width 109 (AP News).
"""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.core.bounds import check_bounds
from regard.core.errors import ConfigError
from regard.core.tree import State
from regard.core.types import PAD
from regard.layers.output import SoftmaxOutput
from regard.layers.starting import start_by_sizes
from regard.models.base import MODELS, LanguageModel, NoMemory, Recorder

SIZES = {
    "order": (2, 1000),
    "embedding": (1, 1 << 14),
    "width": (1, 1 << 14),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class NPLMConfig:
    """Sizes and choices of the neural probabilistic language model."""

    name: Literal["nplm"] = "nplm"
    order: int = 5  # n: a word is written from the n - 1 words before it
    embedding: int = 100  # m, of words
    width: int = 200  # h, of the hidden layer
    direct: bool = False  # W: words to the output around the hidden layer
    tie: Literal["none", "output"] = "none"  # output: U is C; needs embedding = width, and no W
    dropout: float = 0.0

    def __post_init__(self) -> None:
        check_bounds("model", self, SIZES, parts=("dropout",))
        if self.tie == "output" and (self.direct or self.embedding != self.width):
            what = f"width is {self.width}, embedding {self.embedding}, direct {str(self.direct).lower()}"
            todo = "Make width and embedding equal and set direct=false, or set tie=none"
            raise ConfigError("setting model.tie", f"the output's table cannot be that of words: {what}", todo)


@dataclasses.dataclass
class NPLMState(State):
    """The last n - 1 words that were read, the latest last; PAD where there were none."""

    words: Int[Tensor, "B K N"]


@MODELS.register("nplm")
class NPLM(LanguageModel):
    """A network with one hidden layer, over the vectors of the last n - 1 words."""

    Config = NPLMConfig
    carries = True

    def __init__(self, config: NPLMConfig, *, vocabulary: int):
        super().__init__()
        self.config = config
        inputs = (config.order - 1) * config.embedding
        self.embedding = nn.Embedding(vocabulary, config.embedding)  # C
        self.hidden = nn.Linear(inputs, config.width)  # H, d
        self.dropout = nn.Dropout(config.dropout)
        tied = self.embedding.weight if config.tie == "output" else None
        self.output = SoftmaxOutput(inputs * config.direct + config.width, vocabulary, tied)  # W, U, b
        start_by_sizes(self, (), 1)

    @classmethod
    def needs_float32(cls, config: Any) -> str | None:
        return None

    def begin(self, rows: int, *, beams: int = 1, capacity: int = 256) -> NPLMState:
        shape = (rows, beams, self.config.order - 1)
        return NPLMState(torch.full(shape, PAD, device=self.embedding.weight.device))

    def advance(
        self, tokens: Int[Tensor, "B K T"], memory: NoMemory, state: NPLMState, record: Recorder | None = None
    ) -> tuple[Float[Tensor, "B K T D"], NPLMState]:
        context, count = self.config.order - 1, tokens.shape[2]
        words = torch.cat((state.words, tokens), 2)
        vectors = self.embedding(words) * (words != PAD)[..., None]
        # The word just read ends its context: of all positions at once, the nearest words, then those before, ..
        x = torch.cat([vectors.narrow(2, context - back, count) for back in range(context)], -1)
        x = self.dropout(x)
        a = self.dropout(self.hidden(x).tanh())
        return torch.cat((x, a), -1) if self.config.direct else a, NPLMState(words[:, :, -context:])
