"""The parts of a checkpoint that are divided among workers: one file for each, which together hold everything.

A tensor is cut along its first dimension, worker 0's rows first. So the files of any number of workers can be put together, and
cut anew for any other number. What has no dimension, such as a count of steps, is the same in all of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import torch
from torch import Tensor

from regard.core.errors import CheckpointError
from regard.core.files import load_tensors, save_tensors

_NAME = re.compile(r"shard-(\d{5})-of-(\d{5})\.safetensors")
MOST_SHARDS = 1 << 14


def shard_name(rank: int, size: int) -> str:
    return f"shard-{rank:05d}-of-{size:05d}.safetensors"


def shard_names(folder: Path) -> list[str]:
    """The names of all shards that belong to a checkpoint, whether they are there or not; none if it is not divided."""
    for path in sorted(folder.glob("shard-*.safetensors")):
        found = _NAME.fullmatch(path.name)
        if found and 1 <= int(found[2]) <= MOST_SHARDS:
            return [shard_name(rank, int(found[2])) for rank in range(int(found[2]))]
    return []


def save_shard(folder: Path, rank: int, size: int, parts: Mapping[str, Mapping[str, Tensor] | None]) -> None:
    """What one worker has, by the kind of it (`optimizer`, `average`)."""
    named = {f"{kind}:{name}": t for kind, tensors in parts.items() if tensors for name, t in tensors.items()}
    save_tensors(folder / shard_name(rank, size), named)


def load_shards(folder: Path, names: Iterable[str]) -> dict[str, dict[str, Tensor]]:
    """All shards put together: whole tensors, by kind and name."""
    cut: dict[str, list[Tensor]] = {}
    for name in names:
        for key, tensor in load_tensors(folder / name).items():
            cut.setdefault(key, []).append(tensor)
    whole: dict[str, dict[str, Tensor]] = {}
    for key, parts in cut.items():
        kind, colon, name = key.partition(":")
        if not colon or len({(part.dim(), part.shape[1:], part.dtype) for part in parts}) > 1:
            raise CheckpointError(folder, f"its shards do not belong together ({key})", "Restore it from a copy")
        whole.setdefault(kind, {})[name] = parts[0] if parts[0].dim() == 0 else torch.cat(parts)
    return whole
