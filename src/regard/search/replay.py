"""A step of search that is recorded once and replayed, so that the device need not wait for the host.

A step is some hundred short kernels; launching them one by one takes longer than running them. All that a step changes lives in
tensors that stay where they are, and so it can be recorded as a CUDA graph when it is met for the second time. What the host
decides is the same at every replay: how far caches are read (`span`), and whether prefixes may still be forced.

Recordings are kept with their tensors for the next batch of the same shape: some per model, the last used ones, as long as the
model's weights stay where they are.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from regard.core.cuda_graphs import recording
from regard.search.config import SearchConfig
from regard.search.step import Begun, Entry, Step
from regard.search.terms import TermSize

MOST_SHAPES = 16  # of which recordings are kept, per model
MOST_BYTES = 16 << 30  # of what goes with them,
MOST_MEMORY = 1 / 16  # and of a GPU's memory


class CannotReplay(Exception):
    """The model's step cannot be recorded: its state changes shape, or the host has to decide something in it."""


@runtime_checkable
class Capture(Protocol):
    """Records what a function does to tensors."""

    def record(self, function: Callable[[], None], tensors: list[Tensor]) -> Callable[[], None]:
        """What does the same again. Recording leaves these tensors, which are all that the function changes, as they are."""
        ...


class CudaCapture:
    """CUDA graphs, all of which share the memory for what they compute on the way."""

    def __init__(self) -> None:
        self.pool: Any = None

    def record(self, function: Callable[[], None], tensors: list[Tensor]) -> Callable[[], None]:
        graph = torch.cuda.CUDAGraph()
        with recording(graph, self.pool):
            function()
        self.pool = graph.pool()
        return graph.replay


CAPTURES: dict[str, Callable[[], Capture]] = {"cuda": CudaCapture}  # by kind of device


class Shape(NamedTuple):
    """What has to be equal for a recording to be used again."""

    rows: int
    width: int  # of sources
    tokens: int  # of each text, EOS included
    prefix: int
    terms: TermSize
    planned: bool
    rule: SearchConfig
    numbers: tuple[torch.device, torch.dtype, torch.dtype | None]  # where, of the weights, of autocast


def rule(config: SearchConfig) -> SearchConfig:
    """The settings without those that do not change a step."""
    usual = SearchConfig()
    names = ("seed", "max_ratio", "max_extra", "lengths", "capture")
    same = {name: getattr(usual, name) for name in names}
    same |= {"max_length": max(usual.max_length, config.min_length)}
    if config.method == "beam":
        same["nbest"] = 1
    return dataclasses.replace(config, **same)


class Replayed:
    """A batch of searches in tensors that stay where they are."""

    def __init__(self, step: Step, begun: Begun, capture: Capture):
        self.step, self.capture = step, capture
        self.work, self.memory, self.state = (part.map(_own) for part in begun[:3])
        self.constants = self.memory.constants()
        self.entry: Entry | None = None
        self.recordings: dict[Any, Callable[[], None]] = {}
        self.seen: set[Any] = set()
        self.unrecorded: set[Any] = set()

    def put(self, rows: Tensor, begun: Begun) -> None:
        """Searches that begin, into these rows."""
        for mine, new in zip((self.work, self.memory, self.state), begun[:3], strict=True):
            mine.put_in_place(rows, new)
        for mine, new in zip(self.constants, begun.memory.constants(), strict=True):
            if mine is not new:
                mine.copy_(new)

    def restart(self, entry: Entry, brief: bool) -> None:
        """Searches that begin, without prompts to be read at once, into all rows."""
        if self.entry is None:
            self.entry, self.rows = entry.map(_own), torch.arange(len(entry.limit), device=entry.limit.device)
        else:
            _copy(self.entry.leaves(), entry.leaves())
        try:
            self._run("start", lambda: self._start(brief), self._changed() + self.memory.leaves() + self.constants)
        except CannotReplay:  # of some models, steps can be recorded, but not the reading of sources
            self.unrecorded.add("start")
            self._start(brief)

    def _start(self, brief: bool) -> None:
        assert self.entry is not None
        with _uncached_autocast(self.work.row.device):
            self.put(self.rows, self.step.start(self.entry, brief=brief))

    def advance(self, span: int, forcing: bool) -> None:
        """A step: see `Step`."""
        self._run((span, forcing), lambda: self._take(span, forcing), self._changed())

    def _run(self, what: Any, function: Callable[[], None], changed: list[Tensor]) -> None:
        """Plainly at first; recorded and replayed from the second time on."""
        if what in self.seen and what not in self.recordings and what not in self.unrecorded:
            try:
                self.recordings[what] = self.capture.record(function, changed)
            except torch.OutOfMemoryError:
                raise
            except RuntimeError as error:
                raise CannotReplay(str(error)) from error
        self.recordings.get(what, function)()
        self.seen.add(what)

    def _changed(self) -> list[Tensor]:
        return self.work.leaves() + self.state.leaves()

    def _take(self, span: int, forcing: bool) -> None:
        with _uncached_autocast(self.work.row.device):
            work, state = self.step(self.work, self.memory, self.state.within(span), span, forcing)
        old, new = self._changed(), work.leaves() + state.leaves()
        if [(t.shape, t.dtype) for t in old] != [(t.shape, t.dtype) for t in new]:
            raise CannotReplay("the state's tensors change their shapes or types")
        pairs = [(mine, one) for mine, one in zip(old, new, strict=True) if mine is not one]
        places = {mine.untyped_storage().data_ptr() for mine in old}
        # what is a part of a tensor that is about to be overwritten is copied first
        pairs = [(mine, one.clone() if one.untyped_storage().data_ptr() in places else one) for mine, one in pairs]
        _copy([mine for mine, _ in pairs], [one for _, one in pairs])

    def bytes(self) -> int:
        """Of all tensors, and about those of a step's scores, which are the largest that recordings work on."""
        tensors = self._changed() + self.memory.leaves()
        scores = self.work.live.total.numel() * self.step.model.output.vocabulary * 8
        return scores + sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def _copy(into: list[Tensor], what: list[Tensor]) -> None:
    """By few kernels. Steps that work in place leave nothing to copy, which torch 2.11 refuses."""
    if into:
        torch._foreach_copy_(into, what)  # pyright: ignore[reportPrivateImportUsage]


def _own(tensor: Tensor) -> Tensor:
    return tensor.clone(memory_format=torch.contiguous_format)


@contextlib.contextmanager
def _uncached_autocast(device: torch.device) -> Iterator[None]:
    """Autocast as it is, but with weights converted inside of each step: a recording must not read what is freed after it."""
    if not torch.is_autocast_enabled(device.type):
        yield
        return
    with torch.autocast(device.type, torch.get_autocast_dtype(device.type), cache_enabled=False):
        yield


@dataclasses.dataclass
class _Kept:
    """The recordings of one model."""

    places: tuple[int, ...]  # where its weights are
    refused: bool = False
    shapes: collections.OrderedDict[Shape, Replayed] = dataclasses.field(default_factory=collections.OrderedDict)


_KEPT: weakref.WeakKeyDictionary[nn.Module, _Kept] = weakref.WeakKeyDictionary()
_LOCK = threading.Lock()


def can_replay(model: nn.Module, config: SearchConfig, device: torch.device) -> bool:
    """Whether steps are to be recorded: on a kind of device where that can be done, unless it failed with this model before."""
    if not config.capture or device.type not in CAPTURES:
        return False
    with _LOCK:
        return not _kept(model).refused


@dataclasses.dataclass
class Loan:
    """Recordings for the use of one search; None until it makes its own."""

    replayed: Replayed | None


@contextlib.contextmanager
def borrow(model: nn.Module, shape: Shape) -> Iterator[Loan]:
    """Recordings of this shape, if there are any; kept for the next search of this shape, unless this one fails."""
    with _LOCK:
        loan = Loan(_kept(model).shapes.pop(shape, None))
    try:
        yield loan
    except CannotReplay:
        with _LOCK:
            _kept(model).refused = True
        raise
    if loan.replayed is None:
        return
    with _LOCK:
        kept = _kept(model).shapes
        kept[shape] = loan.replayed
        most = _most_bytes(shape.numbers[0])
        while len(kept) > MOST_SHAPES or sum(one.bytes() for one in kept.values()) > most:
            kept.popitem(last=False)


def forget(model: nn.Module) -> None:
    """Drops what is kept of a model, and so frees its memory."""
    with _LOCK:
        _KEPT.pop(model, None)


def _most_bytes(device: torch.device) -> int:
    if device.type != "cuda":
        return MOST_BYTES
    return min(MOST_BYTES, int(MOST_MEMORY * torch.cuda.get_device_properties(device).total_memory))


def _kept(model: nn.Module) -> _Kept:
    places = _places(model)
    kept = _KEPT.get(model)
    if kept is None or kept.places != places:
        kept = _KEPT[model] = _Kept(places)
    return kept


def _places(model: nn.Module) -> tuple[int, ...]:
    """Where the weights are: a recording reads them there."""
    found: list[int] = []
    modules: list[Any] = [model]
    while modules:
        module = modules.pop()
        tensors = (*module._parameters.values(), *module._buffers.values())
        found += [tensor.data_ptr() for tensor in tensors if tensor is not None]
        modules += module._modules.values()
    return tuple(found)
