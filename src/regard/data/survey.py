"""The first pass over a text: which pairs are kept, what they are drawn by, and what the text's fingerprint is.

The text itself is held in memory where it is small. Otherwise only a few bytes of each pair are, and later passes read
the files again.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from regard.core.errors import ConfigError, DataError
from regard.data.reading import PairReader
from regard.data.split import CHUNK, Pairs, SplitBy, draws_of


@dataclass(frozen=True, kw_only=True)
class FilterConfig:
    """Which pairs of a text are left out."""

    min_words: int = 0  # of either side; 0 sets no limit
    max_words: int = 0
    max_ratio: float = 0.0  # of the longer to the shorter side, in words; 0 sets no limit
    filters: tuple[str, ...] = ()  # findings of `regard data check` whose pairs are left out, such as "copied-source"

    def check_limits(self, where: str) -> None:
        for name in ("min_words", "max_words", "max_ratio"):
            value = getattr(self, name)
            if not 0 <= value < float("inf"):
                what = "negative" if value < 0 else "no number that limits anything"
                raise ConfigError(f"setting {where}.{name}", f"it is {what} ({value})", "Use 0 or more")
        if 0 < self.max_words < self.min_words:
            raise ConfigError(
                f"setting {where}.max_words",
                f"it is below {where}.min_words ({self.max_words} < {self.min_words})",
                "Raise it, or set it to 0 for no limit",
            )
        if 0 < self.max_ratio < 1:
            raise ConfigError(
                f"setting {where}.max_ratio", f"it is {self.max_ratio}", "Use 1 or more, or 0 for no limit"
            )


@dataclass
class Text:
    """One text: where it is read from, and what is done with it."""

    reader: PairReader
    filters: FilterConfig = field(default_factory=FilterConfig)
    tag: str = ""
    weight: float = 1.0
    most: int = 0  # a seeded sample of its pairs; 0 takes all
    columns: tuple[str | int, ...] = ()  # that the reader was opened with


@dataclass
class Survey:
    """What is known of the pairs of some texts, in their order."""

    masks: list[np.ndarray]  # for each text, which of its pairs are kept
    sources: np.ndarray  # draws of the kept pairs; empty where nothing is held out
    targets: np.ndarray | None
    dropped: int  # pairs with an empty side
    filtered: Counter[str]  # pairs left out, by reason
    fingerprint: str
    pairs: Pairs | None  # the kept pairs, where they are held in memory

    @property
    def counts(self) -> list[int]:
        return [int(mask.sum()) for mask in self.masks]


def survey(texts: Sequence[Text], *, keep: bool, draw: bool, by: SplitBy, seed: int) -> Survey:
    """Goes through texts once. `keep` holds the pairs in memory, `draw` says that some will be held out."""
    pairs = Pairs() if keep else None
    tagged = any(text.tag for text in texts)
    sources: list[np.ndarray] = []
    targets: list[np.ndarray] = []
    masks: list[np.ndarray] = []
    filtered: Counter[str] = Counter()
    dropped = 0
    digests = (hashlib.sha256(), hashlib.sha256())
    for text in texts:
        parts: list[np.ndarray] = []
        judge = _Judge(text)
        sample = _sample(text, seed)
        for chunk in text.reader.chunks():
            whole = np.fromiter(
                (bool(s.strip()) and bool(t.strip()) for s, t in zip(chunk.sources, chunk.targets, strict=True)),
                dtype=bool,
                count=len(chunk),
            )
            dropped += len(chunk) - int(whole.sum())
            mask = judge(chunk, whole, filtered)
            if sample is not None:
                place = sum(map(len, parts))
                mask &= sample[place : place + len(chunk)]
            parts.append(mask)
            kept = chunk if mask.all() else chunk.take(np.flatnonzero(mask).tolist())
            for digest, lines in zip(digests, (kept.sources, kept.targets), strict=True):
                if lines:
                    digest.update(("\n".join(lines) + "\n").encode(errors="surrogatepass"))
            if draw:
                sources.append(draws_of(kept.sources, seed))
                if by == "both":
                    targets.append(draws_of(kept.targets, seed))
            if pairs is not None:
                pairs.sources += kept.sources
                pairs.targets += kept.targets
                pairs.tags += [text.tag] * len(kept) if tagged else []
        masks.append(np.concatenate(parts) if parts else np.zeros(0, dtype=bool))
    empty = np.zeros(0, dtype=np.uint64)
    return Survey(
        masks=masks,
        sources=np.concatenate(sources) if sources else empty,
        targets=np.concatenate(targets) if targets else None,
        dropped=dropped,
        filtered=filtered,
        fingerprint="".join(digest.hexdigest() for digest in digests),
        pairs=pairs,
    )


class _Judge:
    """Says which pairs of a text pass its filters."""

    def __init__(self, text: Text):
        self._config = text.filters
        self._flag: Callable[[Pairs], dict[str, np.ndarray]] | None = None
        if self._config.filters:
            from regard.data.checks.filtering import flagging  # not needed otherwise

            self._flag = flagging(text.reader, self._config.filters)

    def __call__(self, chunk: Pairs, whole: np.ndarray, filtered: Counter[str]) -> np.ndarray:
        mask = whole.copy()
        config = self._config

        def leave_out(name: str, bad: np.ndarray) -> None:
            nonlocal mask
            count = int((bad & mask).sum())
            if count:
                filtered[name] += count
            mask &= ~bad

        if config.min_words or config.max_words or config.max_ratio:
            words = np.array(
                [[len(s.split()), len(t.split())] for s, t in zip(chunk.sources, chunk.targets, strict=True)]
            )
            words = words.reshape(-1, 2)
            least, most = words.min(axis=1), words.max(axis=1)
            if config.min_words:
                leave_out("min_words", least < config.min_words)
            if config.max_words:
                leave_out("max_words", most > config.max_words)
            if config.max_ratio:
                leave_out("max_ratio", most > config.max_ratio * np.maximum(least, 1))
        if self._flag is not None:
            for name, bad in self._flag(chunk).items():
                leave_out(name, bad)
        return mask


def _sample(text: Text, seed: int) -> np.ndarray | None:
    """A mask of a seeded sample of a text, as it stands in its file, or None for all of it."""
    if not text.most:
        return None
    count = sum(len(chunk) for chunk in text.reader.chunks())
    return sample_mask(count, text.most, seed)


def sample_mask(count: int, most: int, seed: int) -> np.ndarray:
    """A seeded draw of `most` among `count`."""
    mask = np.ones(count, dtype=bool)
    if 0 < most < count:
        keys = np.random.Philox(key=seed % (1 << 64)).random_raw(count)
        mask[np.argsort(keys, kind="stable")[most:]] = False
    return mask


class FileStream:
    """Chosen pairs of some texts, read from their files whenever they are gone through."""

    def __init__(self, texts: Sequence[Text], masks: Sequence[np.ndarray]):
        self._texts, self._masks = texts, masks
        self._length = sum(int(mask.sum()) for mask in masks)

    def __len__(self) -> int:
        return self._length

    def chunks(self, size: int = CHUNK) -> Iterator[Pairs]:
        tagged = any(text.tag for text in self._texts)
        for text, mask in zip(self._texts, self._masks, strict=True):
            if not mask.any():
                continue
            begin = 0
            for chunk in text.reader.chunks(size):
                places = np.flatnonzero(mask[begin : begin + len(chunk)])
                begin += len(chunk)
                if begin > len(mask):
                    break
                if len(places):
                    part = chunk if len(places) == len(chunk) else chunk.take(places.tolist())
                    yield Pairs(part.sources, part.targets, [text.tag] * len(part) if tagged else [])
            if begin != len(mask):
                raise DataError(
                    " and ".join(text.reader.names),
                    "the text has changed while it was being read",
                    "Leave the files alone while a run uses them, and start again",
                )

    def spaced(self, most: int) -> FileStream:
        """At most so many pairs from all over the texts, evenly spaced."""
        if len(self) <= most:
            return self
        step, passed, masks = -(-len(self) // most), 0, []
        for mask in self._masks:
            places = np.flatnonzero(mask)
            chosen = np.zeros_like(mask)
            chosen[places[(-passed) % step :: step]] = True
            passed += len(places)
            masks.append(chosen)
        return FileStream(self._texts, masks)
