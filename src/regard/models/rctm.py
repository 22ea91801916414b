"""RCTM I and II: "Recurrent Continuous Translation Models", Kalchbrenner and Blunsom 2013 (EMNLP, D13-1176).

A recurrent language model of the target (RLM) writes, and what convolutions make of the source is added to its state at every
step: in RCTM I one vector for the whole sentence, in RCTM II a column for each target word, for which the target's length has
to be known beforehand. `rctm1` with `blind=true` is the RLM alone, the paper's baseline.

Departs:
- Equations are from memory, as is the schedule of the kernels (section 3.1): K^2, K^3, .. as long as there are columns enough,
  then one kernel L^j that takes what is left. How long a kernel there must be, the paper reads off its training text; here the
  longest sentences are settings.
- RCTM II: the source is folded until 4-grams are left (`gram`), k - 3 columns of k words; the inverse starts from these and
  unfolds them to m columns by the schedule that folds m columns to k - 3, turned round, with kernels J and M of its own. What
  the paper does where these do not meet is unclear. Here a source of more 4-grams than the target has words is folded on until
  it has as many; one of fewer than 4 words is folded into one column.
- BOS stands for the word before f_1, and its step counts as one: a target of m words and EOS has m + 1 columns. The source's
  EOS is a word of it.
- λ, the mean number of target words for each source length, is trained with the rest, by an extra loss -log P(m | e) that
  nothing else depends on. It starts as the length of the source.
- RCTM II learns when to end as it learns words. Search holds every hypothesis to the length that it was started for. As EOS
  may also come too early or too late, what texts get by P(m) P(text | m) sums to less than 1.
- The paper rescores n-best lists of another system, and knows the length of each text. Beam search, over the likeliest lengths
  (`search/lengths.py`), is ours.
- σ is tanh (`activation`); the paper says "a non-linear function". Classes of the output layer are ranges of ids
  (`layers/output_classes.py`); how the paper forms its classes is not said there.
- The language model and the output layer have biases; the paper's equations have none.
- Dropout on words, columns and outputs: the paper has none (`dropout=0`). The paper's q is 256.
- The paper trains with Adagrad, which is not among the optimizers here (`train.optimizer`: AdamW unless told otherwise).
- How weights start is not said in the paper. Here the tables of words and of the output are drawn from N(0, 1/q), matrices by
  their sizes (Glorot), R is orthogonal and biases are 0. Kernels of i columns start as |N(0, 1/i)| with tanh; with sigmoid as
  N(0, 16/i), each less its mean.
"""

from __future__ import annotations

import dataclasses
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.core.bounds import check_bounds
from regard.core.errors import ModelError
from regard.core.tree import Memory, State
from regard.core.types import PAD, Padded
from regard.core.workers import over_all_workers
from regard.layers.embeddings import Tie, embedding_tables
from regard.layers.folding import ACTIVATIONS, Activation, Fold, Unfold
from regard.layers.output import OutputLayer, SoftmaxOutput
from regard.layers.output_classes import ClassOutput
from regard.layers.recurrent.cells import precise
from regard.layers.recurrent.deferred import Deferred
from regard.layers.starting import start_by_sizes, start_orthogonal
from regard.models.base import MODELS, Forced, Limits, Planner, Recorder, Writer

SIZES = {"width": (1, 1 << 14), "max_source": (2, 1 << 14), "classes": (0, 1 << 20)}
SIZES_II = {**SIZES, "max_target": (2, 1 << 14), "gram": (1, 1 << 14)}


@dataclasses.dataclass(frozen=True, kw_only=True)
class _RCTMConfig:
    """What both models can be asked for."""

    name: str = ""
    width: int = 256  # q, of words, columns and states
    max_source: int = 256  # the longest source, EOS included: there are kernels for no more
    activation: Activation = "tanh"  # σ
    output: Literal["classes", "softmax"] = "classes"  # one softmax over classes and one over words, or one over all
    classes: int = 0  # with output = classes, how many; 0: about the square root of the vocabulary
    tie: Tie = "none"  # which tables are one
    dropout: float = 0.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class RCTM1Config(_RCTMConfig):
    """Sizes and choices of RCTM I."""

    name: Literal["rctm1"] = "rctm1"
    blind: bool = False  # does not look at the source: the recurrent language model (RLM) alone

    def __post_init__(self) -> None:
        check_bounds("model", self, SIZES, parts=("dropout",))


@dataclasses.dataclass(frozen=True, kw_only=True)
class RCTM2Config(_RCTMConfig):
    """Sizes and choices of RCTM II."""

    name: Literal["rctm2"] = "rctm2"
    max_target: int = 256  # the longest target, EOS included
    gram: int = 4  # n: how many source words a column is folded from

    def __post_init__(self) -> None:
        check_bounds("model", self, SIZES_II, parts=("dropout",))


class RLM(nn.Module):
    """The recurrent language model: h_{i+1} = σ(R h_i + I v(f_{i+1}) + s_{i+1}), of which o_{i+1} = O h_i is the output."""

    def __init__(self, width: int, activation: Activation):
        super().__init__()
        self.recurrent = nn.Linear(width, width)  # R
        self.activation = ACTIVATIONS[activation]

    def forward(
        self, word: Float[Tensor, "B K T q"], added: Float[Tensor, "B #K #T q"], h: Float[Tensor, "B K q"]
    ) -> tuple[Float[Tensor, "B K T q"], Float[Tensor, "B K q"]]:
        """`word` is I v(f), `added` what the source adds. Gives the states of all steps, and the last."""
        r, states = Deferred(self.recurrent.weight), []
        for x in precise(word + added + self.recurrent.bias).unbind(2):
            h = self.activation(x + r(h))
            states.append(h)
        return torch.stack(states, 2), h


@dataclasses.dataclass
class RCTM1Memory(Memory):
    """What the source adds at every step."""

    s: Float[Tensor, "B q"]  # S csm(e)


@dataclasses.dataclass
class RCTM1State(State):
    """The state h_i of the language model; zero before the first word, so that R h_0 = 0."""

    h: Float[Tensor, "B K q"]


@dataclasses.dataclass
class RCTM2Memory(Memory):
    """What the source adds at each step; zero beyond the length."""

    s: Float[Tensor, "B T q"]  # S F_{:,i}


@dataclasses.dataclass
class RCTM2State(State):
    """The state h_i, and how many steps were taken."""

    h: Float[Tensor, "B K q"]
    i: Int[Tensor, "B K"]


class _RCTM(Writer):
    """The parts that both models have: words of both sides, the language model and the output layer."""

    def _build(self, config: _RCTMConfig, source_vocabulary: int, target_vocabulary: int, shared: bool) -> None:
        self.config = config
        tables = embedding_tables(source_vocabulary, target_vocabulary, config.width, config.tie, shared)
        self.target_embedding, self.source_embedding = tables.target, tables.source  # I, and v(e)
        self.rlm = RLM(config.width, config.activation)
        self.dropout = nn.Dropout(config.dropout)
        self.output = _output(config, target_vocabulary, tables.output)  # O

    def _start_weights(self) -> None:
        """Of all parts that are there: kernels and lengths, which start by themselves, are to come later."""
        start_by_sizes(self, (), 1)
        start_orthogonal(self.rlm.recurrent.weight, 1)

    def _zero(self, rows: int, beams: int) -> Float[Tensor, "B K q"]:
        """h_0, as precise as the weights."""
        return self.rlm.recurrent.bias.new_zeros(rows, beams, self.config.width)

    def _sentence(self, source: Padded) -> tuple[Float[Tensor, "B S q"], Int[Tensor, "B"]]:
        """The sentence matrix E^e, whose columns are the words (5), and their number k.

        A batch may be no wider than the longest source, padding included: how much of it is padding, only the device knows.
        """
        _check_length("source", source.tokens.shape[1], self.config.max_source)
        return self.dropout(self.source_embedding(source.tokens)), source.lengths.clamp(min=1)


@MODELS.register("rctm1")
class RCTM1(_RCTM):
    """The source as one vector, added at every step (section 3)."""

    Config = RCTM1Config
    capabilities = frozenset({"translates"})

    def __init__(self, config: RCTM1Config, *, source_vocabulary: int, target_vocabulary: int, shared: bool):
        super().__init__()
        self._build(config, source_vocabulary, target_vocabulary, shared)
        self.blind = config.blind
        if config.blind:
            del self.source_embedding
        else:
            self.conditioning = nn.Linear(config.width, config.width, bias=False)  # S
        self._start_weights()
        if not config.blind:
            self.fold = Fold(config.width, config.max_source, config.activation)  # K, L

    @property
    def limits(self) -> Limits:
        return Limits(source=None if self.blind else self.config.max_source)

    def start(
        self, source: Padded, *, beams: int = 1, capacity: int = 256, target_length: int | None = None
    ) -> tuple[RCTM1Memory, RCTM1State]:
        h = self._zero(source.tokens.shape[0], beams)
        if self.blind:
            return RCTM1Memory(torch.zeros_like(h[:, 0])), RCTM1State(h)
        e, k = self._sentence(source)
        e = self.fold(e, k - 1, 1)[:, 0]  # csm(e): folded until one column is left
        return RCTM1Memory(self.conditioning(self.dropout(e))), RCTM1State(h)  # s = S csm(e) (8a)

    def advance(
        self, tokens: Int[Tensor, "B K T"], memory: RCTM1Memory, state: RCTM1State, record: Recorder | None = None
    ) -> tuple[Float[Tensor, "B K T q"], RCTM1State]:
        word = self.dropout(self.target_embedding(tokens))
        states, h = self.rlm(word, memory.s[:, None, None], state.h)  # (8b), (8c)
        return self.dropout(states), RCTM1State(h)


class PoissonLengths(nn.Module):
    """m - 1 ~ Poisson(λ_k): how many words a target has besides EOS, where the source has k tokens."""

    def __init__(self, max_source: int):
        super().__init__()
        self.log_mean = nn.Parameter(torch.arange(1, max_source + 1).float().log())  # log λ_k; at first λ_k = k

    def forward(self, k: Int[Tensor, "B"], m: Int[Tensor, "B *L"]) -> Float[Tensor, "B *L"]:
        """log P(m | k) = (m - 1) log λ_k - λ_k - log (m - 1)!"""
        log_mean = self.log_mean.index_select(0, k - 1).reshape(-1, *[1] * (m.dim() - 1))
        return (m - 1) * log_mean - log_mean.exp() - torch.lgamma(m.to(log_mean.dtype))

    @torch.no_grad()
    def likeliest(self, k: Int[Tensor, "B"], most: int) -> Int[Tensor, "B"]:
        """The mode of the Poisson distribution is ⌊λ⌋."""
        return (self.log_mean[k - 1].exp().floor().long() + 1).clamp(1, most)


@MODELS.register("rctm2")
class RCTM2(_RCTM, Planner):
    """The source as one column for each word of a target whose length is known (section 4)."""

    Config = RCTM2Config
    capabilities = frozenset({"translates", "plans"})

    def __init__(self, config: RCTM2Config, *, source_vocabulary: int, target_vocabulary: int, shared: bool):
        super().__init__()
        self._build(config, source_vocabulary, target_vocabulary, shared)
        q = config.width
        self.translation = nn.Linear(q, q, bias=False)  # T
        self.conditioning = nn.Linear(q, q, bias=False)  # S
        self._start_weights()
        self.fold = Fold(q, config.max_source, config.activation)  # K, L
        self.unfold = Unfold(q, config.max_target, config.activation)  # J, M
        self.length = PoissonLengths(config.max_source)

    @property
    def limits(self) -> Limits:
        return Limits(source=self.config.max_source, target=self.config.max_target)

    def forward(self, source: Padded, target: Int[Tensor, "B T"], record: Recorder | None = None) -> Forced:
        m = (target != PAD).sum(1)
        s = self._columns(source, m.clamp(min=1), target.shape[1])
        word = self.dropout(self.target_embedding(target))[:, None]
        states, _ = self.rlm(word, s[:, None], self._zero(len(target), 1))
        real = m > 0  # rows that only fill up a batch have no target
        log_p = self.length(source.lengths.clamp(min=1), m.clamp(min=1))
        loss = -(log_p * real).sum() / over_all_workers(m.sum()).clamp(min=1)
        return Forced(self.dropout(states)[:, 0], {"length": loss})

    def _columns(self, source: Padded, m: Int[Tensor, "B"], width: int) -> Float[Tensor, "B T q"]:
        """What is added at each of m steps: S F_{:,i}, filled up to a width."""
        _check_length("target", width, self.config.max_target)
        e, k = self._sentence(source)
        grams = torch.minimum(k - (self.config.gram - 1), m).clamp(min=1)  # columns that both sides have
        g = self.fold(e, k - grams, min(e.shape[1], width))  # E^g = cgm(e, n)
        g = self.rlm.activation(self.translation(self.dropout(g)))  # F^g = σ(T E^g)
        f = self.unfold(g, grams, m - grams, width)  # F = icgm(F^g, m)
        return self.conditioning(self.dropout(f))

    def start(
        self,
        source: Padded,
        *,
        beams: int = 1,
        capacity: int = 256,
        target_length: Int[Tensor, "B"] | int | None = None,
    ) -> tuple[RCTM2Memory, RCTM2State]:
        most = min(capacity, self.config.max_target)
        k = source.lengths.clamp(min=1)
        if target_length is None:
            m = self.length.likeliest(k, most)
        elif isinstance(target_length, int):
            _check_room(target_length, most)
            m = torch.full_like(k, target_length)
        else:
            m = target_length.clamp(1, most)
        h = self._zero(k.shape[0], beams)
        return RCTM2Memory(self._columns(source, m, most)), RCTM2State(h, torch.zeros_like(h[..., 0], dtype=torch.long))

    def advance(
        self, tokens: Int[Tensor, "B K T"], memory: RCTM2Memory, state: RCTM2State, record: Recorder | None = None
    ) -> tuple[Float[Tensor, "B K T q"], RCTM2State]:
        word = self.dropout(self.target_embedding(tokens))
        place = state.i[..., None] + torch.arange(tokens.shape[2], device=tokens.device)  # B K T
        place = place.clamp(max=memory.s.shape[1] - 1)[..., None].expand(*place.shape, memory.s.shape[-1])
        s = memory.s[:, None].expand(-1, tokens.shape[1], -1, -1).gather(2, place)
        states, h = self.rlm(word, s, state.h)
        return self.dropout(states), RCTM2State(h, state.i + tokens.shape[2])

    def length_scores(self, source: Padded, most: int) -> Float[Tensor, "B L"]:
        m = torch.arange(1, most + 1, device=source.tokens.device)
        return self.length(source.lengths.clamp(min=1), m.expand(source.tokens.shape[0], -1))


def _output(config: _RCTMConfig, vocabulary: int, tied: Tensor | None) -> OutputLayer:
    if config.output == "softmax":
        return SoftmaxOutput(config.width, vocabulary, tied)
    return ClassOutput(config.width, vocabulary, config.classes, tied)


def _check_length(side: str, length: int, most: int) -> None:
    if length > most:
        what = f"{length} tokens are more than the model's {most}"
        raise ModelError(side, what, f"Give shorter text, or train with a larger model.max_{side}")


def _check_room(length: int, most: int) -> None:
    if not 1 <= length <= most:
        what = f"a text of {length} tokens, EOS included, was asked for, and there is room for 1 to {most}"
        raise ModelError("target_length", what, "Ask for another length, or start with more capacity")
