"""Holds out validation and test pairs without a leak: no source sentence stands on two sides."""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol

import numpy as np

from regard.core.errors import DataError

SplitBy = Literal["source", "both"]
CHUNK = 10_000  # pairs


@dataclass
class Pairs:
    """Aligned sentences: `sources[i]` and `targets[i]` mean the same."""

    sources: list[str] = field(default_factory=list)
    targets: list[str] = field(default_factory=list)
    tags: list[str] = field(default_factory=list)  # what kind of text a pair is, "" for none; empty if no pair has one

    def __len__(self) -> int:
        return len(self.sources)

    def take(self, indices: Sequence[int]) -> Pairs:
        """The pairs at the given places, in that order."""
        tags = [self.tags[i] for i in indices] if self.tags else []
        return Pairs([self.sources[i] for i in indices], [self.targets[i] for i in indices], tags)

    def head(self, n: int) -> Pairs:
        """The first n pairs."""
        return Pairs(self.sources[:n], self.targets[:n], self.tags[:n])

    def chunks(self, size: int = CHUNK) -> Iterator[Pairs]:
        for begin in range(0, len(self), size):
            part = slice(begin, begin + size)
            yield Pairs(self.sources[part], self.targets[part], self.tags[part])

    def spaced(self, most: int) -> Pairs:
        """At most so many pairs from all over the text, evenly spaced."""
        return self if len(self) <= most else self.take(range(0, len(self), -(-len(self) // most)))


class PairStream(Protocol):
    """Pairs that can be gone through again and again, be they in memory or not."""

    def __len__(self) -> int: ...
    def chunks(self, size: int = CHUNK) -> Iterator[Pairs]: ...
    def spaced(self, most: int) -> PairStream: ...


def gathered(chunks: Iterable[Pairs]) -> Pairs:
    """All pairs of some chunks, in memory."""
    every = Pairs()
    for chunk in chunks:
        every.sources += chunk.sources
        every.targets += chunk.targets
        every.tags += chunk.tags
    return every


class _Letters(dict):
    """For str.translate: keeps letters, marks (in Hindi or Thai they are the vowels) and digits."""

    def __missing__(self, code: int) -> int | None:
        self[code] = code if unicodedata.category(chr(code))[0] in "LNM" else None
        return self[code]


_LETTERS = _Letters()


def sentence_key(text: str) -> str:
    """What two sentences share when they are the same to a learner: letters, their marks and digits only, without case.

    A sentence without letters and digits is its own key, so that "?" and "!" stay apart.
    """
    if text.isascii():
        folded = text.lower()
    else:
        folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    return folded.translate(_LETTERS) or folded.strip()


def draws_of(lines: Iterable[str], seed: int) -> np.ndarray:
    """A number for each sentence by (seed, sentence): equal sentences have equal ones, others are at random."""
    start = hashlib.blake2b(f"{seed}\n".encode(), digest_size=8)
    digests = []
    for line in lines:
        digest = start.copy()
        digest.update(sentence_key(line).encode(errors="surrogatepass"))
        digests.append(digest.digest())
    return np.frombuffer(b"".join(digests), dtype=">u8").astype(np.uint64)


def automatic_size(sentences: int) -> int:
    """How many sentences to hold out when the user does not say: 1 %, within 100 to 2,000, and at most 10 %."""
    return min(max(sentences // 100, 100), 2000, sentences // 10)


class Division(NamedTuple):
    """Which pairs go where: a mask of those trained on, and the places of the held-out ones."""

    train: np.ndarray
    valid: np.ndarray
    test: np.ndarray


def divide(sources: np.ndarray, targets: np.ndarray | None, valid_size: int | None, test_size: int | None) -> Division:
    """Divides pairs by the draws of their sources; those with the least draws are held out.

    With the draws of the targets too, training loses the pairs whose target stands in a held-out part.
    """
    distinct, first = np.unique(sources, return_index=True)
    valid_count = automatic_size(len(distinct)) if valid_size is None else valid_size
    test_count = automatic_size(len(distinct)) if test_size is None else test_size
    held = valid_count + test_count
    if held and held >= len(distinct):
        raise DataError(
            "held-out sizes",
            f"{valid_count} validation and {test_count} test pairs are asked for, "
            f"but the corpus has only {len(distinct)} different source sentences",
            "Make data.valid_size and data.test_size smaller, or give more text",
        )
    if not held:
        return Division(np.ones(len(sources), dtype=bool), first[:0], first[:0])
    test, valid = np.sort(first[:test_count]), np.sort(first[test_count:held])
    train = sources > distinct[held - 1]
    if targets is not None:
        train &= ~np.isin(targets, targets[np.concatenate([valid, test])])
        if not train.any():
            raise DataError(
                "held-out sizes",
                "no training pair is left, since every target also stands in a held-out part",
                "Make data.valid_size and data.test_size smaller, or set data.split_by=source",
            )
    return Division(train, valid, test)


def hold_out(
    pairs: Pairs, valid_size: int | None, test_size: int | None, seed: int, by: SplitBy = "source"
) -> tuple[Pairs, Pairs, Pairs]:
    """Splits pairs into train, valid and test; a size of None is chosen from the number of different sources.

    All pairs of one source go to one side. A held-out part keeps the first pair of each of its sources; the others are
    dropped, not trained on. With `by="both"`, training also loses the pairs whose target stands in a held-out part.
    Sources are drawn by a hash of (seed, sentence), so that a longer or reordered corpus moves few of them.
    """
    targets = draws_of(pairs.targets, seed) if by == "both" else None
    parts = divide(draws_of(pairs.sources, seed), targets, valid_size, test_size)
    train = np.flatnonzero(parts.train).tolist()
    return pairs.take(train), pairs.take(parts.valid.tolist()), pairs.take(parts.test.tolist())
