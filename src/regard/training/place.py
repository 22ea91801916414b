"""The place of a run: making its folder, keeping others out of it, and leaving nothing behind when the start failed."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

from regard.core.errors import CheckpointError, ConfigError
from regard.core.files import make_folder, quoted, remove_partials
from regard.tasks.folder import CHECKPOINTS, CONFIG, RUN, WEIGHTS

LOCK = ".lock"


def new_folder(folder: Path) -> Path:
    if folder.exists() and not folder.is_dir():
        raise ConfigError(folder, "the output is a file, not a folder", "Give another --out")
    if (folder / RUN).exists() or (folder / CONFIG).exists():
        raise ConfigError(
            folder,
            "the folder already holds a run",
            f"Go on with `regard train --resume {quoted(folder)}`, or give another --out",
        )
    try:
        make_folder(folder)
        # a run killed before it had written its first file may have left its lock, a half-written one, standard input
        own = (f".{RUN}.partial-", "stdin-")
        if any(e.name != LOCK and not e.name.startswith(own) for e in folder.iterdir()):
            raise ConfigError(folder, "the folder is not empty", "Give another --out")
        remove_partials(folder)
        for leftover in folder.glob("stdin-*"):
            leftover.unlink()
    except OSError as error:
        raise ConfigError(folder, f"the folder cannot be made ({error.strerror})", "Give another --out") from None
    return folder


def forget(folder: Path, existed: bool) -> None:
    """Empties the folder of a run that failed before its first checkpoint by what it was given: a wrong path, say.

    Going on would fail again, and the next try with the mistake mended should not find its folder taken.
    """
    if (folder / WEIGHTS).exists() or any((folder / CHECKPOINTS).glob("*")):
        return
    for entry in list(folder.iterdir()):  # the folder was empty when the run began: all of this is the run's own
        if entry.is_dir():
            shutil.rmtree(entry, ignore_errors=True)
        else:
            entry.unlink(missing_ok=True)
    if not existed:
        folder.rmdir()


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """One process at a time in a run folder."""
    try:
        import fcntl
    except ImportError:  # not on Windows
        yield
        return
    with open(folder / LOCK, "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise CheckpointError(
                folder, "another process is training in this folder", "Wait for it, or stop it"
            ) from None
        yield


@contextlib.contextmanager
def disk_errors(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise
        raise CheckpointError(
            error.filename or folder,
            f"writing the run failed ({error.strerror})",
            f"Make room or mend it, then `regard train --resume {quoted(folder)}`",
        ) from error
