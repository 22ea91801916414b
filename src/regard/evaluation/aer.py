"""Alignment error rate (Och & Ney 2003): word alignments against those of people, over a whole corpus.

People mark links as sure (S) or possible (P, which includes S). With A the links to be judged:
precision |A ∩ P| / |A|, recall |A ∩ S| / |S|, AER = 1 - (|A ∩ S| + |A ∩ P|) / (|A| + |S|).
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from regard.core.errors import DataError
from regard.data.reading.files import ByteFile
from regard.data.reading.lines import line_blocks

_LINK = re.compile(r"([0-9]{1,7})([-?p])([0-9]{1,7})")

Link = tuple[int, int]


@dataclasses.dataclass(frozen=True)
class Gold:
    """The links that people gave one pair, as (source word, target word) from 0."""

    sure: frozenset[Link]
    possible: frozenset[Link]  # sure ones included


class GoldFile:
    """Gold alignments, a line for each pair: sure links as `i-j`, possible ones as `i?j` or `ipj`, source word first.

    Words are counted from 0, or from 1 with `from_one`. The file may be compressed, and is read anew by each iteration.
    """

    def __init__(self, path: str | Path, *, from_one: bool = False):
        self._file, self._from_one = ByteFile(path), from_one
        self.name = self._file.name

    def __iter__(self) -> Iterator[Gold]:
        number = 0
        for block in line_blocks(self._file):
            for line in block:
                number += 1
                yield self._parsed(line, number)

    def _parsed(self, line: str, number: int) -> Gold:
        sure, possible = set(), set()
        for word in line.split():
            found = _LINK.fullmatch(word)
            if not found:
                raise DataError(
                    f"{self.name}, line {number}",
                    f"{word[:40]!r} is not a link",
                    "Write links as 0-1 (sure) or 0?1 (possible): source word, target word",
                )
            link = int(found[1]) - self._from_one, int(found[3]) - self._from_one
            if min(link) < 0:
                raise DataError(
                    f"{self.name}, line {number}",
                    f"{word} has a 0, and the words are said to be counted from 1",
                    "Leave --gold-from-one out",
                )
            (sure if found[2] == "-" else possible).add(link)
        return Gold(frozenset(sure), frozenset(sure | possible))

    def check(self, lengths: Iterable[tuple[int, int]]) -> None:
        """Raises unless there is a line for each pair, and no link beyond its words (source and target words, given)."""
        number, words = 0, iter(lengths)
        for number, gold in enumerate(self, start=1):
            length = next(words, None)
            if length is None:
                raise self._uneven(sum(1 for _ in self), number - 1)
            for link in sorted(gold.possible):
                if link[0] >= length[0] or link[1] >= length[1]:
                    shown = "-".join(str(place + self._from_one) for place in link)
                    advice = "" if self._from_one else ", or add --gold-from-one if it counts words from 1"
                    raise DataError(
                        f"{self.name}, line {number}",
                        f"{shown} is beyond the words of the pair, which has {length[0]} and {length[1]}",
                        f"Give the text that the file was made for{advice}",
                    )
        more = sum(1 for _ in words)
        if more:
            raise self._uneven(number, number + more)

    def _uneven(self, lines: int, pairs: int) -> DataError:
        return DataError(
            self.name,
            f"it has {lines} lines, and the text {pairs}",
            "Give a line for each pair, empty where nothing is linked",
        )


@dataclasses.dataclass
class AlignmentScore:
    """Counts of links over a corpus, and what follows from them. A rate with nothing to be counted of is None."""

    pairs: int = 0
    links: int = 0  # |A|
    sure: int = 0  # |S|
    possible: int = 0  # |P|
    links_sure: int = 0  # |A ∩ S|
    links_possible: int = 0  # |A ∩ P|

    def add(self, links: Iterable[Link], gold: Gold) -> None:
        """Counts one pair."""
        given = set(links)
        self.pairs += 1
        self.links += len(given)
        self.sure += len(gold.sure)
        self.possible += len(gold.possible)
        self.links_sure += len(given & gold.sure)
        self.links_possible += len(given & gold.possible)

    @property
    def precision(self) -> float | None:
        return self.links_possible / self.links if self.links else None

    @property
    def recall(self) -> float | None:
        return self.links_sure / self.sure if self.sure else None

    @property
    def aer(self) -> float | None:
        whole = self.links + self.sure
        return 1 - (self.links_sure + self.links_possible) / whole if whole else None

    def to_plain(self) -> dict[str, Any]:
        return {"aer": self.aer, "precision": self.precision, "recall": self.recall, **dataclasses.asdict(self)}

    def __str__(self) -> str:
        rates = {"AER": self.aer, "precision": self.precision, "recall": self.recall}
        said = ", ".join(f"{name} {'undefined' if rate is None else f'{rate:.4f}'}" for name, rate in rates.items())
        return (
            f"{said}\n{self.links:,} links in {self.pairs:,} pairs; gold: {self.sure:,} sure, {self.possible:,} sure or"
            f" possible; {self.links_sure:,} of ours are sure, {self.links_possible:,} sure or possible"
        )
