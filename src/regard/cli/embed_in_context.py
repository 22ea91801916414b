"""What `regard embed --in-context` prints: one word in two places, layer by layer."""

from __future__ import annotations

import json
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from regard.core.visible_text import visible
from regard.tasks.word_in_context import Uses
from regard.tasks.word_vectors import Neighbour


def show_uses(found: Uses, as_json: bool) -> None:
    """Prints a table with a line for each layer, and what is near to the word in both places."""
    if as_json:
        print(json.dumps(found.to_plain(), ensure_ascii=False))
        return
    console = Console(highlight=False, soft_wrap=True)
    for number, use in enumerate(found.uses, start=1):
        console.print(f"use {number}: {visible(use.shown)}", markup=False)
    if found.left_out:
        console.print(f"{found.left_out} further uses are left out.", markup=False)
    columns = ["layer", "cosine between the two uses"]
    table = Table(*columns, *(["of its single word vector"] if found.static is not None else []))
    for layer, cosine in enumerate(found.cosines):
        name = f"{layer} (embeddings)" if layer == 0 else str(layer)
        table.add_row(name, f"{cosine:.4f}", *(["1"] if found.static is not None else []))
    console.print(table)
    for number, near in enumerate(found.near, start=1):
        console.print(Text(f"nearest words of the text to use {number}, last layer: {_listed(near)}"))
    if found.note:
        console.print(Text(found.note))
    elif found.static is not None:
        console.print(Text(f"nearest to its single word vector: {_listed(found.static)}"))


def _listed(neighbours: Sequence[Neighbour]) -> str:
    return ", ".join(f"{visible(one.word, 30)} {one.similarity:.3f}" for one in neighbours)
