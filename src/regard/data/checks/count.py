"""The size and the shape of a corpus, without a judgement."""

from __future__ import annotations

from collections.abc import Callable

from regard.core.errors import DataError
from regard.data.checks.block import blocks_of
from regard.data.checks.check import PairSource, profile_of
from regard.data.checks.report import Statistics
from regard.data.checks.statistics import Tally


def count_pairs(reader: PairSource, progress: Callable[[int], None] | None = None) -> Statistics:
    """Pairs, words, vocabulary, and how the lengths are distributed."""
    tally = Tally(profile_of(reader))
    pairs = 0
    lines = [0, 0]
    for chunk in reader.chunks(raw=True):
        lines = [lines[0] + len(chunk.sources), lines[1] + len(chunk.targets)]
        for block in blocks_of(chunk):
            tally.add(block)
            pairs += len(block)
        if progress is not None:
            progress(pairs)
    if not pairs:
        raise DataError(" and ".join(reader.names), "it has no pairs of lines", "Give a file with some")
    if lines[0] != lines[1]:
        raise DataError(
            " and ".join(reader.names),
            f"the first has {lines[0]:,} lines and the second {lines[1]:,}",
            "`regard data check` says where they part",
        )
    return tally.statistics()
