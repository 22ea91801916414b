"""Translation: raw text in, raw text out, with whatever model a run folder holds.

What searches is an engine: torch, which does everything, or on a CPU CTranslate2, which is faster (docs/engines.md). This file
imports neither: a first translation should not wait for torch.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from regard.core.errors import ConfigError, ModelError
from regard.core.number_formats import Asked
from regard.core.search_config import SearchConfig
from regard.data.tokenizers import TokenizerPair
from regard.tasks.guarding import Guard
from regard.tasks.lazy_torch import LazyTorch
from regard.tasks.line_batches import chunks
from regard.tasks.lines import Habits, Sentence, Translation, join_line
from regard.tasks.pair_score import PairScore
from regard.tasks.search_request import SearchRequest
from regard.tasks.sentence_search import Chooser, SentenceSearch
from regard.tasks.translation_engines import Engine, Engines

if TYPE_CHECKING:
    import torch

    from regard.engines.ctranslate2_engine import CTranslate2Engine
    from regard.models.base import Writer
    from regard.tasks.alignment import Aligner
    from regard.tasks.glossary import Glossary

CHUNK_LINES = 2048  # read ahead from a stream, so that batches can be made of lines of similar length


class Translator(SentenceSearch):
    """A model with its tokenizers and search settings. `regard.load(folder)` makes one.

    `engine` says what answered the last request, and before the first what will be tried; `engine_note` why it was not another.
    `model`, `device`, `attends` and all that is about sentences come from `SentenceSearch`.
    """

    def __init__(
        self,
        model: Writer | None,
        tokenizers: TokenizerPair,
        search: SearchConfig | None = None,
        *,
        device: torch.device | str = "cpu",
        habits: Habits | None = None,
        config: dict[str, Any] | None = None,
        folder: Path | None = None,
        fast: CTranslate2Engine | None = None,
        only_fast: bool = False,
        backwards: bool = False,
    ):
        """Without a model, that of `folder` is loaded when it is first needed. `fast` searches where it can; with `only_fast`,
        what it cannot do is an error. `backwards`: the model writes the last word first, and texts are turned round.
        """
        if model is None:
            if folder is None:
                raise ModelError("translator", "there is neither a model nor a folder", "Give one of them")
            lazy = LazyTorch(folder, tokenizers, str(device))
        else:
            from regard.tasks.torch_translation import TorchEngine

            lazy = LazyTorch(folder, tokenizers, str(device), TorchEngine(model, tokenizers, device))
        super().__init__(Engines(lazy, fast, only_fast), tokenizers, habits, backwards)
        self.search = search or SearchConfig()
        self.config, self.folder = config or {}, folder
        self._aligner: tuple[Aligner | None] | None = None  # links words; None: nobody has asked for it yet

    @staticmethod
    def load(
        folder: Path | str, device: str = "auto", *, engine: Engine = "torch", compute: Asked = "auto"
    ) -> Translator:
        """The model of a run folder.

        `engine="auto"` takes CTranslate2 on a CPU where it is installed and can run the model; "ctranslate2" insists on it;
        "torch", with which all measurements are made, is the default here. `compute`, in which numbers: float32, bfloat16 (of
        torch, for GPUs), int8 (on a CPU) or CTranslate2's int8_float32; `auto` is int8 of CTranslate2 and float32 of torch.
        """
        from regard.tasks.translator_loading import translator_of  # which imports this file

        return translator_of(Path(folder), device, engine, compute)

    def on_torch(self) -> Translator:
        """The same model by torch, to ask what only torch knows; this translator keeps its own engine."""
        engine = self.engines.torch.engine
        other = Translator(engine.model, self.tokenizers, self.search, device=engine.device, habits=self.habits)
        other.backwards = self.backwards
        other.config, other.folder, other.tag = self.config, self.folder, self.tag
        return other

    def tagged(self, tag: str) -> Translator:
        """The same model, which takes every text for one of this kind. Models know the tags they were trained with."""
        if tag:
            self.tokenizers.source.tag(tag)  # an unknown one is an error now, not after the first batch
        other = copy.copy(self)
        other.tag, other._aligner = tag, None
        return other

    def choosing(self, chooser: Chooser | None) -> Translator:
        """The same model, whose translations are chosen by `chooser` (see tasks/minimum_risk.py and tasks/reranking.py)."""
        other = copy.copy(self)
        other.chooser = chooser
        return other

    def with_glossary(self, glossary: Glossary | None) -> Translator:
        """The same model, which writes what a glossary wants (see tasks/glossary.py). Sentences with terms are left to torch."""
        from regard.tasks.terminology import Terminology

        if self.backwards:
            what = "terms are not searched for from right to left"
            raise ModelError("glossary", what, "Use a model that writes from left to right")
        other = copy.copy(self)
        other.terminology = None if glossary is None else Terminology(glossary, self.tokenizers)
        return other

    def drafted(self, draft: Translator, ahead: int = 2) -> Translator:
        """The same model, which writes the same texts sooner: a small one guesses (see search/speculative.py). A beam of 1."""
        for side in ("source", "target"):
            if getattr(draft.tokenizers, side).fingerprint != getattr(self.tokenizers, side).fingerprint:
                what = f"its {side} tokenizer is another than the model's"
                raise ModelError("draft", what, "Train it with the model's (tokenizer.folder=RUN)")
        other = copy.copy(self)
        engine = self.engines.torch.engine.drafted(draft.engines.torch.engine.model, ahead)
        lazy = LazyTorch(self.folder, self.tokenizers, "", engine)
        other.engines = dataclasses.replace(self.engines, torch=lazy, fast=None)
        other.engine, other.engine_note = "torch", "a draft guesses for torch only"
        return other

    def guarded(self, guard: Guard | None) -> Translator:
        """The same model, with a guard against loops, empty translations, copies and odd lengths (see tasks/guarding.py)."""
        other = copy.copy(self)
        other.guard = guard
        return other

    @overload
    def translate(  # pyright: ignore[reportOverlappingOverload]: a str is a Sequence[str] too
        self,
        texts: str,
        *,
        beam: int | None = None,
        search: SearchConfig | None = None,
        tags: Sequence[str] | None = None,
    ) -> str: ...
    @overload
    def translate(
        self,
        texts: Sequence[str],
        *,
        beam: int | None = None,
        search: SearchConfig | None = None,
        tags: Sequence[str] | None = None,
    ) -> list[str]: ...
    def translate(
        self,
        texts: str | Sequence[str],
        *,
        beam: int | None = None,
        search: SearchConfig | None = None,
        tags: Sequence[str] | None = None,
    ) -> str | list[str]:
        """The best translation of each text; a single text gives a single text back."""
        lines = [texts] if isinstance(texts, str) else texts
        settings = dataclasses.replace(self._settings(beam, search), nbest=1)
        best = [many[0].text for many in self.hypotheses(lines, search=settings, tags=tags, details=False)]
        return best[0] if isinstance(texts, str) else best

    def _settings(self, beam: int | None, search: SearchConfig | None) -> SearchConfig:
        settings = search or self.search
        if beam is not None:
            settings = dataclasses.replace(settings, beam=beam, nbest=min(settings.nbest, beam))
        return settings

    def hypotheses(
        self,
        texts: Sequence[str],
        *,
        beam: int | None = None,
        search: SearchConfig | None = None,
        attention: bool = False,
        alignment: bool = False,
        prefixes: Sequence[str] | None = None,
        tags: Sequence[str] | None = None,
        batch_tokens: int = 0,
        progress: Callable[[int], None] | None = None,
        first_line: int = 1,
        details: bool = True,
    ) -> list[list[Translation]]:
        """The n-best translations of each text, best first, with tokens, scores and, if asked for, attention weights and links of
        words (`alignment`), which a model without attention has not.

        Without `details`, an engine may leave out the log-probabilities of single tokens where they cost time.

        `prefixes` are target texts that the translations must begin with. `tags` say what kind of text each one is, for
        models that were trained with tags. `progress` hears how many sentences are done. Errors name a text by its
        number, counted from `first_line`.
        """
        settings = self._settings(beam, search)
        sentences = self.split(texts, prefixes, tags=tags, first_line=first_line)
        if self.engines.torch.drafts and settings.hypotheses > 1:
            what = f"it guesses one text at a time, and {settings.hypotheses} hypotheses are asked for"
            raise ConfigError("draft", what, "Use a beam of 1, or no draft")
        found = self._search(sentences, SearchRequest(settings, attention, batch_tokens, progress, details))
        if alignment:
            found = self._aligned(sentences, found, tags)
        by_line: list[list[tuple[Sentence, list[Translation]]]] = [[] for _ in texts]
        for sentence, many in zip(sentences, found, strict=True):
            by_line[sentence.line].append((sentence, many))
        return [join_line(text, parts) for text, parts in zip(texts, by_line, strict=True)]

    def search_sentences(
        self, sentences: Sequence[Sentence], request: SearchRequest, *, alignment: bool = False
    ) -> list[list[Translation]]:
        """The n-best translations of each sentence. Those of several texts may be searched for together."""
        found = self._search(list(sentences), request)
        return self._aligned(sentences, found, None) if alignment else found

    def _aligned(
        self, sentences: Sequence[Sentence], found: list[list[Translation]], tags: Sequence[str] | None
    ) -> list[list[Translation]]:
        from regard.tasks.aligned_words import aligner_of, with_alignments

        if self._aligner is None:
            self._aligner = (aligner_of(self),)
        return with_alignments(self._aligner[0], sentences, found, tags)

    def alternatives(
        self, text: str, prefix: str = "", count: int = 5, *, search: SearchConfig | None = None
    ) -> list[Translation]:
        """The likeliest next words after a prefix, each with the best translation that goes on so: see tasks/alternatives.py."""
        from regard.tasks.alternatives import alternatives

        return alternatives(self, text, prefix, count, search or self.search)

    def translate_stream(
        self,
        lines: Iterable[str | None],
        *,
        search: SearchConfig | None = None,
        attention: bool = False,
        alignment: bool = False,
        prefix: str = "",
        chunk: int = CHUNK_LINES,
        details: bool = True,
    ) -> Iterator[tuple[str, list[Translation]]]:
        """Lines with their translations as they come, in order, in bounded memory.

        Up to `chunk` lines are read ahead; a None among them says that no more are there yet, and nothing waits longer.
        """
        remaining, begin = iter(lines), 1
        for waiting in chunks(remaining, chunk):
            prefixes = [prefix] * len(waiting) if prefix else None
            found = self.hypotheses(
                waiting,
                search=search,
                attention=attention,
                alignment=alignment,
                prefixes=prefixes,
                first_line=begin,
                details=details,
            )
            yield from zip(waiting, found, strict=True)
            begin += len(waiting)

    def score(
        self,
        sources: Sequence[str],
        targets: Sequence[str],
        *,
        tags: Sequence[str] | None = None,
        batch_tokens: int = 4096,
    ) -> list[PairScore]:
        """How probable the model finds given translations."""
        from regard.tasks.given_translations import score

        return score(self, sources, targets, tags, batch_tokens)

    def align(
        self,
        sources: Sequence[str],
        targets: Sequence[str],
        *,
        threshold: float | None = None,
        null: bool = True,
        tags: Sequence[str] | None = None,
    ) -> list[list[tuple[int, int]]]:
        """Which words of given translations belong to which source words: see `regard.tasks.alignment.align`."""
        from regard.tasks.alignment import align  # which imports this file

        return align(self, sources, targets, threshold=threshold, null=null, tags=tags)
