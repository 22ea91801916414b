"""Converted models, kept so that each is converted once: beside its run, or in the user's cache folder.

An entry is a folder named by a checksum of all it was made from. It appears whole or not at all, has a manifest, and is read
into memory and compared with it: a damaged one is made again. A place keeps the newest few entries.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from regard.core.errors import RegardError
from regard.core.files import MANIFEST, read_json, write_folder

KEPT = {"run": 3, "user": 8}  # entries of a place
MAX_BYTES = 1 << 34  # of an entry's file


def key_of(made_from: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(made_from, sort_keys=True).encode()).hexdigest()[:32]


def cached(key: str, places: Sequence[tuple[Path, int]], make: Callable[[], dict[str, bytes]]) -> dict[str, bytes]:
    """The files of the entry `key`: from the first place that has it, else made, and kept in the first that can be written.

    `places` are folders and how many entries each keeps.
    """
    for place, _ in places:
        files = _read(place / key)
        if files is not None:
            return files
    files = make()
    for place, most in places:
        try:
            place.mkdir(parents=True, exist_ok=True)
            write_folder(place / key, lambda folder: _write(folder, files))
        except OSError:  # a disk that is full or may not be written: translating needs no cache
            continue
        _trim(place, most, key)
        break
    return files


def _read(folder: Path) -> dict[str, bytes] | None:
    try:
        listed = read_json(folder / MANIFEST)["files"]
        files = {}
        for name, entry in listed.items():
            path = folder / name
            if Path(name).name != name or path.is_symlink() or not path.stat().st_size == entry["bytes"] < MAX_BYTES:
                return None
            files[name] = path.read_bytes()
            if hashlib.sha256(files[name]).hexdigest() != entry["sha256"]:
                return None
        with contextlib.suppress(OSError):
            os.utime(folder)  # used just now: others go first
        return files or None
    except (RegardError, OSError, KeyError, TypeError, AttributeError):
        return None


def _write(folder: Path, files: Mapping[str, bytes]) -> None:
    for name, content in files.items():
        (folder / name).write_bytes(content)


def _trim(place: Path, most: int, key: str) -> None:
    """Removes the entries that were not used for longest, and what killed processes left."""
    with contextlib.suppress(OSError):
        entries = [entry for entry in place.iterdir() if entry.is_dir() and entry.name != key]
        entries.sort(key=lambda entry: entry.stat().st_mtime, reverse=True)
        whole = [entry for entry in entries if not entry.name.startswith(".")]
        left = [entry for entry in entries if entry.name.startswith(".") and not _at_work(entry)]
        for entry in [*whole[most - 1 :], *left]:
            shutil.rmtree(entry, ignore_errors=True)


def _at_work(partial: Path) -> bool:
    """Whether the process that writes a partial folder, whose number it ends with, is alive."""
    number = partial.name.rpartition("-")[2]
    try:
        os.kill(int(number), 0)
    except (ValueError, ProcessLookupError):
        return False
    except OSError:
        return True
    return True
