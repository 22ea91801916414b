"""The recurrent language model: "Recurrent neural network based language model", Mikolov et al. 2010 (Interspeech), with the
truncated back-propagation through time and the classes of words of "Extensions of recurrent neural network language model",
Mikolov et al. 2011 (ICASSP), as settings.

    s_t = sigmoid(U w_t + W s_{t-1}),   y_t = softmax(V s_t)

Departs:
- The output layer has biases; the paper has none. The word and the state are read by two matrices, U and W, which are the
  paper's one over both side by side.
- Before the first word s is 0.1 everywhere, one of the small values the paper leaves to choose.
- `bptt` = k: errors flow through the steps of a block of k, and windows are cut into such blocks (0: through the whole window).
  Mikolov's errors flow k steps back from every word; his own program, too, does that in blocks.
- Weights start from N(0, 0.1²). The paper says "zero mean and 0.1 variance"; 0.1 is the deviation in the authors' program.
  `initialise="scaled"`: tables from N(0, 1/width), W orthogonal; better for tanh and relu.
- Classes are ranges of ids (`layers/output_classes.py`), of about as many words each; the paper's have about the same frequency
  each. As words are ordered by frequency, both put words of like frequency together.
- `embedding` > 0 puts a table of narrow word vectors before U; `tie`, `activation` and dropout (on such vectors, and on the way
  to the output) are not in the paper.
- The paper trains by plain gradient descent, rate 0.1, halved when the text held out no longer gets better; and on while it is
  tested (dynamic evaluation). Neither is part of the model.
"""

from __future__ import annotations

import dataclasses
from typing import Literal

from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.core.bounds import check_bounds
from regard.core.errors import ConfigError
from regard.core.tree import State
from regard.layers.output import OutputLayer, SoftmaxOutput
from regard.layers.output_classes import ClassOutput
from regard.layers.recurrent.cells import precise
from regard.layers.recurrent.simple import Activation, simple_recurrence
from regard.layers.starting import start_by_sizes, start_orthogonal
from regard.models.base import MODELS, LanguageModel, NoMemory, Recorder

FIRST = 0.1  # s_0
SIZES = {
    "embedding": (0, 1 << 14),
    "width": (1, 1 << 14),
    "classes": (0, 1 << 20),
    "bptt": (0, 1 << 20),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class RNNLMConfig:
    """Sizes and choices of the recurrent language model."""

    name: Literal["rnnlm"] = "rnnlm"
    embedding: int = 0  # of words; 0: the paper's, U holds a vector as wide as the state for each word
    width: int = 200  # of s
    activation: Activation = "sigmoid"
    output: Literal["softmax", "classes"] = "softmax"  # over all words, or over classes and then over the words of one
    classes: int = 0  # with output = classes, how many; 0: about the square root of the vocabulary
    bptt: int = 0  # through how many steps errors flow; 0: through the whole window
    tie: Literal["none", "output"] = "none"  # output: V is the table of words; needs embedding 0 or = width
    dropout: float = 0.0
    initialise: Literal["paper", "scaled"] = "paper"

    def __post_init__(self) -> None:
        check_bounds("model", self, SIZES, parts=("dropout",))
        if self.tie == "output" and self.embedding not in (0, self.width):
            what = f"the output's table can be that of words only if width ({self.width}) equals embedding"
            raise ConfigError("setting model.tie", f"{what} ({self.embedding})", "Set embedding=0 or tie=none")


@dataclasses.dataclass
class RNNLMState(State):
    """The state s."""

    s: Float[Tensor, "B K D"]


@MODELS.register("rnnlm")
class RNNLM(LanguageModel):
    """A simple recurrent network that reads a word and writes the next one."""

    Config = RNNLMConfig
    carries = True

    def __init__(self, config: RNNLMConfig, *, vocabulary: int):
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(vocabulary, config.embedding or config.width)  # U, if there is no other
        self.from_word = nn.Linear(config.embedding, config.width, bias=False) if config.embedding else None  # U
        self.from_state = nn.Linear(config.width, config.width, bias=False)  # W
        self.dropout = nn.Dropout(config.dropout)
        tied = self.embedding.weight if config.tie == "output" else None
        self.output: OutputLayer = (
            SoftmaxOutput(config.width, vocabulary, tied)
            if config.output == "softmax"
            else ClassOutput(config.width, vocabulary, config.classes, tied)
        )  # V
        self._initialise()

    def _initialise(self) -> None:
        if self.config.initialise == "scaled":
            start_by_sizes(self, (), 1)
            start_orthogonal(self.from_state.weight, 1)
        else:
            for p in self.parameters():
                if p.dim() > 1:
                    nn.init.normal_(p, std=0.1)

    def begin(self, rows: int, *, beams: int = 1, capacity: int = 256) -> RNNLMState:
        return RNNLMState(precise(self.from_state.weight.new_full((rows, beams, self.config.width), FIRST)))

    def advance(
        self, tokens: Int[Tensor, "B K T"], memory: NoMemory, state: RNNLMState, record: Recorder | None = None
    ) -> tuple[Float[Tensor, "B K T D"], RNNLMState]:
        x = self.embedding(tokens)
        if self.from_word is not None:
            x = self.from_word(self.dropout(x))
        s = simple_recurrence(
            x.flatten(0, 1),
            state.s.flatten(0, 1),
            self.from_state.weight,
            self.config.activation,
            self.config.bptt,
        ).unflatten(0, tokens.shape[:2])
        return self.dropout(s), RNNLMState(s[:, :, -1])
