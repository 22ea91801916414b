"""Sentences that a model reads badly: all in capitals, or in characters that it does not know. Part of the guard (guarding.py).

A sentence in capitals is searched for in small letters as well, and the better score wins; the translation is in capitals then. Of
a sentence without a single known character (emoji, another script) a model can only make things up: it is left as it is. `note`
says so.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from regard.core.specials import UNK
from regard.data.tokenizers import SPACE, Tokenizer, TokenizerPair
from regard.tasks.lines import Sentence, Translation

COPIED = "the model knows none of its characters: it is left as it is"
SMALL = "it was read in small letters"
FEWEST_LETTERS = 2

Search = Callable[[list[Sentence]], list[list[Translation]]]


def search_readable(
    sentences: Sequence[Sentence], tokenizers: TokenizerPair, search: Search
) -> list[list[Translation]]:
    """What `search` finds for sentences that can be read, all of them in one call, and what is left of the others."""
    found: list[list[Translation] | None] = [None] * len(sentences)
    readable = [row for row, one in enumerate(sentences) if one.prefix or not is_unknown(one, tokenizers.source)]
    small = {row: lowered for row in readable if (lowered := in_small_letters(sentences[row], tokenizers.source))}
    answers = iter(search([*(sentences[row] for row in readable), *small.values()]))
    for row in readable:
        found[row] = next(answers)
    for row, many in zip(small, answers, strict=True):
        found[row] = _better(found[row] or [], many)
    return [many if many is not None else [_copy(one)] for many, one in zip(found, sentences, strict=True)]


def is_unknown(sentence: Sentence, tokenizer: Tokenizer) -> bool:
    """Whether no token is one that the model knows; spaces do not count."""
    if UNK not in sentence.ids:
        return False
    others = [token for token in sentence.ids if token != UNK and token not in tokenizer.tags.values()]
    return not any(piece.strip(SPACE).strip() for piece in tokenizer.pieces(others))


def in_small_letters(sentence: Sentence, tokenizer: Tokenizer) -> Sentence | None:
    """The sentence as it is usually written, if it is all in capitals and the model reads that differently."""
    text = sentence.text
    if sentence.prefix or text != text.upper() or sum(map(str.isalpha, text)) < FEWEST_LETTERS:
        return None
    capitals, small = tokenizer.encode([text, text.capitalize()])
    if small == capitals:
        return None
    lead = sentence.ids[: len(sentence.ids) - len(capitals)]
    return dataclasses.replace(sentence, text=text.capitalize(), ids=[*lead, *small])


def _better(capitals: list[Translation], small: list[Translation]) -> list[Translation]:
    if not small or (capitals and capitals[0].score >= small[0].score):
        return capitals
    note = "; ".join(part for part in (SMALL, small[0].note) if part)
    loud = [dataclasses.replace(one, text=one.text.upper()) for one in small]
    return [dataclasses.replace(loud[0], note=note), *loud[1:]]


def _copy(sentence: Sentence) -> Translation:
    return Translation(sentence.text, 0.0, 0.0, [], [], [], True, note=COPIED)
