"""Which words of translations were written from which of their sources, for many requests at once: tags need to know."""

from __future__ import annotations

import re
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING

from regard.core.errors import ModelError
from regard.serving.admission import guess_tokens
from regard.serving.batched_tasks import Counted
from regard.serving.html_placing import UNIT, in_step, units_of

if TYPE_CHECKING:
    from regard.tasks.alignment import Aligner
    from regard.tasks.translation import Translator

Pair = tuple[str, str]  # a sentence and its translation


class Aligning:
    """Pairs into links, by the attention of the torch model, which is loaded with the first pair; see `regard align`.

    Of a model without attention, and of texts that are too long for it, the first words are taken for the first.
    """

    def __init__(self) -> None:
        self._aligners: weakref.WeakKeyDictionary[Translator, Aligner | None] = weakref.WeakKeyDictionary()

    def cut(self, model: Translator, wish: Sequence[Pair]) -> list[Counted]:
        return [Counted(pair, guess_tokens(pair)) for pair in wish]

    def compute(self, model: Translator, key: None, units: Sequence[Counted]) -> list[list[int | None]]:
        pairs = [unit.what for unit in units]
        counts = [(len(units_of(source)), len(units_of(target))) for source, target in pairs]
        found = [in_step(*count) for count in counts]
        aligner = self._aligner(model)
        if aligner is None:
            return found
        too_long: set[int] = set()
        sources, targets = [source for source, _ in pairs], [target for _, target in pairs]
        links = aligner(sources, targets, too_long=lambda number, _: too_long.add(number - 1))
        for row, (_, count) in enumerate(counts):
            if row not in too_long:
                found[row] = [None] * count
                for i, j in links[row]:
                    found[row][j] = i
        return found

    def join(
        self, model: Translator, wish: Sequence[Pair], units: Sequence[Counted], found: list[list[int | None]]
    ) -> list[list[int | None]]:
        return found

    def _aligner(self, translator: Translator) -> Aligner | None:
        from regard.tasks.alignment import Aligner

        if translator not in self._aligners:
            try:
                self._aligners[translator] = Aligner(translator.on_torch(), words=re.compile(UNIT.pattern))
            except ModelError:  # it has no attention to ask
                self._aligners[translator] = None
        return self._aligners[translator]
