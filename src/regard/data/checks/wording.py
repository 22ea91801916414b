"""Sentences about lines: how many, which share, and where."""

from __future__ import annotations

from collections.abc import Sequence

from regard.data.checks.findings import RULES


def percent(share: float) -> str:
    """A share as "12 %", "1.2 %" or "0.003 %"."""
    value = 100 * share
    if value >= 10 or value == 0:
        return f"{value:.0f} %"
    if value >= 0.1:
        return f"{value:.1f} %"
    return f"{value:.1g} %" if value >= 0.0001 else "0.0001 %"


def numbered(lines: Sequence[int], count: int) -> str:
    """The numbers of the first lines, and how many more there are."""
    word = "line" if count == 1 else "lines"
    shown = [f"{line:,}" for line in lines]
    if count > len(shown):
        return f"{word} {', '.join(shown)} and {count - len(shown):,} more"
    return f"{word} {' and '.join([', '.join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)}"


def stretch(begin: int, end: int) -> str:
    """Lines begin..end, which count from 0 and exclude the end, for readers who count from 1."""
    return f"line {begin + 1:,}" if end - begin <= 1 else f"lines {begin + 1:,} to {end:,}"


def many_lines(
    name: str, count: int, total: int, share: float, lines: Sequence[int], sides: tuple[int, int] | None = None
) -> str:
    """What was found in some lines: "12 of 1,000 pairs (1.2 %) have ... (in the target): lines 3, 17 and 10 more"."""
    plural = {"have": "has", "are": "is", "s": "s"} if count == 1 else {"have": "have", "are": "are", "s": ""}
    phrase = RULES[name].phrase.format(**plural)
    where = f" ({_sides(*sides)})" if sides and any(sides) else ""
    pairs = "pair" if total == 1 else "pairs"
    return f"{count:,} of {total:,} {pairs} ({percent(share)}) {phrase}{where}: {numbered(lines, count)}."


def _sides(source: int, target: int) -> str:
    if not target:
        return "in the source"
    if not source:
        return "in the target"
    return f"{source:,} in the source, {target:,} in the target"
