"""Finds the corpora that ship inside the package, by name."""

from __future__ import annotations

import difflib
from importlib import resources
from pathlib import Path

from regard.core.errors import DataError

PREFIX = "bundled:"
PAIRS = ".tsv.xz"  # sentence pairs
TEXT = ".txt.xz"  # plain text
KINDS = (PAIRS, TEXT)


def bundled_names(kinds: tuple[str, ...] = KINDS) -> list[str]:
    """The names of all bundled corpora, or of those of one kind."""
    return sorted(path.name.removesuffix(kind) for kind in kinds for path in _folder().glob(f"*{kind}"))


def bundled_path(name: str, kinds: tuple[str, ...] = KINDS) -> Path:
    """The file of a bundled corpus; `tatoeba-en-de` and `bundled:tatoeba-en-de` name the same one."""
    wanted = name.removeprefix(PREFIX)
    for kind in kinds:
        if wanted in bundled_names((kind,)):
            return _folder() / f"{wanted}{kind}"
    known = bundled_names(kinds)
    near = difflib.get_close_matches(wanted, known, n=1)
    listed = ", ".join(known)
    todo = f"Did you mean {PREFIX}{near[0]}? Known: {listed}" if near else f"Known: {listed}"
    what = "no plain text of this name is bundled" if kinds == (TEXT,) else "no corpus of this name is bundled"
    raise DataError(f"{PREFIX}{wanted}", what, todo)


def _folder() -> Path:
    return Path(str(resources.files("regard.data"))) / "bundled"
