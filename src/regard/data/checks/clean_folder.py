"""The folder that `clean` writes: filled line by line beside its place, and renamed when it is whole."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from regard.core.errors import DataError

DROPPED, CHANGES, REPORT = "dropped.tsv", "changes.tsv", "report.json"
_PACKED = (".gz", ".xz", ".zst")
_BUFFER = 1 << 20
_ESCAPES = {"\t": "\\t", "\n": "\\n", "\r": "\\r", "\\": "\\\\"}
_ESCAPED = re.compile("[\0-\x1f\\\\\x7f-\x9f\u2028\u2029\ud800-\udfff]")


class CleanFolder:
    """Files that are written together. Leaving the `with` without `finish` leaves nothing behind."""

    def __init__(self, final: Path, names: Sequence[str]):
        self.final = final
        self.partial = final.with_name(f".{final.name}.partial-{os.getpid()}")
        self.names = names
        self._files: dict[str, BinaryIO] = {}

    def __enter__(self) -> CleanFolder:
        return self

    def begin(self) -> None:
        """Makes the files. Not part of entering the `with`: what stops it there would not be cleaned away."""
        with _Telling(self.final):
            shutil.rmtree(self.partial, ignore_errors=True)
            self.partial.mkdir(parents=True)
            for name in self.names:
                self._files[name] = open(self.partial / name, "wb", buffering=_BUFFER)  # noqa: SIM115 (closed later)

    def write(self, name: str, text: str) -> None:
        """Adds text to one of the files."""
        with _Telling(self.final):
            self._files[name].write(text.encode("utf-8"))

    def finish(self) -> None:
        """All is written: the folder appears under its own name, whole and on the disk."""
        with _Telling(self.final):
            for file in self._files.values():
                file.flush()
                os.fsync(file.fileno())
                file.close()
            self._files.clear()
            os.rename(self.partial, self.final)  # over an empty folder, or none
            if os.name != "nt":
                place = os.open(self.final.parent, os.O_RDONLY)
                try:
                    os.fsync(place)
                finally:
                    os.close(place)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        for file in self._files.values():
            with contextlib.suppress(OSError):  # what is still in its buffer finds no room either
                file.close()
        shutil.rmtree(self.partial, ignore_errors=True)


class _Telling:
    """Turns an error of the system while writing into a sentence."""

    def __init__(self, final: Path):
        self.final = final

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if not isinstance(error, OSError):
            return
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DataError(self.final, "the disk is full", "Make room, or choose another place with --out") from None
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
            raise DataError(self.final, "another process has written there meanwhile", "Give a new folder") from None
        raise DataError(
            self.final, f"it cannot be written ({error.strerror or error})", "Check the place and its permissions"
        ) from None


def check_place(out: Path, inputs: Sequence[Path]) -> Path:
    """The folder's full path, if it is free: a place that holds something is refused, the inputs above all."""
    try:
        final = out.expanduser().resolve()
        taken = final.exists() and (not final.is_dir() or any(final.iterdir()))
    except (OSError, RuntimeError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise DataError(out, f"it cannot be used ({reason})", "Give the name of a new folder") from None
    for path in inputs:
        if path.exists() and (final == path.resolve() or final in path.resolve().parents):
            raise DataError(
                out, f"the text to be cleaned is there ({path.name}), and is never changed", "Give a new folder"
            )
    if taken and not final.is_dir():
        raise DataError(out, "it is a file, and a folder is to be made", "Give the name of a new folder")
    if taken:
        raise DataError(out, "the folder is not empty", "Give the name of a new folder")
    if final == final.parent or final == Path.cwd():
        raise DataError(out, "it cannot be replaced by the new folder", "Give the name of a new folder in it")
    return final


def output_names(inputs: Sequence[Path | str], languages: tuple[str, str]) -> tuple[str, str]:
    """What the two clean files are called: as two text files were, or by one file's name and the languages.

    They are plain text, so that an ending such as .gz is taken off.
    """
    names = [_plain_name(name) for name in inputs]
    if len(names) == 2 and len({name.casefold() for name in names}) == 2 and not {*names} & {DROPPED, CHANGES, REPORT}:
        return names[0], names[1]
    stem = names[0] if len(names) == 2 else Path(names[0]).stem or names[0]
    endings = [re.sub(r"[^\w-]", "", code) for code in languages]
    if not all(endings) or endings[0] == endings[1]:
        endings = ["src", "tgt"]
    return f"{stem}.{endings[0]}", f"{stem}.{endings[1]}"


def _plain_name(name: Path | str) -> str:
    path = Path(name)
    while path.suffix.lower() in _PACKED:
        path = path.with_suffix("")
    return path.name.lstrip(".") or "text"


def escaped(text: str) -> str:
    r"""A text as one cell of a TSV file: \t, \n, \r, \\; \xE4 is a byte that was not UTF-8, \u0007 a control character."""
    return _ESCAPED.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    if found[0] in _ESCAPES:
        return _ESCAPES[found[0]]
    return f"\\x{code - 0xDC00:02X}" if 0xDC80 <= code <= 0xDCFF else f"\\u{code:04X}"
