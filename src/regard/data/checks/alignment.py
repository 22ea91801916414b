"""Finds where the two sides of a corpus do not belong to each other, says where, and how to pair the lines anew.

Each pair of lines is judged by lengths, end marks, numbers, shared words and learned translations together: log-ratio
tables learned from the corpus itself, its pairs against far shifts of them (alignment_evidence). The likeliest course of
the shift through the corpus (alignment_path) shows stretches in which another pairing is better than the given one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from regard.data.checks.alignment_features import AlignmentFeatures
from regard.data.checks.alignment_verdict import AlignmentVerdict, Misaligned
from regard.data.checks.repair import Piece, repair

__all__ = ["AlignmentFeatures", "AlignmentVerdict", "Misaligned", "Piece", "judge", "repair"]


def judge(features: AlignmentFeatures) -> AlignmentVerdict:
    """Finds all stretches in which the given pairing is worse than a shifted one, or than chance."""
    verdicts = features.verdicts()
    begins = [sum(verdict.lines for verdict in verdicts[:i]) for i in range(len(verdicts))]
    lines = sum(verdict.lines for verdict in verdicts)
    return AlignmentVerdict(
        damage=_joined(_moved(one, b) for verdict, b in zip(verdicts, begins, strict=True) for one in verdict.damage),
        doubtful=_joined(
            _moved(one, b) for verdict, b in zip(verdicts, begins, strict=True) for one in verdict.doubtful
        ),
        nats=max(verdict.nats for verdict in verdicts),
        lines=lines,
        information=sum(verdict.information * verdict.lines for verdict in verdicts) / max(1, lines),
        judged=any(verdict.judged for verdict in verdicts),
    )


def _moved(one: Misaligned, lines: int) -> Misaligned:
    (a, b), (c, d) = one.begin_range, one.end_range
    return replace(
        one,
        begin=one.begin + lines,
        end=one.end + lines,
        begin_range=(a + lines, b + lines),
        end_range=(c + lines, d + lines),
    )


def _joined(found: Iterable[Misaligned]) -> tuple[Misaligned, ...]:
    """Stretches that go on in the next block as one."""
    joined: list[Misaligned] = []
    for one in found:
        if joined and (joined[-1].end, joined[-1].shift) == (one.begin, one.shift):
            last = joined.pop()
            one = replace(one, begin=last.begin, begin_range=last.begin_range, nats=last.nats + one.nats)
        joined.append(one)
    return tuple(joined)
