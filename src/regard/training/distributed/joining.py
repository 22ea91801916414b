"""How a process becomes part of a team: torchrun says who it is, in the environment."""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous

from regard.core.errors import TrainingError
from regard.core.launcher import launched, number
from regard.training.distributed.team import GLANCE_SECONDS, Several, Team, as_member, current_team

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
    patience = number(TIMEOUT, USUAL_TIMEOUT, os.environ)
    waiting = timedelta(seconds=patience)
    store, rank, size = next(iter(rendezvous("env://", timeout=waiting)))
    store = PrefixStore(f"regard-{common_name(store, rank, size, patience)}", store)
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


def common_name(store: Any, rank: int, size: int, seconds: float) -> str:
    """A name that only the workers of this attempt know: what earlier ones have left in the store is not for them.

    The launcher does not give one: on several machines, each counts its own attempts. So the first worker makes a name, and tells
    it to whoever says hello, until all have answered; the others wait for an answer to their own hello.
    """
    own, until = secrets.token_hex(8), time.monotonic() + seconds
    missing = set(range(1, size)) if rank == 0 else {rank}
    greeted: dict[int, str] = {}
    if rank:
        store.set(f"regard-hello-{rank}", own)
    while missing:
        if rank:
            if store.check([f"regard-welcome-{own}"]):
                name = store.get(f"regard-welcome-{own}").decode()
                store.set(f"regard-here-{name}-{rank}", "")
                return name
        else:
            for other in sorted(missing):
                if store.check([f"regard-here-{own}-{other}"]):
                    missing.remove(other)
                elif store.check([f"regard-hello-{other}"]):
                    hello = store.get(f"regard-hello-{other}").decode()
                    if greeted.get(other) != hello:
                        store.set(f"regard-welcome-{hello}", own)
                        greeted[other] = hello
        if time.monotonic() > until:
            what = f"not all of {size} workers were there after {seconds:g} s"
            raise TrainingError(f"worker {rank}", what, "Look at what the others say, and start again")
        time.sleep(GLANCE_SECONDS / 5)
    return own


def backend_for(locally: int) -> str:
    """NCCL where every worker has a GPU of its own; gloo for what is on the CPU, and where workers share a GPU."""
    if not torch.cuda.is_available():
        return "gloo"
    nccl = dist.is_nccl_available() and locally <= torch.cuda.device_count()
    return "cpu:gloo,cuda:nccl" if nccl else "cpu:gloo,cuda:gloo"
