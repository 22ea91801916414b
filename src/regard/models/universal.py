"""The Universal Transformer: "Universal Transformers", Dehghani et al. 2018 (arXiv 1807.03819).

Departs:
- Halting does not save time. As in the paper's code (appendix C, listing 2), a position that has halted keeps its output but
  is still revised, since others may read it: attention sees the states of step t - 1 of all positions, halted or not. So each
  of the `steps` has a cache of keys, stepping equals teacher forcing, and shapes are constant. Section 2.2 ("its state is
  simply copied") can also be read otherwise: that others see halted states as they were. Then what all others read would
  jump where a sum of chances rounds to the other side of the threshold.
- What has not halted at the last step halts there: it gets the remainder as its weight, as all others do. In listing 2 it
  keeps the chance of that step. The listing's ponder cost is not given; it is Graves' N + R, as in the authors' code.
- `average="interpolate"` is listing 2: each step's state is mixed into the average of those before, which shrinks. Graves'
  own weights, which sum to one, are `average="sum"`.
- The chance to halt comes from the state with the signal P^t, before it is revised, as in the authors' code; listing 2 does
  not show where P^t is added. The bias of its layer starts at 1, as there.
- `norm="pre"` (the default here) normalises the input of each sub-layer and the output of each side, as the authors' code
  does; it trains without care. `norm="post"` is the paper's (4) and (5). With "pre", the matrices that write into the
  residual stream start smaller by 1/sqrt(number of sub-layers, in all steps).
- Embeddings are multiplied by √d, and dropped out, as in the Transformer; the paper does not say.
- The transition is fully connected, as in the paper's translation; the separable convolution of other tasks is not here.
- Attention weights and inner activations have dropouts of their own (off by default). The output layer has a bias.
- Default sizes are for small corpora. The authors' base: width 1024, inner 4096, heads 16, steps 6; with halting at most 12.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from functools import partial
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.core.bounds import check_bounds
from regard.core.errors import ConfigError, ModelError
from regard.core.tree import Memory
from regard.core.types import PAD, Padded
from regard.core.workers import over_all_workers
from regard.layers.attention.cache import CacheState
from regard.layers.attention.multihead import CrossAttention, Heads, SelfAttention, attend_heads, merge_heads
from regard.layers.attention.windows import at_least_single
from regard.layers.embeddings import Tie, embedding_tables
from regard.layers.feedforward import Activation, FeedForward
from regard.layers.halting import Halted, halt, interpolate
from regard.layers.output import SoftmaxOutput
from regard.layers.positions import SinusoidalPositions, sinusoids
from regard.models.base import MODELS, Forced, Recorder, Writer

SIZES = {
    "width": (1, 1 << 14),
    "steps": (1, 1000),
    "heads": (1, 1 << 14),
    "inner": (0, 1 << 18),
}
PARTS = ("epsilon", "ponder", "dropout", "attention_dropout", "activation_dropout")
HALTING_BIAS = 1.0

# Self-attention of a step, counted from 0: queries, keys and values in, the mixed values and their weights out.
Look = Callable[[int, Heads, Heads, Heads], tuple[Heads, Tensor | None]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class UniversalConfig:
    """Sizes and choices of a Universal Transformer."""

    name: Literal["universal"] = "universal"
    width: int = 256  # d
    steps: int = 6  # T; with halting, the most
    heads: int = 4  # k
    inner: int = 0  # of the transition; 0: four times the width
    norm: Literal["pre", "post"] = "pre"
    halting: Literal["none", "act"] = "none"  # act: adaptive computation time, each position for itself
    average: Literal["interpolate", "sum"] = (
        "interpolate"  # of a position's states until it halts: listing 2, or Graves
    )
    epsilon: float = 0.01  # a position halts when its chances add up to more than 1 - epsilon
    ponder: float = 0.01  # what a step costs: times the mean N + R of the source and that of the target
    activation: Activation = "relu"
    tie: Tie = "auto"  # which tables are one: auto ties all that share a vocabulary
    dropout: float = 0.1
    attention_dropout: float = 0.0
    activation_dropout: float = 0.0

    def __post_init__(self) -> None:
        check_bounds("model", self, SIZES, parts=PARTS)
        if self.width % self.heads:
            raise ConfigError(
                "setting model.heads", f"{self.heads} heads do not divide the width {self.width}", "Change one"
            )
        if self.width % 2:
            raise ConfigError(
                "setting model.width", f"sinusoids need an even width, got {self.width}", "Give an even one"
            )


@dataclasses.dataclass
class UniversalMemory(Memory):
    """The source, as keys and values of the decoder: its block is one, and so are they for all steps."""

    key: Float[Tensor, "B H S Dh"]
    value: Float[Tensor, "B H S Dh"]
    keep: Bool[Tensor, "B 1 1 S"]


class Around(nn.Module):
    """LayerNorm(x + Sublayer(x)) (4), (5), or x + Sublayer(LayerNorm(x)) with pre-norm: `before` and `after` a sub-layer."""

    def __init__(self, config: UniversalConfig):
        super().__init__()
        self.pre = config.norm == "pre"
        self.norm = nn.LayerNorm(config.width)
        self.dropout = nn.Dropout(config.dropout)

    def before(self, x: Float[Tensor, "B N D"]) -> Float[Tensor, "B N D"]:
        return self.norm(x) if self.pre else x

    def after(self, x: Float[Tensor, "B N D"], written: Float[Tensor, "B N D"]) -> Float[Tensor, "B N D"]:
        x = x + self.dropout(written)
        return x if self.pre else self.norm(x)


class Revised(NamedTuple):
    """What one side makes of a sequence: its output, when each position halted, and the attention of every step."""

    output: Float[Tensor, "B N D"]
    halted: Halted | None
    own: list[Tensor | None]
    cross: list[Tensor | None]


class Side(nn.Module):
    """The encoder or, with `reads`, the decoder: one block that revises all positions, `steps` times (figure 4)."""

    def __init__(self, config: UniversalConfig, reads: bool):
        super().__init__()
        width = config.width
        self.config = config
        self.attention = SelfAttention(width, config.heads, config.attention_dropout)
        self.cross = CrossAttention(width, config.heads, config.attention_dropout) if reads else None
        self.transition = FeedForward(width, config.inner or 4 * width, config.activation, config.activation_dropout)
        self.around_attention, self.around_transition = Around(config), Around(config)
        self.around_cross = Around(config) if reads else None
        self.halting = nn.Linear(width, 1) if config.halting == "act" else None
        self.norm = nn.LayerNorm(width) if config.norm == "pre" else nn.Identity()
        steps = torch.arange(1, config.steps + 1, device="cpu")
        self.register_buffer("time", sinusoids(steps, width), persistent=False)

    def forward(
        self,
        x: Float[Tensor, "B N D"],
        positions: Float[Tensor, "*B N D"],
        look: Look,
        memory: UniversalMemory | None,
        explicit: bool,
    ) -> Revised:
        states, chances, own, cross = [], [], [], []
        for step, time in enumerate(self.get_buffer("time")):
            x = x + (positions + time)  # H^{t-1} + P^t (6), (7)
            if self.halting is not None:
                chances.append(self.halting(x)[..., 0])
            x, mine, weights = self._revise(x, partial(look, step), memory, explicit)  # H^t
            states.append(x)
            own.append(mine)
            cross.append(weights)
        if self.halting is None:
            return Revised(self.norm(x), None, own, cross)
        halted = halt(at_least_single(torch.stack(chances)).sigmoid(), self.config.epsilon)
        shares = interpolate(halted.weights) if self.config.average == "interpolate" else halted.weights
        output = torch.zeros_like(states[0])
        for state, share in zip(states, shares, strict=True):
            output = output + share[..., None] * state
        return Revised(self.norm(output), halted, own, cross)

    def _revise(
        self, x: Float[Tensor, "B N D"], look: Callable, memory: UniversalMemory | None, explicit: bool
    ) -> tuple[Float[Tensor, "B N D"], Tensor | None, Tensor | None]:
        mixed, own = look(*self.attention.project(self.around_attention.before(x)))
        x = self.around_attention.after(x, self.attention.out(merge_heads(mixed)))  # A^t (5)
        weights = None
        if self.cross is not None and self.around_cross is not None and memory is not None:
            queries = self.around_cross.before(x)
            written, weights = self.cross(queries, memory.key, memory.value, memory.keep, explicit)
            x = self.around_cross.after(x, written)
        return self.around_transition.after(x, self.transition(self.around_transition.before(x))), own, weights  # (4)


@MODELS.register("universal")
class UniversalTransformer(Writer):
    """Encoder and decoder that apply one block each, again and again, to all positions (section 2.1)."""

    Config = UniversalConfig
    capabilities = frozenset({"translates", "attends"})

    def __init__(self, config: UniversalConfig, *, source_vocabulary: int, target_vocabulary: int, shared: bool):
        super().__init__()
        self.config = config
        tables = embedding_tables(source_vocabulary, target_vocabulary, config.width, config.tie, shared)
        self.target_embedding, self.source_embedding = tables.target, tables.source
        self.positions = SinusoidalPositions(config.width)
        self.dropout = nn.Dropout(config.dropout)
        self.encoder, self.decoder = Side(config, reads=False), Side(config, reads=True)
        self.output = SoftmaxOutput(config.width, target_vocabulary, tables.output)
        self._initialise()

    def _initialise(self) -> None:
        for table in dict.fromkeys((self.source_embedding, self.target_embedding)):  # in order: a set would not repeat
            nn.init.normal_(table.weight, std=self.config.width**-0.5)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                nn.init.zeros_(module.bias)
        for side, sublayers in ((self.encoder, 2), (self.decoder, 3)):
            if side.halting is not None:
                nn.init.constant_(side.halting.bias, HALTING_BIAS)
            if self.config.norm == "pre":
                for name, parameter in side.named_parameters():
                    if name.endswith("out.weight"):
                        parameter.data *= (sublayers * self.config.steps) ** -0.5

    @classmethod
    def needs_float32(cls, config: Any) -> str | None:
        return "halting probabilities add up in float32" if config.halting == "act" else None

    def _embed(self, tokens: Int[Tensor, "B N"], table: nn.Embedding) -> Float[Tensor, "B N D"]:
        return self.dropout(table(tokens) * math.sqrt(self.config.width))  # H^0

    def _signal(self, places: Int[Tensor, "*N"], longest: int) -> Float[Tensor, "*N D"]:
        return self.positions(places + 1, longest + 1)  # 1 <= i <= m

    def _encode(
        self, source: Padded, record: Recorder | None = None
    ) -> tuple[UniversalMemory, Float[Tensor, "B S"] | None]:
        """Reads the source once; gives what the decoder will look at, and N + R where there is halting."""
        length = source.tokens.shape[1]
        keep, explicit = source.keep[:, None, None, :], record is not None

        def look(step: int, q: Heads, k: Heads, v: Heads) -> tuple[Heads, Tensor | None]:
            return attend_heads(q, k, v, keep, dropout=self._attention_dropout, explicit=explicit)

        signal = self._signal(torch.arange(length, device=source.tokens.device), length)
        revised = self.encoder(self._embed(source.tokens, self.source_embedding), signal, look, None, explicit)
        if record is not None:
            _note(record, "encoder", revised)
        assert self.decoder.cross is not None
        key, value = self.decoder.cross.project_memory(revised.output)
        return UniversalMemory(key, value, keep), revised.halted.ponder if revised.halted else None

    @property
    def _attention_dropout(self) -> float:
        return self.config.attention_dropout if self.training else 0.0

    def forward(self, source: Padded, target: Int[Tensor, "B T"], record: Recorder | None = None) -> Forced:
        memory, ponder = self._encode(source, record)
        length, explicit = target.shape[1], record is not None

        def look(step: int, q: Heads, k: Heads, v: Heads) -> tuple[Heads, Tensor | None]:
            return attend_heads(q, k, v, causal=True, dropout=self._attention_dropout, explicit=explicit)

        signal = self._signal(torch.arange(length, device=target.device), length)
        revised = self.decoder(self._embed(target, self.target_embedding), signal, look, memory, explicit)
        if record is not None:
            _note(record, "decoder", revised)
        losses = {}
        if ponder is not None and revised.halted is not None:
            written = target != PAD
            read = source.keep & written.any(1, keepdim=True)  # rows that only fill up a batch have no target
            losses["encoder.ponder"] = self.config.ponder * _mean(ponder, read)
            losses["decoder.ponder"] = self.config.ponder * _mean(revised.halted.ponder, written)
        return Forced(revised.output, losses)

    def start(
        self, source: Padded, *, beams: int = 1, capacity: int = 256, target_length: int | None = None
    ) -> tuple[UniversalMemory, CacheState]:
        memory, _ = self._encode(source)
        c = self.config
        return memory, CacheState.empty(source.tokens.shape[0], beams, capacity, c.steps, c.heads, c.width, memory.key)

    def advance(
        self, tokens: Int[Tensor, "B K T"], memory: UniversalMemory, state: CacheState, record: Recorder | None = None
    ) -> tuple[Float[Tensor, "B K T D"], CacheState]:
        beams, count = tokens.shape[1:]
        longest, explicit = state.filled + count, record is not None
        if longest > state.capacity:
            raise ModelError(
                "the target", f"{longest} tokens exceed the state's capacity {state.capacity}", "Start with more"
            )
        visible = state.visible(count)

        def look(step: int, q: Heads, k: Heads, v: Heads) -> tuple[Heads, Tensor | None]:
            return attend_heads(q, *state.write(step, k, v, count), visible, explicit=explicit)

        places = state.next_positions(count)[:, None].expand(-1, beams, -1).flatten(1)
        x = self._embed(tokens.flatten(1), self.target_embedding)
        revised = self.decoder(x, self._signal(places, longest), look, memory, explicit)
        if record is not None:
            _note(record, "decoder", revised, (beams, count))
        return revised.output.unflatten(1, (beams, count)), state.advanced(count)

    def alignment(self, record: Recorder) -> Float[Tensor, "B *K T S"]:
        """Cross-attention averaged over heads: of all steps, by their weights, where there is halting. Else of the last step;
        of the one before where they are many, as the last looks ahead."""
        steps = self.config.steps
        if self.config.halting == "none":
            return record.tensors[f"decoder.{steps - (1 if steps <= 4 else 2)}.cross"].mean(-3)
        weights = record.tensors["decoder.halting"].unbind(-1)
        seen = [w[..., None] * record.tensors[f"decoder.{t}.cross"].mean(-3) for t, w in enumerate(weights)]
        return torch.stack(seen).sum(0)


def _mean(ponder: Float[Tensor, "B N"], keep: Bool[Tensor, "B N"]) -> Float[Tensor, ""]:
    return (ponder * keep).sum() / over_all_workers(keep.sum()).clamp_min(1)


def _note(record: Recorder, side: str, revised: Revised, hypotheses: tuple[int, int] | None = None) -> None:
    """Records attention, and as `encoder.halting` and `decoder.halting` the weights p_t of the steps, which sum to one.

    Those are [B N steps], or [B K T steps] for hypotheses; N is the number of weights above 0, and R the last of these.
    """
    for what in ("own", "cross"):
        for step, weights in enumerate(getattr(revised, what)):
            if weights is not None:
                if hypotheses is not None:  # B H (K T) S -> B K H T S
                    weights = weights.unflatten(2, hypotheses).transpose(1, 2)
                record.add(f"{side}.{step}.{'self' if what == 'own' else what}", weights)
    if revised.halted is not None:
        weights = revised.halted.weights.movedim(0, -1)
        record.add(f"{side}.halting", weights if hypotheses is None else weights.unflatten(1, hypotheses))
