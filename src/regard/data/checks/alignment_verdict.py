"""What the alignment check found: plain values."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Misaligned:
    """Source lines from `begin` (from 0) to before `end` that fit target lines `shift` further on better than their own.

    A shift of None means that no target lines fit: the text is unrelated. The ranges say where the borders may lie.
    """

    begin: int
    end: int
    shift: int | None
    nats: float  # by how much the shift, or chance, is likelier than the given pairing
    begin_range: tuple[int, int]
    end_range: tuple[int, int]


@dataclass(frozen=True)
class AlignmentVerdict:
    """What is misaligned in a corpus, in the order of the lines."""

    damage: tuple[Misaligned, ...]  # too much to train on
    doubtful: tuple[Misaligned, ...]  # worth a look
    nats: float  # of the worst stretch
    lines: int  # source lines that were looked at
    information: float  # nats that a pair of lines says about belonging together, on average
    judged: bool = True  # False where nothing can be said: too few lines, or lines that are all alike
