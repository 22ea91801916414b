"""The sentences of texts, as tokens: what a translator searches for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from regard.core.errors import DataError, ModelError
from regard.data.sentences import split_paragraph
from regard.data.tokenizers import Tokenizer, TokenizerPair
from regard.tasks.lines import Habits, Sentence, sentences_of_line

MAX_LINE_CHARACTERS = 100_000


def sentences_of(
    texts: Sequence[str],
    tokenizers: TokenizerPair,
    habits: Habits,
    limit: int | None,
    prefixes: Sequence[str] | None,
    leads: list[list[int]],
    first_line: int,
) -> list[Sentence]:
    """The sentences to translate: whole texts, but those of several lines or longer than usual are split.

    No sentence is longer than `limit`, EOS included. `leads` are tokens before each text's sentences. Errors count texts from
    `first_line`.
    """
    for number, text in enumerate(texts, start=first_line):
        if isinstance(text, str) and len(text) > MAX_LINE_CHARACTERS:
            raise DataError(
                f"line {number}", f"it has {len(text):,} characters, more than {MAX_LINE_CHARACTERS:,}", "Split it"
            )
    if any(not isinstance(text, str) for text in texts):
        raise DataError("texts", "they are not all texts", "Give a list of str")
    ids = tokenizers.source.encode(list(texts))
    usual = habits.usual_length
    hard = limit - 1 - max(map(len, leads), default=0) if limit is not None else 0
    most = min([n for n in (usual + usual // 2, hard) if n], default=0)  # beyond this, even a sentence is cut
    split: dict[int, list[tuple[str, str]]] = {}  # lines, and what they are made of
    for line, (text, tokens) in enumerate(zip(texts, ids, strict=True)):
        forced = bool(prefixes and prefixes[line])
        long = (usual and len(tokens) > usual) or (hard and len(tokens) > hard)
        if tokens and not forced and (habits.one_sentence or "\n" in text or long):
            split[line] = split_paragraph(text, 0)
    known = _Tokens(tokenizers.source, dict(zip(texts, ids, strict=True)))
    known.learn(part for parts in split.values() for part, _ in parts)  # of all lines at once
    sentences: list[Sentence] = []
    for line, (text, tokens) in enumerate(zip(texts, ids, strict=True)):
        if line in split:
            sentences += sentences_of_line(line, split[line], most, known.count)
        elif tokens:
            sentences.append(Sentence(line, text, ""))
    for sentence in sentences:
        tokens = known.of(sentence.text)
        sentence.ids = leads[sentence.line] + tokens
        if limit is not None and len(sentence.ids) + 1 > limit:
            raise ModelError(
                f"line {first_line + sentence.line}",
                f"a sentence of {len(tokens)} tokens is beyond the model's limit of {limit - 1}",
                "Split it",
            )
    if prefixes:
        forced_ids = tokenizers.target.encode([prefixes[s.line] for s in sentences])
        for sentence, tokens in zip(sentences, forced_ids, strict=True):
            sentence.prefix = tokens
    return sentences


class _Tokens:
    """The tokens of texts, each found once: one call for many takes a fraction of a call for each."""

    def __init__(self, tokenizer: Tokenizer, known: dict[str, list[int]]):
        self._tokenizer, self._known = tokenizer, known

    def learn(self, texts: Iterable[str]) -> None:
        new = list(dict.fromkeys(text for text in texts if text not in self._known))
        self._known |= zip(new, self._tokenizer.encode(new), strict=True)

    def of(self, text: str) -> list[int]:
        if text not in self._known:
            self.learn([text])
        return self._known[text]

    def count(self, text: str) -> int:
        return len(self.of(text))
