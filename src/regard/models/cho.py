"""The RNN encoder-decoder: "Learning Phrase Representations using RNN Encoder-Decoder for Statistical Machine Translation",
Cho et al. 2014 (arXiv 1406.1078).

Equations are those of appendix A.

Departs:
- The reset gate of the encoder acts after the matrix product, as in cuDNN; `reset="before"` is the paper's form, and slower.
  The decoder is the paper's: there the gate acts after the product, on U'h' + Cc. (The authors' GroundHog resets h' before
  the product and leaves Cc out of the reset.)
- The encoder's GRU has no biases, so that padding needs no packing; the paper leaves biases out of its equations.
- The decoder starts from BOS, which has an embedding of its own; the paper starts from zeros, e(y_0) = 0.
- O_y acts on the embedding e(y), not on the word itself, as in GroundHog.
- Dropout on embeddings, the summary and the readout: the paper has none (`dropout=0`).
- `initialise="paper"` is the paper's. By default matrices start by their sizes: small models learn much faster so.
- Default sizes are for small corpora. The paper's: embedding 100 (its section 4.1; the appendix says 500), width 1000,
  readout 500.
- The paper trains on phrase pairs with Adadelta; any text and optimizer can be used here.
"""

from __future__ import annotations

import dataclasses
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.core.bounds import check_bounds
from regard.core.tree import Memory, State
from regard.core.types import Padded
from regard.layers.embeddings import Tie, embedding_tables
from regard.layers.output import SoftmaxOutput
from regard.layers.recurrent.cells import gru_step, precise
from regard.layers.recurrent.deferred import Deferred
from regard.layers.recurrent.layers import recurrent
from regard.layers.recurrent.padding import PaddedFirst
from regard.layers.starting import start_by_sizes, start_orthogonal
from regard.models.base import MODELS, Recorder, Writer

SIZES = {
    "embedding": (1, 1 << 14),
    "width": (1, 1 << 14),
    "readout": (0, 1 << 14),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class ChoConfig:
    """Sizes and choices of the RNN encoder-decoder."""

    name: Literal["cho"] = "cho"
    embedding: int = 256  # of words, and the rank of the output matrix G = G_l G_r
    width: int = 512  # of h, c and h'
    readout: int = 0  # s, after the maxout; 0: half the width
    reset: Literal["after", "before"] = "after"  # where the encoder's reset gate acts: cuDNN's form or the paper's
    initialise: Literal["paper", "scaled"] = "scaled"  # scaled: matrices by their sizes (Glorot), the rest as the paper
    tie: Tie = "none"  # which tables are one
    dropout: float = 0.0

    def __post_init__(self) -> None:
        check_bounds("model", self, SIZES, parts=("dropout",))


@dataclasses.dataclass
class ChoMemory(Memory):
    """What the summary c of the source adds at every step: to the decoder's gates and candidate, and to the readout."""

    gates: Float[Tensor, "B G"]  # C_r c, C_z c, C c
    readout: Float[Tensor, "B R"]  # O_c c


@dataclasses.dataclass
class ChoState(State):
    """The state h' of the decoder."""

    h: Float[Tensor, "B K n"]


@MODELS.register("cho")
class Cho(Writer):
    """A GRU reads the source into one vector c; another, which sees c at every step, writes (section 2, appendix A)."""

    Config = ChoConfig
    capabilities = frozenset({"translates"})

    def __init__(self, config: ChoConfig, *, source_vocabulary: int, target_vocabulary: int, shared: bool):
        super().__init__()
        self.config = config
        m, n, s = config.embedding, config.width, config.readout or max(1, config.width // 2)
        tables = embedding_tables(source_vocabulary, target_vocabulary, m, config.tie, shared)
        self.target_embedding, self.source_embedding = tables.target, tables.source
        kind = "gru" if config.reset == "after" else "gru_reset_before"
        self.encoder = recurrent(kind, m, n, bias=False)  # W_r, W_z, W and U_r, U_z, U
        self.summary = nn.Linear(n, n)  # V
        self.first = nn.Linear(n, n)  # V'
        self.gates_from_word = nn.Linear(m, 3 * n)  # W'_r, W'_z, W'
        self.gates_from_state = nn.Linear(n, 3 * n, bias=False)  # U'_r, U'_z, U'
        self.gates_from_context = nn.Linear(n, 3 * n, bias=False)  # C_r, C_z, C
        self.readout_state = nn.Linear(n, 2 * s)  # O_h
        self.readout_word = nn.Linear(m, 2 * s, bias=False)  # O_y
        self.readout_context = nn.Linear(n, 2 * s, bias=False)  # O_c
        self.readout_rank = nn.Linear(s, m, bias=False)  # G_r
        self.dropout = nn.Dropout(config.dropout)
        self.output = SoftmaxOutput(m, target_vocabulary, tables.output)  # G_l
        self._initialise()

    def _initialise(self) -> None:
        """Section 4.1: recurrent matrices orthogonal, the rest from N(0, 0.01²). Biases start at 0."""
        if self.config.initialise == "scaled":
            start_by_sizes(self, ("gates", "_ih_"), 3)
        else:
            for p in self.parameters():
                if p.dim() == 1:
                    nn.init.zeros_(p)
                else:
                    nn.init.normal_(p, std=0.01)
        for name, p in self.named_parameters():
            if name in ("encoder.weight_hh_l0", "gates_from_state.weight"):
                start_orthogonal(p, 3)

    def start(
        self, source: Padded, *, beams: int = 1, capacity: int = 256, target_length: int | None = None
    ) -> tuple[ChoMemory, ChoState]:
        x = self.dropout(self.source_embedding(source.tokens))
        _, last = self.encoder(PaddedFirst(source.keep).there(x))
        c = self.dropout(self.summary(last[0]).tanh())  # c = tanh(V h_N)
        h = precise(self.first(c)).tanh()  # h'_0 = tanh(V' c)
        return (
            ChoMemory(self.gates_from_context(c), self.readout_context(c)),
            ChoState(h[:, None].expand(-1, beams, -1)),
        )

    def advance(
        self, tokens: Int[Tensor, "B K T"], memory: ChoMemory, state: ChoState, record: Recorder | None = None
    ) -> tuple[Float[Tensor, "B K T D"], ChoState]:
        word = self.dropout(self.target_embedding(tokens))  # e(y_{t-1})
        from_state, from_context = Deferred(self.gates_from_state.weight), memory.gates[:, None]
        h, states = state.h, []
        for from_word in self.gates_from_word(word).unbind(2):
            # r, z = σ(W' e(y) + U' h' + C c), h~ = tanh(W' e(y) + r (U' h' + C c)), h' = z h' + (1 - z) h~
            h = gru_step(from_word, from_state(h) + from_context, h)
            states.append(h)
        # s' = O_h h'_t + O_y y_{t-1} + O_c c, and s the larger one of every two (maxout)
        s = self.readout_state(torch.stack(states, 2)) + self.readout_word(word) + memory.readout[:, None, None]
        s = torch.maximum(*s.unflatten(-1, (-1, 2)).unbind(-1))
        return self.readout_rank(self.dropout(s)), ChoState(h)
