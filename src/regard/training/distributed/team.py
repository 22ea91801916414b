"""The processes that work on one run: who this one is, and how they agree.

All that decides anything (a sum, a signal, a score) is the same number on every worker, so that they never part. What is not a
tensor travels as JSON: nothing that is received is ever executed.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

from regard.core.errors import TrainingError
from regard.data.batching import Part
from regard.data.draws import row_keys
from regard.tasks.folder import weights_of

DROPOUT = 0x776F726B  # the purpose that the random numbers of a worker's steps are drawn for
GLANCE_SECONDS = 0.1
LONGEST_MESSAGE = 1 << 30  # bytes


class Team:
    """One process by itself, which agrees with itself at once."""

    rank, size = 0, 1
    again = False  # whether the launcher may have given the same command before

    @property
    def leads(self) -> bool:
        """The first worker alone writes into the run's folder."""
        return self.rank == 0

    @property
    def several(self) -> bool:
        return self.size > 1

    @property
    def part(self) -> Part:
        return Part(self.rank, self.size)

    def seed(self, seed: int, step: int) -> int:
        """Of the random numbers of a step: those of the first worker are those of a process by itself."""
        if self.leads:
            return (seed << 32) + step
        return int(row_keys(seed, DROPOUT, step, np.array([self.rank]), np.array([0]))[0])

    def let_others_begin(self) -> None:
        """The leader has put all into the run's folder that the others read."""

    def await_leader(self) -> bool:
        """Waits until there is something to read; False if there is nothing left to do."""
        return True

    def say_end(self, failed: bool) -> None:
        """The leader is through, whether or not the others ever began."""

    def leave(self, seconds: float) -> None:
        """The leader, through which the others may be talking, goes last, or after so long."""

    def meet(self) -> None:
        """Waits until all are here."""

    def add(self, values: Sequence[int]) -> list[int]:
        """Whole numbers, each summed over all workers."""
        return list(values)

    def sum(self, tensor: Tensor) -> Tensor:
        """A new tensor: the sum over all workers."""
        return tensor

    def tell(self, value: Any) -> Any:
        """What the leader says. It is plain: numbers, texts, lists and dictionaries."""
        return value

    def gather(self, value: Any) -> list[Any]:
        """What each worker says, in their order."""
        return [value]

    def rows(self, tensors: Mapping[str, Tensor] | None) -> dict[str, Tensor] | None:
        """Each worker's rows of tensors, put together as in the whole batch."""
        return None if tensors is None else dict(tensors)

    def give_weights(self, model: nn.Module) -> None:
        """All get the leader's weights."""

    def check_same(self, model: nn.Module, step: int) -> None:
        """Raises a TrainingError unless all have the same weights, to the last bit."""


class Several(Team):
    """One of several processes, which all call the same methods in the same order."""

    def __init__(self, rank: int, size: int, store: Any, again: bool = False):
        self.rank, self.size, self.again = rank, size, again
        self._store, self._meetings = store, 0

    def let_others_begin(self) -> None:
        if self.leads:
            self._store.set("leader", "ready")

    def await_leader(self) -> bool:
        """It may be reading a large text, so there is no limit; the launcher ends who waits for a leader that is gone."""
        with self._others():
            said = self._poll("leader")
        if said == "failed":
            raise TrainingError(f"worker {self.rank}", "the first worker could not begin", "See what it says")
        return said == "ready"

    def say_end(self, failed: bool) -> None:
        with contextlib.suppress(RuntimeError):  # there may be nobody left to tell
            if self.leads and not self._store.check(["leader"]):
                self._store.set("leader", "failed" if failed else "finished")

    def leave(self, seconds: float) -> None:
        with contextlib.suppress(RuntimeError):
            left, until = self._store.add("left", 1), time.monotonic() + seconds
            while self.leads and left < self.size and time.monotonic() < until:
                time.sleep(GLANCE_SECONDS / 5)
                left = self._store.add("left", 0)

    def meet(self) -> None:
        self._meetings += 1
        name = f"meeting-{self._meetings}"
        with self._others():
            if self._store.add(f"{name}-there", 1) == self.size:
                self._store.set(name, "all")
            self._poll(name)

    def _poll(self, key: str) -> str:
        """Looks again and again rather than waiting inside of torch, where no signal is heard."""
        while not self._store.check([key]):
            time.sleep(GLANCE_SECONDS)
        return self._store.get(key).decode()

    @contextlib.contextmanager
    def _others(self) -> Iterator[None]:
        """What torch raises when a worker is gone, in plain words."""
        try:
            yield
        except RuntimeError as error:
            if isinstance(error, torch.OutOfMemoryError):
                raise
            why = str(error).strip().splitlines()
            raise TrainingError(
                f"worker {self.rank} of {self.size}",
                f"another worker is gone, or has not answered in time ({why[0][:200] if why else type(error).__name__})",
                "The newest checkpoint is whole: go on from it with `regard train --resume RUN`, on any number of workers",
            ) from error

    def add(self, values: Sequence[int]) -> list[int]:
        return self.sum(torch.tensor(values, dtype=torch.int64)).tolist()

    def sum(self, tensor: Tensor) -> Tensor:
        total = tensor.detach().clone()
        with self._others():
            dist.all_reduce(total)
        return total

    def send(self, tensor: Tensor) -> Any:
        """Begins to sum a tensor over all workers, in its place. `await_sent` says when it is there."""
        with self._others():
            return dist.all_reduce(tensor, async_op=True)

    def await_sent(self, works: Sequence[Any]) -> None:
        with self._others():
            for work in works:
                work.wait()

    def tell(self, value: Any) -> Any:
        content = json.dumps(value).encode() if self.leads else b""
        length = self.add([len(content)])[0]
        message = torch.zeros(_bounded(length), dtype=torch.uint8)
        if self.leads:
            message.copy_(torch.frombuffer(bytearray(content), dtype=torch.uint8))
        with self._others():
            dist.broadcast(message, 0)
        return json.loads(message.numpy().tobytes())

    def gather(self, value: Any) -> list[Any]:
        content = json.dumps(value).encode()
        lengths = self.add([len(content) if rank == self.rank else 0 for rank in range(self.size)])
        own = torch.zeros(_bounded(max(lengths)), dtype=torch.uint8)
        own[: len(content)] = torch.frombuffer(bytearray(content), dtype=torch.uint8)
        found = [torch.empty_like(own) for _ in range(self.size)]
        with self._others():
            dist.all_gather(found, own)
        return [json.loads(each[:length].numpy().tobytes()) for each, length in zip(found, lengths, strict=True)]

    def rows(self, tensors: Mapping[str, Tensor] | None) -> dict[str, Tensor] | None:
        if tensors is None:
            return None
        whole = {}
        for name, own in tensors.items():
            full = torch.zeros((self.add([len(own)])[0], *own.shape[1:]), dtype=own.dtype)
            full[self.rank :: self.size] = own.detach().cpu()
            whole[name] = self.sum(full)
        return whole

    def give_weights(self, model: nn.Module) -> None:
        with self._others(), torch.no_grad():
            for tensor in weights_of(model).values():
                dist.broadcast(tensor, 0)

    def check_same(self, model: nn.Module, step: int) -> None:
        found = self.gather(_checksum(weights_of(model).values()))
        if len(set(found)) > 1:
            raise TrainingError(
                f"step {step}",
                f"the workers' weights are no longer the same (sums {found})",
                "Use machines of one kind with one version of torch, and go on from an earlier checkpoint",
            )


def _bounded(length: int) -> int:
    if length > LONGEST_MESSAGE:
        raise TrainingError("workers", f"a message has {length:,} bytes", "Use a smaller validation text")
    return length


def _checksum(tensors: Any) -> int:
    """Of all bits: the sum of them as whole numbers, each tensor's times its place."""
    total = 0
    for place, tensor in enumerate(tensors, start=1):
        content = tensor.detach().contiguous().flatten()
        whole = {8: torch.int64, 4: torch.int32, 2: torch.int16, 1: torch.uint8}[content.element_size()]
        total += place * int(content.view(whole).sum(dtype=torch.int64))
    return total % (1 << 62)


ALONE = Team()
_current: Team = ALONE


def current_team() -> Team:
    """The team that this process is part of."""
    return _current


@contextlib.contextmanager
def as_member(team: Team) -> Iterator[Team]:
    global _current
    before, _current = _current, team
    try:
        yield team
    finally:
        _current = before
