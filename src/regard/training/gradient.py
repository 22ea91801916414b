"""Loss and gradients of one micro-batch; on CUDA, recorded once per shape and replayed, so that the host need not keep up.

A small model's step is hundreds of short kernels, and launching them one by one takes longer than running them. Batches
come in few shapes (widths in multiples of 8, rows filled up), so each shape's forward and backward pass is captured as a
CUDA graph when it is met for the second time.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.core.types import Padded
from regard.data.batching import Batch
from regard.models.base import Writer

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


class Gradients:
    """Runs a model forward and backward. The gradients are added to what the parameters hold, or replayed into them."""

    def __init__(
        self,
        model: Writer,
        forward: Callable,
        autocast: Callable[[], AbstractContextManager],
        smoothing: float,
        consistency: float,
        record: bool,
    ):
        self.model, self.forward, self.autocast, self.smoothing = model, forward, autocast, smoothing
        self.consistency, self.record = consistency, record
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
        with self.autocast():
            forced = self.forward(source, target_in)
            sums = self.model.output.loss(forced.hidden, target_out, self.smoothing, self.consistency)
        loss = sums.loss * (scale / times)
        for extra in forced.losses.values():
            loss = loss + extra * auxiliary
        loss.backward()
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
