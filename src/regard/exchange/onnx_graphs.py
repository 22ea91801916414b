"""What of a model becomes ONNX graphs: functions of plain tensors, with a name and a shape for every one of them.

    writes with a source   encoder (tokens, keep -> memory, first state) and step (tokens, memory, state -> log_probs, next state)
    plans                  besides, the encoder is told the lengths, and a graph `lengths` says how probable each is
    language model         step alone; its first state is a number everywhere
    classifies, tags       one graph, tokens to log-probabilities of labels
    fills                  one graph: log-probabilities at some places, all last states, and of the next sentence where it knows

B, K, S, L, T are free: sentences, hypotheses, source positions, target positions so far, places. What depends on a model's
layers only is found by asking it twice, with other sizes: a size that stays is a constant.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from regard.core.errors import ModelError
from regard.core.types import PAD, Padded
from regard.exchange.onnx_layers import GrowingCache
from regard.layers.attention.cache import CacheState
from regard.layers.convolution import _Sliding
from regard.layers.folding import Fold
from regard.models.reader import at_places
from regard.onnx.manifest import FLOAT, Graph, Port, StatePort

TYPES = {torch.float32: "float32", torch.int64: "int64", torch.bool: "bool"}
SIZES = ({"B": 3, "S": 7}, {"B": 5, "S": 11})  # that a model is asked with; their numbers are in no shape by accident
UNLIMITED = 1 << 20  # tokens of a model without a limit


@dataclasses.dataclass(frozen=True)
class Function:
    """A graph to be: what it computes, of which inputs, and between which sizes."""

    graph: Graph
    module: nn.Module
    most: dict[str, int]
    least: dict[str, int]


@dataclasses.dataclass(frozen=True)
class Functions:
    """All graphs of a model, and what a state is."""

    functions: dict[str, Function]
    memory: list[str]
    state: list[StatePort]
    least_source: int


class _Listed(nn.Module):
    """A function of a list of tensors."""

    def __init__(self, model: nn.Module, function: Callable[..., Sequence[Tensor]]):
        super().__init__()
        self.model, self.function = model, function

    def forward(self, inputs: list[Tensor]) -> tuple[Tensor, ...]:
        return tuple(one.clone() for one in self.function(*inputs))  # an output is neither an input nor another output


def functions_of(model: Any, asked: Any = None) -> Functions:
    """The functions of a model on the CPU, in evaluation mode. `asked` is the same model where `model` cannot be run."""
    asked = model if asked is None else asked
    can = model.capabilities
    if "embeds" in can:
        what = "word vectors are a table, and there is nothing to run"
        raise ModelError(f"model {model.config.name!r}", what, "Write the table with `regard export DIR --to word2vec`")
    for what, made in (("classifies", _classifying), ("tags", _tagging), ("fills", _filling)):
        if what in can:
            return made(model)
    if "continues" in can:
        return _continuing(model, asked)
    return _translating(model, asked)


def _limits(model: Any) -> dict[str, int]:
    limits = model.limits
    most = {"S": limits.source or UNLIMITED, "L": (limits.target or UNLIMITED) - 1}
    return {**most, "T": most["S"]}


def _least_source(model: nn.Module) -> int:
    """Texts that are shorter are filled up with padding: convolutions need a whole window, and k-max pooling more than k_top values
    in every layer."""
    windows = [module.width for module in model.modules() if isinstance(module, _Sliding)]
    k_top = getattr(getattr(model, "config", None), "k_top", 1)
    return max([1, *windows, (k_top + 1) * len(windows)])


def _source_ports() -> list[Port]:
    return [Port("tokens", "int64", ("B", "S")), Port("keep", "bool", ("B", "S"))]


def _classifying(model: Any) -> Functions:
    def read(tokens: Tensor, keep: Tensor) -> list[Tensor]:
        nothing = torch.full_like(tokens[:, :1], PAD)
        return [model.output.scores(model(Padded(tokens, keep), nothing).hidden)[:, 0, 1:]]  # not the label of none

    return _one_graph(model, read, _source_ports(), [Port("log_probs", FLOAT, ("B", model.output.vocabulary - 1))])


def _tagging(model: Any) -> Functions:
    def read(tokens: Tensor, keep: Tensor, places: Tensor) -> list[Tensor]:
        return [model.output.scores(model(Padded(tokens, keep), places).hidden)[..., 1:]]

    inputs = [*_source_ports(), Port("places", "int64", ("B", "T"))]
    return _one_graph(model, read, inputs, [Port("log_probs", FLOAT, ("B", "T", model.output.vocabulary - 1))])


def _filling(model: Any) -> Functions:
    """Hidden words, the last states of all that is read, and whether the second text follows, as far as the model knows."""
    width = model.config.width
    head, following = model.config.head, model.config.next_sentence
    inputs, outputs = _source_ports(), [Port("states", FLOAT, ("B", "N", width))]
    if head:
        inputs.append(Port("places", "int64", ("B", "T")))
        outputs.append(Port("log_probs", FLOAT, ("B", "T", model.output.vocabulary)))
    if following:
        outputs.append(Port("next_sentence", FLOAT, ("B", 2)))

    def read(tokens: Tensor, keep: Tensor, places: Tensor | None = None) -> list[Tensor]:
        whole, _ = model.whole_states(Padded(tokens, keep))
        found = [whole]
        if places is not None:
            hidden = model.head(at_places(whole, places + 1))
            found.append(model.output.scores(hidden))
        if following:
            found.append(model.next_sentence(model.pooler(whole)).float().log_softmax(-1))
        return found

    return _one_graph(model, read, inputs, outputs)


def _one_graph(model: Any, read: Any, inputs: list[Port], outputs: list[Port]) -> Functions:
    least = _least_source(model)
    function = Function(Graph("model.onnx", inputs, outputs), _Listed(model, read), _limits(model), {"S": least})
    return Functions({"model": function}, [], [], least)


def _continuing(model: Any, asked: Any) -> Functions:
    states = [_growing(asked.begin(rows, beams=1, capacity=1)) for rows in (1, 2)]
    ports, state = _state_ports(states, ({"B": 1}, {"B": 2})), states[0]
    filled = []
    for port, leaf in zip(ports, state.leaves(), strict=True):
        if port.kind == "rows" and len(leaf.unique()) > 1:
            raise ModelError(f"model {model.config.name!r}", "its first state is not one number", "Report it")
        filled.append(dataclasses.replace(port, value=float(leaf.flatten()[0]) if port.kind == "rows" else 0.0))
    memory, _ = asked.start(Padded(torch.zeros(1, 1, dtype=torch.long), torch.ones(1, 1, dtype=torch.bool)))
    return Functions({"step": _step(model, memory, [], state, filled)}, [], filled, 1)


def _translating(model: Any, asked: Any) -> Functions:
    plans, limits = "plans" in model.capabilities, _limits(model)
    fixed = limits["S"] if any(isinstance(module, Fold) for module in model.modules()) else 0
    capacity = limits["L"] + 1 if plans else 1

    def start(model: Any, tokens: Tensor, keep: Tensor, length: Tensor | None = None) -> tuple[Any, Any]:
        if fixed:  # how often is folded depends on the width: always on the widest
            tokens, keep = (torch.cat((x, x.new_zeros(x.shape[0], fixed)), 1)[:, :fixed] for x in (tokens, keep))
        return model.start(Padded(tokens, keep), beams=1, capacity=capacity, target_length=length)

    answers, sizes = [], []
    for size in SIZES:
        shape = tuple(min(size[name], limits["S"]) if name == "S" else size[name] for name in ("B", "S"))
        tokens, keep = torch.full(shape, 4), torch.ones(shape, dtype=torch.bool)
        length = (torch.full(shape[:1], 2),) if plans else ()
        with torch.no_grad():
            memory, state = start(asked, tokens, keep, *length)
        answers.append((memory, _growing(state)))
        sizes.append({"B": shape[0], "S": shape[1]})
    memory = [
        Port(f"memory.{i}", TYPES[one.dtype], _symbolic((one, other), sizes))
        for i, (one, other) in enumerate(zip(answers[0][0].leaves(), answers[1][0].leaves(), strict=True))
    ]
    state = _state_ports([answer[1] for answer in answers], sizes)
    grows = isinstance(answers[0][1], GrowingCache)
    inputs = _source_ports()
    if plans:
        inputs.append(Port("length", "int64", ("B",)))

    def encode(*given: Tensor) -> list[Tensor]:
        memory, state = start(model, *given)
        return [*memory.leaves(), *(() if grows else state.leaves())]

    outputs = [*memory, *(() if grows else (Port(p.name, p.type, _of_one(p.shape)) for p in state))]
    least = _least_source(model)
    encoder = Function(Graph("encoder.onnx", inputs, outputs), _Listed(model, encode), limits, {"S": least})
    found = {"encoder": encoder, "step": _step(model, answers[0][0], memory, answers[0][1], state)}
    if plans:
        found["lengths"] = _lengths(model, limits)
    if not grows:
        state = [dataclasses.replace(port, encoded=True) for port in state]
    return Functions(found, [port.name for port in memory], state, least)


def _lengths(model: Any, limits: dict[str, int]) -> Function:
    most = limits["L"] + 1

    def lengths(tokens: Tensor, keep: Tensor) -> list[Tensor]:
        return [model.length_scores(Padded(tokens, keep), most)]

    outputs = [Port("log_probs", FLOAT, ("B", most))]
    return Function(Graph("lengths.onnx", _source_ports(), outputs), _Listed(model, lengths), limits, {"S": 1})


def _step(model: Any, memory: Any, memory_ports: list[Port], state: Any, state_ports: list[StatePort]) -> Function:
    limits = _limits(model)
    state = state.within(limits["L"] + 1)  # what the host would count is the most that it can be

    def step(tokens: Tensor, *given: Tensor) -> list[Tensor]:
        rest: Iterator[Tensor] = iter(given)
        now = memory.map(lambda _: next(rest)) if memory_ports else memory
        before = state.map(lambda _: next(rest))
        hidden, after = model.advance(tokens[:, :, None], now, before)
        return [model.output.scores(hidden[:, :, 0]), *after.leaves()]

    inputs = [Port("tokens", "int64", ("B", "K")), *memory_ports, *(Port(p.name, p.type, p.shape) for p in state_ports)]
    after = (Port(p.name.replace("state", "next"), p.type, _grown(p.shape)) for p in state_ports)
    outputs = [Port("log_probs", FLOAT, ("B", "K", model.output.vocabulary)), *after]
    return Function(Graph("step.onnx", inputs, outputs), _Listed(model, step), limits, {"S": 1})


def _growing(state: Any) -> Any:
    """A state without tokens; its cache, if it is one, as one that grows."""
    if not isinstance(state, CacheState):
        return state
    keys, values = (tuple(x[:, :, :0] for x in side) for side in (state.keys, state.values))
    rows, slots = state.hidden.shape[:2]
    return GrowingCache(keys, values, state.hidden.new_zeros(rows, slots, 0, slots), state.positions)


def _state_ports(states: Sequence[Any], sizes: Sequence[dict[str, int]]) -> list[StatePort]:
    ports = []
    pairs = list(zip(*(state.leaves() for state in states), strict=True))
    if isinstance(states[0], GrowingCache):
        for i, (one, _) in enumerate(pairs):
            kind = "cache" if one.dim() == 5 else "seen" if one.dim() == 4 else "place"
            shape: tuple[int | str, ...] = {"seen": ("B", "K", "L", "K"), "place": ("B",)}.get(kind, ())
            shape = shape or ("B", one.shape[1], "L", "K", one.shape[-1])
            ports.append(StatePort(f"state.{i}", TYPES[one.dtype], shape, kind))
        return ports
    for i, (one, other) in enumerate(pairs):
        shape = _symbolic((one, other), sizes)
        ports.append(StatePort(f"state.{i}", TYPES[one.dtype], ("B", "K", *shape[2:]), "rows"))
    return ports


def _symbolic(leaves: tuple[Tensor, Tensor], sizes: Sequence[dict[str, int]]) -> tuple[int | str, ...]:
    """A shape with names where two answers differ."""
    shape: list[int | str] = []
    for place, pair in enumerate(zip(leaves[0].shape, leaves[1].shape, strict=True)):
        names = [name for name in sizes[0] if pair == (sizes[0][name], sizes[1][name])]
        if place == 0:
            shape.append("B")
        elif pair[0] == pair[1]:
            shape.append(pair[0])
        elif names:
            shape.append(names[-1])
        else:
            raise ModelError("the model", f"a size that is {pair[0]} and {pair[1]} has no name", "Report it")
    return tuple(shape)


def _of_one(shape: tuple[int | str, ...]) -> tuple[int | str, ...]:
    return tuple(1 if size == "K" else size for size in shape)


def _grown(shape: tuple[int | str, ...]) -> tuple[int | str, ...]:
    return tuple("L+1" if size == "L" else size for size in shape)
