"""GNMT: "Google's Neural Machine Translation System", Wu et al. 2016 (arXiv 1609.08144).

Departs:
- Not here: the refinement by reinforcement learning (section 5; the published 39.92 BLEU of English-French comes after it,
  38.95 without), quantised inference (section 6), a device for every layer (section 3.3), pruning in search (section 7: our
  search has rows of a fixed number, of which it saves none). Wordpieces: any tokenizer.
- The paper sends the context "directly to all the remaining decoder layers". By default the bottom layer reads it, too: so the
  weights are as many as Shazeer et al. 2017 count in this model (table 2). `context_to="above"` leaves it without, and then
  nothing goes step by step. `query="current"` lets the layers above read the context of this step's bottom output, while the
  bottom one still reads that of the step before; with "above" as well this is the decoder of NVIDIA's GNMT v2.
- The decoder's states start at zero; the paper does not say.
- Dropout, as in Zaremba et al. 2014, on what goes up, not on what goes on in time: into every layer, on what attention reads
  and on the top output. The residual sums take their inputs as they were before it.
- `initialise="paper"` is the paper's U(-0.04, 0.04). By default matrices start by their sizes and forget gates open.
- Default sizes are for small corpora. The paper's: embedding 1024, width 1024, layers 8; dropout 0.2 or 0.3.
- The paper trains with Adam, then plain gradient descent; any optimizer can be used here.
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
from regard.layers.cpu_products import linear
from regard.layers.embeddings import Tie, embedding_tables
from regard.layers.output import SoftmaxOutput
from regard.layers.recurrent.cells import lstm_step
from regard.layers.recurrent.deferred import Deferred, DeferredContext, DeferredMany
from regard.layers.recurrent.layers import Bidirectional, recurrent
from regard.layers.recurrent.padding import PaddedFirst
from regard.layers.starting import start_by_sizes
from regard.models.base import MODELS, Recorder, Writer

SIZES = {
    "embedding": (0, 1 << 14),
    "width": (1, 1 << 14),
    "layers": (2, 1000),
    "encoder_layers": (0, 1000),
    "decoder_layers": (0, 1000),
    "attention": (0, 1 << 14),
    "residual": (0, 1000),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class GNMTConfig:
    """Sizes and choices of GNMT."""

    name: Literal["gnmt"] = "gnmt"
    embedding: int = 0  # 0: as `width`
    width: int = 512  # of every LSTM, in each direction
    layers: int = 4  # of the encoder, the bidirectional one included, and of the decoder
    encoder_layers: int = 0  # 0: as `layers`
    decoder_layers: int = 0  # 0: as `layers`
    attention: int = 0  # hidden layer of the AttentionFunction; 0: as `width`
    residual: int = 3  # the lowest layer, counted from 1, that adds its input to its output; 0: none does
    query: Literal["previous", "current"] = "previous"  # the bottom layer's output of the step before, or of this one
    context_to: Literal["all", "above"] = "all"  # all decoder layers read the context, or those above the bottom one
    initialise: Literal["paper", "scaled"] = "scaled"  # scaled: matrices by their sizes (Glorot)
    tie: Tie = "none"  # which tables are one; needs embedding = width
    dropout: float = 0.2

    def __post_init__(self) -> None:
        check_bounds("model", self, SIZES, parts=("dropout",))
        for name, depth in zip(("encoder_layers", "decoder_layers"), self.depth, strict=True):
            if depth < 2:
                raise ConfigError(f"setting model.{name}", f"{depth} is less than 2", "Give at least 2, or 0")
        if 0 < self.residual < 3:
            what = f"{self.residual} is too low: layer 1 reads words, layer 2 of the encoder both directions"
            raise ConfigError("setting model.residual", what, "Give at least 3, or 0")
        if self.tie != "none" and self.words != self.width:
            what = f"tables can be one only if embedding ({self.words}) equals width ({self.width})"
            raise ConfigError("setting model.tie", what, "Make them equal or set tie=none")

    @property
    def words(self) -> int:
        """The width of the embeddings."""
        return self.embedding or self.width

    @property
    def depth(self) -> tuple[int, int]:
        return self.encoder_layers or self.layers, self.decoder_layers or self.layers


@dataclasses.dataclass
class GNMTMemory(Memory):
    """The encoder's top outputs x_t, and what the AttentionFunction makes of them."""

    x: Float[Tensor, "B S n"]
    keys: Float[Tensor, "B S A"]
    keep: Bool[Tensor, "B S"]


@dataclasses.dataclass
class GNMTState(State):
    """Hidden state m and memory state c of every layer of the decoder, bottom first."""

    m: tuple[Float[Tensor, "B K n"], ...]
    c: tuple[Float[Tensor, "B K n"], ...]


@MODELS.register("gnmt")
class GNMT(Writer):
    """Deep LSTMs with residual sums, and attention from the decoder's bottom to the encoder's top (section 3, figure 1)."""

    Config = GNMTConfig
    capabilities = frozenset({"translates", "attends"})

    def __init__(self, config: GNMTConfig, *, source_vocabulary: int, target_vocabulary: int, shared: bool):
        super().__init__()
        self.config = config
        e, n = config.words, config.width
        encoders, decoders = config.depth
        tables = embedding_tables(source_vocabulary, target_vocabulary, e, config.tie, shared)
        self.target_embedding, self.source_embedding = tables.target, tables.source
        self.encoder_bottom = Bidirectional("lstm", e, n, bias=True)  # LSTM_f, LSTM_b
        inputs = (2 * n, *[n] * (encoders - 2))
        self.encoder = nn.ModuleList(recurrent("lstm", i, n, bias="input") for i in inputs)
        self.score = Additive(n, n, config.attention or n)  # AttentionFunction
        bottom = e + n if config.context_to == "all" else e
        self.decoder = nn.ModuleList(recurrent("lstm", i, n, bias=True) for i in (bottom, *[2 * n] * (decoders - 1)))
        self.dropout = nn.Dropout(config.dropout)
        self.output = SoftmaxOutput(n, target_vocabulary, tables.output)
        self._initialise()

    def _initialise(self) -> None:
        """Section 8.3: everything from U(-0.04, 0.04)."""
        if self.config.initialise == "scaled":
            start_by_sizes(self, ("coder",), 4)
        else:
            for p in self.parameters():
                nn.init.uniform_(p, -0.04, 0.04)

    def _add(self, m: Tensor, x: Tensor, layer: int) -> Tensor:
        """x^i = m^i + x^{i-1} where there is a residual connection (6), and m^i below (5)."""
        return m + x if 0 < self.config.residual <= layer else m

    def start(
        self, source: Padded, *, beams: int = 1, capacity: int = 256, target_length: int | None = None
    ) -> tuple[GNMTMemory, GNMTState]:
        x, _ = self.encoder_bottom(self.dropout(self.source_embedding(source.tokens)), source.keep)  # [→x ; ←x]
        way = PaddedFirst(source.keep)
        x = way.there(x)
        for i, layer in enumerate(self.encoder, start=2):
            m, _ = layer(way.with_ones(self.dropout(x)))
            x = self._add(m, x, i)
        x = self.dropout(way.back(x))
        # as precise as the weights, whatever the encoder computed in
        zero = self.score.v.new_zeros(x.shape[0], beams, self.config.width)
        zeros = (zero,) * len(self.decoder)
        return GNMTMemory(x, self.score.prepare(x), source.keep), GNMTState(zeros, zeros)

    def advance(
        self, tokens: Int[Tensor, "B K T"], memory: GNMTMemory, state: GNMTState, record: Recorder | None = None
    ) -> tuple[Float[Tensor, "B K T n"], GNMTState]:
        word = self.dropout(self.target_embedding(tokens))
        bottom = self._bottom_stepping if self.config.context_to == "all" else self._bottom_at_once
        x, a, p, (m, c) = bottom(word, memory, state.m[0], state.c[0])
        if record is not None:
            record.add("decoder.0.cross", p[:, :, None])
        ms, cs = [m], [c]
        for i, layer in enumerate(self.decoder[1:], start=2):
            y, (m, c) = _through_time(layer, torch.cat((self.dropout(x), a), -1), state.m[i - 1], state.c[i - 1])
            x = self._add(y, x, i)
            ms.append(m)
            cs.append(c)
        return self.dropout(x), GNMTState(tuple(ms), tuple(cs))

    def _bottom_stepping(
        self, word: Float[Tensor, "B K T e"], memory: GNMTMemory, y: Float[Tensor, "B K n"], c: Float[Tensor, "B K n"]
    ) -> tuple[Tensor, Tensor, Tensor, tuple[Tensor, Tensor]]:
        """The only part that goes step by step: the bottom layer reads [word; a_i], and a_i comes from its y_{i-1}.

        Gives y_i, the contexts and weights for the layers above, and the last state. The products with y_{i-1} are one.
        """
        lstm: Any = self.decoder[0]
        w_word, w_context = lstm.weight_ih_l0.split((word.shape[-1], self.config.width), 1)
        from_y = DeferredMany(self.score.query.weight, lstm.weight_hh_l0)
        from_context, context = Deferred(w_context), DeferredContext(memory.x)
        from_words = linear(word, w_word, lstm.bias_ih_l0 + lstm.bias_hh_l0)
        outputs, contexts, weights = [], [], []
        for from_word in from_words.unbind(2):
            query, from_state = from_y(y)
            a, p = self._attend(query, memory, context)
            y, c = lstm_step(from_word + from_context(a), from_state, c)
            outputs.append(y)
            contexts.append(a)
            weights.append(p)
        if self.config.query == "current":  # the layers above read one step ahead of the bottom
            a, p = self._attend(self.score.query(y), memory, context)
            contexts, weights = [*contexts[1:], a], [*weights[1:], p]
        return torch.stack(outputs, 2), torch.stack(contexts, 2), torch.stack(weights, 2), (y, c)

    def _bottom_at_once(
        self, word: Float[Tensor, "B K T e"], memory: GNMTMemory, y: Float[Tensor, "B K n"], c: Float[Tensor, "B K n"]
    ) -> tuple[Tensor, Tensor, Tensor, tuple[Tensor, Tensor]]:
        """The same where the bottom layer reads words only."""
        outputs, last = _through_time(self.decoder[0], word, y, c)
        before = torch.cat((y[:, :, None].to(outputs.dtype), outputs[:, :, :-1]), 2)  # y_{i-1}
        query = self.score.query(outputs if self.config.query == "current" else before).flatten(1, 2)
        a, p = self._attend(query, memory, DeferredContext(memory.x))
        return outputs, a.unflatten(1, word.shape[1:3]), p.unflatten(1, word.shape[1:3]), last

    def _attend(
        self, query: Float[Tensor, "B N A"], memory: GNMTMemory, context: DeferredContext
    ) -> tuple[Float[Tensor, "B N n"], Float[Tensor, "B N S"]]:
        s = self.score.compare(query, memory.keys)  # s_t = AttentionFunction(y_{i-1}, x_t) (4)
        p = masked_softmax(s, memory.keep[:, None])  # p_t = exp(s_t) / Σ exp(s_t)
        return context(p), p  # a_i = Σ p_t x_t

    def alignment(self, record: Recorder) -> Float[Tensor, "B *K T S"]:
        return record.tensors["decoder.0.cross"].squeeze(-3)


def _through_time(
    lstm: Any, x: Float[Tensor, "B K T D"], m: Float[Tensor, "B K n"], c: Float[Tensor, "B K n"]
) -> tuple[Float[Tensor, "B K T n"], tuple[Float[Tensor, "B K n"], Float[Tensor, "B K n"]]]:
    """One layer over all steps. nn.LSTM takes hypotheses as sentences: B K -> BK."""
    rows = x.shape[:2]
    y, (m, c) = lstm(x.flatten(0, 1), (m.flatten(0, 1)[None], c.flatten(0, 1)[None]))
    return y.unflatten(0, rows), (m[0].unflatten(0, rows), c[0].unflatten(0, rows))
