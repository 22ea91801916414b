"""Gathers the lines that have a finding while a corpus is read, and makes the findings of a report of them."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from regard.data.checks.block import PairBlock
from regard.data.checks.findings import MUST_BE_MENDED, RULES, severity_of
from regard.data.checks.lines import Flags
from regard.data.checks.places import Places
from regard.data.checks.report import Example, Finding, Severity
from regard.data.checks.wording import many_lines

MOST_EXAMPLES = 5
_LONGEST_EXAMPLE = 300


class Gathered:
    """The lines that have one finding: how many, on which side, and the first ones of them."""

    def __init__(self) -> None:
        self.count = 0
        self.sides = [0, 0]
        self.lines: list[int] = []  # from 1
        self.examples: list[Example] = []
        self.places = Places()

    def add(self, mask: np.ndarray, block: PairBlock, begin: int) -> None:
        """Adds the pairs of a mask, of a block that begins at a line (from 0)."""
        rows = np.flatnonzero(mask)
        self.count += len(rows)
        self.places.add(begin + rows)
        for row in rows[: MOST_EXAMPLES - len(self.lines)].tolist():
            self.lines.append(begin + row + 1)
            self.examples.append(example(begin + row + 1, block.source.lines[row], block.target.lines[row]))


class Gathering:
    """What was found in the lines of a corpus, by the name of the finding."""

    def __init__(self) -> None:
        self.pairs = 0
        self.with_digits = 0
        self.found: dict[str, Gathered] = defaultdict(Gathered)

    def add(self, block: PairBlock, flags: Flags, more: dict[str, np.ndarray]) -> None:
        """Adds a block with the flags of its lines, and masks of further findings."""
        for name in {**flags.source, **flags.target, **flags.pair}:
            gathered = self.found[name]
            gathered.add(np.logical_or.reduce(flags.of(name)), block, self.pairs)
            for i, side in enumerate((flags.source, flags.target)):
                gathered.sides[i] += int(side[name].sum()) if name in side else 0
        for name, mask in more.items():
            if mask.any():
                self.found[name].add(mask, block, self.pairs)
        self.with_digits += int((block.digits & block.whole).sum())
        self.pairs += len(block)

    def add_lines(self, name: str, rows: np.ndarray) -> None:
        """Adds a finding of some lines (from 0) whose text is no longer there."""
        if len(rows):
            self.found[name].count = len(rows)
            self.found[name].lines = (rows[:MOST_EXAMPLES] + 1).tolist()
            self.found[name].places.add(rows)

    def finding(self, name: str, more: str = "", of: str = "") -> Finding:
        """The finding of a name, in the words that its rule has; `more` goes to the end of the sentence.

        Its lines may be those that were gathered as `of`.
        """
        gathered = self.found[of or name]
        total = self.with_digits if name == "different-numbers" else self.pairs
        share = gathered.count / total
        sides = (gathered.sides[0], gathered.sides[1])
        what = many_lines(name, gathered.count, total, share, gathered.lines, sides)
        severity = severity_of(name, gathered.count, share)
        return make_finding(name, severity, gathered.count, share, what[:-1] + more + ".", tuple(gathered.examples))


def make_finding(
    name: str,
    severity: Severity,
    count: int,
    share: float,
    what: str,
    examples: tuple[Example, ...] = (),
    todo: str = "",
) -> Finding:
    """A finding; one that refuses the corpus also says how to allow it."""
    todo = (todo or RULES[name].todo).rstrip(".")
    if severity == "damage" and name not in MUST_BE_MENDED:
        todo += f". If it is meant so, --allow {name} accepts it"
    return Finding(name, severity, count, share, what, todo + ".", examples)


def example(line: int, source: str, target: str) -> Example:
    return Example(
        line, *(text if len(text) <= _LONGEST_EXAMPLE else text[:_LONGEST_EXAMPLE] + "…" for text in (source, target))
    )
