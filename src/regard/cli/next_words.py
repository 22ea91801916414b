"""The verb `next`: a table of the next words."""

from __future__ import annotations

import json
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from regard.cli.generate import load_text_model, prompt_from_input
from regard.core.errors import ConfigError
from regard.core.visible_text import visible
from regard.tasks.next_words import NextWord

BAR = 30  # characters of the longest bar
LONGEST = 40  # characters of a word that are shown
JOINED = "…"  # before what goes on where the prompt stops


def run_next(
    prompt: list[str] | str | None, model: Path | None, top: int, tokens: bool, as_json: bool, device: str
) -> None:
    """Shows the most probable next words after a prompt (standard input, if none is given), or the next tokens."""
    if top < 1:
        raise ConfigError("--top", f"{top} rows are too few", "Ask for at least 1")
    reader = load_text_model(model, device)
    text = prompt_from_input() if not prompt else prompt if isinstance(prompt, str) else " ".join(prompt)
    try:
        rows = reader.next_words(text, top, tokens=tokens)
    except ConfigError as error:
        raise ConfigError("--top" if error.where == "top" else error.where, error.what, error.todo) from None
    if as_json:
        print(json.dumps({"prompt": text, "next": [row._asdict() for row in rows]}, ensure_ascii=False))
        return
    Console(highlight=False).print(_table(rows, text, tokens))


def _table(rows: list[NextWord], prompt: str, tokens: bool) -> Table:
    table = Table("next token" if tokens else "next word", "probability", "")
    table.columns[1].justify = "right"
    table.columns[2].no_wrap = True
    most = max((row.probability for row in rows), default=1.0) or 1.0
    for row in rows:
        bar = "█" * max(1, round(BAR * row.probability / most))
        table.add_row(Text(shown(row, prompt, tokens)), f"{100 * row.probability:.2f} %", Text(bar))
    return table


def shown(row: NextWord, prompt: str, tokens: bool = False) -> str:
    """A row's text for eyes: what has no space before it goes on where the prompt stops."""
    if row.kind == "end":
        return "(end of text)"
    joined = prompt[-1:].strip() != "" and not row.text[:1].isspace() and row.text[:1] != "<"
    text = visible(row.text.removeprefix(" "), LONGEST) or "␣"
    part = " (part)" if row.kind == "token" and not tokens and row.text != "<unk>" else ""
    return (JOINED if joined and row.text[:1].isalnum() else "") + text + part
