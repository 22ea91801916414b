"""Loss and gradients of one micro-batch; on CUDA, recorded once per shape and replayed, so that the host need not keep up.

A small model's step is hundreds of short kernels, and launching them one by one takes longer than running them. Batches
come in few shapes (widths in multiples of 8, rows filled up), so each shape's forward and backward pass is captured as a
CUDA graph when it is met for the second time; where the optimizer can be recorded too, the whole step is one graph.

A language model that carries its state reads each batch from where the one before ended; the state's tensors stay in place
and are written anew after every batch, also inside a recording.

A batch that does not fit into memory is cut into halves by rows (a packed one, which has but one, is padded for that), and
these again, and their gradients are added up: the loss is a sum over tokens, so the step is the same one, but for the random
numbers of dropout.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.core import workers
from regard.core.errors import TrainingError
from regard.core.types import Unpadded
from regard.data.batching import Batch
from regard.data.packing import PackedBatch
from regard.layers.batch_norm import BatchNorm
from regard.models.base import Forced, NoMemory, Writer
from regard.models.fused_forward import fused_forward
from regard.training.carried import WHOLE, Carried
from regard.training.lowered import Lowered
from regard.training.recording import Recorded
from regard.training.regions import CompiledRegions, repeated_layers

MOST_GRAPHS = 128
MOST_GRADIENT_BYTES = 4 << 30  # each recording keeps a set of gradients of its own, unless it takes the whole step
MOST_HALVINGS = 8


class Computed(NamedTuple):
    """A micro-batch's part of the loss that is trained, and its sums over tokens: smoothed loss and plain nll.

    `norm` is that of the gradient where the step has been taken already.
    """

    loss: Tensor
    smoothed: Tensor
    nll: Tensor
    norm: Tensor | None = None


class _Recording(NamedTuple):
    recorded: Recorded[tuple[Computed, list[Tensor | None]]]
    inputs: list[Tensor]
    scale: Tensor


class Gradients:
    """Runs a model forward and backward. The gradients are added to what the parameters hold, or replayed into them."""

    asks_for_padding = True  # batches without any are read without a mask

    def __init__(
        self,
        model: Writer,
        autocast: Callable[[], AbstractContextManager],
        smoothing: float = 0.0,
        consistency: float = 0.0,
        record: bool = False,
        compile: bool = False,
        *,
        fuse: bool = False,
        lowered: Lowered | None = None,
        finish: Callable[[Tensor], Tensor] | None = None,
        regions: CompiledRegions | None = None,
        within: Callable[[Callable[[], tuple[Tensor, ...]]], tuple[Tensor, ...]] | None = None,
        recorder: Callable[..., Recorded] = Recorded,
    ):
        """`lowered` does the work in the place of the model. `finish` takes the step (gives the gradient's norm) inside recordings.

        `within` calls what uses the model's weights, where they are not always there.

        With `fuse`, the model is read by few kernels (models/fused_forward.py) where it is known there. If not, and with `compile`,
        its repeated layers are compiled (`regions`, if not as usual), or else all of its forward pass.
        """
        self.lowered, self.finish, self.recorder = lowered, finish, recorder
        self.within = within or (lambda work: work())
        self.trained = list(model.parameters())
        self.model: Any = lowered.model if lowered is not None else model
        self.autocast, self.smoothing = autocast if lowered is None else nullcontext, smoothing
        self.consistency, self.record = consistency, record
        self.carried = Carried(self.model)
        self.forward = self.model.forward
        self.advance = self.model.advance if self.carried.model is not None else None
        self.regions: Callable[[], AbstractContextManager] = nullcontext
        fused = fused_forward(self.model) if fuse else None
        self.fused, self.compiled = fused is not None, compile and fused is None
        if fused is not None:
            self.forward = fused
        elif compile and (layers := repeated_layers(self.model)):
            self.regions = (regions or CompiledRegions(layers)).applied
        elif compile:
            self.forward = torch.compile(self.model.forward)
            self.advance = self.advance and torch.compile(self.advance)
        self.parameters = list(self.model.parameters())
        self.device = self.parameters[0].device
        self.together = any(isinstance(module, BatchNorm) for module in self.model.modules())  # rows depend on others
        self.seen: set[tuple] = set()
        self.recordings: dict[tuple, _Recording] = {}
        self.pool: Any = None
        size = sum(p.numel() * p.element_size() for p in self.trained)
        self.room = MOST_GRAPHS if finish is not None else min(MOST_GRAPHS, MOST_GRADIENT_BYTES // max(1, size))
        self.most = self.room
        self.fitting: dict[tuple, int] = {}  # rows that fit into memory at once, of shapes that do not as a whole
        self.split = 0  # batches that were cut

    def __call__(self, batch: Batch | PackedBatch, scale: float, auxiliary: float = 1.0) -> Computed:
        """`scale` is one over the step's target tokens, `auxiliary` the weight of the model's own extra losses."""
        here = batch.target_in.device.type == "cpu"
        if (
            self.asks_for_padding and here and isinstance(batch, Batch) and bool(batch.source.keep.all())
        ):  # costs nothing
            batch = batch._replace(source=Unpadded(*batch.source))
        if self.device.type == "cuda" and here:
            batch = _pinned(batch)
        shape = batch.shape
        if not self.record or shape in self.fitting:
            return self._in_pieces(batch.to(self.device), scale, auxiliary, shape)
        if shape in self.recordings:
            return self._replay(self.recordings[shape], batch, scale)
        batch = batch.to(self.device)
        if shape in self.seen and len(self.recordings) < self.most:
            try:
                self.recordings[shape] = self._capture(batch, scale, auxiliary)
                return self._given(self.recordings[shape])
            except torch.OutOfMemoryError:
                self.most = len(self.recordings)  # nothing has run, and there is no room for more recordings
            for p in self.trained:
                p.grad = None
            self._clear()
        self.seen.add(shape)
        before = workers.asked
        computed = self._in_pieces(batch, scale, auxiliary, shape)
        if workers.asked > before:  # what asks other workers is not recorded: they may not replay at the same time
            self.most = 0
        return computed

    def forget(self) -> None:
        """Drops the carried state, and all recordings with it: they read and write it where it is."""
        self.carried.state, self.pool, self.most = None, None, self.room
        self.recordings.clear()
        self.seen.clear()

    def _in_pieces(self, batch: Batch | PackedBatch, scale: float, auxiliary: float, shape: tuple) -> Computed:
        """All rows at once, or as many at a time as fit into memory."""
        if shape in self.fitting and isinstance(batch, PackedBatch):
            batch = batch.padded()
        count, begin, sums, unpacked = len(batch.target_in), 0, [], False
        rows = min(self.fitting.get(shape, count), count)
        factor = torch.full((), scale, device=self.device)  # torch.tensor would wait for the device
        while begin < count:
            place = slice(begin, min(begin + rows, count)) if rows < count else WHOLE
            held = [p.grad for p in self.parameters]
            for p in self.parameters:
                p.grad = None
            computed = None
            with suppress(torch.OutOfMemoryError):  # what the error holds on to is free only after this
                computed = self._compute(batch, factor, auxiliary, place)
            if computed is None:
                self._clear()
            for p, before in zip(self.parameters, held, strict=True):
                if before is not None:
                    p.grad = before if p.grad is None else before.add_(p.grad)
            if computed is None and isinstance(batch, PackedBatch):
                places = batch.target_in.numel()
                batch = batch.padded()
                count = rows = len(batch.target_in)
                if max(batch.source.tokens.numel(), batch.target_in.numel()) < places:
                    unpacked = True  # it is smaller than it was: one more try as a whole
                    continue
            if computed is None:
                rows = self._fewer(rows, count, shape)
                continue
            if self.lowered is not None:
                self.lowered.take_gradients()
            sums.append(computed)
            begin = begin + rows
        if rows < count or unpacked:
            self.fitting[shape], self.split = rows, self.split + 1
        if len(sums) == 1:
            return sums[0]
        return Computed(*(torch.stack([one[i] for one in sums]).sum() for i in range(3)))

    def _fewer(self, rows: int, count: int, shape: tuple) -> int:
        """Half as many rows, or an error that says why not."""
        where = f"a batch of {' x '.join(map(str, shape[1]))} target and {' x '.join(map(str, shape[0]))} source tokens"
        if self.together:
            what = "it does not fit into memory, and cannot be cut: batch normalisation sees all rows together"
            raise TrainingError(where, what, "Lower train.batch_tokens")
        if rows == 1 or count > rows << (MOST_HALVINGS - 1):
            what = f"not even {rows} of its rows fit into memory"
            raise TrainingError(where, what, "Lower train.batch_tokens, train.max_tokens or the model's sizes")
        return -(-rows // 2)

    def _clear(self) -> None:
        for p in self.parameters:
            p.grad = None
        if self.device.type == "cuda":
            torch.cuda.empty_cache()

    def _compute(self, batch: Batch | PackedBatch, scale: Tensor, auxiliary: float, place: slice = WHOLE) -> Computed:
        times = 2 if self.consistency else 1  # R-Drop reads everything twice, under two dropouts
        rows, packed = len(batch.target_in), isinstance(batch, PackedBatch)
        if packed and (place != WHOLE or times > 1 or not self.fused):
            raise TrainingError(
                "a packed batch", "it is read whole, once, and by kernels of sub-layers", "Set train.packed=false"
            )
        if not packed and place != WHOLE:
            batch = batch.of([t[place] for t in batch.tensors()])
        if times > 1:
            batch = batch.of([t.repeat(times, 1) for t in batch.tensors()])
        source, target_in, target_out, _ = batch
        after = None

        def read() -> tuple[Tensor, ...]:
            nonlocal after
            if self.advance is None:
                forced = self.forward(source, target_in)
            else:
                memory = NoMemory(target_in.new_zeros(len(target_in)))
                hidden, after = self.advance(target_in[:, None], memory, self.carried.at_hand(rows, place))
                forced = Forced(hidden[:, 0], {})
            sums = self.model.output.loss(forced.hidden, target_out, self.smoothing, self.consistency)
            if forced.losses and place != WHOLE:
                what = (
                    "it does not fit into memory, and cannot be cut: the model has a loss that is a mean over the batch"
                )
                raise TrainingError(f"a batch of {rows} rows", what, "Lower train.batch_tokens")
            return sums.loss, sums.nll, *forced.losses.values()

        with self.autocast(), self.regions():
            smoothed, nll, *extras = self.within(read)
        loss = smoothed * (scale / times)
        for extra in extras:
            loss = loss + extra * auxiliary
        loss.backward()
        if after is not None:
            self.carried.put(after, place)
        return Computed(loss.detach(), smoothed.detach() / times, nll.detach() / times)

    def _capture(self, batch: Batch | PackedBatch, scale: float, auxiliary: float) -> _Recording:
        inputs = [t.clone() for t in batch.tensors()]
        static, factor = batch.of(inputs), torch.full((), scale, device=inputs[0].device)
        for p in (*self.parameters, *self.trained):
            p.grad = None

        def work() -> tuple[Computed, list[Tensor | None]]:
            computed = self._compute(static, factor, auxiliary)
            if self.lowered is not None:
                self.lowered.take_gradients()
            if self.finish is not None:
                return computed._replace(norm=self.finish(computed.loss)), []
            return computed, [p.grad for p in self.trained]

        recorded = self.recorder(work, self.pool)
        self.pool = recorded.pool
        return _Recording(recorded, inputs, factor)

    def _replay(self, recording: _Recording, batch: Batch | PackedBatch, scale: float) -> Computed:
        for static, new in zip(recording.inputs, batch.tensors(), strict=True):
            static.copy_(new, non_blocking=True)
        recording.scale.fill_(scale)
        recording.recorded.replay()
        return self._given(recording)

    def _given(self, recording: _Recording) -> Computed:
        computed, gradients = recording.recorded.result
        for p, gradient in zip(self.trained, gradients, strict=False):
            p.grad = gradient
        return computed


def _pinned(batch: Batch | PackedBatch) -> Batch | PackedBatch:
    """In memory that is copied from without the host's waiting for what the device is still doing."""
    return batch.of([tensor.pin_memory() for tensor in batch.tensors()])
