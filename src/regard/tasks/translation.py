"""Translation: raw text in, raw text out, with whatever model a run folder holds.

What searches is an engine: torch, which does everything, or on a CPU CTranslate2, which is faster (docs/engines.md). This file
imports neither: a first translation should not wait for torch.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, overload

from regard.core import config as configuration
from regard.core.accelerators import is_cpu
from regard.core.errors import CheckpointError, ConfigError, DataError, ModelError
from regard.core.search_config import SearchConfig
from regard.data.tokenizers import TokenizerPair
from regard.data.word_order import backwards
from regard.engines.ctranslate2_limits import COMPUTE, Asked
from regard.engines.ctranslate2_rules import why_not_search
from regard.tasks.confidence import Calibration
from regard.tasks.guarding import Guard
from regard.tasks.lazy_torch import LazyTorch
from regard.tasks.line_batches import batches, chunks
from regard.tasks.lines import Habits, Sentence, Translation, join_line
from regard.tasks.pair_score import PairScore
from regard.tasks.run_files import open_run
from regard.tasks.sentences import MAX_LINE_CHARACTERS, sentences_of

if TYPE_CHECKING:
    import torch

    from regard.engines.ctranslate2_engine import CTranslate2Engine
    from regard.models.base import Writer
    from regard.search.speculative import Tally
    from regard.tasks.alignment import Aligner
    from regard.tasks.glossary import Glossary
    from regard.tasks.terminology import Terminology

Engine = Literal["auto", "torch", "ctranslate2"]
ENGINES: tuple[Engine, ...] = ("auto", "torch", "ctranslate2")
CHUNK_LINES = 2048  # read ahead from a stream, so that batches can be made of lines of similar length


class Chooser(Protocol):
    """Searches for more translations than were asked for, and puts the best first by a rule of its own."""

    def settings(self, asked: SearchConfig) -> SearchConfig: ...

    def choose(self, sources: Sequence[str], lists: Sequence[list[Translation]]) -> list[list[Translation]]: ...


class Translator:
    """A model with its tokenizers and search settings. `regard.load(folder)` makes one.

    `engine` says what answered the last request, and before the first what will be tried; `engine_note` why it was not another.
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
            self._torch = LazyTorch(folder, tokenizers, str(device))
        else:
            from regard.tasks.torch_translation import TorchEngine

            self._torch = LazyTorch(folder, tokenizers, str(device), TorchEngine(model, tokenizers, device))
        self.tokenizers = tokenizers
        self.search = search or SearchConfig()
        self.habits = habits or Habits()
        self.config, self.folder = config or {}, folder
        self.tag = ""  # put before every sentence that has none of its own
        self.chooser: Chooser | None = None  # puts n-best lists in another order
        self.guard: Guard | None = None  # takes care that what is first is a translation
        self.calibration: Calibration | None = None  # says how confident translations are
        self.terminology: Terminology | None = None  # terms that must be written
        self._aligner: tuple[Aligner | None] | None = None  # links words; None: nobody has asked for it yet
        self._fast, self._only_fast = fast, only_fast
        self.backwards = backwards
        self.engine: str = "torch" if fast is None else "ctranslate2"
        self.engine_note: str = ""

    @classmethod
    def load(
        cls, folder: Path | str, device: str = "auto", *, engine: Engine = "torch", compute: Asked = "auto"
    ) -> Translator:
        """The model of a run folder.

        `engine="auto"` takes CTranslate2 on a CPU where it is installed and can run the model; "ctranslate2" insists on it;
        "torch", with which all measurements are made, is the default here. `compute`, in which numbers on a CPU: float32,
        int8, or CTranslate2's int8_float32; `auto` is int8 of CTranslate2 and float32 of torch.
        """
        if engine not in ENGINES:
            raise ConfigError("engine", f"{engine!r} is not one of {', '.join(ENGINES)}", "Choose one of them")
        if compute not in ("auto", *COMPUTE):
            raise ConfigError("compute", f"{compute!r} is not one of auto, {', '.join(COMPUTE)}", "Choose one of them")
        folder = Path(folder)
        note = ""
        if engine != "torch":
            found, note = cls._load_fast(folder, device, engine, compute)
            if found is not None:
                return found
        from regard.core.device import choose_device
        from regard.tasks.folder import load_model

        chosen = choose_device(device)
        if compute == "int8_float32":
            raise ConfigError("compute", note or "int8_float32 is of CTranslate2, not of torch", "Use int8 or float32")
        if compute == "int8" and chosen.type != "cpu":
            raise ConfigError("compute", f"int8 is for a CPU, and {chosen} is none", "Use device cpu, or compute auto")
        model, tokenizers, config = load_model(folder)
        if compute == "int8":
            from regard.layers.int8_linear import quantise

            model = quantise(model)
        translator = cls(model, tokenizers, device=chosen, folder=folder, **settings_of(config))
        translator.engine_note = note
        translator.calibration = Calibration.load(folder)
        return translator

    @classmethod
    def _load_fast(cls, folder: Path, device: str, engine: Engine, compute: Asked) -> tuple[Translator | None, str]:
        """A translator with CTranslate2, or None and in words why there is none."""
        from regard.tasks.converted_run import open_engine, why_not_run

        only = engine == "ctranslate2"
        if not (is_cpu(device) or (only and device == "auto")):
            reason = _gpu_reason(device)
        else:
            opened = open_run(folder)
            reason = why_not_run(opened)
            if reason is None:
                settings = settings_of(opened.config)  # mistakes in these before anything is converted and kept
                try:
                    fast = open_engine(folder, opened, compute)
                except (CheckpointError, ModelError) as error:  # weights that torch may read, or refuse in better words
                    reason = f"{error.where}: {error.what}"
                else:
                    tokenizers = opened.tokenizers
                    made = cls(None, tokenizers, device="cpu", folder=folder, fast=fast, only_fast=only, **settings)
                    made.calibration = Calibration.load(folder)
                    return made, ""
        if reason and only:
            raise ModelError("engine ctranslate2", reason, "Use engine auto or torch")
        if not reason:  # a GPU was feared, and torch knows of none
            return cls._load_fast(folder, "cpu", engine, compute)
        return None, reason

    @property
    def model(self) -> Writer:
        """The torch model. Who has it may change it, so from now on torch translates, unless CTranslate2 was insisted on."""
        self._torch.taken = True
        return self._torch.engine.model

    @property
    def device(self) -> torch.device:
        """Where torch computes."""
        return self._torch.engine.device

    @property
    def attends(self) -> bool:
        """Whether the model has attention over the source, which `hypotheses` can show."""
        return self._torch.attends

    def on_torch(self) -> Translator:
        """The same model by torch, to ask what only torch knows; this translator keeps its own engine."""
        engine = self._torch.engine
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

    def drafted(self, draft: Translator, ahead: int = 4) -> Translator:
        """The same model, which writes the same texts sooner: a small one guesses (see search/speculative.py). A beam of 1."""
        for side in ("source", "target"):
            if getattr(draft.tokenizers, side).fingerprint != getattr(self.tokenizers, side).fingerprint:
                what = f"its {side} tokenizer is another than the model's"
                raise ModelError("draft", what, "Train it with the model's (tokenizer.folder=RUN)")
        other = copy.copy(self)
        other._fast = None
        other.engine_note = "a draft guesses for torch only"
        other._torch = LazyTorch(
            self.folder, self.tokenizers, "", self._torch.engine.drafted(draft._torch.engine.model, ahead)
        )
        return other

    @property
    def tally(self) -> Tally:
        """How the guesses of a draft went."""
        return self._torch.engine.tally

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
        if prefixes is not None and len(prefixes) != len(texts):
            raise DataError(
                "prefixes", f"{len(prefixes)} prefixes for {len(texts)} texts", "Give one for each, perhaps empty"
            )
        leads = self.leads(tags, len(texts))
        sentences = self._sentences(texts, prefixes, leads, first_line)
        if self._torch.drafts and settings.hypotheses > 1:
            what = f"it guesses one text at a time, and {settings.hypotheses} hypotheses are asked for"
            raise ConfigError("draft", what, "Use a beam of 1, or no draft")
        found = self._search(sentences, settings, attention, batch_tokens, progress, details)
        if alignment:
            found = self._aligned(sentences, found, tags)
        by_line: list[list[tuple[Sentence, list[Translation]]]] = [[] for _ in texts]
        for sentence, many in zip(sentences, found, strict=True):
            by_line[sentence.line].append((sentence, many))
        return [join_line(text, parts) for text, parts in zip(texts, by_line, strict=True)]

    def split(self, texts: Sequence[str], prefixes: Sequence[str] | None = None) -> list[Sentence]:
        """The sentences that `hypotheses` searches for; `join_line` makes texts of what is found (see `tasks.lines`)."""
        return self._sentences(texts, prefixes, self.leads(None, len(texts)), 1)

    def search_sentences(
        self,
        sentences: Sequence[Sentence],
        settings: SearchConfig,
        *,
        attention: bool = False,
        alignment: bool = False,
        details: bool = True,
    ) -> list[list[Translation]]:
        """The n-best translations of each sentence. Those of several texts may be searched for together."""
        found = self._search(list(sentences), settings, attention, 0, None, details)
        return self._aligned(sentences, found, None) if alignment else found

    def _aligned(
        self, sentences: Sequence[Sentence], found: list[list[Translation]], tags: Sequence[str] | None
    ) -> list[list[Translation]]:
        from regard.tasks.aligned_words import aligner_of, with_alignments

        if self._aligner is None:
            self._aligner = (aligner_of(self),)
        return with_alignments(self._aligner[0], sentences, found, tags)

    def _batch_tokens(self, settings: SearchConfig) -> int:
        """The size of torch's batches."""
        return self._torch.engine.batch_tokens(settings)

    def _engine_in_use(self) -> CTranslate2Engine | None:
        """CTranslate2, unless somebody may have changed the model."""
        return None if self._torch.taken and not self._only_fast else self._fast

    @property
    def lanes(self) -> int:
        """How many threads may search at the same time; what torch does takes turns (`turn`)."""
        fast = self._engine_in_use()
        return 1 if fast is None else fast.batches

    @property
    def turn(self) -> AbstractContextManager[Any]:
        """For what torch does, where several threads search."""
        return self._torch.turn

    def leads(self, tags: Sequence[str] | None, count: int) -> list[list[int]]:
        """The tag of each text as tokens."""
        tags = [self.tag] * count if tags is None else tags
        if len(tags) != count:
            raise DataError("tags", f"{len(tags)} tags for {count} texts", "Give one for each, perhaps empty")
        known = {tag: [self.tokenizers.source.tag(tag)] if tag else [] for tag in set(tags)}
        return [known[tag] for tag in tags]

    def _sentences(
        self, texts: Sequence[str], prefixes: Sequence[str] | None, leads: list[list[int]], first_line: int
    ) -> list[Sentence]:
        if self.backwards and prefixes is not None and any(prefixes):
            what = "the model writes from right to left, and knows the beginning of a text last"
            raise ModelError("prefix", what, "Use a model that writes from left to right")
        limit = (self._engine_in_use() or self._torch.engine).source_limit
        return sentences_of(texts, self.tokenizers, self.habits, limit, prefixes, leads, first_line)

    def _search(
        self,
        sentences: list[Sentence],
        settings: SearchConfig,
        attention: bool,
        batch_tokens: int,
        progress: Callable[[int], None] | None,
        details: bool,
    ) -> list[list[Translation]]:
        """What the model finds, or what is chosen of it; with a guard, what passes that."""
        guard = self.guard
        if guard is None:
            return self._chosen(sentences, settings, attention, batch_tokens, progress, details)
        from regard.tasks.odd_input import search_readable

        def kept(some: list[Sentence]) -> list[list[Translation]]:
            found = self._chosen(some, settings, attention, batch_tokens, progress, details)

            def again(rows: list[int], careful: SearchConfig) -> list[list[Translation]]:
                once_more = [some[row] for row in rows]
                return self._said(self._found(once_more, careful, attention, batch_tokens, None, details), details)

            return guard.keep([sentence.text for sentence in some], found, settings, again)

        return search_readable(sentences, self.tokenizers, kept)

    def _chosen(
        self,
        sentences: list[Sentence],
        settings: SearchConfig,
        attention: bool,
        batch_tokens: int,
        progress: Callable[[int], None] | None,
        details: bool,
    ) -> list[list[Translation]]:
        """What is found, in the order of who chooses."""
        how = settings if self.chooser is None else self.chooser.settings(settings)
        found = self._found(sentences, how, attention, batch_tokens, progress, details)
        if self.chooser is not None:
            texts = [sentence.text for sentence in sentences]
            found = [many[: settings.nbest] for many in self.chooser.choose(texts, found)]
        return self._said(found, details)

    def _said(self, found: list[list[Translation]], details: bool) -> list[list[Translation]]:
        """Translations with their confidences."""
        if self.calibration is None or not details:
            return found
        return [[self.calibration.add_to(one) for one in many] for many in found]

    def _found(
        self,
        sentences: list[Sentence],
        settings: SearchConfig,
        attention: bool,
        batch_tokens: int,
        progress: Callable[[int], None] | None,
        details: bool,
    ) -> list[list[Translation]]:
        """What is found, with the terms of the glossary, if there is one."""
        terminology = self.terminology
        if terminology is None:
            return self._found_plainly(sentences, settings, attention, batch_tokens, progress, details)

        def plainly(some: list[Sentence], how: SearchConfig) -> list[list[Translation]]:
            return self._found_plainly(some, how, attention, batch_tokens, None, details) if some else []

        def with_terms(some: list[Sentence], how: SearchConfig) -> list[list[Translation]]:
            if self._only_fast:
                what = "CTranslate2 cannot be made to write the terms of a glossary"
                raise ModelError("engine ctranslate2", what, "Use engine auto or torch")
            letters = terminology.tokens.letters
            about = {"attention": attention, "batch_tokens": batch_tokens, "progress": None}
            return self._torch.engine.search(some, how, **about, letters=letters)

        return terminology.search(sentences, settings, plainly, with_terms)

    def _found_plainly(
        self,
        sentences: list[Sentence],
        settings: SearchConfig,
        attention: bool,
        batch_tokens: int,
        progress: Callable[[int], None] | None,
        details: bool,
    ) -> list[list[Translation]]:
        fast = self._engine_in_use()
        found: list[list[Translation] | None] = [None] * len(sentences)
        note = "" if fast is not None else self.engine_note
        if self._fast is not None:
            reason = why_not_search(settings, attention=attention, prefixes=any(s.prefix for s in sentences))
            if fast is None:
                note = "the model was taken in hand"
            elif reason is None:
                from regard.tasks.fast_translation import fast_search

                found = fast_search(
                    fast,
                    self.tokenizers,
                    sentences,
                    settings,
                    details=details,
                    batch_tokens=batch_tokens,
                    progress=progress,
                )
            elif self._only_fast:
                raise ModelError("engine ctranslate2", f"it cannot do this: {reason}", "Use engine auto or torch")
            else:
                fast, note = None, reason
        left = [row for row, many in enumerate(found) if many is None]
        if fast is not None:
            note = f"{len(left)} of {len(sentences)} sentences were left to torch" if left else ""
        self.engine, self.engine_note = "torch" if fast is None else "ctranslate2", note
        if left:
            done = len(sentences) - len(left)
            with self.turn:
                again = self._torch.engine.search(
                    [sentences[row] for row in left],
                    settings,
                    attention=attention,
                    batch_tokens=batch_tokens,
                    progress=None if progress is None else lambda more: progress(done + more),
                )
            for row, many in zip(left, again, strict=True):
                found[row] = many
        done_all = [many for many in found if many is not None]
        if not self.backwards:
            return done_all
        return [[dataclasses.replace(one, text=backwards(one.text)) for one in many] for many in done_all]

    def certainties(self, sources: Sequence[str], targets: Sequence[str]) -> list[list[tuple[float, bool]]]:
        """At each token of given translations, the log-probability of the likeliest one, and whether it stands there."""
        leads = self.leads(None, len(sources))
        ids = [lead + one for lead, one in zip(leads, self.tokenizers.source.encode(list(sources)), strict=True)]
        return self._torch.engine.certainties(ids, self.tokenizers.target.encode(list(targets)))

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
        if len(sources) != len(targets):
            raise DataError("score", f"{len(sources)} source and {len(targets)} target lines", "Give as many of each")
        leads = self.leads(tags, len(sources))
        targets = [backwards(text) for text in targets] if self.backwards else targets
        source_ids, target_ids = (
            [lead + ids for lead, ids in zip(leads, self.tokenizers.source.encode(list(sources)), strict=True)],
            self.tokenizers.target.encode(list(targets)),
        )
        scored = self._torch.engine.score(source_ids, target_ids, batch_tokens)
        return [
            PairScore(total, self.tokenizers.target.pieces(ids), each)
            for ids, (total, each) in zip(target_ids, scored, strict=True)
        ]

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


def settings_of(config: dict[str, Any]) -> dict[str, Any]:
    """What a run's configuration says about translating."""
    return {
        "search": configuration.build(SearchConfig, config.get("search", {}), "search"),
        "habits": Habits(config.get("usual_source_length", 0), config.get("one_sentence_lines", False)),
        "config": config,
        "backwards": config.get("data", {}).get("target_order") == "reversed",
    }


def _gpu_reason(device: str) -> str:
    """Why a device is not one for CTranslate2; empty where torch says that it is the CPU after all."""
    from regard.core.device import choose_device

    kind = choose_device(device).type
    return "" if kind == "cpu" else f"the model runs on {kind}, and CTranslate2 is used on CPUs only"


__all__ = ["MAX_LINE_CHARACTERS", "PairScore", "Translation", "Translator", "batches"]
