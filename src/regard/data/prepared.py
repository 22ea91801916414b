"""A shelf for what is made once of a large text: which pairs are used, its tokenizers, its tokens.

Everything on it is a folder named by what it was made of, so it is found again exactly as long as nothing has changed.
A folder appears whole or not at all; processes that want the same one at once wait for the first of them.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.core.errors import CheckpointError, ConfigError, DataError
from regard.core.files import check_manifest, write_bytes, write_folder

VERSION = 2  # of what is on the shelf, its format and what the filters leave out; another is never mistaken for it
CACHE = "REGARD_CACHE"
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP)  # as some file systems of clusters say


def cache_folder() -> Path:
    """$REGARD_CACHE, or regard's folder where the system keeps caches."""
    if os.environ.get(CACHE):
        return from_home(os.environ[CACHE])
    if sys.platform == "darwin":
        base = from_home("~/Library/Caches")
    elif os.name == "nt":
        base = from_home(os.environ.get("LOCALAPPDATA") or "~/AppData/Local")
    else:
        base = from_home(os.environ.get("XDG_CACHE_HOME") or "~/.cache")
    return base / "regard"


def from_home(path: str) -> Path:
    """A path whose ~ is the user's folder. There are users without one: in containers, and where HOME is not set."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise ConfigError(
            f"path {path}", "the home folder that it begins with is not known", f"Set HOME, data.store or ${CACHE}"
        ) from None


def write_plain(path: Path, value: Any) -> None:
    write_bytes(path, json.dumps(value, ensure_ascii=True).encode())


def read_plain(path: Path) -> Any:
    return json.loads(path.read_bytes())


@dataclass(frozen=True)
class Shelf:
    """Where the things made of one text are kept."""

    folder: Path
    key: str  # what the text is: its content and the settings that choose among its pairs

    @classmethod
    def for_text(cls, store: str, key: str) -> Shelf:
        if "\0" in store:
            raise ConfigError("setting data.store", f"{store!r} is no path", "Name a folder")
        return cls(from_home(store) if store else cache_folder() / "prepared", key)

    def place(self, kind: str, detail: str) -> Path:
        """Where a thing stands: its name depends on the text and on `detail`, all else that it is made of."""
        digest = hashlib.sha256(f"{VERSION}\n{kind}\n{self.key}\n{detail}".encode()).hexdigest()
        return self.folder / f"{kind}-{digest[:24]}"

    def made(
        self, kind: str, detail: str, fill: Callable[[Path], None], say: Callable[[str], None] | None = None
    ) -> Path:
        """The folder of a thing. `fill` makes it, unless it is there already, whole and undamaged."""
        place = self.place(kind, detail)
        try:
            if _is_whole(place):  # needs no lock, so that it is also found where nothing can be written
                return place
            self.folder.mkdir(parents=True, exist_ok=True)
            with _one_at_a_time(place, say) as alone:
                if _is_whole(place, say):
                    return place
                if alone:
                    _remove_leftovers(place)
                write_folder(place, fill)
        except OSError as error:  # NumPy's own, when a disk is full, has neither number nor file
            raise DataError(
                error.filename or place,
                f"preparing the text failed ({error.strerror or error})",
                f"Make room there, or set data.store=FOLDER or ${CACHE} to a place with room",
            ) from error
        return place


def _remove_leftovers(place: Path) -> None:
    """Removes what processes that were killed have left beside a thing. None may be at work on it."""
    for kind in ("partial", "replaced"):
        for leftover in place.parent.glob(f".{place.name}.{kind}-*"):
            shutil.rmtree(leftover, ignore_errors=True)


def _is_whole(place: Path, say: Callable[[str], None] | None = None) -> bool:
    if not place.is_dir():
        return False
    try:
        check_manifest(place)
    except CheckpointError as error:
        if say is not None:
            say(f"Prepared text is damaged and is made again. {error}")
        return False
    return True


@contextlib.contextmanager
def _one_at_a_time(place: Path, say: Callable[[str], None] | None) -> Iterator[bool]:
    """Waits until no other process makes the same thing. The lock ends with its process, however that ends.

    Gives False where there are no locks: both make it, and the second finds it made or replaces it.
    """
    try:
        import fcntl
    except ImportError:  # not on Windows
        yield False
        return
    with open(place.with_name(f".{place.name}.lock"), "w") as file:
        locked = True
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if say is not None:
                say("Another process is preparing the same text; waiting for it.")
            fcntl.flock(file, fcntl.LOCK_EX)
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
            locked = False
        yield locked
