"""The verb `tag`, and `evaluate` of a tagger."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from regard.cli.classify import line_chunks
from regard.cli.notes import note_unfinished
from regard.cli.translate import as_they_come, stdin_lines
from regard.core.errors import ConfigError
from regard.evaluation.classification import LabelScore
from regard.evaluation.tagging import evaluate_tagger
from regard.tasks.pretrained import find_model
from regard.tasks.tagging import Tagged, TextTagger


def run_tag(
    texts: list[str] | None, model: Path, as_json: bool, device: str, split: bool = True, columns: bool = False
) -> None:
    """Writes a line for each text, `word/TAG word/TAG`; in columns, a line for each word, a blank one after each text.

    A text is a line of the arguments or of standard input. Without `split`, its words are what stands between white space.
    """
    tagger = TextTagger.load(find_model(model), device)
    note_unfinished(tagger.folder)
    if texts:
        lines: Iterable[str | None] = " ".join(texts).split("\n")
    else:
        if sys.stdin is not None and sys.stdin.isatty():
            print("Type a text and press Enter; Ctrl-D ends.", file=sys.stderr)
        lines = as_they_come(stdin_lines())
    done = 0
    for chunk in line_chunks(lines):
        for line, words in zip(chunk, tagger.tag(chunk, split=split, first=done + 1), strict=True):
            _write(line, words, as_json, columns)
        done += len(chunk)
        if not texts:
            sys.stdout.flush()


def run_evaluate_tagged(tagged: Path | str, model: Path | None, as_json: bool, device: str) -> None:
    """Prints accuracy and F1 of a tagger on tagged text."""
    if model is None:
        raise ConfigError("--model", "no tagger comes with regard", "Give the folder of a run on tagged text")
    report = evaluate_tagger(TextTagger.load(find_model(model), device), tagged)
    scores = report.scores()
    if as_json:
        plain = {**report.to_plain(), "scores": {name: score.to_plain() for name, score in scores.items()}}
        print(json.dumps(plain, ensure_ascii=False))
        return
    console = Console(highlight=False, soft_wrap=True)
    about = f"{model} on {report.sentences:,} sentences, {report.words.texts:,} words: "
    console.print(about + ", ".join(map(str, scores.values())), markup=False)
    console.print(_table("tag", "words", report.per_tag()))
    if report.has_chunks:
        console.print(_table("chunk", "chunks", report.per_kind()))


def _table(what: str, count: str, rows: Sequence[LabelScore]) -> Table:
    table = Table(what, count, "precision", "recall", "F1")
    for score in rows:
        numbers = (f"{value:.1f}" for value in (score.precision, score.recall, score.f1))
        table.add_row(Text(score.label), f"{score.texts:,}", *numbers)
    return table


def _write(line: str, words: Sequence[Tagged], as_json: bool, columns: bool) -> None:
    if as_json:
        print(json.dumps({"text": line, "words": [word._asdict() for word in words]}, ensure_ascii=False))
    elif columns:
        print("".join(f"{one.word}\t{one.tag}\n" for one in words))
    else:
        print(" ".join(f"{one.word}/{one.tag}" for one in words))
