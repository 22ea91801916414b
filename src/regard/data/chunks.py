"""Chunks in tags: IOB1, IOB2 and BIO write them as B-KIND and I-KIND, and O outside of all.

A chunk begins at a B, and at an I that does not follow a tag of its kind; it ends before the next B or O, or where the kind
changes. So the rules of both IOB1 and IOB2 are kept, as CoNLL's own script counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

OUTSIDE = "O"
MARKS = ("B-", "I-")


class Chunk(NamedTuple):
    """Words from `begin` to before `end`, of one kind."""

    kind: str
    begin: int
    end: int


def are_chunk_tags(labels: Iterable[str]) -> bool:
    """Whether all labels are O, B-KIND or I-KIND, and not all are O."""
    rest = [label for label in labels if label != OUTSIDE]
    return bool(rest) and all(label.startswith(MARKS) and len(label) > 2 for label in rest)


def completed(labels: Iterable[str]) -> set[str]:
    """The labels, with both B-KIND and I-KIND of every kind: test text may have the one that training text lacks."""
    found = set(labels)
    return found | {mark + label[2:] for label in found - {OUTSIDE} for mark in MARKS}


def chunks_of(tags: Sequence[str]) -> list[Chunk]:
    """The chunks of a sentence, in order."""
    found: list[Chunk] = []
    kind, begin = "", 0  # of the open chunk, if there is one
    for place, tag in enumerate((*tags, OUTSIDE)):
        mark, here = ("", "") if tag == OUTSIDE else (tag[:2], tag[2:])
        if kind and (mark == "B-" or here != kind):
            found.append(Chunk(kind, begin, place))
            kind = ""
        if here and not kind:
            kind, begin = here, place
    return found
