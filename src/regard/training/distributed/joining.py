"""How a process becomes part of a team: torchrun says who it is, in the environment."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous

from regard.core.errors import ConfigError
from regard.training.distributed.team import Several, Team, as_member, current_team

TIMEOUT = "REGARD_WORKER_TIMEOUT"  # seconds that workers wait for each other
USUAL_TIMEOUT = 1800.0


def number(name: str, default: int, environment: Mapping[str, str] | None = None) -> int:
    """A whole number of the environment."""
    text = (os.environ if environment is None else environment).get(name, "")
    if not text:
        return default
    if not text.isascii() or not text.isdecimal() or len(text) > 9:
        raise ConfigError(f"variable {name}", f"{text!r} is not a whole number", "Leave it to torchrun")
    return int(text)


def is_launched() -> bool:
    """Whether a launcher has made this process one of several."""
    return number("WORLD_SIZE", 1) > 1 and "RANK" in os.environ


@contextlib.contextmanager
def joined() -> Iterator[Team]:
    """The team of this process, from the moment that all of it are there."""
    if current_team().several:
        yield current_team()
        return
    attempt = number("TORCHELASTIC_RESTART_COUNT", 0)
    if not is_launched():
        alone = Team()
        alone.attempt = attempt
        with as_member(alone):
            yield alone
        return
    seconds = float(number(TIMEOUT, int(USUAL_TIMEOUT)))
    local, locally = number("LOCAL_RANK", 0), number("LOCAL_WORLD_SIZE", 1)
    backend = backend_for(locally)
    if torch.cuda.is_available():
        torch.cuda.set_device(local % torch.cuda.device_count())
    store, rank, size = next(iter(rendezvous("env://", timeout=timedelta(seconds=seconds))))
    dist.init_process_group(
        backend,
        store=PrefixStore(f"groups-{attempt}", store),
        rank=rank,
        world_size=size,
        timeout=timedelta(seconds=seconds),
    )
    team = Several(rank, size, PrefixStore(f"regard-{attempt}", store), attempt, seconds)
    seconds = 2.0  # for the others to hear that something went wrong
    try:
        with as_member(team):
            yield team
        seconds = 30.0
    finally:
        team.leave(seconds)
        with contextlib.suppress(RuntimeError):  # the others may be gone
            dist.destroy_process_group()


def backend_for(locally: int) -> str:
    """NCCL where every worker has a GPU of its own; gloo for what is on the CPU, and where workers share a GPU."""
    if not torch.cuda.is_available():
        return "gloo"
    nccl = dist.is_nccl_available() and locally <= torch.cuda.device_count()
    return "cpu:gloo,cuda:nccl" if nccl else "cpu:gloo,cuda:gloo"
