"""RNNsearch: "Neural Machine Translation by Jointly Learning to Align and Translate", Bahdanau et al. 2015 (arXiv 1409.0473).

Departs:
- The reset gate of the GRUs acts after the matrix product, as in cuDNN; `reset="before"` is the paper's form, and slower.
- The encoder's GRUs have no biases, so that padding needs no packing; the paper leaves biases out of its equations.
- Dropout on embeddings, annotations and the readout: the paper has none (`dropout=0`).
- `initialise="paper"` is the paper's. By default matrices start by their sizes: small models learn much faster so.
- The target begins with a mark, BOS.
- Default sizes are for small corpora. The paper's: embedding 620, width 1000, attention 1000, readout 500.
- The paper trains with Adadelta; any optimizer can be used here.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.core.bounds import check_bounds
from regard.core.errors import ConfigError
from regard.core.tree import Memory, State
from regard.core.types import Padded
from regard.layers.attention.masked_softmax import masked_softmax
from regard.layers.attention.scores.additive import Additive
from regard.layers.embeddings import Tie, embedding_tables
from regard.layers.output import SoftmaxOutput
from regard.layers.recurrent.cells import gru_step, precise
from regard.layers.recurrent.deferred import Deferred, DeferredContext, DeferredMany
from regard.layers.recurrent.gru import ResetBeforeStep
from regard.layers.recurrent.layers import Bidirectional
from regard.layers.starting import start_by_sizes, start_orthogonal
from regard.models.base import MODELS, Recorder, Writer

SIZES = {
    "embedding": (1, 1 << 14),
    "width": (1, 1 << 14),
    "attention": (0, 1 << 14),
    "readout": (0, 1 << 14),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class BahdanauConfig:
    """Sizes and choices of RNNsearch."""

    name: Literal["bahdanau"] = "bahdanau"
    embedding: int = 256  # m
    width: int = 512  # n, of every GRU
    attention: int = 0  # n', of the alignment model; 0: as `width`
    readout: int = 0  # l, after the maxout; 0: as `embedding`
    reset: Literal["after", "before"] = "after"  # where the GRUs' reset gate acts: cuDNN's form or the paper's
    readout_from: Literal["previous", "current"] = "previous"  # s_{i-1}, as the paper writes, or s_i
    initialise: Literal["paper", "scaled"] = "scaled"  # scaled: matrices by their sizes (Glorot)
    tie: Tie = "none"  # which tables are one; needs readout = embedding
    dropout: float = 0.0

    def __post_init__(self) -> None:
        check_bounds("model", self, SIZES, parts=("dropout",))
        if self.tie != "none" and (self.readout or self.embedding) != self.embedding:
            what = f"tables can be one only if readout ({self.readout}) equals embedding ({self.embedding})"
            raise ConfigError("setting model.tie", what, "Set readout=0 or tie=none")


@dataclasses.dataclass
class BahdanauMemory(Memory):
    """The annotations h_j of the source, and what the alignment model makes of them."""

    annotations: Float[Tensor, "B S nn"]
    keys: Float[Tensor, "B S A"]  # U_a h_j
    keep: Bool[Tensor, "B S"]


@dataclasses.dataclass
class BahdanauState(State):
    """The state s_i of the decoder."""

    s: Float[Tensor, "B K n"]


@MODELS.register("bahdanau")
class Bahdanau(Writer):
    """A GRU that writes, and at every step looks for where in the source to read (sections 3.1, 3.2 and appendix A)."""

    Config = BahdanauConfig
    capabilities = frozenset({"translates", "attends"})

    def __init__(self, config: BahdanauConfig, *, source_vocabulary: int, target_vocabulary: int, shared: bool):
        super().__init__()
        self.config = config
        m, n = config.embedding, config.width
        tables = embedding_tables(source_vocabulary, target_vocabulary, m, config.tie, shared)
        self.target_embedding, self.source_embedding = tables.target, tables.source
        self.encoder = Bidirectional("gru" if config.reset == "after" else "gru_reset_before", m, n)
        self.first = nn.Linear(n, n)  # W_s
        self.score = Additive(n, 2 * n, config.attention or n)  # W_a, U_a, v_a
        self.gates_from_word = nn.Linear(m, 3 * n)  # W_r, W_z, W
        self.gates_from_state = nn.Linear(n, 3 * n, bias=False)  # U_r, U_z, U
        self.gates_from_context = nn.Linear(2 * n, 3 * n, bias=False)  # C_r, C_z, C
        readout = config.readout or m
        self.readout_state = nn.Linear(n, 2 * readout)  # U_o
        self.readout_word = nn.Linear(m, 2 * readout, bias=False)  # V_o
        self.readout_context = nn.Linear(2 * n, 2 * readout, bias=False)  # C_o
        self.dropout = nn.Dropout(config.dropout)
        self.output = SoftmaxOutput(readout, target_vocabulary, tables.output)  # W_o
        self._initialise()

    def _initialise(self) -> None:
        """Appendix B.1: recurrent matrices orthogonal, W_a and U_a from N(0, 0.001²), v_a and biases 0, the rest N(0, 0.01²)."""
        if self.config.initialise == "scaled":
            start_by_sizes(self, ("gates", "_ih_"), 3)
            bound = len(self.score.v) ** -0.5  # from 0, alignments are learnt late
            nn.init.uniform_(self.score.v, -bound, bound)
        else:
            for name, p in self.named_parameters():
                if p.dim() == 1:
                    nn.init.zeros_(p)
                else:
                    nn.init.normal_(p, std=0.001 if name.startswith("score.") else 0.01)
        for name, p in self.named_parameters():
            if name.endswith(("weight_hh_l0", "gates_from_state.weight")):
                start_orthogonal(p, 3)

    def start(
        self, source: Padded, *, beams: int = 1, capacity: int = 256, target_length: int | None = None
    ) -> tuple[BahdanauMemory, BahdanauState]:
        x = self.dropout(self.source_embedding(source.tokens))
        h, (_, first) = self.encoder(x, source.keep)
        s = precise(self.first(first[0])).tanh()  # s_0 = tanh(W_s ←h_1)
        h = self.dropout(h)
        return (
            BahdanauMemory(h, self.score.prepare(h), source.keep),
            BahdanauState(s[:, None].expand(-1, beams, -1)),
        )

    def advance(
        self, tokens: Int[Tensor, "B K T"], memory: BahdanauMemory, state: BahdanauState, record: Recorder | None = None
    ) -> tuple[Float[Tensor, "B K T D"], BahdanauState]:
        word = self.dropout(self.target_embedding(tokens))  # E y_{i-1}
        step = _Step(self, memory)
        s, states, contexts, weights = state.s, [], [], []
        for from_word in self.gates_from_word(word).unbind(2):
            if self.config.readout_from == "previous":
                states.append(s)
            s, c, a = step(from_word, s)
            if self.config.readout_from == "current":
                states.append(s)
            contexts.append(c)
            weights.append(a)
        if record is not None:
            record.add("decoder.0.cross", torch.stack(weights, 2)[:, :, None])
        # t~_i = U_o s_{i-1} + V_o E y_{i-1} + C_o c_i, and the larger one of every two (maxout)
        t = self.readout_state(torch.stack(states, 2)) + self.readout_word(word)
        t = t + self.readout_context(torch.stack(contexts, 2))
        t = torch.maximum(*t.unflatten(-1, (-1, 2)).unbind(-1))
        return self.dropout(t), BahdanauState(s)

    def alignment(self, record: Recorder) -> Float[Tensor, "B *K T S"]:
        return record.tensors["decoder.0.cross"].squeeze(-3)


class _Step:
    """s_{i-1} and y_{i-1} to s_i, c_i and the weights a_ij. The products with s_{i-1} are one."""

    def __init__(self, model: Bahdanau, memory: BahdanauMemory):
        self.keys, self.score = memory.keys, model.score
        self.after = model.config.reset == "after"
        self.from_context = Deferred(model.gates_from_context.weight)
        w_a, u = model.score.query.weight, model.gates_from_state.weight
        self.from_state = DeferredMany(w_a, u) if self.after else DeferredMany(w_a)
        self.reset_before: Any = None if self.after else ResetBeforeStep(u)
        self.context, self.keep = DeferredContext(memory.annotations), memory.keep[:, None]

    def __call__(
        self, from_word: Float[Tensor, "B K G"], s: Float[Tensor, "B K n"]
    ) -> tuple[Float[Tensor, "B K n"], Float[Tensor, "B K nn"], Float[Tensor, "B K S"]]:
        query, *from_state = self.from_state(s)
        e = self.score.compare(query, self.keys)  # e_ij = v_a tanh(W_a s_{i-1} + U_a h_j)
        a = masked_softmax(e, self.keep)
        c = self.context(a)  # c_i = sum_j a_ij h_j
        gates = from_word + self.from_context(c)
        s = gru_step(gates, from_state[0], s) if self.after else self.reset_before(gates, s)
        return s, c, a
