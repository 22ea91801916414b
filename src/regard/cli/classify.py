"""The verb `classify`, and `evaluate` of a classifier."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from regard.cli.notes import note_unfinished
from regard.cli.translate import as_they_come, stdin_lines
from regard.core.errors import ConfigError, DataError
from regard.evaluation.classification import evaluate_classifier
from regard.tasks.classification import Guess, TextClassifier

CHUNK_LINES = 512  # classified at once


def run_classify(texts: list[str] | None, model: Path, top: int, as_json: bool, device: str) -> None:
    """Writes a line for each text: its likeliest label and the label's probability, `top` of them, with tabs between.

    A text is a line of the arguments or of standard input; of models that read two texts, they stand on one line with a tab
    between them.
    """
    if top < 1:
        raise ConfigError("--top", f"it is {top}", "Give the number of labels to show, 1 or more")
    classifier = TextClassifier.load(model, device)
    note_unfinished(model)
    if texts:
        lines: Iterable[str | None] = " ".join(texts).split("\n")
    else:
        if sys.stdin is not None and sys.stdin.isatty():
            print("Type a text and press Enter; Ctrl-D ends.", file=sys.stderr)
        lines = as_they_come(stdin_lines())
    done = 0
    for chunk in line_chunks(lines):
        firsts, seconds = _columns(chunk, classifier.two_texts, done + 1)
        for line, guesses in zip(chunk, classifier.guesses(firsts, seconds, top=top, first=done + 1), strict=True):
            _write(line, guesses, as_json)
        done += len(chunk)
        if not texts:
            sys.stdout.flush()


def run_evaluate_labelled(labelled: Path, model: Path | None, as_json: bool, device: str) -> None:
    """Prints accuracy and F1 of a classifier on labelled text."""
    if model is None:
        raise ConfigError("--model", "no classifier comes with regard", "Give the folder of a run on labelled text")
    report = evaluate_classifier(TextClassifier.load(model, device), labelled)
    scores = report.scores()
    if as_json:
        plain = {**report.to_plain(), "scores": {name: score.to_plain() for name, score in scores.items()}}
        print(json.dumps(plain, ensure_ascii=False))
        return
    console = Console(highlight=False, soft_wrap=True)
    console.print(f"{model} on {report.texts:,} texts: " + ", ".join(map(str, scores.values())), markup=False)
    table = Table("label", "texts", "precision", "recall", "F1")
    for score in report.per_label():
        numbers = (f"{value:.1f}" for value in (score.precision, score.recall, score.f1))
        table.add_row(Text(score.label), f"{score.texts:,}", *numbers)
    console.print(table)


def line_chunks(lines: Iterable[str | None]) -> Iterator[list[str]]:
    """Lines in groups; a group ends early where the next line is not there yet."""
    waiting: list[str] = []
    for line in lines:
        if line is not None:
            waiting.append(line)
        if waiting and (line is None or len(waiting) == CHUNK_LINES):
            yield waiting
            waiting = []
    if waiting:
        yield waiting


def _columns(lines: list[str], two_texts: bool, first: int) -> tuple[list[str], list[str] | None]:
    if not two_texts:
        return lines, None
    cells = [line.split("\t") for line in lines]
    for number, row in enumerate(cells, start=first):
        if len(row) != 2:
            what = f"the model reads two texts at once, and {len(row)} are given"
            raise DataError(f"text {number}", what, "Put a tab between the two, and nowhere else")
    return [row[0] for row in cells], [row[1] for row in cells]


def _write(line: str, guesses: list[Guess], as_json: bool) -> None:
    if as_json:
        print(json.dumps({"text": line, "labels": [guess._asdict() for guess in guesses]}, ensure_ascii=False))
    else:
        print("\t".join(f"{guess.label}\t{guess.probability:.4f}" for guess in guesses))
