"""Translation: raw text in, raw text out, with whatever model a run folder holds."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, overload

import torch

from regard.core import config as configuration
from regard.core.device import choose_device
from regard.core.errors import DataError, ModelError
from regard.core.types import EOS, pad_rows
from regard.data.tokenizers import TokenizerPair
from regard.models.base import Writer
from regard.search.config import SearchConfig
from regard.search.forcing import score_pairs
from regard.search.search import search
from regard.tasks.folder import load_model
from regard.tasks.lines import Habits, Sentence, Translation, join_line, split_line

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
        return float(torch.tensor(-self.log_prob / len(self.token_log_probs)).exp())

    def to_plain(self) -> dict[str, Any]:
        return {**dataclasses.asdict(self), "perplexity": self.perplexity}


class Translator:
    """A model with its tokenizers and search settings. `regard.load(folder)` makes one."""

    def __init__(
        self,
        model: Writer,
        tokenizers: TokenizerPair,
        search: SearchConfig | None = None,
        *,
        device: torch.device | str = "cpu",
        habits: Habits | None = None,
        config: dict[str, Any] | None = None,
        folder: Path | None = None,
    ):
        if "translates" not in model.capabilities:
            raise ModelError(type(model).__name__, "this model does not translate", "Use a translation model")
        self.model, self.tokenizers = model.to(device), tokenizers
        self.search = search or SearchConfig()
        self.device = torch.device(device)
        self.habits = habits or Habits()
        self.config, self.folder = config or {}, folder
        self.tag = ""  # put before every sentence that has none of its own

    @classmethod
    def load(cls, folder: Path | str, device: str = "auto") -> Translator:
        """The model of a run folder."""
        folder = Path(folder)
        chosen = choose_device(device)
        model, tokenizers, config = load_model(folder)
        settings = configuration.build(SearchConfig, config.get("search", {}), "search")
        habits = Habits(config.get("usual_source_length", 0), config.get("one_sentence_lines", False))
        return cls(model, tokenizers, settings, device=chosen, habits=habits, config=config, folder=folder)

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
        best = [many[0].text for many in self.hypotheses(lines, search=settings, tags=tags)]
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
    ) -> list[list[Translation]]:
        """The n-best translations of each text, best first, with tokens, scores and, if asked for, attention weights.

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
        found = self._search(sentences, settings, attention, batch_tokens or self._batch_tokens(settings), progress)
        by_line: list[list[tuple[Sentence, list[Translation]]]] = [[] for _ in texts]
        for sentence, many in zip(sentences, found, strict=True):
            by_line[sentence.line].append((sentence, many))
        return [join_line(text, parts) for text, parts in zip(texts, by_line, strict=True)]

    def _batch_tokens(self, settings: SearchConfig) -> int:
        rows = max(1, settings.beam if settings.method == "beam" else settings.nbest)
        return max(256, (2048 if self.device.type == "cpu" else 65536) // rows)

    def _most_rows(self, settings: SearchConfig) -> int:
        """Sentences in a batch, so that a step's scores of all their hypotheses stay within bounds."""
        scores = 1 << (25 if self.device.type == "cpu" else 28)
        return max(1, scores // (settings.hypotheses * self.model.output.vocabulary))

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
        limit = self.model.limits.source
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
                sentences.append(Sentence(line, text, ""))
        for sentence, tokens in zip(sentences, self.tokenizers.source.encode([s.text for s in sentences]), strict=True):
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
    ) -> list[list[Translation]]:
        found: list[list[Translation]] = [[] for _ in sentences]
        done = 0
        self.model.eval()
        for rows in batches([len(s.ids) + 1 for s in sentences], batch_tokens, self._most_rows(settings)):
            batch = [sentences[row] for row in rows]
            source = pad_rows([[*s.ids, EOS] for s in batch]).to(self.device)
            prefix = [s.prefix for s in batch] if any(s.prefix for s in batch) else None
            with torch.inference_mode():
                results = search(self.model, source, settings, prefix=prefix, attention=attention)
            for row, sentence, many in zip(rows, batch, results, strict=True):
                texts = self.tokenizers.target.decode([h.tokens for h in many])
                pieces = self.tokenizers.source.pieces(sentence.ids)
                found[row] = [
                    Translation(
                        text=text,
                        score=h.score,
                        log_prob=h.log_prob,
                        tokens=self.tokenizers.target.pieces(h.tokens),
                        token_log_probs=h.token_log_probs,
                        source_tokens=pieces,
                        finished=h.finished,
                        attention=None if h.attention is None else h.attention.tolist(),
                    )
                    for text, h in zip(texts, many, strict=True)
                ]
            done += len(rows)
            if progress is not None:
                progress(done)
        return found

    def translate_stream(
        self,
        lines: Iterable[str | None],
        *,
        search: SearchConfig | None = None,
        attention: bool = False,
        prefix: str = "",
        chunk: int = CHUNK_LINES,
    ) -> Iterator[tuple[str, list[Translation]]]:
        """Lines with their translations as they come, in order, in bounded memory.

        Up to `chunk` lines are read ahead; a None among them says that no more are there yet, and nothing waits longer.
        """
        remaining, begin = iter(lines), 1
        for waiting in _chunks(remaining, chunk):
            prefixes = [prefix] * len(waiting) if prefix else None
            found = self.hypotheses(waiting, search=search, attention=attention, prefixes=prefixes, first_line=begin)
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
        limits = self.model.limits
        for number, (s, t) in enumerate(zip(source_ids, target_ids, strict=True), start=1):
            for name, ids, limit in (("source", s, limits.source), ("target", t, limits.target)):
                if limit is not None and len(ids) + 1 > limit:
                    raise ModelError(
                        f"{name} line {number}",
                        f"{len(ids)} tokens are beyond the model's limit of {limit - 1}",
                        "Split it",
                    )
        results: list[PairScore | None] = [None] * len(sources)
        lengths = [max(len(s), len(t)) + 1 for s, t in zip(source_ids, target_ids, strict=True)]
        self.model.eval()
        for rows in batches(lengths, batch_tokens):
            source = pad_rows([source_ids[row] + [EOS] for row in rows]).to(self.device)
            with torch.inference_mode():
                scored = score_pairs(self.model, source, [target_ids[row] for row in rows])
            for row, (total, each) in zip(rows, scored, strict=True):
                results[row] = PairScore(total, self.tokenizers.target.pieces(target_ids[row]), each)
        return [result for result in results if result is not None]

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


def _chunks(lines: Iterator[str | None], most: int) -> Iterator[list[str]]:
    waiting: list[str] = []
    for line in lines:
        if line is not None:
            waiting.append(line)
        if waiting and (line is None or len(waiting) >= most):
            yield waiting
            waiting = []
    if waiting:
        yield waiting


def batches(lengths: Sequence[int], batch_tokens: int, most_rows: int = 1 << 30) -> Iterator[list[int]]:
    """Rows of similar length together, the longest first, each batch within a budget of padded tokens."""
    order = sorted(range(len(lengths)), key=lambda row: (-lengths[row], row))
    while order:
        size = min(most_rows, max(1, batch_tokens // lengths[order[0]]))
        yield order[:size]
        order = order[size:]


__all__ = ["PairScore", "Translation", "Translator"]
