"""Word alignments of a model's own translations: which source word each word of them was written from (see tasks/alignment.py)."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

from regard.core.errors import ModelError
from regard.tasks.lines import Sentence, Translation

if TYPE_CHECKING:
    from regard.tasks.alignment import Aligner
    from regard.tasks.translation import Translator


def aligner_of(translator: Translator) -> Aligner | None:
    """What links words by this model's attention; None where it has none, or writes from right to left."""
    from regard.tasks.alignment import Aligner  # which imports NumPy and torch

    try:
        return Aligner(translator.on_torch())
    except ModelError:
        return None


def with_alignments(
    aligner: Aligner | None,
    sentences: Sequence[Sentence],
    found: Sequence[list[Translation]],
    tags: Sequence[str] | None = None,
) -> list[list[Translation]]:
    """The same translations, each with the links between its words and its sentence's.

    They are those that `Translator.align` finds for the sentence and the translation's text. A pair that is too long to be aligned
    has none, and so has every translation where there is no aligner. `tags` are those of the lines that the sentences are from.
    """
    if aligner is None:
        return [list(many) for many in found]
    pairs = [(sentence, one) for sentence, many in zip(sentences, found, strict=True) for one in many]
    too_long: set[int] = set()
    links = aligner(
        [sentence.text for sentence, _ in pairs],
        [one.text for _, one in pairs],
        tags=None if tags is None else [tags[sentence.line] for sentence, _ in pairs],
        too_long=lambda number, _: too_long.add(number - 1),
    )
    aligned = iter(
        dataclasses.replace(one, alignment=None if row in too_long else links[row])
        for row, (_, one) in enumerate(pairs)
    )
    return [[next(aligned) for _ in many] for many in found]
