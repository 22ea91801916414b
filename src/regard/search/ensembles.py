"""Several models that write one text together: what search sees is one model.

    log-linear   log p(y) = Σ_i w_i log p_i(y) - log Z     the geometric mean of the distributions, made to sum to 1
    arithmetic   log p(y) = log Σ_i w_i p_i(y)             their mean

and with a language model beside them (shallow fusion, Gülçehre et al. 2015), whose share is added and not made to sum to 1:

    score(y) = log p(y) + λ log p_LM(y)

Members may be of different architectures; they read and write the same tokens. Each keeps its own memory and state, and hidden
states stand side by side, so that whatever a member's own output layer does stays its own.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.core.errors import ConfigError, ModelError
from regard.core.tree import Memory, State
from regard.core.types import Padded
from regard.layers.output import OutputLayer, Sums
from regard.models.base import Forced, Limits, Recorder, Writer

MIXES = ("log", "mean")
MOST_MEMBERS = 16
MOST_FUSION = 10.0


@dataclasses.dataclass
class JointMemory(Memory):
    parts: tuple[Memory, ...]

    def constants(self) -> list[Tensor]:
        return [tensor for part in self.parts for tensor in part.constants()]


@dataclasses.dataclass
class JointState(State):
    """The members' states, each of which knows best how it is reordered."""

    brief: ClassVar[bool] = False
    parts: tuple[State, ...]

    def reorder(self, parents: Int[Tensor, "B K"]) -> JointState:
        return dataclasses.replace(self, parts=tuple(part.reorder(parents) for part in self.parts))

    def within(self, span: int) -> JointState:
        return dataclasses.replace(self, parts=tuple(part.within(span) for part in self.parts))

    def put(self, sentences: Int[Tensor, "N"], other: Any) -> JointState:
        pairs = zip(self.parts, other.parts, strict=True)
        return dataclasses.replace(self, parts=tuple(mine.put(sentences, new) for mine, new in pairs))

    def put_in_place(self, sentences: Int[Tensor, "N"], other: Any) -> None:
        for mine, new in zip(self.parts, other.parts, strict=True):
            mine.put_in_place(sentences, new)


class Ensemble(Writer):
    """Translators, and if wanted a language model, as one translator. Their weights sum to 1."""

    def __init__(
        self,
        members: Sequence[Writer],
        weights: Sequence[float] | None = None,
        mix: str = "log",
        language_model: Writer | None = None,
        fusion: float = 0.0,
    ):
        super().__init__()
        shares = check_members(members, weights, mix, language_model, fusion)
        self.members = nn.ModuleList([*members, *([] if language_model is None else [language_model])])
        self.attending = [i for i, member in enumerate(members) if "attends" in member.capabilities]
        self.capabilities = frozenset({"translates", "attends"} if self.attending else {"translates"})  # type: ignore[misc]
        self.config = None
        self.output = _JointOutput(
            [member.output for member in self.each], shares, mix, fusion if language_model is not None else None
        )

    @property
    def limits(self) -> Limits:
        each = [member.limits for member in self.each]
        return Limits(_least(limit.source for limit in each), _least(limit.target for limit in each))

    @property
    def each(self) -> list[Writer]:
        return cast("list[Writer]", list(self.members))

    def start(
        self, source: Padded, *, beams: int = 1, capacity: int = 256, target_length: int | None = None
    ) -> tuple[JointMemory, JointState]:
        begun = [member.start(source, beams=beams, capacity=capacity) for member in self.each]
        memories, states = zip(*begun, strict=True)
        return JointMemory(memories), JointState(states)

    def advance(
        self, tokens: Int[Tensor, "B K T"], memory: JointMemory, state: JointState, record: Recorder | None = None
    ) -> tuple[Float[Tensor, "B K T D"], JointState]:
        hidden, states = [], []
        for i, (member, its_memory, its_state) in enumerate(zip(self.each, memory.parts, state.parts, strict=True)):
            seen = Recorder() if record is not None and i in self.attending else None
            its_hidden, its_state = member.advance(tokens, its_memory, its_state, seen)
            hidden.append(its_hidden)
            states.append(its_state)
            if record is not None and seen is not None:
                for name, tensor in seen.tensors.items():
                    record.add(f"{i}.{name}", tensor)
        return torch.cat(hidden, -1), JointState(tuple(states))

    def forward(self, source: Padded, target: Int[Tensor, "B T"], record: Recorder | None = None) -> Forced:
        hidden = []
        for i, member in enumerate(self.each):
            seen = Recorder() if record is not None and i in self.attending else None
            hidden.append(member(source, target, seen).hidden)
            if record is not None and seen is not None:
                for name, tensor in seen.tensors.items():
                    record.add(f"{i}.{name}", tensor)
        return Forced(torch.cat(hidden, -1), {})

    def alignment(self, record: Recorder) -> Float[Tensor, "B *K T S"]:
        """The mean of those members that attend."""
        found = []
        for i in self.attending:
            own = Recorder()
            own.tensors = {n.removeprefix(f"{i}."): t for n, t in record.tensors.items() if n.startswith(f"{i}.")}
            found.append(self.each[i].alignment(own))
        return torch.stack(found).mean(0)


class _JointOutput(OutputLayer):
    """Reads hidden states that stand side by side."""

    def __init__(self, outputs: Sequence[OutputLayer], shares: Sequence[float], mix: str, fusion: float | None):
        super().__init__()
        self.outputs = tuple(outputs)  # not registered: they are the members' own
        self.vocabulary = outputs[0].vocabulary
        self.shares, self.mix, self.fusion = tuple(shares), mix, fusion

    def scores(self, hidden: Float[Tensor, "*N D"]) -> Float[Tensor, "*N V"]:
        widths = [cast(Any, output).weight.shape[1] for output in self.outputs]
        pairs = zip(self.outputs, hidden.split(widths, -1), strict=True)
        parts = [output.scores(part) for output, part in pairs]
        beside = parts.pop() if self.fusion is not None else None
        weighted = zip(parts, self.shares, strict=True)
        if len(parts) == 1:
            mixed = parts[0]
        elif self.mix == "log":
            mixed = torch.stack([share * part for part, share in weighted]).sum(0).log_softmax(-1)
        else:
            mixed = torch.stack([part + math.log(share) for part, share in weighted]).logsumexp(0)
        return mixed if beside is None or self.fusion is None else mixed + self.fusion * beside

    def loss(
        self, hidden: Float[Tensor, "*N D"], target: Int[Tensor, "*N"], smoothing: float = 0.0, consistency: float = 0.0
    ) -> Sums:
        raise ModelError("ensemble", "several models together are not trained", "Train each of them")


def check_members(
    members: Sequence[Writer],
    weights: Sequence[float] | None,
    mix: str,
    language_model: Writer | None,
    fusion: float,
) -> list[float]:
    """The members' shares, which sum to 1; raises where they cannot write together."""
    where = "ensemble"
    if not 1 <= len(members) <= MOST_MEMBERS:
        raise ConfigError(where, f"{len(members)} models were given", f"Give from 1 to {MOST_MEMBERS}")
    if mix not in MIXES:
        raise ConfigError("mix", f"{mix!r} is not one of {', '.join(MIXES)}", "Choose one of them")
    weights = [1.0] * len(members) if weights is None else list(weights)
    if len(weights) != len(members):
        raise ConfigError("weights", f"there are {len(weights)} for {len(members)} models", "Give one for each")
    if not all(0 < weight < math.inf for weight in weights):
        raise ConfigError("weights", "they are not all above 0", "Leave out models that should not count")
    for number, member in enumerate(members, start=1):
        kinds = member.capabilities
        if "translates" not in kinds:
            raise ModelError(
                where, f"model {number} does not translate", "A language model goes beside the others (fuse)"
            )
        if "plans" in kinds:
            what = f"model {number} has to know the length of a text before it writes, and the others do not"
            raise ModelError(where, what, "Leave it out")
    if language_model is not None and "continues" not in language_model.capabilities:
        raise ModelError("fuse", "this model is no language model", "Give a run that was trained on text alone")
    if not 0 <= fusion <= MOST_FUSION:
        raise ConfigError("fusion", f"{fusion} is not from 0 to {MOST_FUSION:g}", "Choose such a number; 0.1 is usual")
    sizes = {member.output.vocabulary for member in (*members, *([] if language_model is None else [language_model]))}
    if len(sizes) > 1:
        what = f"the models write vocabularies of {', '.join(map(str, sorted(sizes)))} tokens"
        raise ModelError(where, what, "Train them with one tokenizer")
    return [weight / sum(weights) for weight in weights]


def _least(numbers: Iterable[int | None]) -> int | None:
    return min((number for number in numbers if number is not None), default=None)
