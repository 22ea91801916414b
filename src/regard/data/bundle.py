"""Finds the corpora that ship inside the package, by name."""

from __future__ import annotations

import difflib
from importlib import resources
from pathlib import Path

from regard.core.errors import DataError

PREFIX = "bundled:"
PAIRS = ".tsv.xz"  # sentence pairs
TEXT = ".txt.xz"  # plain text
TAGGED = ".tagged.xz"  # words and their tags in columns
LABELLED = ".labelled.xz"  # texts and their labels
KINDS = (PAIRS, TEXT, TAGGED, LABELLED)
_WHAT = {TEXT: "plain text", TAGGED: "tagged text", LABELLED: "labelled text"}


def bundled_names(kinds: tuple[str, ...] = KINDS) -> list[str]:
    """The names of all bundled corpora, or of those of one kind."""
    return sorted(path.name.removesuffix(kind) for kind in kinds for path in _folder().glob(f"*{kind}"))


def bundled_path(name: str, kinds: tuple[str, ...] = KINDS) -> Path:
    """The file of a bundled corpus; `tatoeba-en-de` and `bundled:tatoeba-en-de` name the same one."""
    wanted = name.removeprefix(PREFIX)
    for kind in kinds:
        if wanted in bundled_names((kind,)):
            return _folder() / f"{wanted}{kind}"
    known = sorted([*bundled_names(kinds), *(_sides() if kinds == (TEXT,) else ())])
    near = difflib.get_close_matches(wanted, known, n=1)
    listed = ", ".join(known)
    todo = f"Did you mean {PREFIX}{near[0]}? Known: {listed}" if near else f"Known: {listed}"
    what = f"no {_WHAT.get(kinds[0], 'corpus') if len(kinds) == 1 else 'corpus'} of this name is bundled"
    raise DataError(f"{PREFIX}{wanted}", what, todo)


def bundled_side(name: str) -> tuple[Path, int] | None:
    """The file of bundled pairs and the column of one of its languages: `bundled:tatoeba-en` is the first of tatoeba-en-de."""
    found = _sides().get(name.removeprefix(PREFIX))
    return None if found is None else (_folder() / f"{found[0]}{PAIRS}", found[1])


def _sides() -> dict[str, tuple[str, int]]:
    """The languages of bundled pairs as texts of their own: name -> pairs and column."""
    found = {}
    for pairs in bundled_names((PAIRS,)):
        stem, *languages = pairs.rsplit("-", 2)
        found |= {f"{stem}-{language}": (pairs, column) for column, language in enumerate(languages)}
    return found


def _folder() -> Path:
    return Path(str(resources.files("regard.data"))) / "bundled"
