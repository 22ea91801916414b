"""From a line of text to the sentences that are translated one by one, and back to one translation of the line."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from regard.data.sentences import split_paragraph

if TYPE_CHECKING:
    from regard.data.split import PairStream

END = "</s>"
SAMPLE = 2000  # lines that are looked at to learn what a corpus is like
FEW = 0.1  # a corpus with fewer lines of several sentences is one of single sentences


@dataclasses.dataclass(frozen=True)
class Translation:
    """One hypothesis for one line of text.

    A line that was split into sentences has the tokens of all of them in a row, with `</s>` between, and a block of
    attention for each; its scores are sums over its sentences.
    """

    text: str
    score: float  # what hypotheses are ranked by: the log-probability, length-normalised, with penalties
    log_prob: float  # of the tokens and of the ends; where the model plans (rctm2), of finished sentences' lengths, too
    tokens: list[str]
    token_log_probs: list[float]  # one per token, and one for the end of each finished sentence
    source_tokens: list[str]
    finished: bool  # False where the maximum length cut the text
    attention: list[list[float]] | None = None  # [target token][source token]; both sides end with </s>
    note: str = ""  # what a guard says of it (see tasks/guarding.py)
    confidence: float | None = (
        None  # expected chrF from 0 to 1, where the model was calibrated (see tasks/confidence.py)
    )
    token_confidences: list[float] | None = None  # how probably each token is right; as long as token_log_probs
    alignment: list[tuple[int, int]] | None = (
        None  # linked words of the line and of the text, where asked for: docs/align.md
    )

    def to_plain(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


@dataclasses.dataclass(frozen=True)
class Habits:
    """What lines a model was trained on: how long they were, and whether they held one sentence each."""

    usual_length: int = 0  # source tokens of all but the longest lines; 0: unknown
    one_sentence: bool = False

    @staticmethod
    def of(text: PairStream, usual_length: int) -> Habits:
        from regard.data.split import gathered  # NumPy, which translating does not need

        sample = gathered(text.spaced(SAMPLE).chunks()).sources
        several = sum(len([part for part, _ in split_paragraph(text, 0) if part]) > 1 for text in sample)
        return Habits(usual_length, several < FEW * len(sample))


@dataclasses.dataclass
class Sentence:
    """A part of a line that is translated by itself."""

    line: int
    text: str
    after: str  # what stood between this sentence and the next
    before: str = ""  # white space that the line began with
    ids: list[int] = dataclasses.field(default_factory=list)
    prefix: list[int] = dataclasses.field(default_factory=list)
    terms: tuple[Any, ...] = ()  # what must be written: see search/terms.py


def sentences_of_line(
    line: int, split: Sequence[tuple[str, str]], most: int, count: Callable[[str], int]
) -> list[Sentence]:
    """The sentences of a line that is split (`split_paragraph`), none of them longer than `most` tokens (0: no limit)."""
    parts: list[tuple[str, str]] = []
    before = ""
    for part, after in split:
        if not part.strip():
            before += part + after
        else:
            parts += cut_to_fit(part, after, most, count)
    sentences = [Sentence(line, part, after) for part, after in parts]
    if sentences:
        sentences[0].before = before
    return sentences


def cut_to_fit(text: str, after: str, most: int, count: Callable[[str], int]) -> list[tuple[str, str]]:
    """A sentence in parts of at most `most` tokens: cut at punctuation, else at spaces, else anywhere."""
    tokens = count(text)
    if not most or tokens <= most or len(text) < 2:
        return [(text, after)]
    words = len(text.split())
    parts = [p for p in split_paragraph(text, max(1, words * most // tokens)) if p[0]] if words > 1 else []
    if len(parts) < 2:  # a language without spaces, or one endless word
        size = max(1, min(len(text) - 1, len(text) * most // tokens))
        parts = [(text[i : i + size], "") for i in range(0, len(text), size)]
    parts[-1] = (parts[-1][0], after)
    return [piece for part, gap in parts for piece in cut_to_fit(part, gap, most, count)]


def join_line(text: str, parts: list[tuple[Sentence, list[Translation]]]) -> list[Translation]:
    """The translations of a line from those of its sentences: its i-th best is made of each one's i-th best."""
    if not parts:
        return [Translation(text, 0.0, 0.0, [], [], [], True)]
    if len(parts) == 1:
        sentence, many = parts[0]
        if not sentence.before and not sentence.after:
            return many
        return [dataclasses.replace(t, text=sentence.before + t.text + sentence.after) for t in many]
    return [_joined([(s, many[i]) for s, many in parts]) for i in range(min(len(many) for _, many in parts))]


def _joined(chosen: list[tuple[Sentence, Translation]]) -> Translation:
    last = len(chosen) - 1
    texts = [t.text + ((s.after or " ") if k < last else s.after) for k, (s, t) in enumerate(chosen)]
    tokens, source_tokens = [], []
    for k, (_, t) in enumerate(chosen):
        tokens += [*t.tokens, *([END] if k < last and t.finished else [])]
        source_tokens += [*t.source_tokens, *([END] if k < last else [])]
    return Translation(
        text=chosen[0][0].before + "".join(texts),
        score=sum(t.score for _, t in chosen),
        log_prob=sum(t.log_prob for _, t in chosen),
        **_confidences([t for _, t in chosen]),
        tokens=tokens,
        token_log_probs=[p for _, t in chosen for p in t.token_log_probs],
        source_tokens=source_tokens,
        finished=all(t.finished for _, t in chosen),
        attention=_blocks([t.attention for _, t in chosen]),
        note="; ".join(t.note for _, t in chosen if t.note),
        alignment=_links(chosen, texts),
    )


def _links(chosen: Sequence[tuple[Sentence, Translation]], texts: Sequence[str]) -> list[tuple[int, int]] | None:
    """The links of all sentences, as numbers of the line's words: what stands between white space."""
    found: list[tuple[int, int]] = []
    source, target = chosen[0][0].before, chosen[0][0].before
    for (sentence, one), text in zip(chosen, texts, strict=True):
        if one.alignment is None:
            return None
        first = _words_before(source), _words_before(target)
        found += [(i + first[0], j + first[1]) for i, j in one.alignment]
        source, target = source + sentence.text + sentence.after, target + text
    return sorted(found)


def _words_before(text: str) -> int:
    """How many words are over where a text ends: a word that white space does not end goes on."""
    words = len(text.split())
    return words if not text or text[-1].isspace() else words - 1


def _blocks(attentions: Sequence[list[list[float]] | None]) -> list[list[float]] | None:
    """Each sentence's attention in a block of its own along the diagonal."""
    blocks = [a for a in attentions if a]
    if len(blocks) < len(attentions):
        return None
    width = sum(len(block[0]) for block in blocks)
    rows, begin = [], 0
    for block in blocks:
        size = len(block[0])
        rows += [[0.0] * begin + row + [0.0] * (width - begin - size) for row in block]
        begin += size
    return rows


def _confidences(parts: list[Translation]) -> dict[str, Any]:
    """Of a line: the mean of its sentences', by their lengths."""
    if any(part.confidence is None or part.token_confidences is None for part in parts):
        return {}
    sizes = [max(1, len(part.tokens)) for part in parts]
    mean = sum((part.confidence or 0.0) * size for part, size in zip(parts, sizes, strict=True)) / sum(sizes)
    return {"confidence": mean, "token_confidences": [c for part in parts for c in part.token_confidences or []]}
