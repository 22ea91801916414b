"""The verbs `translate` and `score`."""

from __future__ import annotations

import codecs
import dataclasses
import json
import queue
import re
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from regard.cli.notes import note_draft, note_unfinished
from regard.core.config import build
from regard.core.errors import ConfigError, DataError
from regard.core.search_config import MAX_HYPOTHESES, SearchConfig
from regard.tasks.lines import Translation
from regard.tasks.pretrained import find_model, load_translator
from regard.tasks.sentences import MAX_LINE_CHARACTERS
from regard.tasks.translation import CHUNK_LINES, Translator

PATIENCE_SECONDS = 0.05
MAX_LINE_BYTES = 4 * MAX_LINE_CHARACTERS
SAMPLING = ("temperature", "top_k", "top_p", "min_p", "seed")
OPTIONS = {
    name: f"--{name.replace('_', '-')}"
    for name in ("beam", "nbest", "groups", "diversity", "coverage", "max_length", "length_norm", *SAMPLING)
}
OPTIONS |= {"alpha": "--length-penalty", "no_repeat_ngram": "--no-repeat"}  # setting of search -> option


class Together(NamedTuple):
    """What else writes."""

    others: list[Path]
    weights: list[float] | None
    mix: Any
    fuse: Path | None
    fusion: float

    @property
    def asked(self) -> bool:
        return bool(self.others or self.weights or self.fuse is not None)

    def load(self, model: Path | None, device: str, engine: str, compute: Any = "auto") -> Translator:
        from regard.tasks.ensembles import ensemble

        if engine == "ctranslate2":
            raise ConfigError("--engine", "CTranslate2 runs one model at a time", "Use --engine auto or torch")
        folders = [find_model(model), *self.others]
        about: dict[str, Any] = {"weights": self.weights, "mix": self.mix, "fuse": self.fuse, "fusion": self.fusion}
        return ensemble(folders, device, compute=compute, **about)


class Choice(NamedTuple):
    """How the translation that is shown is chosen."""

    mbr: str | None
    samples: int
    channel: Path | None
    language_model: Path | None
    other: Path | None
    guard: bool
    glossary: Path | None = None
    keep: Sequence[str] = ()
    draft: Path | None = None
    ahead: int = 2

    def of(self, translator: Translator, device: str) -> Translator:
        from regard.tasks.guarding import Guard

        if self.draft is not None:
            translator = translator.drafted(load_translator(self.draft, device), self.ahead)
            note_draft(translator.device.type)
        reranking = [self.channel, self.language_model, self.other]
        if self.mbr is not None and any(reranking):
            raise ConfigError("--mbr", "it chooses by itself, and so does reranking", "Use one of the two")
        if self.mbr is not None:
            from regard.tasks.minimum_risk import MinimumRisk

            translator = translator.choosing(MinimumRisk(samples=self.samples, utility=self.mbr))
        elif any(reranking):
            from regard.tasks.pretrained import load
            from regard.tasks.reranking import Reranker

            channel, other = (p and load_translator(p, device) for p in (self.channel, self.other))
            beside = None if self.language_model is None else load(self.language_model, device)
            if beside is not None and not hasattr(beside, "perplexity"):
                raise ConfigError("--rerank-lm", "its model is no language model", "Give a run trained on text alone")
            translator = translator.choosing(Reranker(channel=channel, language_model=beside, other=other))
        if self.glossary is not None or self.keep:
            from regard.tasks.glossary import Glossary

            found = Glossary({}, tuple(self.keep)) if self.glossary is None else Glossary.load(self.glossary, self.keep)
            translator = translator.with_glossary(found)
        return translator.guarded(Guard() if self.guard else None)


def run_translate(
    texts: list[str] | None,
    model: Path | None,
    changes: dict[str, Any],
    prefix: str,
    tag: str,
    as_json: bool,
    device: str,
    engine: Any = "auto",
    compute: Any = "auto",
    verbose: bool = False,
    together: Together | None = None,
    choice: Choice | None = None,
    files: tuple[Path, Path] | None = None,
) -> None:
    """With `files`, the lines of the first are translated into the second."""
    if files is not None:
        from regard.cli.translate_file import own_device  # not for text given as arguments

        device = own_device(device)
    if together is not None and together.asked:
        translator = together.load(model, device, engine, compute).tagged(tag)
    else:
        translator = load_translator(model, device, engine=engine, compute=compute).tagged(tag)
    if choice is not None and choice.draft is not None and changes.get("method") != "sample":
        changes = {"beam": 1, "stop": "full", **changes}
    settings = settings_from(translator, changes)
    if choice is not None:
        translator = choice.of(translator, device)
        if settings.method == "sample" and translator.terminology is not None:
            raise ConfigError("--glossary", "what is drawn at random has no terms", "Leave --sample out, or this")
        if settings.method == "sample":  # what is drawn is drawn
            translator = translator.guarded(None)
    note_unfinished(translator.folder)
    if files is not None:
        from regard.cli.translate_file import translate_file

        asked = {"settings": dataclasses.asdict(settings), "prefix": prefix, "tag": tag, "json": as_json}
        asked |= {"engine": [engine, compute], "together": repr(together), "choice": repr(choice)}

        def written(number: int, source: str, many: list[Translation]) -> list[str]:
            return _lines(number, source, many, settings.nbest, as_json, translator.engine)

        counts = translate_file(translator, *files, asked, settings, prefix, as_json, written)
        _warn(counts.get("cut", 0), counts.get("guarded", 0), counts.get("lines", 0), translator)
        return
    typed = not texts and sys.stdin is not None and sys.stdin.isatty()
    if texts:
        if len(texts) == 1 and Path(texts[0][:255]).is_file():
            print(
                f"Warning: {texts[0]} is a file; its name is translated. For its lines: regard translate < FILE",
                file=sys.stderr,
            )
        lines: Iterable[str | None] = " ".join(texts).split("\n")
    else:
        if typed:
            print("Type a sentence and press Enter; Ctrl-D ends.", file=sys.stderr)
        lines = as_they_come(stdin_lines())
    told = {"attention": as_json and translator.attends, "alignment": as_json, "details": as_json}
    stream = translator.translate_stream(lines, search=settings, prefix=prefix, **told)
    cut = number = guarded = 0
    said = ""
    for number, (source, many) in enumerate(stream):
        if verbose and said != (said := _about_engine(translator)):
            print(said, file=sys.stderr)
        for line in _lines(number, source, many, settings.nbest, as_json, translator.engine):
            print(line)
        cut += not many[0].finished
        guarded += bool(many[0].note)
        if verbose and many[0].note:
            print(f"Line {number + 1}: {many[0].note}", file=sys.stderr)
        if not texts:
            sys.stdout.flush()
    _warn(cut, guarded, number + 1, translator)


def _warn(cut: int, guarded: int, lines: int, translator: Translator) -> None:
    if cut:
        print(
            f"Warning: {cut} of {lines} translations did not end by themselves and were cut at the maximum length.",
            file=sys.stderr,
        )
    if guarded:
        what = "was none (a loop, nothing, a copy)"
        what = f"{what} or lacks a term" if translator.terminology is not None else what
        print(f"Warning: of {guarded} of {lines} lines the best translation {what}.", file=sys.stderr)
        print("--verbose says which; --no-guard leaves them as they are.", file=sys.stderr)


def settings_from(translator: Translator, changes: dict[str, Any]) -> SearchConfig:
    """The model's own search settings with the user's over them. Asking for n hypotheses widens the beam to n."""
    method = changes.get("method", translator.search.method)
    useless = [name for name in (("beam",) if method == "sample" else SAMPLING) if name in changes]
    if useless:
        option = "--" + useless[0].replace("_", "-")
        if method == "sample":
            raise ConfigError(option, "it is for searching, and --sample draws at random", "Leave one of the two out")
        raise ConfigError(option, "it is for sampling, and this is a search", "Add --sample, or leave it out")
    changes = {"nbest": 1, **changes}
    if "beam" not in changes and method == "beam":
        groups = max(1, min(changes.get("groups", 1), MAX_HYPOTHESES))
        beam = max(min(changes["nbest"], MAX_HYPOTHESES), translator.search.beam)
        changes["beam"] = min(-(-beam // groups) * groups, MAX_HYPOTHESES // groups * groups)
    try:
        return build(SearchConfig, {**dataclasses.asdict(translator.search), **changes}, "search")
    except ConfigError as error:
        raise in_options(error) from None


def in_options(error: ConfigError) -> ConfigError:
    """An error about settings of search, in the words of who gave options."""

    def said(text: str) -> str:
        return re.sub(r"(?:setting )?search\.(\w+)", lambda found: OPTIONS.get(found[1], found[0]), text)

    advice = "For the likeliest text use --beam 1 without --sample" if "method=beam" in error.todo else said(error.todo)
    return ConfigError(said(error.where), said(error.what), advice)


def _about_engine(translator: Translator) -> str:
    return f"Engine: {translator.engine}" + (f" ({translator.engine_note})" if translator.engine_note else "")


def _lines(number: int, source: str, many: list[Translation], nbest: int, as_json: bool, engine: str) -> list[str]:
    if as_json:
        found = [t.to_plain() for t in many]
        return [json.dumps({"source": source, "translations": found, "engine": engine}, ensure_ascii=False)]
    if nbest > 1:
        return [f"{number} ||| {one_line(translation.text)} ||| {translation.score:.4f}" for translation in many]
    return [one_line(many[0].text)]


def one_line(text: str) -> str:
    """One line in, one line out: a translation never adds line breaks."""
    return text.replace("\n", " ").replace("\r", " ")


def stdin_lines() -> Iterator[str]:
    """Lines of standard input, without their ends; wrong encoding and endless lines are errors that name the line."""
    from regard.data.reading.lines import decoded, refuse_other_encodings  # not for text given as arguments

    number = offset = 0
    if sys.stdin is None:
        raise DataError("standard input", "it is closed", "Give the text as an argument, or a file with < FILE")
    while raw := sys.stdin.buffer.readline(MAX_LINE_BYTES + 1):
        number += 1
        if number == 1:
            _refuse_archives(raw)
            refuse_other_encodings("standard input", raw)
            offset = len(raw)
            raw = raw.removeprefix(codecs.BOM_UTF8)
            offset -= len(raw)
        if len(raw) > MAX_LINE_BYTES:
            raise DataError(
                f"standard input, line {number}",
                f"the line is longer than {MAX_LINE_CHARACTERS:,} characters",
                "Break it into lines",
            )
        line = decoded("standard input", raw, False, number - 1, offset)
        offset += len(raw)
        line = line.removesuffix("\n").removesuffix("\r")
        if len(line) > MAX_LINE_CHARACTERS:
            raise DataError(
                f"standard input, line {number}",
                f"the line has {len(line):,} characters, more than {MAX_LINE_CHARACTERS:,}",
                "Break it into lines",
            )
        yield line


def _refuse_archives(begin: bytes) -> None:
    from regard.data.reading.archives import packing

    ending = packing(begin)
    if ending:
        tool = {".gz": "gzip", ".xz": "xz"}.get(ending, "zstd")
        raise DataError(
            "standard input",
            f"it is compressed ({ending})",
            f"Unpack it on the way: {tool} -dc FILE{ending} | regard translate",
        )


def as_they_come(lines: Iterator[str]) -> Iterator[str | None]:
    """Lines, and None whenever the next one is not there yet: who sends one line and waits for its answer gets it."""
    arrived: queue.Queue[str | BaseException | None] = queue.Queue(maxsize=2 * CHUNK_LINES)

    def read() -> None:
        try:
            for line in lines:
                arrived.put(line)
            arrived.put(None)
        except BaseException as error:  # raised again where the lines are used
            arrived.put(error)

    threading.Thread(target=read, daemon=True).start()
    while True:
        try:
            item = arrived.get(timeout=PATIENCE_SECONDS)
        except queue.Empty:
            yield None
            item = arrived.get()
        if item is None:
            return
        if isinstance(item, BaseException):
            raise item
        yield item


def run_score(src: Path, tgt: Path, model: Path | None, tag: str, as_json: bool, device: str) -> None:
    from regard.data.corpus import read_pairs  # which translating needs not

    pairs = read_pairs(src, tgt)
    for result in load_translator(model, device).tagged(tag).score(pairs.sources, pairs.targets):
        if as_json:
            print(json.dumps(result.to_plain(), ensure_ascii=False))
        else:
            print(f"{result.log_prob:.6f}")
