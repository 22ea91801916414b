"""The verbs `models`, `recipes` and `show`."""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path

from rich.console import Console
from rich.table import Table

from regard.core.files import read_json
from regard.models.base import MODELS
from regard.tasks.folder import DATA, RUN, SCORES, find_run, weights_folder
from regard.tasks.pretrained import BUNDLED, bundled_model
from regard.training.config import recipe_about, recipe_names

CARD = "CARD.md"


def run_models() -> None:
    console = Console(highlight=False)
    table = Table("architecture", "what it is", title="Architectures (model.name in a recipe)")
    for name in MODELS.names():
        table.add_row(name, (MODELS.get(name).__doc__ or "").splitlines()[0])
    console.print(table)
    table = Table("model", "folder", title="Trained models in this installation")
    table.add_row(BUNDLED, str(bundled_model()))
    console.print(table)
    console.print("A run folder is a model too: regard translate --model DIR, regard show DIR.", markup=False)


def run_recipes(name: str | None) -> None:
    console = Console(highlight=False)
    if name is not None:
        from regard.training.config import read_recipe

        read_recipe(name)  # says what is wrong with the name
        text = resources.files("regard.recipes") / f"{name}.toml"
        print((text if text.is_file() else Path(name)).read_text(encoding="utf-8"), end="")
        return
    table = Table("recipe", "what it trains")
    for known in recipe_names():
        table.add_row(known, recipe_about(known))
    console.print(table)
    console.print("Print one: regard recipes NAME. Train: regard train NAME --out DIR", markup=False)


def run_show(folder: Path | None) -> None:
    console = Console(highlight=False, soft_wrap=True)
    folder = find_run(folder if folder is not None else bundled_model())
    if (folder / CARD).is_file():
        print((folder / CARD).read_text(encoding="utf-8"))
    config = read_json(folder / "config.json")
    run = read_json(folder / RUN) if (folder / RUN).is_file() else {}
    data = read_json(folder / DATA) if (folder / DATA).is_file() else {}
    scores = read_json(folder / SCORES) if (folder / SCORES).is_file() else {}
    table = Table("what", "value", title=str(folder), show_header=False)
    table.add_row("status", str(run.get("status", "a model without its run")))
    model = {key: value for key, value in config.get("model", {}).items() if key != "name"}
    table.add_row("model", f"{config.get('model', {}).get('name')} {json.dumps(model)}")
    table.add_row("vocabulary", json.dumps(config.get("vocabulary", {})))
    try:
        weights = weights_folder(folder) / "model.safetensors"
        table.add_row("weights", f"{weights} ({weights.stat().st_size / 2**20:.1f} MiB)")
    except Exception:  # a run without weights still has a card
        table.add_row("weights", "none yet")
    table.add_row("data", json.dumps(data.get("pairs", {})))
    table.add_row("data fingerprint", str(data.get("fingerprint", "")))
    for score in scores.get("scores", {}).values():
        interval = f" [{score['low']:.1f}, {score['high']:.1f}]" if score.get("low") is not None else ""
        table.add_row(f"{scores['part']} {score['name']}", f"{score['value']:.2f}{interval}  {score['signature']}")
    if "summary" in run:
        table.add_row("training", json.dumps(run["summary"]))
    table.add_row("versions", json.dumps(run.get("versions", {})))
    table.add_row("command", str(run.get("command", "")))
    console.print(table)
