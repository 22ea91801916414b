"""A shelf for what is made once of a large text: which pairs are used, its tokenizers, its tokens.

Everything on it is a folder named by what it was made of, so it is found again exactly as long as nothing has changed.
A folder appears whole or not at all; processes that want the same one at once wait for the first of them.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.core.errors import CheckpointError, DataError
from regard.core.files import check_manifest, write_bytes, write_folder

VERSION = 1  # of what is on the shelf; another one is never mistaken for it
CACHE = "REGARD_CACHE"


def cache_folder() -> Path:
    """$REGARD_CACHE, or regard's folder where the system keeps caches."""
    if os.environ.get(CACHE):
        return Path(os.environ[CACHE]).expanduser()
    if sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    elif os.name == "nt":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "regard"


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
        return cls(Path(store).expanduser() if store else cache_folder() / "prepared", key)

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
            self.folder.mkdir(parents=True, exist_ok=True)
            with _one_at_a_time(place, say):
                if _is_whole(place, say):
                    return place
                for leftover in self.folder.glob(f".{place.name}.partial-*"):  # of a process that was killed
                    shutil.rmtree(leftover, ignore_errors=True)
                write_folder(place, fill)
        except OSError as error:
            if error.errno is None:
                raise
            raise DataError(
                error.filename or place,
                f"preparing the text failed ({error.strerror})",
                f"Make room there, or set data.store=FOLDER or ${CACHE} to a place with room",
            ) from error
        return place


def _is_whole(place: Path, say: Callable[[str], None] | None) -> bool:
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
def _one_at_a_time(place: Path, say: Callable[[str], None] | None) -> Iterator[None]:
    """Waits until no other process makes the same thing. The lock ends with its process, however that ends."""
    try:
        import fcntl
    except ImportError:  # not on Windows: both make it, and the second finds it made or replaces it
        yield
        return
    with open(place.with_name(f".{place.name}.lock"), "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if say is not None:
                say("Another process is preparing the same text; waiting for it.")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
