"""Finds the corpora that ship inside the package, by name."""

from __future__ import annotations

import difflib
from importlib import resources
from pathlib import Path

from regard.core.errors import DataError

PREFIX = "bundled:"
SUFFIX = ".tsv.xz"


def bundled_names() -> list[str]:
    """The names of all bundled corpora."""
    return sorted(path.name.removesuffix(SUFFIX) for path in _folder().glob(f"*{SUFFIX}"))


def bundled_path(name: str) -> Path:
    """The file of a bundled corpus; `tatoeba-en-de` and `bundled:tatoeba-en-de` name the same one."""
    wanted = name.removeprefix(PREFIX)
    known = bundled_names()
    if wanted not in known:
        near = difflib.get_close_matches(wanted, known, n=1)
        listed = ", ".join(known)
        todo = f"Did you mean {PREFIX}{near[0]}? Known: {listed}" if near else f"Known: {listed}"
        raise DataError(f"{PREFIX}{wanted}", "no corpus of this name is bundled", todo)
    return _folder() / f"{wanted}{SUFFIX}"


def _folder() -> Path:
    return Path(str(resources.files("regard.data"))) / "bundled"
