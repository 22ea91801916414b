"""The verb `fill`: a table of words for each hidden word of a text."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from regard.cli.generate import prompt_from_input
from regard.cli.notes import note_unfinished
from regard.core.errors import ConfigError
from regard.core.visible_text import visible
from regard.evaluation.masked import evaluate_masked
from regard.tasks.masked import FilledWord, MaskedText
from regard.tasks.pretrained import find_model

BAR = 30  # characters of the longest bar
LONGEST = 40  # characters of a word that are shown
JOINED = "…"  # before what goes on with a word


def run_fill(text: list[str] | str | None, model: Path, top: int, as_json: bool, device: str) -> None:
    """Shows the most probable words for each [MASK] of a text (of standard input, if none is given)."""
    if top < 1:
        raise ConfigError("--top", f"{top} rows are too few", "Ask for at least 1")
    filler = MaskedText.load(find_model(model), device)
    note_unfinished(filler.folder)
    given = prompt_from_input() if not text else text if isinstance(text, str) else " ".join(text)
    masks = filler.fill(given, top)
    if as_json:
        plain = {"text": given, "masks": [[word._asdict() for word in words] for words in masks]}
        print(json.dumps(plain, ensure_ascii=False))
        return
    console = Console(highlight=False)
    for number, words in enumerate(masks, start=1):
        console.print(_table(words, f"[MASK] {number}" if len(masks) > 1 else "[MASK]"))


def run_evaluate_masked(text: Sequence[Path | str], model: Path, documents: Any, as_json: bool, device: str) -> None:
    """Prints how well a masked model finds hidden words of plain text, and next sentences if it learnt to."""
    found = evaluate_masked(MaskedText.load(model, device), list(text), documents=documents)
    scores = found.scores()
    if as_json:
        plain = {
            "files": [str(file) for file in text],
            "scores": {name: one.to_plain() for name, one in scores.items()},
        }
        print(json.dumps(plain, ensure_ascii=False))
        return
    console = Console(highlight=False, soft_wrap=True)
    console.print(f"{model} on {found.words:,} hidden words: " + ", ".join(map(str, scores.values())), markup=False)


def _table(words: list[FilledWord], name: str) -> Table:
    table = Table()
    table.add_column(Text(name))
    table.add_column("probability", justify="right")
    table.add_column("", no_wrap=True)
    most = max((word.probability for word in words), default=1.0) or 1.0
    for word in words:
        bar = "█" * max(1, round(BAR * word.probability / most))
        shown = (JOINED if word.goes_on and word.word[:1].isalnum() else "") + (visible(word.word, LONGEST) or "␣")
        table.add_row(Text(shown), f"{100 * word.probability:.2f} %", Text(bar))
    return table
