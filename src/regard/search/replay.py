"""A step of search that is recorded once and replayed, so that the device need not wait for the host.

A step is some hundred short kernels; launching them one by one takes longer than running them. All that a step changes lives in
tensors that stay where they are, and so it can be recorded as a CUDA graph when it is met for the second time. What the host
decides is the same at every replay: how far caches are read (`span`), and whether prefixes may still be forced. Recordings
are kept for the next batch of the same shape (see recordings).
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from regard.core.cuda_graphs import recording
from regard.core.tree import Rows
from regard.search.looks import Look, Told
from regard.search.one_piece import in_one_piece
from regard.search.step import Begun, Entry, Step

MOST_READINGS = 8  # lengths of prompts of which the reading is kept, per shape
LOOKS = 3  # that are kept: the one asked for last, the one before it, and one whose texts are being made
SENDINGS = 4  # of groups that enter, that may be on their way at the same time


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


class Replayed:
    """A batch of searches in tensors that stay where they are. What the host is told of lies in one piece of memory."""

    def __init__(self, step: Step, begun: Begun, capture: Capture):
        self.step, self.capture = step, capture
        new = Told(begun.work, torch.ones_like(begun.work.done))
        self.told, memory = in_one_piece(new, begun.work.row.device)
        _copy(self.told.leaves(), new.leaves())
        self.work = self.told.work
        self.memory, self.state = begun.memory.map(_own), begun.state.map(_own)
        self.constants = self.memory.constants()
        self.entry: _Entering | None = None  # of all rows
        self.joining: _Entering | None = None  # of a group of rows
        self.looks = [Look(self.told, memory) for _ in range(LOOKS)]
        self.fetches: list[Look] = []  # that wait for their next use
        self.piece = memory
        self.recordings: dict[Any, Callable[[], None]] = {}
        self.seen: set[Any] = set()
        self.unrecorded: set[Any] = set()
        scores = self.work.live.total.numel() * step.model.output.vocabulary * 8
        tensors = [memory, *self.memory.leaves(), *self.state.leaves()]
        # all tensors, and about those of a step's scores, which are the largest that recordings work on
        self.bytes: int = scores + sum(tensor.numel() * tensor.element_size() for tensor in tensors)

    def put(self, rows: Tensor, begun: Begun) -> None:
        """Searches that begin, into these rows."""
        self.told.put_in_place(rows, Told(begun.work, torch.ones_like(begun.work.done)))
        self.memory.put_in_place(rows, begun.memory)
        self.state.put_in_place(rows, begun.state)
        self._share(begun.memory)

    def restart(self, entry: Entry, shared: int, brief: bool) -> None:
        """Searches that begin, into all rows (`entry` on the host); `shared` tokens of prompts are read at once.

        Whether these are possible is to be seen (`Told.fine`).
        """
        if self.entry is None:
            self.entry = _Entering(entry, torch.arange(len(entry.limit)), self.work.row.device)
        self.entry.send(entry)
        self._read(("start", shared), lambda: self._start(shared, brief))
        readings = [one for one in self.recordings if one[0] == "start"]
        for old in readings[: len(readings) - MOST_READINGS]:
            del self.recordings[old]

    def join(self, rows: Tensor, entry: Entry, brief: bool) -> None:
        """Searches that begin, into these rows (both on the host): of no prompt anything is read at once.

        As `put`, but recorded: for groups that always have the same number of rows.
        """
        if self.joining is None:
            self.joining = _Entering(entry, rows, self.work.row.device, SENDINGS)
        self.joining.send(entry, rows)
        self._read(("join", len(rows)), lambda: self._join(brief))

    def _read(self, what: Any, function: Callable[[], None]) -> None:
        try:
            self._run(what, function, self._restarted)
        except CannotReplay:  # of some models, steps can be recorded, but not the reading of sources
            self.unrecorded.add(what)
            function()

    def _join(self, brief: bool) -> None:
        assert self.joining is not None
        with _uncached_autocast(self.work.row.device):
            begun, _ = self.step.start(self.joining.there, 0, brief)
        self.put(self.joining.rows, begun)

    def _start(self, shared: int, brief: bool) -> None:
        assert self.entry is not None
        with _uncached_autocast(self.work.row.device):
            begun, fine = self.step.start(self.entry.there, shared, brief)
        old, new = [*self.told.leaves(), *self.memory.leaves()], [begun.work.leaves(), [fine], begun.memory.leaves()]
        _copy(old, [leaf for leaves in new for leaf in leaves])
        self.state.put_in_place(self.entry.rows, begun.state)
        self._share(begun.memory)

    def _restarted(self) -> list[Tensor]:
        return [*self._changed(), *self.memory.leaves(), *self.constants]

    def _share(self, memory: Any) -> None:
        pairs = zip(self.constants, memory.constants(), strict=True)
        pairs = [(mine, new) for mine, new in pairs if mine is not new]
        _copy([mine for mine, _ in pairs], [new for _, new in pairs])

    def advance(self, span: int, forcing: bool) -> None:
        """A step: see `Step`."""
        self._run((span, forcing), lambda: self._take(span, forcing), self._changed)

    def look(self) -> Look:
        """A look at all as it is now. It stays until there were two more."""
        self.looks.append(self.looks.pop(0))
        self.looks[-1].ask()
        return self.looks[-1]

    def fetch(self) -> Look:
        """All as it is now, which stays until it is given back."""
        fetch = self.fetches.pop() if self.fetches else Look(self.told, self.piece, whole=True)
        fetch.ask()
        return fetch

    def give_back(self, used: Any) -> None:
        """Something that is needed no more: a fetch is kept for the next one."""
        if isinstance(used, Look) and used not in self.looks:
            self.fetches.append(used)

    def _run(self, what: Any, function: Callable[[], None], changed: Callable[[], list[Tensor]]) -> None:
        """Plainly at first; recorded and replayed from the second time on."""
        if what in self.seen and what not in self.recordings and what not in self.unrecorded:
            try:
                self.recordings[what] = self.capture.record(function, changed())
            except torch.OutOfMemoryError:
                raise
            except RuntimeError as error:
                raise CannotReplay(str(error)) from error
        self.recordings.get(what, function)()
        self.seen.add(what)

    def _changed(self) -> list[Tensor]:
        return self.told.leaves() + self.state.leaves()

    def _take(self, span: int, forcing: bool) -> None:
        with _uncached_autocast(self.work.row.device):
            work, state = self.step(self.work, self.memory, self.state.within(span), span, forcing)
        old, new = self.work.leaves() + self.state.leaves(), work.leaves() + state.leaves()
        if [(t.shape, t.dtype) for t in old] != [(t.shape, t.dtype) for t in new]:
            raise CannotReplay("the state's tensors change their shapes or types")
        pairs = [(mine, one) for mine, one in zip(old, new, strict=True) if mine is not one]
        places = {mine.untyped_storage().data_ptr() for mine in old}
        # what is a part of a tensor that is about to be overwritten is copied first
        pairs = [(mine, one.clone() if one.untyped_storage().data_ptr() in places else one) for mine, one in pairs]
        _copy([mine for mine, _ in pairs], [one for _, one in pairs])


@dataclasses.dataclass
class _Placed(Rows):
    entry: Entry
    rows: Tensor


class _Entering:
    """What enters a batch, in memory that stays, and its way there: one copy. So many may be on their way at the same time."""

    def __init__(self, like: Entry, rows: Tensor, device: torch.device, sendings: int = 1):
        placed = _Placed(like, rows)
        there, self._there = in_one_piece(placed, device)
        self.there, self.rows = there.entry, there.rows
        self._sendings = collections.deque(_Sending(placed, device) for _ in range(sendings))
        self._all_rows = rows

    def send(self, entry: Entry, rows: Tensor | None = None) -> None:
        """Into these rows (None: those that it was made for)."""
        self._sendings.rotate()
        self._sendings[0].send(_Placed(entry, self._all_rows if rows is None else rows), self._there)


class _Sending:
    """Memory of the host that may be written again when its copy has arrived."""

    def __init__(self, like: _Placed, device: torch.device):
        here, self.memory = in_one_piece(like, torch.device("cpu"), pinned=device.type == "cuda")
        self.leaves = here.leaves()
        self.event = torch.cuda.Event() if device.type == "cuda" else None

    def send(self, placed: _Placed, there: Tensor) -> None:
        if self.event is not None:
            self.event.synchronize()
        for mine, new in zip(self.leaves, placed.leaves(), strict=True):
            mine.copy_(new)
        there.copy_(self.memory, non_blocking=True)
        if self.event is not None:
            self.event.record(torch.cuda.current_stream(there.device))


def _copy(into: list[Tensor], what: list[Tensor]) -> None:
    """By few kernels: one for all tensors of a type."""
    kinds: dict[Any, tuple[list[Tensor], list[Tensor]]] = {}
    for mine, new in zip(into, what, strict=True):
        some, others = kinds.setdefault((mine.dtype, new.dtype), ([], []))
        some.append(mine)
        others.append(new)
    for some, others in kinds.values():
        torch._foreach_copy_(some, others)  # pyright: ignore[reportPrivateImportUsage]


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
