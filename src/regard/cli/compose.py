"""The verb `generate` with a label: texts written from it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from regard.cli.generate import _write, in_options
from regard.cli.notes import note_unfinished
from regard.core.errors import ConfigError
from regard.tasks.composing import TextComposer
from regard.tasks.pretrained import find_model


def run_compose(label: str, model: Path | None, wishes: dict[str, Any], as_json: bool, device: str) -> None:
    """Writes texts for a label. `wishes` are the options of `TextComposer.write`; None where one is not given."""
    if model is None:
        raise ConfigError("--model", "no model is given, and none ships with regard", "Give --model DIR")
    composer = TextComposer.load(find_model(model), device)
    note_unfinished(composer.folder)
    try:
        found = composer.write(label, **{name: value for name, value in wishes.items() if value is not None})
    except ConfigError as error:
        raise in_options(error) from None
    if as_json:
        plain = {"label": label, "generations": [composition.to_plain() for composition in found]}
        print(json.dumps(plain, ensure_ascii=False))
        return
    for number, composition in enumerate(found, start=1):
        if len(found) > 1:
            print(f"--- {number}")
        _write([], [composition.text], sys.stdout.isatty())
