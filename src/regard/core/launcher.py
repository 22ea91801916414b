"""What a launcher (torchrun) says in the environment about the processes that it has started, and which of them this is."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NamedTuple

from regard.core.errors import ConfigError


class Launched(NamedTuple):
    """A process by itself is the only one."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0  # of those on this machine
    local_size: int = 1
    attempt: int = 0  # how often the launcher has started them anew
    again: bool = False  # whether the launcher may give the same command more than once


def launched(environment: Mapping[str, str] | None = None) -> Launched:
    """Who this process is."""
    given = os.environ if environment is None else environment
    attempt = number("TORCHELASTIC_RESTART_COUNT", 0, given)
    again = attempt > 0 or "TORCHELASTIC_RUN_ID" in given
    if "RANK" not in given or number("WORLD_SIZE", 1, given) < 2:
        return Launched(attempt=attempt, again=again)
    rank, size = number("RANK", 0, given), number("WORLD_SIZE", 1, given)
    if rank >= size:
        raise ConfigError("variable RANK", f"{rank} is not one of {size} workers", "Leave it to torchrun")
    local = number("LOCAL_RANK", 0, given), number("LOCAL_WORLD_SIZE", 1, given)
    return Launched(rank, size, *local, attempt, again)


def number(name: str, default: int, environment: Mapping[str, str]) -> int:
    """A whole number of the environment."""
    text = environment.get(name, "")
    if not text:
        return default
    if not text.isascii() or not text.isdecimal() or len(text) > 9:
        raise ConfigError(f"variable {name}", f"{text!r} is not a whole number", "Leave it to torchrun")
    return int(text)
