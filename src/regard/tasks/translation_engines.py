"""The engines of a translator: torch, which does everything, and before it CTranslate2, where there is one and it can.

This file imports neither: a first translation should not wait for torch.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

from regard.core.errors import ModelError
from regard.engines.ctranslate2_rules import why_not_search
from regard.tasks.lazy_torch import LazyTorch
from regard.tasks.lines import Sentence, Translation
from regard.tasks.search_request import SearchRequest

if TYPE_CHECKING:
    from regard.engines.ctranslate2_engine import CTranslate2Engine
    from regard.search.terms import Letters
    from regard.tasks.torch_translation import TorchEngine

Engine = Literal["auto", "torch", "ctranslate2"]
ENGINES: tuple[Engine, ...] = ("auto", "torch", "ctranslate2")


class Answered(NamedTuple):
    """What was found, which engine found it, and why it was not another."""

    found: list[list[Translation]]
    engine: str
    note: str


@dataclasses.dataclass(frozen=True)
class Engines:
    """Torch, and perhaps CTranslate2 before it. A translator's copies have the same."""

    torch: LazyTorch
    fast: CTranslate2Engine | None = None
    only_fast: bool = False  # what CTranslate2 cannot do is an error

    @property
    def fast_in_use(self) -> CTranslate2Engine | None:
        """CTranslate2, unless somebody may have changed the model."""
        return None if self.torch.taken and not self.only_fast else self.fast

    @property
    def first(self) -> CTranslate2Engine | TorchEngine:
        """The one that is tried first."""
        return self.fast_in_use or self.torch.engine

    def search(self, sentences: Sequence[Sentence], request: SearchRequest) -> Answered:
        """The n-best translations of each sentence: by CTranslate2, and by torch what that leaves."""
        found, fast, note = self._search_fast(sentences, request)
        left = [row for row, many in enumerate(found) if many is None]
        if fast and left:
            note = f"{len(left)} of {len(sentences)} sentences were left to torch"
        if left:
            done, hears = len(sentences) - len(left), request.progress
            progress = None if hears is None else lambda more: hears(done + more)
            with self.torch.turn:
                again = self.torch.engine.search(
                    [sentences[row] for row in left], dataclasses.replace(request, progress=progress)
                )
            for row, many in zip(left, again, strict=True):
                found[row] = many
        return Answered([many for many in found if many is not None], "ctranslate2" if fast else "torch", note)

    def _search_fast(
        self, sentences: Sequence[Sentence], request: SearchRequest
    ) -> tuple[list[list[Translation] | None], bool, str]:
        """What CTranslate2 finds, None for sentences that are left; whether it was asked at all, and if not, why."""
        nothing: list[list[Translation] | None] = [None] * len(sentences)
        if self.fast is None:
            return nothing, False, ""
        fast = self.fast_in_use
        if fast is None:
            return nothing, False, "the model was taken in hand"
        prefixes = any(sentence.prefix for sentence in sentences)
        reason = why_not_search(request.settings, attention=request.attention, prefixes=prefixes)
        if reason is None:
            from regard.tasks.fast_translation import fast_search

            return fast_search(fast, self.torch.tokenizers, sentences, request), True, ""
        if self.only_fast:
            raise ModelError("engine ctranslate2", f"it cannot do this: {reason}", "Use engine auto or torch")
        return nothing, False, reason

    def search_with_terms(
        self, sentences: Sequence[Sentence], request: SearchRequest, letters: Letters
    ) -> list[list[Translation]]:
        """The same for sentences with terms of a glossary, which only torch can be made to write."""
        if self.only_fast:
            what = "CTranslate2 cannot be made to write the terms of a glossary"
            raise ModelError("engine ctranslate2", what, "Use engine auto or torch")
        return self.torch.engine.search(sentences, request, letters)
