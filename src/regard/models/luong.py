"""Stacked LSTMs with attention: "Effective Approaches to Attention-based NMT", Luong, Pham and Manning 2015 (arXiv 1508.04025).

Departs:
- `initialise="paper"` is the paper's U(-0.1, 0.1). By default matrices start by their sizes and forget gates open: small models
  learn much faster so.
- Default sizes are for small corpora. The paper's: 4 layers, width and embedding 1000, vocabularies of 50,000 words.
- A reversed source is turned back for attention: positions are those of the sentence as it was written, so that alignments
  can be read and the window of local-m, which moves on with the target, moves on in the source too. The end-of-sentence
  token is part of the source: a reversed one begins with it.
- Local attention masks what is outside its window; the paper leaves it uncomputed. Its location score belongs to places in
  the window; here, to places in the sentence, as in global attention. A window beyond the end rests on the last word.
- concat learns both halves of W_a. (The paper says that its weak results may come from a half that was fixed to the identity.)
- location takes its softmax over the words of the sentence, and refuses sentences longer than `max_source`.
- `bidirectional` is not in the paper: in every layer one LSTM of half the width reads each way, and their outputs and last
  states stand side by side. Nothing else changes.
- The output layer has a bias; the paper writes softmax(W_s h~_t) without one. Biases start as all else, from U(-0.1, 0.1).
- Dropout, as in Zaremba et al. 2014, on what goes up, not on what goes on in time: into every layer, on what attention reads
  and on h~_t, which is fed to the next step as it was dropped.
- The paper trains with plain SGD; any optimizer can be used here.
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
from regard.layers.attention.scores import SCORES, make_score
from regard.layers.attention.windows import PredictedCentre, gaussian, window_keep
from regard.layers.cpu_products import linear
from regard.layers.embeddings import Tie, embedding_tables
from regard.layers.output import SoftmaxOutput
from regard.layers.recurrent.cells import lstm_step, open_forget_gate
from regard.layers.recurrent.deferred import Deferred, DeferredContext
from regard.layers.recurrent.layers import Bidirectional, recurrent
from regard.layers.recurrent.padding import PaddedFirst, backwards
from regard.layers.starting import start_by_sizes
from regard.models.base import MODELS, Limits, Recorder, Writer

SIZES = {
    "embedding": (0, 1 << 14),
    "width": (1, 1 << 14),
    "readout": (0, 1 << 14),
    "layers": (1, 1000),
    "window": (1, 1 << 20),
    "max_source": (1, 1 << 20),
}
# The paper's names, where they differ or not, of those in layers/attention/scores.
SCORE_NAMES = {"dot": "dot", "general": "bilinear", "concat": "concat", "location": "location"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class LuongConfig:
    """Sizes and choices of the paper's models. Its best: local-p, general, input feeding."""

    name: Literal["luong"] = "luong"
    embedding: int = 0  # m; 0: as `width`
    width: int = 512  # n, of every LSTM
    readout: int = 0  # l, of the attentional vector h~_t; 0: as `width`
    layers: int = 2  # of the encoder and of the decoder
    score: str = "general"  # or dot, concat, location, as in the paper, or any other in layers/attention/scores
    attention: Literal["global", "local-m", "local-p"] = "global"
    window: int = 10  # D: local attention sees so many words to each side
    input_feeding: bool = True  # without it, training goes through all steps at once
    reverse: bool = True  # the encoder reads from the end; bidirectional ones read both ways anyhow
    bidirectional: bool = False
    max_source: int = 256  # of location, which learns a place for every source position
    initialise: Literal["paper", "scaled"] = "scaled"  # scaled: matrices by their sizes (Glorot)
    tie: Tie = "none"  # which tables are one; needs readout = embedding
    dropout: float = 0.2

    def __post_init__(self) -> None:
        check_bounds("model", self, SIZES, parts=("dropout",))
        if self.score not in SCORE_NAMES and self.score not in SCORES.names():
            what = f"there is no score {self.score!r}"
            raise ConfigError("setting model.score", what, SCORES.advice(self.score, also=SCORE_NAMES))
        if self.tie != "none" and (self.readout or self.width) != self.words:
            what = f"tables can be one only if h~_t has the width of the embedding ({self.words})"
            raise ConfigError("setting model.tie", what, f"Set readout={self.words} or tie=none")
        if self.bidirectional and self.width % 2:
            what = f"two directions share the width, and {self.width} is odd"
            raise ConfigError("setting model.width", what, "Give an even one")

    @property
    def words(self) -> int:
        """The width of the embeddings."""
        return self.embedding or self.width


@dataclasses.dataclass
class LuongMemory(Memory):
    """The encoder's top states h̄_s, and what the score makes of them."""

    states: Float[Tensor, "B S n"]
    keys: Float[Tensor, "B S A"]
    keep: Bool[Tensor, "B S"]


@dataclasses.dataclass
class LuongState(State):
    """States and cells of every layer, the attentional vector that is fed to the next step, and the next position t."""

    h: tuple[Float[Tensor, "B K n"], ...]
    c: tuple[Float[Tensor, "B K n"], ...]
    fed: Float[Tensor, "B K l"]  # h~_{t-1}
    t: Int[Tensor, "B K"]


@MODELS.register("luong")
class Luong(Writer):
    """A stack of LSTMs that writes, and looks at the source with the state that it has just reached (sections 2 and 3)."""

    Config = LuongConfig
    capabilities = frozenset({"translates", "attends"})

    def __init__(self, config: LuongConfig, *, source_vocabulary: int, target_vocabulary: int, shared: bool):
        super().__init__()
        self.config = config
        m, n, readout = config.words, config.width, config.readout or config.width
        tables = embedding_tables(source_vocabulary, target_vocabulary, m, config.tie, shared)
        self.target_embedding, self.source_embedding = tables.target, tables.source
        inputs = [m, *[n] * (config.layers - 1)]
        if config.bidirectional:
            self.encoder = nn.ModuleList(Bidirectional("lstm", i, n // 2, bias=True) for i in inputs)
        else:
            self.encoder = nn.ModuleList(recurrent("lstm", i, n, bias="input") for i in inputs)
        if config.input_feeding:
            # the gates of a layer are one matrix: of [word; h~_{t-1}; h], and above of [h of the layer below; h]
            self.decoder: Any = nn.ModuleList(nn.Linear(i + n, 4 * n) for i in (m + readout, *inputs[1:]))
        else:
            self.decoder = nn.ModuleList(recurrent("lstm", i, n, bias=True) for i in inputs)
        score = SCORE_NAMES.get(config.score, config.score)
        self.score = make_score(score, query_width=n, key_width=n, width=n, limit=config.max_source)  # W_a
        self.centre = PredictedCentre(n, n) if config.attention == "local-p" else None  # W_p, v_p
        self.combine = nn.Linear(2 * n, readout, bias=False)  # W_c
        self.dropout = nn.Dropout(config.dropout)
        self.output = SoftmaxOutput(readout, target_vocabulary, tables.output)  # W_s
        self._initialise()

    def _initialise(self) -> None:
        """Section 4.1: everything from U(-0.1, 0.1)."""
        if self.config.initialise == "paper":
            for p in self.parameters():
                nn.init.uniform_(p, -0.1, 0.1)
            return
        start_by_sizes(self, ("coder",), 4)
        if self.config.input_feeding:
            for layer in self.decoder:
                open_forget_gate(layer.bias)

    @property
    def limits(self) -> Limits:
        return Limits(source=self.score.limit)

    def start(
        self, source: Padded, *, beams: int = 1, capacity: int = 256, target_length: int | None = None
    ) -> tuple[LuongMemory, LuongState]:
        states, last = self._encode(source)
        states = self.dropout(states)
        first = self.combine.weight.new_zeros(states.shape[0], beams, self.combine.out_features)  # h~_0
        # as precise as the weights, whatever the encoder computed in
        h, c = (
            tuple(x[0, :, None].expand(-1, beams, -1).to(first.dtype) for x in kind) for kind in zip(*last, strict=True)
        )
        return (
            LuongMemory(states, self.score.prepare(states), source.keep),
            LuongState(h, c, first, torch.zeros(first.shape[:2], dtype=torch.long, device=first.device)),
        )

    def _encode(self, source: Padded) -> tuple[Float[Tensor, "B S n"], list[tuple[Tensor, Tensor]]]:
        """The top layer's states in the order of the sentence (zero at padding), and (h, c) after the last step of every layer."""
        x, last = self.source_embedding(source.tokens), []
        if self.config.bidirectional:
            for layer in self.encoder:
                x, (there, back) = layer(self.dropout(x), source.keep)
                last.append(tuple(torch.cat(both, -1) for both in zip(there, back, strict=True)))
            return x, last
        way = PaddedFirst(source.keep)
        x = backwards(x, source.keep) if self.config.reverse else way.there(x)
        for layer in self.encoder:
            x, end = layer(way.with_ones(self.dropout(x)))
            last.append(end)
        return x.flip(1) if self.config.reverse else way.back(x), last

    def advance(
        self, tokens: Int[Tensor, "B K T"], memory: LuongMemory, state: LuongState, record: Recorder | None = None
    ) -> tuple[Float[Tensor, "B K T l"], LuongState]:
        word = self.dropout(self.target_embedding(tokens))
        t = state.t[:, :, None] + torch.arange(tokens.shape[2], device=tokens.device)
        write = self._write_fed if self.config.input_feeding else self._write_at_once
        hidden, weights, state = write(word, t, _Attend(self, memory), state)
        if record is not None:
            record.add("decoder.0.cross", weights[:, :, None])
        return hidden, state

    def _write_fed(
        self, word: Float[Tensor, "B K T m"], t: Int[Tensor, "B K T"], attend: _Attend, state: LuongState
    ) -> tuple[Float[Tensor, "B K T l"], Float[Tensor, "B K T S"], LuongState]:
        """Section 3.3: h~_{t-1} is part of the next input. Step by step; the products with the words come before the loop."""
        m = word.shape[-1]
        bottom, *above = self.decoder
        from_words = linear(word, bottom.weight[:, :m], bottom.bias)
        from_fed = Deferred(bottom.weight[:, m:])
        from_below = [(Deferred(layer.weight), layer.bias.expand(*word.shape[:2], -1)) for layer in above]
        h, c, fed, hidden, weights = list(state.h), list(state.c), state.fed, [], []
        for from_word, now in zip(from_words.unbind(2), t.unbind(2), strict=True):
            h[0], c[0] = lstm_step(from_fed(torch.cat((fed, h[0]), -1)), from_word, c[0])
            for i, (gates, bias) in enumerate(from_below, 1):
                x = self.dropout(h[i - 1])
                h[i], c[i] = lstm_step(gates(torch.cat((x, h[i]), -1)), bias, c[i])
            fed, a = attend(h[-1], now)
            fed = self.dropout(fed)
            hidden.append(fed)
            weights.append(a)
        state = LuongState(tuple(h), tuple(c), fed, state.t + t.shape[2])
        return torch.stack(hidden, 2), torch.stack(weights, 2), state

    def _write_at_once(
        self, word: Float[Tensor, "B K T m"], t: Int[Tensor, "B K T"], attend: _Attend, state: LuongState
    ) -> tuple[Float[Tensor, "B K T l"], Float[Tensor, "B K T S"], LuongState]:
        """Without input feeding no layer waits for the attention of the step before: each goes through all steps by itself."""
        beams, count = t.shape[1:]
        x, h, c = word.flatten(0, 1), [], []
        for i, layer in enumerate(self.decoder):
            begin = tuple(old.reshape(1, x.shape[0], -1) for old in (state.h[i], state.c[i]))
            x, end = layer(self.dropout(x) if i else x, begin)
            h.append(end[0].view_as(state.h[i]))
            c.append(end[1].view_as(state.c[i]))
        hidden, weights = attend(x.unflatten(0, (-1, beams)).flatten(1, 2), t.flatten(1))
        state = LuongState(tuple(h), tuple(c), state.fed, state.t + count)
        return self.dropout(hidden).unflatten(1, (beams, count)), weights.unflatten(1, (beams, count)), state

    def alignment(self, record: Recorder) -> Float[Tensor, "B *K T S"]:
        return record.tensors["decoder.0.cross"].squeeze(-3)


class _Attend:
    """h_t to the attentional vector h~_t and the weights a_t, for N steps of every sentence."""

    def __init__(self, model: Luong, memory: LuongMemory):
        self.memory, self.score, self.centre = memory, model.score, model.centre
        self.local, self.half_width = model.config.attention != "global", model.config.window
        self.combine, self.context = Deferred(model.combine.weight), DeferredContext(memory.states)
        self.keep = memory.keep[:, None]
        self.lengths = memory.keep.sum(1)

    def __call__(
        self, h: Float[Tensor, "B N n"], t: Int[Tensor, "B N"]
    ) -> tuple[Float[Tensor, "B N l"], Float[Tensor, "B N S"]]:
        memory, length, keep = self.memory, self.keep.shape[-1], self.keep
        p = t if self.centre is None else self.centre(h, self.lengths)  # p_t = S sigmoid(v_p tanh(W_p h_t)) (9)
        if self.local:
            keep = window_keep(p, length, self.half_width, memory.keep)  # [p_t - D, p_t + D]
        a = masked_softmax(self.score(h, memory.keys), keep)  # (7)
        if self.centre is not None:
            a = a * gaussian(p, length, self.half_width / 2)  # exp(-(s - p_t)² / 2σ²), σ = D / 2 (10)
        c = self.context(a)
        return self.combine(torch.cat((c, h), -1)).tanh(), a  # h~_t = tanh(W_c [c_t; h_t]) (5)
