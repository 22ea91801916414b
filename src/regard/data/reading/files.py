"""One file of bytes, plain or compressed, that can be read again and again and must stay the same meanwhile."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, NamedTuple

from regard.core.errors import DataError
from regard.data.bundle import PREFIX, bundled_path
from regard.data.reading.archives import ENDINGS, packing, unpack

MAX_TEXT_BYTES = 1 << 40  # of one file, decompressed
BLOCK = 1 << 20
_PACKED_BLOCK = 1 << 16
EMPTY_TODO = "Give a file with lines of text"


class _Identity(NamedTuple):
    """What changes when a file is written to or replaced."""

    device: int
    inode: int
    size: int
    written: int

    @classmethod
    def of(cls, state: os.stat_result) -> _Identity:
        return cls(state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns)


class ByteFile:
    """A file whose content is read in blocks, from the beginning at every call of `blocks`.

    It is looked at, not opened, when it is made: what is no regular file is refused then, so that nothing ever waits
    for a named pipe. Its size, time and inode are compared with that first look whenever it is opened or read to the end.
    """

    def __init__(self, path: str | Path, name: str = "", limit: int | None = None) -> None:
        self.name = name or str(path)  # for messages
        self.place = bundled_path(str(path)) if str(path).startswith(PREFIX) else Path(path)
        self.kind = ENDINGS.get(self.place.suffix.lower(), "")
        self._limit = limit
        with self._telling():
            state = os.stat(self.place)
            self._refuse_special(state)
        if not state.st_size:
            raise DataError(self.name, "the file is empty", EMPTY_TODO)
        self._identity = _Identity.of(state)
        self.size = state.st_size

    def blocks(self) -> Iterator[bytes]:
        """The content, decompressed, in blocks of 1 MiB (the last one is smaller)."""
        limit = MAX_TEXT_BYTES if self._limit is None else self._limit
        parts: list[bytes] = []
        waiting = total = 0
        for part in unpack(self.name, self.packed(_PACKED_BLOCK), self.kind) if self.kind else self.packed():
            if not total and not self.kind and (ending := packing(part)):
                raise DataError(
                    f"{self.name}, line 1",
                    f"the text is not UTF-8 (it begins with the bytes {part[:4].hex(' ')})",
                    f"It looks compressed: give its name the ending {ending}",
                )
            total += len(part)
            if total > limit:
                raise DataError(
                    self.name, f"it holds more than {limit >> 20} MiB of text", "Divide it into smaller files"
                )
            parts.append(part)
            waiting += len(part)
            if waiting >= BLOCK:
                whole = b"".join(parts) if len(parts) > 1 else part
                waiting = len(whole) % BLOCK
                end = len(whole) - waiting
                parts = [whole[end:]]
                for begin in range(0, end, BLOCK):
                    yield whole[begin : begin + BLOCK]
        if not total:
            raise DataError(self.name, "the archive holds an empty file", EMPTY_TODO)
        if waiting:
            yield b"".join(parts)

    @contextmanager
    def opened(self) -> Iterator[BinaryIO]:
        """The content as a file in which one can move; an archive is written to a temporary file without a name."""
        if not self.kind:
            with self._open() as file:
                yield file
                self.refuse_change()
            return
        with tempfile.TemporaryFile() as file:
            try:
                for block in self.blocks():
                    file.write(block)
            except OSError as error:
                raise DataError(
                    self.name,
                    f"it cannot be decompressed into {tempfile.gettempdir()} ({error.strerror or error})",
                    "Make room there, name another folder with TMPDIR, or decompress it yourself",
                ) from None
            file.seek(0)
            yield file

    def packed(self, block: int = BLOCK) -> Iterator[bytes]:
        """The bytes as they are on the disk."""
        count = 0
        with self._telling(), self._open() as file:
            while data := file.read(block):
                count += len(data)
                if count > self.size:
                    raise self._changed(f"it grew beyond {self.size:,} bytes")
                yield data
            self.refuse_change()
            if count != self.size:
                raise self._changed(f"from {self.size:,} to {count:,} bytes")

    def refuse_change(self) -> None:
        """Raises an error when the file is no longer what it was at first."""
        try:
            now = _Identity.of(os.stat(self.place))
        except FileNotFoundError:
            raise self._changed("it is gone") from None
        except OSError as error:
            raise self._changed(error.strerror or str(error)) from None
        self._compare(now)

    def _compare(self, now: _Identity) -> None:
        if now.size != self._identity.size:
            raise self._changed(f"from {self._identity.size:,} to {now.size:,} bytes")
        if now != self._identity:
            raise self._changed("it was written anew")

    def _changed(self, how: str) -> DataError:
        return DataError(
            self.name,
            f"the file changed while it was read ({how})",
            "Wait until nothing writes to it, then start again",
        )

    @contextmanager
    def _open(self) -> Iterator[BinaryIO]:
        with self._telling():
            self._refuse_special(os.stat(self.place))
            # not blocking, since a pipe may have taken the file's place after that look
            wanted = ("O_NONBLOCK", "O_BINARY", "O_CLOEXEC")
            handle = os.open(self.place, sum((getattr(os, flag, 0) for flag in wanted), os.O_RDONLY))
        with open(handle, "rb") as file:
            state = os.fstat(file.fileno())
            self._refuse_special(state)
            self._compare(_Identity.of(state))
            yield file

    def _refuse_special(self, state: os.stat_result) -> None:
        mode = state.st_mode
        if stat.S_ISDIR(mode):
            raise DataError(self.name, "it is a directory, not a text file", "Name a file in it")
        if stat.S_ISFIFO(mode):
            raise DataError(
                self.name,
                "it is a named pipe, which can be read only once",
                "Write its content to a file first, or give it on standard input as -",
            )
        if not stat.S_ISREG(mode):
            kind = "socket" if stat.S_ISSOCK(mode) else "device"
            raise DataError(self.name, f"it is a {kind}, not a text file", "Write its content to a file first")

    @contextmanager
    def _telling(self) -> Iterator[None]:
        """Turns the system's errors into sentences."""
        try:
            yield
        except FileNotFoundError:
            raise DataError(self.name, "there is no such file", "Check the path") from None
        except PermissionError:
            raise DataError(
                self.name, "reading the file is not permitted", "Change its permissions, or copy it"
            ) from None
        except (OSError, ValueError) as error:  # ValueError: a path with a null character
            reason = getattr(error, "strerror", None) or error
            raise DataError(self.name, f"the file cannot be read ({reason})", "Check the path") from None
