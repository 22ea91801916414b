"""The verbs `models`, `recipes` and `show`."""

from __future__ import annotations

import json
import sys
from importlib import resources
from itertools import pairwise
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from regard.core.errors import CheckpointError
from regard.core.files import read_json
from regard.models.base import MODELS
from regard.tasks.folder import CONFIG, DATA, RUN, SCORES, WEIGHTS, find_run, weights_folder
from regard.tasks.pretrained import BUNDLED, bundled_model, find_model
from regard.training.config import read_recipe, recipe_about, recipe_names

CARD = "CARD.md"


def run_models() -> None:
    console = Console(highlight=False)
    table = Table(
        "architecture", "what it is", "paper", title="Architectures (model.name in a recipe)", show_lines=True
    )
    for name in MODELS.names():
        model = MODELS.get(name)
        table.add_row(name, (model.__doc__ or "").splitlines()[0], _paper(model))
    console.print(table)
    table = Table("model", "folder", title="Trained models in this installation")
    try:
        table.add_row(BUNDLED, _cell(bundled_model()))
    except CheckpointError as error:
        table.add_row(BUNDLED, _cell(error.what))
    table.columns[1].overflow = "fold"
    console.print(table)
    console.print("A run folder is a model too: regard translate --model DIR, regard show DIR.", markup=False)


def _paper(model: type) -> str:
    """The first paragraph of the model's file, without the name that comes before the title."""
    whole = (sys.modules[model.__module__].__doc__ or "").split("\n\n")[0]
    return " ".join(whole.split()).partition(": ")[2].rstrip(".")


def run_recipes(name: str | None) -> None:
    console = Console(highlight=False)
    if name is not None:
        read_recipe(name)  # says what is wrong with the name
        shipped = resources.files("regard.recipes") / f"{name}.toml"
        text = (shipped if name in recipe_names() else Path(name)).read_text(encoding="utf-8")
        print(text, end="" if text.endswith("\n") else "\n")
        return
    table = Table("recipe", "what it trains")
    for known in recipe_names():
        table.add_row(known, recipe_about(known))
    console.print(table)
    console.print("Print one: regard recipes NAME. Train: regard train NAME --out DIR", markup=False)


def run_show(folder: Path | None) -> None:
    """Prints a run's card. Whatever stage the run is in, what is there is shown."""
    folder = find_run(find_model(folder))
    if (folder / CARD).is_file():
        print((folder / CARD).read_text(encoding="utf-8"))
    config, run, data, scores = (_read(folder / name) for name in (CONFIG, RUN, DATA, SCORES))
    card = {
        "status": run.get("status", "a model without its run"),
        "model": _section(config, "model"),
        "vocabulary": _section(config, "vocabulary"),
        "weights": _weights(folder),
        "data": {**_section(data, "pairs"), **_section(data, "documents"), "fingerprint": data.get("fingerprint", "")},
        **_scores(scores),
        "training": _section(run, "summary"),
        "versions": _section(run, "versions"),
        "command": run.get("command", ""),
    }
    _print_card(folder, {what: _flat(what, value) for what, value in card.items()})


def _flat(name: str, value: Any) -> dict[str, str]:
    """A value as lines: `section.key` for each setting in it, and nothing for what is not there."""
    if isinstance(value, dict):
        return {line: text for key, part in value.items() for line, text in _flat(f"{name}.{key}", part).items()}
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return {name: " ".join(text.split("\n"))} if text else {}


def _print_card(folder: Path, sections: dict[str, dict[str, str]]) -> None:
    """A table for eyes; lines of `section.key = value` for whatever reads a pipe."""
    console = Console(highlight=False)
    if not console.is_terminal:
        for lines in ({"folder": str(folder)}, *sections.values()):
            for what, value in lines.items():
                print(f"{what} = {value}")
        return
    table = Table("what", "value", title=Text(str(folder)), show_header=False)
    table.columns[1].overflow = "fold"  # fingerprints and signatures are there to be copied: never cut them
    for before, lines in pairwise(({}, *sections.values())):
        if len(before) > 1 or len(lines) > 1:
            table.add_section()
        for what, value in lines.items():
            table.add_row(_cell(what), _cell(value))
    console.print(table)


def _cell(value: Any) -> Text:
    """Text as it is: what stands in a file is not markup."""
    return Text(str(value))


def _read(path: Path) -> dict[str, Any]:
    """The object in a JSON file; nothing where there is no file."""
    if not path.is_file():
        return {}
    found = read_json(path)
    if not isinstance(found, dict):
        raise CheckpointError(path, "it is not what regard wrote there", "Restore it from a copy")
    return found


def _section(values: dict[str, Any], name: str) -> dict[str, Any]:
    found = values.get(name, {})
    return found if isinstance(found, dict) else {}


def _weights(folder: Path) -> str:
    try:
        path = weights_folder(folder) / WEIGHTS
        return f"{path} ({path.stat().st_size / 2**20:.2f} MiB)"
    except (CheckpointError, OSError):  # a run without weights still has a card
        return "none yet"


def _scores(scores: dict[str, Any]) -> dict[str, str]:
    rows = {}
    for key, score in _section(scores, "scores").items():
        if isinstance(score, dict) and isinstance(score.get("value"), int | float):
            ends = (score.get("low"), score.get("high"))
            interval = f" [{ends[0]:.1f}, {ends[1]:.1f}]" if all(isinstance(end, int | float) for end in ends) else ""
            name = f"{scores.get('part', 'score')}.{score.get('name', key)}"
            rows[name] = f"{score['value']:.2f}{interval}  {score.get('signature', '')}"
    return rows
