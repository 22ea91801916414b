"""Translation: raw text in, raw text out, with whatever model a run folder holds.

What searches is an engine: torch, which does everything, or on a CPU CTranslate2, which is faster (docs/engines.md). This file
imports neither: a first translation should not wait for torch.
"""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

from regard.core import config as configuration
from regard.core.accelerators import is_cpu
from regard.core.errors import CheckpointError, ConfigError, DataError, ModelError
from regard.core.search_config import SearchConfig
from regard.data.tokenizers import TokenizerPair
from regard.engines.ctranslate2_limits import COMPUTE, Asked
from regard.engines.ctranslate2_rules import why_not_search
from regard.tasks.line_batches import batches, chunks
from regard.tasks.lines import Habits, Sentence, Translation, join_line, split_line
from regard.tasks.run_files import open_run

if TYPE_CHECKING:
    import torch

    from regard.engines.ctranslate2_engine import CTranslate2Engine
    from regard.models.base import Writer
    from regard.tasks.torch_translation import TorchEngine

Engine = Literal["auto", "torch", "ctranslate2"]
ENGINES: tuple[Engine, ...] = ("auto", "torch", "ctranslate2")
MAX_LINE_CHARACTERS = 100_000
CHUNK_LINES = 2048  # read ahead from a stream, so that batches can be made of lines of similar length


@dataclasses.dataclass(frozen=True)
class PairScore:
    """The log-probability of a given target text, and of each of its tokens and its end."""

    log_prob: float
    tokens: list[str]
    token_log_probs: list[float]

    @property
    def perplexity(self) -> float:
        try:
            return math.exp(-self.log_prob / len(self.token_log_probs))
        except OverflowError:
            return math.inf

    def to_plain(self) -> dict[str, Any]:
        return {**dataclasses.asdict(self), "perplexity": self.perplexity}


class _Torch:
    """The torch engine of a translator and its copies, loaded when it is first needed."""

    def __init__(self, folder: Path | None, tokenizers: TokenizerPair, device: str, engine: TorchEngine | None = None):
        self.folder, self.tokenizers, self.device = folder, tokenizers, device
        self._engine = engine
        self.taken = False  # somebody has the model in hand, and may change it

    @property
    def engine(self) -> TorchEngine:
        if self._engine is None:
            from regard.tasks.torch_translation import TorchEngine

            assert self.folder is not None
            self._engine = TorchEngine.load(self.folder, self.tokenizers, self.device)
        return self._engine


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
    ):
        """Without a model, that of `folder` is loaded when it is first needed. `fast` searches where it can; with `only_fast`,
        what it cannot do is an error.
        """
        if model is None:
            if folder is None:
                raise ModelError("translator", "there is neither a model nor a folder", "Give one of them")
            self._torch = _Torch(folder, tokenizers, str(device))
        else:
            from regard.tasks.torch_translation import TorchEngine

            self._torch = _Torch(folder, tokenizers, str(device), TorchEngine(model, tokenizers, device))
        self.tokenizers = tokenizers
        self.search = search or SearchConfig()
        self.habits = habits or Habits()
        self.config, self.folder = config or {}, folder
        self.tag = ""  # put before every sentence that has none of its own
        self._fast, self._only_fast = fast, only_fast
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
        translator = cls(model, tokenizers, device=chosen, folder=folder, **_settings_of(config))
        translator.engine_note = note
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
                settings = _settings_of(opened.config)  # mistakes in these before anything is converted and kept
                try:
                    fast = open_engine(folder, opened, compute)
                except (CheckpointError, ModelError) as error:  # weights that torch may read, or refuse in better words
                    reason = f"{error.where}: {error.what}"
                else:
                    tokenizers = opened.tokenizers
                    return cls(None, tokenizers, device="cpu", folder=folder, fast=fast, only_fast=only, **settings), ""
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

    def tagged(self, tag: str) -> Translator:
        """The same model, which takes every text for one of this kind. Models know the tags they were trained with."""
        if tag:
            self.tokenizers.source.tag(tag)  # an unknown one is an error now, not after the first batch
        other = copy.copy(self)
        other.tag = tag
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
        prefixes: Sequence[str] | None = None,
        tags: Sequence[str] | None = None,
        batch_tokens: int = 0,
        progress: Callable[[int], None] | None = None,
        first_line: int = 1,
        details: bool = True,
    ) -> list[list[Translation]]:
        """The n-best translations of each text, best first, with tokens, scores and, if asked for, attention weights.

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
        found = self._search(sentences, settings, attention, batch_tokens, progress, details)
        by_line: list[list[tuple[Sentence, list[Translation]]]] = [[] for _ in texts]
        for sentence, many in zip(sentences, found, strict=True):
            by_line[sentence.line].append((sentence, many))
        return [join_line(text, parts) for text, parts in zip(texts, by_line, strict=True)]

    def _batch_tokens(self, settings: SearchConfig) -> int:
        """The size of torch's batches."""
        return self._torch.engine.batch_tokens(settings)

    def _engine_in_use(self) -> CTranslate2Engine | None:
        """CTranslate2, unless somebody may have changed the model."""
        return None if self._torch.taken and not self._only_fast else self._fast

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
        """The sentences to translate: whole texts, but those of several lines or longer than usual are split."""
        for number, text in enumerate(texts, start=first_line):
            if isinstance(text, str) and len(text) > MAX_LINE_CHARACTERS:
                raise DataError(
                    f"line {number}", f"it has {len(text):,} characters, more than {MAX_LINE_CHARACTERS:,}", "Split it"
                )
        if any(not isinstance(text, str) for text in texts):
            raise DataError("texts", "they are not all texts", "Give a list of str")
        ids = self.tokenizers.source.encode(list(texts))
        limit = (self._engine_in_use() or self._torch.engine).source_limit
        usual = self.habits.usual_length
        hard = limit - 1 - max(map(len, leads), default=0) if limit is not None else 0
        most = min([n for n in (usual + usual // 2, hard) if n], default=0)  # beyond this, even a sentence is cut
        sentences: list[Sentence] = []
        for line, (text, tokens) in enumerate(zip(texts, ids, strict=True)):
            if not tokens:
                continue
            forced = bool(prefixes and prefixes[line])
            long = (usual and len(tokens) > usual) or (hard and len(tokens) > hard)
            if not forced and (self.habits.one_sentence or "\n" in text or long):
                sentences += split_line(line, text, most, lambda part: len(self.tokenizers.source.encode([part])[0]))
            else:
                sentences.append(Sentence(line, text, "", ids=tokens))
        parts = [s for s in sentences if not s.ids]  # of lines that were split
        for part, tokens in zip(parts, self.tokenizers.source.encode([s.text for s in parts]), strict=True):
            part.ids = tokens
        for sentence in sentences:
            tokens = sentence.ids
            sentence.ids = leads[sentence.line] + tokens
            if limit is not None and len(sentence.ids) + 1 > limit:
                raise ModelError(
                    f"line {first_line + sentence.line}",
                    f"a sentence of {len(tokens)} tokens is beyond the model's limit of {limit - 1}",
                    "Split it",
                )
        if prefixes:
            forced_ids = self.tokenizers.target.encode([prefixes[s.line] for s in sentences])
            for sentence, tokens in zip(sentences, forced_ids, strict=True):
                sentence.prefix = tokens
        return sentences

    def _search(
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
            again = self._torch.engine.search(
                [sentences[row] for row in left],
                settings,
                attention=attention,
                batch_tokens=batch_tokens,
                progress=None if progress is None else lambda more: progress(done + more),
            )
            for row, many in zip(left, again, strict=True):
                found[row] = many
        return [many for many in found if many is not None]

    def translate_stream(
        self,
        lines: Iterable[str | None],
        *,
        search: SearchConfig | None = None,
        attention: bool = False,
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
                waiting, search=search, attention=attention, prefixes=prefixes, first_line=begin, details=details
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


def _settings_of(config: dict[str, Any]) -> dict[str, Any]:
    """What a run's configuration says about translating."""
    return {
        "search": configuration.build(SearchConfig, config.get("search", {}), "search"),
        "habits": Habits(config.get("usual_source_length", 0), config.get("one_sentence_lines", False)),
        "config": config,
    }


def _gpu_reason(device: str) -> str:
    """Why a device is not one for CTranslate2; empty where torch says that it is the CPU after all."""
    from regard.core.device import choose_device

    kind = choose_device(device).type
    return "" if kind == "cpu" else f"the model runs on {kind}, and CTranslate2 is used on CPUs only"


__all__ = ["PairScore", "Translation", "Translator", "batches"]
