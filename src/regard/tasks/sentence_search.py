"""Searching for translations of sentences: by engines, with a glossary, in a chooser's order, past a guard, with confidences."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

from regard.core.errors import DataError, ModelError
from regard.core.search_config import SearchConfig
from regard.data.tokenizers import TokenizerPair
from regard.data.word_order import backwards
from regard.tasks.confidence import Calibration
from regard.tasks.guarding import Guard
from regard.tasks.lines import Habits, Sentence, Translation
from regard.tasks.search_request import SearchRequest
from regard.tasks.sentences import sentences_of
from regard.tasks.translation_engines import Engines

if TYPE_CHECKING:
    import torch

    from regard.models.base import Writer
    from regard.search.speculative import Tally
    from regard.tasks.terminology import Terminology


class Chooser(Protocol):
    """Searches for more translations than were asked for, and puts the best first by a rule of its own."""

    def settings(self, asked: SearchConfig) -> SearchConfig: ...

    def choose(self, sources: Sequence[str], lists: Sequence[list[Translation]]) -> list[list[Translation]]: ...


class SentenceSearch:
    """A translator's lower half: texts become sentences, and sentences n-best lists of translations."""

    def __init__(self, engines: Engines, tokenizers: TokenizerPair, habits: Habits | None, backwards: bool):
        self.engines, self.tokenizers, self.backwards = engines, tokenizers, backwards
        self.habits = habits or Habits()
        self.tag = ""  # put before every sentence that has none of its own
        self.chooser: Chooser | None = None  # puts n-best lists in another order
        self.guard: Guard | None = None  # takes care that what is first is a translation
        self.calibration: Calibration | None = None  # says how confident translations are
        self.terminology: Terminology | None = None  # terms that must be written
        self.engine: str = "torch" if engines.fast is None else "ctranslate2"
        self.engine_note: str = ""

    @property
    def model(self) -> Writer:
        """The torch model. Who has it may change it, so from now on torch translates, unless CTranslate2 was insisted on."""
        self.engines.torch.taken = True
        return self.engines.torch.engine.model

    @property
    def device(self) -> torch.device:
        """Where torch computes."""
        return self.engines.torch.engine.device

    @property
    def torch_device(self) -> torch.device | None:
        """Where torch searches; None where CTranslate2 does."""
        return self.device if self.engines.fast_in_use is None else None

    @property
    def attends(self) -> bool:
        """Whether the model has attention over the source, which `hypotheses` can show."""
        return self.engines.torch.attends

    @property
    def tally(self) -> Tally:
        """How the guesses of a draft went."""
        return self.engines.torch.engine.tally

    @property
    def source_limit(self) -> int | None:
        """Tokens of the longest sentence, its end included; None: any length."""
        return self.engines.first.source_limit

    @property
    def lanes(self) -> int:
        """How many threads may search at the same time; what torch does takes turns (`turn`)."""
        fast = self.engines.fast_in_use
        return 1 if fast is None else fast.batches

    @property
    def turn(self) -> AbstractContextManager[Any]:
        """For what torch does, where several threads search."""
        return self.engines.torch.turn

    def batch_tokens(self, settings: SearchConfig) -> int:
        """The size of torch's batches."""
        return self.engines.torch.engine.batch_tokens(settings)

    def leads(self, tags: Sequence[str] | None, count: int) -> list[list[int]]:
        """The tag of each text as tokens."""
        tags = [self.tag] * count if tags is None else tags
        if len(tags) != count:
            raise DataError("tags", f"{len(tags)} tags for {count} texts", "Give one for each, perhaps empty")
        known = {tag: [self.tokenizers.source.tag(tag)] if tag else [] for tag in set(tags)}
        return [known[tag] for tag in tags]

    def split(
        self,
        texts: Sequence[str],
        prefixes: Sequence[str] | None = None,
        *,
        tags: Sequence[str] | None = None,
        first_line: int = 1,
    ) -> list[Sentence]:
        """The sentences that are searched for; `join_line` makes texts of what is found (see `tasks.lines`)."""
        if prefixes is not None and len(prefixes) != len(texts):
            what = f"{len(prefixes)} prefixes for {len(texts)} texts"
            raise DataError("prefixes", what, "Give one for each, perhaps empty")
        leads = self.leads(tags, len(texts))
        if self.backwards and prefixes is not None and any(prefixes):
            what = "the model writes from right to left, and knows the beginning of a text last"
            raise ModelError("prefix", what, "Use a model that writes from left to right")
        return sentences_of(texts, self.tokenizers, self.habits, self.source_limit, prefixes, leads, first_line)

    def _search(self, sentences: list[Sentence], request: SearchRequest) -> list[list[Translation]]:
        """What the model finds, or what is chosen of it; with a guard, what passes that."""
        guard = self.guard
        if guard is None:
            return self._chosen(sentences, request)
        from regard.tasks.odd_input import search_readable

        def kept(some: list[Sentence]) -> list[list[Translation]]:
            found = self._chosen(some, request)

            def again(rows: list[int], careful: SearchConfig) -> list[list[Translation]]:
                return self._said(self._found([some[row] for row in rows], request.again(careful)), request)

            return guard.keep([sentence.text for sentence in some], found, request.settings, again)

        return search_readable(sentences, self.tokenizers, kept)

    def _chosen(self, sentences: list[Sentence], request: SearchRequest) -> list[list[Translation]]:
        """What is found, in the order of who chooses."""
        if self.chooser is None:
            return self._said(self._found(sentences, request), request)
        more = dataclasses.replace(request, settings=self.chooser.settings(request.settings))
        chosen = self.chooser.choose([sentence.text for sentence in sentences], self._found(sentences, more))
        return self._said([many[: request.settings.nbest] for many in chosen], request)

    def _said(self, found: list[list[Translation]], request: SearchRequest) -> list[list[Translation]]:
        """Translations with their confidences."""
        if self.calibration is None or not request.details:
            return found
        return [[self.calibration.add_to(one) for one in many] for many in found]

    def _found(self, sentences: list[Sentence], request: SearchRequest) -> list[list[Translation]]:
        """What is found, with the terms of the glossary, if there is one."""
        terminology = self.terminology
        if terminology is None:
            return self._found_plainly(sentences, request)

        def plainly(some: list[Sentence], how: SearchConfig) -> list[list[Translation]]:
            return self._found_plainly(some, request.again(how)) if some else []

        def with_terms(some: list[Sentence], how: SearchConfig) -> list[list[Translation]]:
            return self.engines.search_with_terms(some, request.again(how), terminology.tokens.letters)

        return terminology.search(sentences, request.settings, plainly, with_terms)

    def _found_plainly(self, sentences: list[Sentence], request: SearchRequest) -> list[list[Translation]]:
        answered = self.engines.search(sentences, request)
        self.engine = answered.engine
        if self.engines.fast is not None:  # else it says why there is only torch
            self.engine_note = answered.note
        if not self.backwards:
            return answered.found
        return [[dataclasses.replace(one, text=backwards(one.text)) for one in many] for many in answered.found]
