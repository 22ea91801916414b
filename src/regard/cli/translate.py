"""The verbs `translate` and `score`."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from regard.core.config import build
from regard.core.errors import DataError
from regard.data.corpus import read_pairs
from regard.search.config import SearchConfig
from regard.tasks.pretrained import load
from regard.tasks.translation import Translation, Translator

MAX_LINE_BYTES = 1 << 20


def run_translate(
    texts: list[str] | None, model: Path | None, changes: dict[str, Any], prefix: str, as_json: bool, device: str
) -> None:
    translator = load(model, device)
    settings = _settings(translator, changes)
    if texts:
        lines: Iterator[str] = iter([" ".join(texts)])
    else:
        if sys.stdin.isatty():
            print("Type a sentence and press Enter; Ctrl-D ends.", file=sys.stderr)
        lines = stdin_lines()
    chunk = 1 if sys.stdin.isatty() else 2048
    number = 0
    batch: list[str] = []
    while True:
        line = next(lines, None)
        if line is not None:
            batch.append(line)
        if batch and (line is None or len(batch) >= chunk):
            prefixes = [prefix] * len(batch) if prefix else None
            found = translator.hypotheses(batch, search=settings, attention=as_json, prefixes=prefixes)
            for source, many in zip(batch, found, strict=True):
                _write(number, source, many, settings.nbest, as_json)
                number += 1
            sys.stdout.flush()
            batch = []
        if line is None:
            return


def _settings(translator: Translator, changes: dict[str, Any]) -> SearchConfig:
    """The model's own search settings with the user's over them. Asking for n hypotheses widens the beam to n."""
    if "nbest" in changes and changes.get("method") != "sample":
        changes = {"beam": max(changes["nbest"], translator.search.beam), **changes}
    elif "beam" in changes:
        changes = {"nbest": 1, **changes}
    return build(SearchConfig, {**dataclasses.asdict(translator.search), **changes}, "search")


def _write(number: int, source: str, many: list[Translation], nbest: int, as_json: bool) -> None:
    if as_json:
        print(json.dumps({"source": source, "translations": [t.to_plain() for t in many]}, ensure_ascii=False))
    elif nbest > 1:
        for translation in many:
            print(f"{number} ||| {_one_line(translation.text)} ||| {translation.score:.4f}")
    else:
        print(_one_line(many[0].text))


def _one_line(text: str) -> str:
    """One line in, one line out: a translation never adds line breaks."""
    return text.replace("\n", " ").replace("\r", " ")


def stdin_lines() -> Iterator[str]:
    """Lines of standard input, without their ends; wrong encoding and endless lines are errors that name the line."""
    number = 0
    while raw := sys.stdin.buffer.readline(MAX_LINE_BYTES + 1):
        number += 1
        if len(raw) > MAX_LINE_BYTES:
            raise DataError(f"standard input, line {number}", "the line is longer than 1 MiB", "Break it into lines")
        try:
            line = raw.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise DataError(f"standard input, line {number}", f"it is not UTF-8 ({error.reason})", "Convert it, for example with iconv") from None
        yield line.removesuffix("\n").removesuffix("\r")


def run_score(src: Path, tgt: Path, model: Path | None, as_json: bool, device: str) -> None:
    pairs = read_pairs(src, tgt)
    for result in load(model, device).score(pairs.sources, pairs.targets):
        if as_json:
            print(json.dumps(result.to_plain(), ensure_ascii=False))
        else:
            print(f"{result.log_prob:.6f}")
