"""A power cut, simulated: what a program does to the files below a folder is recorded, and any end of it played back.

The disk of this model keeps nothing that it was not told to keep. Contents are on it once their file was synced, and names
once their folder was; everything else may be there or not, in any combination. A rename is there as a whole or not at all.
"""

from __future__ import annotations

import builtins
import io
import os
import random
import stat
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

ROOT = 0  # the inode of the recorded folder


@dataclass
class Operation:
    """One change: a piece of a file's content, or names of a folder; or a sync, after which earlier ones of a thing are kept."""

    kind: str  # "write", "truncate", "names", "sync", "acknowledged"
    inode: int
    content: bytes = b""
    offset: int = 0
    names: dict[tuple[int, str], int | None] = field(default_factory=dict)
    note: Any = None


class Recorder:
    """Records what happens below a folder from now on, by patching the functions that Python's file operations end in."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, root: Path):
        self.root, self.log = os.path.realpath(root), []
        self.inodes: dict[str, int] = {self.root: ROOT}
        self.folders = {ROOT}
        self.made = 0
        self._os = {
            name: getattr(os, name) for name in ("mkdir", "rename", "replace", "unlink", "rmdir", "fsync", "open")
        }
        self._open = builtins.open
        patched: dict[str, Callable] = {"mkdir": self._mkdir, "rename": self._rename, "replace": self._rename}
        patched |= {"unlink": self._unlink, "remove": self._unlink, "rmdir": self._rmdir, "fsync": self._fsync}
        for name, function in patched.items():
            monkeypatch.setattr(os, name, function)
        for module in (builtins, io):
            monkeypatch.setattr(module, "open", self._opened)

    def acknowledge(self, note: object) -> None:
        """From here on, the program holds that something is safe."""
        self.log.append(Operation("acknowledged", ROOT, note=note))

    def _path(self, path: Any, dir_fd: int | None = None) -> str | None:
        if isinstance(path, int):
            return os.readlink(f"/proc/self/fd/{path}")
        base = os.readlink(f"/proc/self/fd/{dir_fd}") if dir_fd is not None else os.getcwd()
        whole = os.path.normpath(os.path.join(base, os.fspath(path)))
        parent = os.path.realpath(os.path.dirname(whole))
        whole = os.path.join(parent, os.path.basename(whole))
        return whole if whole.startswith(self.root + "/") or whole == self.root else None

    def _split(self, path: str) -> tuple[int, str]:
        parent, name = os.path.split(path)
        return self.inodes[parent], name

    def _new(self, path: str, folder: bool) -> int:
        self.made += 1
        self.inodes[path] = self.made
        if folder:
            self.folders.add(self.made)
        self.log.append(Operation("names", self.inodes[os.path.dirname(path)], names={self._split(path): self.made}))
        return self.made

    def _mkdir(self, path: Any, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        self._os["mkdir"](path, mode, dir_fd=dir_fd)
        if place := self._path(path, dir_fd):
            self._new(place, True)

    def _rename(self, old: Any, new: Any, **named: Any) -> None:
        self._os["replace"](old, new, **named)
        before, after = self._path(old), self._path(new)
        if before and after:
            inode = self.inodes[before]
            names = {self._split(before): None, self._split(after): inode}
            self.log.append(Operation("names", self.inodes[os.path.dirname(after)], names=names))
            moved = {p: i for p, i in self.inodes.items() if p == before or p.startswith(before + "/")}
            for path, number in moved.items():
                del self.inodes[path]
                self.inodes[after + path.removeprefix(before)] = number

    def _gone(self, path: Any, dir_fd: int | None) -> None:
        if (place := self._path(path, dir_fd)) and place in self.inodes:
            self.log.append(Operation("names", self.inodes[os.path.dirname(place)], names={self._split(place): None}))
            del self.inodes[place]

    def _unlink(self, path: Any, *, dir_fd: int | None = None) -> None:
        self._os["unlink"](path, dir_fd=dir_fd)
        self._gone(path, dir_fd)

    def _rmdir(self, path: Any, *, dir_fd: int | None = None) -> None:
        self._os["rmdir"](path, dir_fd=dir_fd)
        self._gone(path, dir_fd)

    def _fsync(self, descriptor: int) -> None:
        """Nothing is really synced: the model is the disk."""
        place = self._path(descriptor)
        if place in self.inodes:
            self.log.append(Operation("sync", self.inodes[place]))

    def _opened(self, file: Any, mode: str = "r", *arguments: Any, **named: Any) -> Any:
        place = self._path(file) if isinstance(file, (str, os.PathLike)) else None
        before = place is not None and os.path.exists(place)
        opened = self._open(file, mode, *arguments, **named)
        if place is None or not set(mode) & set("wax+"):
            return opened
        if not stat.S_ISREG(os.fstat(opened.fileno()).st_mode):
            return opened
        inode = self.inodes[place] if before and place in self.inodes else self._new(place, False)
        if "w" in mode:
            self.log.append(Operation("truncate", inode))
        return _Watched(opened, self, inode)


class _Watched:
    """An open file whose writes are recorded when they leave the buffer of the program: at a flush, and at the end."""

    def __init__(self, file: Any, recorder: Recorder, inode: int):
        self._file, self._recorder, self._inode = file, recorder, inode
        self._seen = os.fstat(file.fileno()).st_size
        self._name = f"/proc/self/fd/{file.fileno()}"

    def _look(self) -> None:
        size = os.fstat(self._file.fileno()).st_size
        if size > self._seen:  # all that is written here is added at the end
            with self._recorder._open(self._name, "rb") as reader:
                reader.seek(self._seen)
                content = reader.read(size - self._seen)
            self._recorder.log.append(Operation("write", self._inode, content, self._seen))
            self._seen = size

    def write(self, content: Any) -> int:
        count = self._file.write(content)
        self._look()
        return count

    def flush(self) -> None:
        self._file.flush()
        self._look()

    def close(self) -> None:
        if not self._file.closed:
            self._file.flush()
            self._look()
        self._file.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __enter__(self) -> _Watched:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Any:
        return iter(self._file)


def survivors(log: list[Operation], draw: random.Random | None, part: float) -> list[Operation]:
    """Of what was done until the power went, what the disk holds: all that was synced, and a random part of the rest."""
    last_sync: dict[int, int] = {}
    for i, operation in enumerate(log):
        if operation.kind == "sync":
            last_sync[operation.inode] = i
    kept = []
    for i, operation in enumerate(log):
        if operation.kind in ("sync", "acknowledged"):
            continue
        if last_sync.get(operation.inode, -1) > i or (draw is not None and draw.random() < part):
            kept.append(operation)
    return kept


def play_back(kept: list[Operation], folders: set[int], target: Path) -> None:
    """Makes the folder that a computer finds when the power is back."""
    contents: dict[int, bytearray] = {}
    names: dict[tuple[int, str], int | None] = {}
    for operation in kept:
        if operation.kind == "truncate":
            contents[operation.inode] = bytearray()
        elif operation.kind == "write":
            content = contents.setdefault(operation.inode, bytearray())
            content.extend(bytes(max(0, operation.offset - len(content))))  # a hole, where an earlier piece was lost
            content[operation.offset : operation.offset + len(operation.content)] = operation.content
        else:
            names |= operation.names
    below: dict[int, list[tuple[str, int]]] = {}
    for (folder, name), inode in names.items():
        if inode is not None:
            below.setdefault(folder, []).append((name, inode))

    def make(inode: int, place: Path) -> None:
        place.mkdir(exist_ok=True)
        for name, child in below.get(inode, []):
            if child in folders:
                make(child, place / name)
            else:
                (place / name).write_bytes(bytes(contents.get(child, b"")))

    make(ROOT, target)
