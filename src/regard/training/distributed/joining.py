"""How a process becomes part of a team: torchrun says who it is, in the environment."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous

from regard.core.launcher import launched, number
from regard.training.distributed.team import Several, Team, as_member, current_team

TIMEOUT = "REGARD_WORKER_TIMEOUT"  # seconds that workers wait for each other
USUAL_TIMEOUT = 1800


@contextlib.contextmanager
def joined() -> Iterator[Team]:
    """The team of this process, from the moment that all of it are there."""
    if current_team().several:
        yield current_team()
        return
    this = launched()
    if this.size == 1:
        alone = Team()
        alone.again = this.again
        with as_member(alone):
            yield alone
        return
    if torch.cuda.is_available():
        torch.cuda.set_device(this.local_rank % torch.cuda.device_count())
    waiting = timedelta(seconds=number(TIMEOUT, USUAL_TIMEOUT, os.environ))
    store, rank, size = next(iter(rendezvous("env://", timeout=waiting)))
    store = PrefixStore(f"regard-{this.attempt}", store)  # what the last attempt has left there is not for this one
    groups = PrefixStore("groups", store)
    dist.init_process_group(backend_for(this.local_size), store=groups, rank=rank, world_size=size, timeout=waiting)
    team = Several(rank, size, store, this.again)
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
