"""The verb `generate`: text that goes on from a prompt."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from regard.cli.notes import note_draft, note_unfinished
from regard.cli.translate import stdin_lines
from regard.core.errors import ConfigError, DataError
from regard.search.config import SearchConfig
from regard.tasks.language_model import TextModel
from regard.tasks.pretrained import find_model
from regard.tasks.prompt_reading import MAX_PROMPT_CHARACTERS

WISHES = ("samples", "method", "max_tokens", "temperature", "top_k", "top_p", "min_p", "seed", "beam")
OPTIONS = {name: f"--{name.replace('_', '-')}" for name in WISHES} | {
    "nbest": "--samples",
    "max_length": "--max-tokens",
}
_UNSEEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")  # control characters but tabs and line breaks


def run_generate(
    prompt: str | None,
    model: Path | None,
    wishes: dict[str, Any],
    echo: bool | None,
    as_json: bool,
    device: str,
    draft: Path | None = None,
    ahead: int = 2,
    compute: Any = "auto",
) -> None:
    """Writes text after a prompt; one text comes as its tokens do.

    Without a prompt, standard input is the prompt, and where that is a terminal or empty, a text begins. `wishes` are those
    of `TextModel.settings`. `echo` writes the prompt first; None does so on a terminal.
    """
    reader = load_text_model(model, device, compute)
    if draft is not None:
        reader = reader.drafted(load_text_model(draft, device), ahead)
        note_draft(reader.device.type)
    text = prompt if prompt is not None else prompt_from_input()
    config = _settings(reader, wishes)
    terminal = sys.stdout.isatty()
    lead = text if (terminal if echo is None else echo) else ""
    reader.check_room(text, config, wishes.get("max_tokens"))
    if as_json:
        found = reader.generations(text, search=config)
        plain = {"prompt": text, "generations": [generation.to_plain() for generation in found]}
        print(json.dumps(plain, ensure_ascii=False))
    elif config.hypotheses == 1 and draft is None:
        _write([lead], reader.pieces(text, search=config), terminal)
    else:
        for number, generation in enumerate(reader.generations(text, search=config), start=1):
            print(f"--- {number}")
            _write([lead], [generation.text], terminal)


def load_text_model(model: Path | None, device: str, compute: Any = "auto") -> TextModel:
    """The language model of a folder; a note says so if its run is not finished."""
    if model is None:
        todo = "Give --model DIR; `regard demo --task lm` trains a small one here, in two minutes"
        raise ConfigError("--model", "no language model is given, and none ships with regard", todo)
    reader = TextModel.load(find_model(model), device, compute)
    note_unfinished(reader.folder)
    return reader


def prompt_from_input() -> str:
    """All of standard input, without its last line break; nothing, where it is closed or a terminal."""
    if sys.stdin is None or sys.stdin.closed or sys.stdin.isatty():
        return ""
    lines: list[str] = []
    size = 0
    for line in stdin_lines():
        size += len(line) + 1
        if size > MAX_PROMPT_CHARACTERS:
            what = f"it has more than {MAX_PROMPT_CHARACTERS:,} characters"
            raise DataError("standard input", what, "Give the end of the text only")
        lines.append(line)
    return "\n".join(lines)


def _settings(reader: TextModel, wishes: dict[str, Any]) -> SearchConfig:
    try:
        return reader.settings(**{name: value for name, value in wishes.items() if value is not None})
    except ConfigError as error:
        raise in_options(error) from None


def in_options(error: ConfigError) -> ConfigError:
    """An error about settings, in the words of who gave options."""

    def said(text: str) -> str:
        return re.sub(r"(?:setting )?search\.(\w+)", lambda found: OPTIONS.get(found[1], found[0]), text)

    advice = "For the likeliest text use --method greedy" if "method=beam" in error.todo else said(error.todo)
    return ConfigError(OPTIONS.get(error.where, said(error.where)), said(error.what), advice)


def _write(first: Iterable[str], pieces: Iterable[str], terminal: bool) -> None:
    """Writes pieces as they come, and ends the line. To a terminal no control character goes that a model came up with."""
    last = "\n"
    try:
        for source in (first, pieces):
            for piece in source:
                shown = _UNSEEN.sub(_picture, piece) if terminal else piece
                sys.stdout.write(shown)
                sys.stdout.flush()
                last = piece[-1:] or last
    except KeyboardInterrupt:
        sys.stdout.write("\n")  # the message that it was stopped begins a line of its own
        raise
    if last != "\n" or not terminal:
        sys.stdout.write("\n")
    sys.stdout.flush()


def _picture(found: re.Match[str]) -> str:
    code = ord(found[0])
    return chr(0x2400 + code) if code < 0x20 else "\N{SYMBOL FOR DELETE}" if code == 0x7F else f"⟨U+{code:04X}⟩"
