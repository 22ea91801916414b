"""Holds out validation and test pairs without a leak: no source sentence stands on two sides."""

from __future__ import annotations

import hashlib
import unicodedata
from dataclasses import dataclass, field
from typing import Literal

from regard.core.errors import DataError

SplitBy = Literal["source", "both"]


@dataclass
class Pairs:
    """Aligned sentences: `sources[i]` and `targets[i]` mean the same."""

    sources: list[str] = field(default_factory=list)
    targets: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.sources)

    def take(self, indices: list[int]) -> Pairs:
        """The pairs at the given places, in that order."""
        return Pairs([self.sources[i] for i in indices], [self.targets[i] for i in indices])

    def head(self, n: int) -> Pairs:
        """The first n pairs."""
        return Pairs(self.sources[:n], self.targets[:n])


def sentence_key(text: str) -> str:
    """What two sentences share when they are the same to a learner: letters, their marks and digits only, without case.

    A sentence without letters and digits is its own key, so that "?" and "!" stay apart.
    """
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    # marks too: in Hindi or Thai they are the vowels
    return "".join(c for c in folded if unicodedata.category(c)[0] in "LNM") or folded.strip()


def automatic_size(sentences: int) -> int:
    """How many sentences to hold out when the user does not say: 1 %, within 100 to 2,000, and at most 10 %."""
    return min(max(sentences // 100, 100), 2000, sentences // 10)


def hold_out(
    pairs: Pairs, valid_size: int | None, test_size: int | None, seed: int, by: SplitBy = "source"
) -> tuple[Pairs, Pairs, Pairs]:
    """Splits pairs into train, valid and test; a size of None is chosen from the number of different sources.

    All pairs of one source go to one side. A held-out part keeps the first pair of each of its sources; the others are
    dropped, not trained on. With `by="both"`, training also loses the pairs whose target stands in a held-out part.
    Sources are drawn by a hash of (seed, sentence), so that a longer or reordered corpus moves few of them.
    """
    keys = [sentence_key(source) for source in pairs.sources]
    first: dict[str, int] = {}
    for i, key in enumerate(keys):
        first.setdefault(key, i)
    valid_count = automatic_size(len(first)) if valid_size is None else valid_size
    test_count = automatic_size(len(first)) if test_size is None else test_size
    held = valid_count + test_count
    if held and held >= len(first):
        raise DataError(
            "held-out sizes",
            f"{valid_count} validation and {test_count} test pairs are asked for, "
            f"but the corpus has only {len(first)} different source sentences",
            "Make data.valid_size and data.test_size smaller, or give more text",
        )
    drawn = sorted(first, key=lambda key: _draw(seed, key))[:held]
    test = pairs.take(sorted(first[key] for key in drawn[:test_count]))
    valid = pairs.take(sorted(first[key] for key in drawn[test_count:]))
    banned = set(drawn)
    kept = [i for i, key in enumerate(keys) if key not in banned]
    if by == "both" and held:
        targets = {sentence_key(target) for part in (valid, test) for target in part.targets}
        kept = [i for i in kept if sentence_key(pairs.targets[i]) not in targets]
        if not kept:
            raise DataError(
                "held-out sizes",
                "no training pair is left, since every target also stands in a held-out part",
                "Make data.valid_size and data.test_size smaller, or set data.split_by=source",
            )
    return pairs.take(kept), valid, test


def _draw(seed: int, key: str) -> tuple[bytes, str]:
    return hashlib.blake2b(f"{seed}\n{key}".encode(), digest_size=8).digest(), key
