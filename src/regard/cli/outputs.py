"""Files that a verb is to write, looked at before its long work begins."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from regard.core.errors import DataError


def check_outputs(outputs: Iterable[Path | None], inputs: Iterable[str | Path]) -> None:
    """Each output can be made, none of them is one of the files to read, and no two are the same."""
    seen: set[Path] = set()
    given = [Path(name) for name in inputs if str(name) != "-"]
    for path in outputs:
        if path is None or str(path) == "-":
            continue
        if path.is_dir():
            raise DataError(path, "it is a directory, and a file is to be written", "Give the name of a file")
        if not path.absolute().parent.is_dir():
            raise DataError(path, "its folder does not exist", f"Make {path.parent} first")
        if path.exists() and any(other.exists() and path.samefile(other) for other in given):
            raise DataError(path, "it would be written over, and it is one of the files to read", "Give another name")
        if path.resolve() in seen:
            raise DataError(path, "two files would be written under this name", "Give each a name of its own")
        seen.add(path.resolve())
