"""The verb `heads`: which heads follow a grammatical relation."""

from __future__ import annotations

import json
from pathlib import Path

from rich.console import Console
from rich.table import Table

from regard.cli.outputs import check_outputs
from regard.looking.grammar import FILE, best_heads, count_heads, read_parsed, save_heads
from regard.tasks.pretrained import find_model, load_translator


def run_heads(parsed: Path, model: Path | None, out: Path | None, as_json: bool, device: str) -> None:
    """Counts on a parsed text, prints the best head of each relation, and keeps all for the viewer's overview."""
    place = out or (find_model(model) / FILE if model is not None else None)
    if place is not None and out is not None:
        check_outputs([place], [parsed])
    found = count_heads(load_translator(model, device), read_parsed(parsed))
    rows = best_heads(found)
    if place is not None:
        save_heads(found, place)
    if as_json:
        print(json.dumps({"best": rows, **found}))
        return
    table = Table("relation", "who looks", "layer", "head", "right", "best distance", "of")
    for row in rows:
        name = f"{row['relation']} ({row['means']})"
        way = "the dependent" if row["from"] == "dependent" else "the verb"
        place_of = (str(row["layer"] + 1), str(row["head"] + 1))
        table.add_row(name, way, *place_of, f"{row['share']:.1%}", f"{row['distance']:.1%}", f"{row['count']:,}")
    console = Console(highlight=False, soft_wrap=True)
    console.print(table)
    if place is not None:
        console.print(f"{place} is written: `regard look` shows it.", markup=False)
