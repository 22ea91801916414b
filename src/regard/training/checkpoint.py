"""Checkpoints: all that a run needs to go on exactly, in folders that appear whole, checksummed, the previous one kept."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from regard.core.errors import CheckpointError
from regard.core.files import (
    check_manifest,
    check_place,
    check_tensors,
    load_tensors,
    make_folder,
    read_json,
    remove_partials,
    save_tensors,
    write_folder,
    write_json,
)
from regard.tasks.folder import BEST, OPTIMIZER, STATE, WEIGHTS
from regard.training.distributed.shard_files import load_shards, shard_names

AVERAGE = "average.safetensors"
CARRIED = "carried.safetensors"  # the state of a language model that goes on into the next batch
_NAME = re.compile(r"step-(\d{9})")


class Loaded(NamedTuple):
    """What is in a checkpoint; None for what a run does not have."""

    weights: dict[str, Tensor]
    optimizer: dict[str, Tensor]
    average: dict[str, Tensor] | None
    carried: dict[str, Tensor] | None
    state: dict[str, Any]


class Checkpoints:
    """The `checkpoints` folder of a run: one every so many steps, beside those between them and those of an interruption.

    The newest two that are whole are kept, and the newest `keep` of the regular ones.
    """

    def __init__(self, folder: Path, keep: int = 0, every: int = 1):
        self.folder, self.keep, self.every = folder, keep, every
        self.damaged: set[int] = set()
        make_folder(folder)
        remove_partials(folder)

    def steps(self) -> list[int]:
        """Steps of which there is a checkpoint, newest first."""
        found = (_NAME.fullmatch(entry.name) for entry in self.folder.iterdir() if entry.is_dir())
        return sorted((int(match[1]) for match in found if match), reverse=True)

    def regular(self, last: int | None = None) -> list[int]:
        """Steps at which every run with these settings has a checkpoint (its last step too), newest first."""
        return [step for step in self.steps() if step % self.every == 0 or step == last]

    def path(self, step: int) -> Path:
        return self.folder / f"step-{step:09d}"

    def save(
        self,
        step: int,
        *,
        weights: Mapping[str, Tensor],
        optimizer: Mapping[str, Tensor],
        average: Mapping[str, Tensor] | None,
        state: Mapping[str, Any],
        carried: Mapping[str, Tensor] | None = None,
    ) -> None:
        def fill(folder: Path) -> None:
            save_tensors(folder / WEIGHTS, weights)
            save_tensors(folder / OPTIMIZER, optimizer)
            for name, tensors in ((AVERAGE, average), (CARRIED, carried)):
                if tensors is not None:
                    save_tensors(folder / name, tensors)
            write_json(folder / STATE, {"format": 1, "step": step, **state})

        self.put(step, fill)

    def save_divided(
        self,
        step: int,
        *,
        weights: Mapping[str, Tensor],
        carried: Mapping[str, Tensor] | None,
        state: Mapping[str, Any],
        shards: Callable[[Path], None],
    ) -> None:
        """A checkpoint of which every worker writes a part: `shards` returns when all have."""

        def fill(folder: Path) -> None:
            save_tensors(folder / WEIGHTS, weights)
            if carried is not None:
                save_tensors(folder / CARRIED, carried)
            write_json(folder / STATE, {"format": 1, "step": step, **state})
            shards(folder)

        self.put(step, fill)

    def put(self, step: int, fill: Callable[[Path], None]) -> None:
        """Makes the checkpoint of a step appear, and removes old ones."""
        write_folder(self.path(step), fill)
        self.damaged.discard(step)
        whole = [s for s in self.steps() if s not in self.damaged]
        kept = {*whole[:2], *self.regular()[: self.keep]}
        for old in set(self.steps()) - kept:
            if old < step and len(whole) > 1:
                self._remove(self.path(old))

    def _remove(self, folder: Path) -> None:
        """Out of sight first, so that a half-removed folder is never taken for a checkpoint."""
        hidden = folder.with_name(f".{folder.name}.partial-{os.getpid()}")
        os.rename(folder, hidden)
        shutil.rmtree(hidden, ignore_errors=True)

    def save_best(self, weights: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
        def fill(folder: Path) -> None:
            save_tensors(folder / WEIGHTS, weights)
            write_json(folder / STATE, {"format": 1, **state})

        write_folder(self.folder / BEST, fill)

    def best(self) -> dict[str, Tensor]:
        check_manifest(self.folder / BEST, [WEIGHTS])
        return load_tensors(self.folder / BEST / WEIGHTS)

    def weights(self, step: int) -> dict[str, Tensor]:
        self.check(step)
        return load_tensors(self.path(step) / WEIGHTS)

    def check(self, step: int) -> None:
        """Raises a CheckpointError unless a checkpoint is whole."""
        folder = self.path(step)
        check_place(self.folder)
        check_place(folder)
        more = [name for name in (AVERAGE, CARRIED) if (folder / name).exists()]
        more += shard_names(folder) or [OPTIMIZER]
        check_manifest(folder, [WEIGHTS, STATE, *more])
        for name in (WEIGHTS, *more):  # a manifest may agree with a file that no one can read
            check_tensors(folder / name)

    def newest(self, complain: Callable[[str], None]) -> int | None:
        """The newest undamaged checkpoint; damaged ones are named aloud and passed over. None if there never was one."""
        steps = self.steps()
        for step in steps:
            try:
                self.check(step)
                return step
            except CheckpointError as error:
                self.damaged.add(step)
                complain(f"Checkpoint of step {step} is damaged and is passed over. {error}")
        if steps:
            raise CheckpointError(
                self.folder,
                "every checkpoint of this run is damaged",
                "Restore one from a copy, or delete this folder to start the run over",
            )
        return None

    def load(self, step: int) -> Loaded:
        folder = self.path(step)
        average, carried = (
            load_tensors(folder / name) if (folder / name).exists() else None for name in (AVERAGE, CARRIED)
        )
        weights = load_tensors(folder / WEIGHTS)
        if shards := shard_names(folder):
            whole = load_shards(folder, shards)
            optimizer, average = whole.get("optimizer", {}), whole.get("average")
        else:
            optimizer = load_tensors(folder / OPTIMIZER)
        return Loaded(weights, optimizer, average, carried, read_json(folder / STATE))
