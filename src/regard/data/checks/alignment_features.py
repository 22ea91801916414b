"""Collects what is needed to judge which line belongs to which, in bounded memory."""

from __future__ import annotations

from regard.data.checks.alignment_lines import SideFeatures
from regard.data.checks.alignment_search import judge_lines
from regard.data.checks.alignment_verdict import AlignmentVerdict
from regard.data.split import Pairs

BLOCK_LINES = 1_000_000  # a larger corpus is judged in blocks of so many lines, about 250 bytes each
_BEYOND = 4_096  # target lines after a block, to which its last lines may belong
_AHEAD = 200_000  # lines of one side after the end of the other are too many to be looked at


class AlignmentFeatures:
    """The features of a corpus's lines, collected chunk by chunk, and the verdicts on the blocks that are complete."""

    def __init__(self, max_shift: int | None = None, block_lines: int = BLOCK_LINES) -> None:
        self._max_shift, self._block_lines = max_shift, block_lines
        self._source, self._target = SideFeatures(), SideFeatures()
        self._verdicts: list[AlignmentVerdict] = []

    def add(self, chunk: Pairs) -> None:
        """Takes the next lines of both sides. Near the end one side may have more than the other."""
        most = min(len(self._source) + len(chunk.sources), len(self._target) + len(chunk.targets)) + _AHEAD
        self._source.add(chunk.sources[: max(0, most - len(self._source))])
        self._target.add(chunk.targets[: max(0, most - len(self._target))])
        while min(len(self._source), len(self._target)) >= self._block_lines * 5 // 4 + _BEYOND:
            self._verdicts.append(self._judge(self._block_lines))
            self._source.drop(self._block_lines)
            self._target.drop(self._block_lines)

    def verdicts(self) -> list[AlignmentVerdict]:
        """The verdicts on all blocks of lines. Each block begins where the one before ends."""
        return [*self._verdicts, self._judge(max(len(self._source), len(self._target)))]

    def _judge(self, lines: int) -> AlignmentVerdict:
        source, target = self._source.arrays(), self._target.arrays()
        return judge_lines(source.head(lines), target.head(lines + _BEYOND), self._max_shift)
