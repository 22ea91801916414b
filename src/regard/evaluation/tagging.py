"""How well words are tagged: accuracy, of unknown words too, F1 of chunks and of each tag, beside a simple baseline.

Chunks are counted as CoNLL's script does: a chunk is right if its kind and both its ends are. Intervals are those of a bootstrap
over sentences, since the words of one are not independent.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from regard.core.errors import ConfigError, DataError
from regard.data.chunks import are_chunk_tags, chunks_of
from regard.data.tagged import TaggedSentences, check_tags, read_tagged
from regard.evaluation.classification import LabelReport, LabelScore
from regard.evaluation.metrics import SEED, Score, resample
from regard.tasks.tagging import TextTagger

BOOTSTRAP = 1000
# what is counted in each sentence
RIGHT, WORDS, UNKNOWN_RIGHT, UNKNOWN, CHUNKS_RIGHT, CHUNKS_HAS, CHUNKS_GOT = range(7)


class MostFrequentTag:
    """The baseline: each word gets the tag that it has most often in the training text.

    A word that stands nowhere there gets the commonest tag of words that stand there once. Of equally frequent tags, the first by
    its letters is taken.
    """

    def __init__(self, text: TaggedSentences):
        seen: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for words, tags in zip(text.words, text.tags, strict=True):
            for word, tag in zip(words, tags, strict=True):
                seen[word][tag] += 1
        self.known = {word: _commonest(counts) for word, counts in seen.items()}
        once = Counter(next(iter(counts)) for counts in seen.values() if counts.total() == 1)
        every: Counter[str] = Counter()
        for counts in seen.values():
            every.update(counts)
        self.unknown = _commonest(once or every)

    def tag(self, words: Sequence[str]) -> list[str]:
        return [self.known.get(word, self.unknown) for word in words]


def _commonest(counts: Counter[str]) -> str:
    return min(counts, key=lambda tag: (-counts[tag], tag))


@dataclass(frozen=True, eq=False)
class TagReport:
    """The tags that words have, beside those that they got. `rows` are counts of each sentence."""

    words: LabelReport
    kinds: tuple[LabelScore, ...]  # of chunks
    rows: Float[np.ndarray, "N 7"]

    @classmethod
    def of(
        cls,
        text: TaggedSentences,
        given: Sequence[Sequence[str]],
        labels: Sequence[str],
        known: Collection[str] | None = None,
    ) -> TagReport:
        """A report on sentences whose words got the tags `given`; `known` are the words of the training text."""
        if len(text) != len(given) or any(len(a) != len(b) for a, b in zip(text.tags, given, strict=False)):
            raise DataError("tags", "there are not as many as words", "Give a tag for each word of each sentence")
        gold, got = ([tag for tags in side for tag in tags] for side in (text.tags, given))
        words = LabelReport.of(gold, got, labels)
        rows = np.zeros((len(text), 7))
        of_chunks = are_chunk_tags(labels)
        right_of, has_of, got_of = Counter(), Counter(), Counter()
        for row, sentence, has, guesses in zip(rows, text.words, text.tags, given, strict=True):
            hits = [a == b for a, b in zip(has, guesses, strict=True)]
            row[RIGHT], row[WORDS] = sum(hits), len(hits)
            if known is not None:
                new = [word not in known for word in sentence]
                row[UNKNOWN_RIGHT], row[UNKNOWN] = sum(np.logical_and(hits, new)), sum(new)
            if of_chunks:
                first, second = set(chunks_of(has)), set(chunks_of(guesses))
                row[CHUNKS_RIGHT : CHUNKS_GOT + 1] = len(first & second), len(first), len(second)
                for counts, found in ((right_of, first & second), (has_of, first), (got_of, second)):
                    counts.update(chunk.kind for chunk in found)
        kinds = tuple(
            LabelScore(
                kind,
                _percent(right_of[kind], got_of[kind]),
                _percent(right_of[kind], has_of[kind]),
                _percent(2 * right_of[kind], has_of[kind] + got_of[kind]),
                has_of[kind],
            )
            for kind in sorted({*has_of, *got_of})
        )
        return cls(words, kinds, rows)

    @property
    def sentences(self) -> int:
        return len(self.rows)

    @property
    def has_chunks(self) -> bool:
        return are_chunk_tags(self.words.labels)

    def value(self, name: str) -> float:
        """`accuracy`, `unknown_accuracy` or `f1`, in percent."""
        return float(_values(name, self.rows.sum(0, keepdims=True))[0])

    def per_tag(self) -> list[LabelScore]:
        return self.words.per_label()

    def per_kind(self) -> tuple[LabelScore, ...]:
        """Precision, recall and F1 of each kind of chunk; nothing where tags are no chunks."""
        return self.kinds

    def scores(self, bootstrap: int = BOOTSTRAP, prefix: str = "", title: str = "") -> dict[str, Score]:
        """All that can be measured, each with its interval (without one, if `bootstrap` is 0)."""
        if bootstrap < 0:
            raise ConfigError("setting bootstrap", f"it is {bootstrap}", "Give a number of samples, or 0")
        sums = self.rows.sum(0)
        names = {"accuracy": "accuracy"}
        if sums[UNKNOWN]:
            names["unknown_accuracy"] = "accuracy of unknown words"
        if self.has_chunks:
            names["f1"] = "F1 of chunks"
        drawn = resample(self.rows, bootstrap, SEED) if bootstrap else None
        signature = f"labels:{len(self.words.labels)}|sentences:{self.sentences}|words:{int(sums[WORDS])}"
        signature += f"|bs:{bootstrap}|seed:{SEED}" if bootstrap else ""
        found = {}
        for name, shown in names.items():
            value, low, high = self.value(name), None, None
            if drawn is not None:
                samples = np.sort(_values(name, drawn))
                tail = bootstrap // 40  # 2.5 % on each side
                low, high = min(float(samples[tail]), value), max(float(samples[-1 - tail]), value)
            found[prefix + name] = Score(title + shown, value, low, high, signature, self._details(name, sums))
        return found

    def _details(self, name: str, sums: np.ndarray) -> dict[str, Any]:
        counts = [int(count) for count in sums]
        if name == "accuracy":
            return {"correct": counts[RIGHT], "words": counts[WORDS]}
        if name == "unknown_accuracy":
            return {"correct": counts[UNKNOWN_RIGHT], "words": counts[UNKNOWN]}
        precision, recall = (
            round(_percent(counts[CHUNKS_RIGHT], counts[whole]), 4) for whole in (CHUNKS_GOT, CHUNKS_HAS)
        )
        chunks = {"correct": counts[CHUNKS_RIGHT], "chunks": counts[CHUNKS_HAS], "found": counts[CHUNKS_GOT]}
        return {"precision": precision, "recall": recall, **chunks}

    def to_plain(self) -> dict[str, Any]:
        """What a table shows, for JSON."""
        return {
            "sentences": self.sentences,
            "words": int(self.rows[:, WORDS].sum()),
            "tags": [_row(score) for score in self.per_tag()],
            "chunks": [_row(score) for score in self.per_kind()],
        }


def _row(score: LabelScore) -> dict[str, Any]:
    numbers = {"precision": score.precision, "recall": score.recall, "f1": score.f1}
    return {"tag": score.label, "count": score.texts, **{name: round(value, 4) for name, value in numbers.items()}}


def _percent(part: float, whole: float) -> float:
    return 100 * part / whole if whole else 0.0


def _values(name: str, sums: Float[np.ndarray, "R 7"]) -> Float[np.ndarray, " R"]:
    part, whole = {
        "accuracy": (sums[:, RIGHT], sums[:, WORDS]),
        "unknown_accuracy": (sums[:, UNKNOWN_RIGHT], sums[:, UNKNOWN]),
        "f1": (2 * sums[:, CHUNKS_RIGHT], sums[:, CHUNKS_HAS] + sums[:, CHUNKS_GOT]),
    }[name]
    return 100 * np.divide(part, whole, out=np.zeros(len(sums)), where=whole > 0)


def words_of(text: TaggedSentences) -> set[str]:
    return {word for words in text.words for word in words}


def chunk_f1(gold: Iterable[Sequence[str]], given: Iterable[Sequence[str]]) -> float:
    """F1 of the chunks of sentences, in percent."""
    right = whole = 0
    for has, got in zip(gold, given, strict=True):
        first, second = set(chunks_of(has)), set(chunks_of(got))
        right, whole = right + 2 * len(first & second), whole + len(first) + len(second)
    return _percent(right, whole)


def evaluate_tagger(tagger: TextTagger, tagged: str | Path, column: str | None = None) -> TagReport:
    """A tagger's report on a file of tagged text. `column` is that of the tags; None: as in the tagger's own training."""
    if column is None:
        own = tagger.config.get("data", {}).get("tag_column", "")
        column = str(own) if isinstance(own, str | int) else ""
    found = read_tagged(tagged, column)
    check_tags(str(tagged), found, tagger.labels, "the model")
    given = [[one.tag for one in words] for words in tagger.tag(found.part.words)]
    return TagReport.of(found.part, given, tagger.labels)
