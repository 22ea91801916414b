"""Loss and gradients of one micro-batch; on CUDA, recorded once per shape and replayed, so that the host need not keep up.

A small model's step is hundreds of short kernels, and launching them one by one takes longer than running them. Batches
come in few shapes (widths in multiples of 8, rows filled up), so each shape's forward and backward pass is captured as a
CUDA graph when it is met for the second time.

A language model that carries its state reads each batch from where the one before ended; the state's tensors stay in place
and are written anew after every batch, also inside a recording.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.core.errors import CheckpointError
from regard.core.tree import State
from regard.core.types import Padded
from regard.data.batching import Batch
from regard.models.base import Forced, LanguageModel, NoMemory, Writer

MOST_GRAPHS = 128
MOST_GRADIENT_BYTES = 4 << 30  # each recording keeps a set of gradients of its own


class Computed(NamedTuple):
    """A micro-batch's part of the loss that is trained, and its sums over tokens: smoothed loss and plain nll."""

    loss: Tensor
    smoothed: Tensor
    nll: Tensor


@dataclasses.dataclass
class _Recording:
    graph: torch.cuda.CUDAGraph
    inputs: list[Tensor]
    computed: Computed
    gradients: list[Tensor | None]


class Carried:
    """The state that goes on from batch to batch, in tensors that stay where they are; nothing for most models."""

    def __init__(self, model: Writer):
        self.model = model if isinstance(model, LanguageModel) and model.carries else None
        self.state: State | None = None

    def at_hand(self, rows: int) -> State:
        """The state before the next batch, of so many rows."""
        assert self.model is not None
        if self.state is None:
            self.state = self.model.begin(rows).clone()
        return self.state

    @torch.no_grad()
    def forget(self) -> None:
        """A text begins: the state is that before any token."""
        if self.state is not None and self.model is not None:
            rows = len(_leaves(self.state)[0])
            self.state.map(lambda tensor, new: tensor.copy_(new), self.model.begin(rows))

    @torch.no_grad()
    def put(self, state: State) -> None:
        """What is not finite is 0 instead: a bad step is skipped, and must not spoil all that come after."""
        assert self.state is not None
        self.state.map(lambda tensor, new: tensor.copy_(torch.where(new.isfinite(), new, 0)), state)

    def tensors(self) -> dict[str, Tensor] | None:
        return None if self.state is None else {str(i): t for i, t in enumerate(_leaves(self.state))}

    def load(self, tensors: Mapping[str, Tensor], where: str) -> None:
        wrong = CheckpointError(
            where, "the carried state does not fit the model", "Use the version of regard that wrote it"
        )
        if self.model is None or "0" not in tensors:
            raise wrong
        self.state = self.model.begin(len(tensors["0"])).clone()
        own = _leaves(self.state)
        if [tuple(t.shape) for t in own] != [tuple(t.shape) for _, t in sorted(tensors.items(), key=_number)]:
            raise wrong
        for i, tensor in enumerate(own):
            tensor.copy_(tensors[str(i)])


def _number(item: tuple[str, Tensor]) -> int:
    return int(item[0]) if item[0].isdecimal() else -1


def _leaves(state: State) -> list[Tensor]:
    found: list[Tensor] = []
    state.map(lambda tensor: (found.append(tensor), tensor)[1])
    return found


class Gradients:
    """Runs a model forward and backward. The gradients are added to what the parameters hold, or replayed into them."""

    def __init__(
        self,
        model: Writer,
        autocast: Callable[[], AbstractContextManager],
        smoothing: float = 0.0,
        consistency: float = 0.0,
        record: bool = False,
        compile: bool = False,
    ):
        self.model, self.autocast, self.smoothing = model, autocast, smoothing
        self.consistency, self.record = consistency, record
        self.carried = Carried(model)
        self.forward = torch.compile(model.forward) if compile else model.forward
        if self.carried.model is not None:
            self.advance = torch.compile(model.advance) if compile else model.advance
        self.parameters = list(model.parameters())
        self.seen: set[tuple] = set()
        self.recordings: dict[tuple, _Recording] = {}
        self.pool: Any = None
        size = sum(p.numel() * p.element_size() for p in self.parameters)
        self.most = min(MOST_GRAPHS, MOST_GRADIENT_BYTES // max(1, size))

    def __call__(self, batch: Batch, scale: float, auxiliary: float = 1.0) -> Computed:
        """`scale` is one over the step's target tokens, `auxiliary` the weight of the model's own extra losses."""
        device = self.parameters[0].device
        if not self.record:
            return self._compute(batch.to(device), torch.tensor(scale, device=device), auxiliary)
        shape = (batch.source.tokens.shape, batch.target_in.shape)
        if shape in self.recordings:
            return self._replay(self.recordings[shape], batch, scale)
        batch = batch.to(device)
        if shape in self.seen and len(self.recordings) < self.most:
            self.recordings[shape] = self._capture(batch, scale, auxiliary)
            return self._replay(self.recordings[shape], batch, scale)
        self.seen.add(shape)
        return self._compute(batch, torch.tensor(scale, device=device), auxiliary)

    def _compute(self, batch: Batch, scale: Tensor, auxiliary: float) -> Computed:
        times = 2 if self.consistency else 1  # R-Drop reads everything twice, under two dropouts
        source, target_in, target_out = batch.source, batch.target_in, batch.target_out
        if times > 1:
            source = Padded(source.tokens.repeat(times, 1), source.keep.repeat(times, 1))
            target_in, target_out = target_in.repeat(times, 1), target_out.repeat(times, 1)
        after = None
        with self.autocast():
            if self.carried.model is None:
                forced = self.forward(source, target_in)
            else:
                memory = NoMemory(target_in.new_zeros(len(target_in)))
                hidden, after = self.advance(target_in[:, None], memory, self.carried.at_hand(len(target_in)))
                forced = Forced(hidden[:, 0], {})
            sums = self.model.output.loss(forced.hidden, target_out, self.smoothing, self.consistency)
        loss = sums.loss * (scale / times)
        for extra in forced.losses.values():
            loss = loss + extra * auxiliary
        loss.backward()
        if after is not None:
            self.carried.put(after)
        return Computed(loss.detach(), sums.loss.detach() / times, sums.nll.detach() / times)

    def _capture(self, batch: Batch, scale: float, auxiliary: float) -> _Recording:
        inputs = [t.clone() for t in (batch.source.tokens, batch.source.keep, batch.target_in, batch.target_out)]
        inputs.append(torch.tensor(scale, device=inputs[0].device))
        static = Batch(Padded(inputs[0], inputs[1]), inputs[2], inputs[3], batch.rows)
        for p in self.parameters:
            p.grad = None
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self.pool):
            computed = self._compute(static, inputs[4], auxiliary)
        self.pool = graph.pool()
        return _Recording(graph, inputs, computed, [p.grad for p in self.parameters])

    def _replay(self, recording: _Recording, batch: Batch, scale: float) -> Computed:
        for static, new in zip(recording.inputs, (*batch.source, batch.target_in, batch.target_out), strict=False):
            static.copy_(new, non_blocking=True)
        recording.inputs[4].fill_(scale)
        recording.graph.replay()
        for p, gradient in zip(self.parameters, recording.gradients, strict=True):
            p.grad = gradient
        return recording.computed
