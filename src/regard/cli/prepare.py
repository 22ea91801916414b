"""The verb `data prepare`: everything that a run on a large text needs before its first step, made and measured."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import typer

from regard.core.errors import ConfigError
from regard.core.files import quoted
from regard.data.prepared import cache_folder
from regard.training.progress import Reporter
from regard.training.text import prepare


def run_prepare(
    recipes: Sequence[str], src: str, tgt: str, pairs: str, settings: Sequence[str], allow: Sequence[str]
) -> None:
    if len(recipes) > 1:
        raise ConfigError("data prepare", f"more than one recipe is given ({', '.join(recipes)})", "Give one")
    recipe = recipes[0] if recipes else None
    began = time.monotonic()
    made = prepare(recipe, src=src, tgt=tgt, pairs=pairs, settings=settings, allow=allow, report=Reporter())
    seconds = time.monotonic() - began
    typer.echo(
        f"{made.pairs:,} training pairs, {made.source_tokens:,} source and {made.target_tokens:,} target tokens, "
        f"{made.valid:,} pairs for validation, {made.test:,} for testing, in {seconds:.1f} s"
    )
    if made.folder is None:
        typer.echo("The text is small: runs hold it in memory, and nothing was kept.")
    else:
        typer.echo(f"Kept in {quoted(made.folder)} ({_size(made.folder) / 2**20:,.0f} MiB), which you may delete.")
        if made.folder == cache_folder() / "prepared":
            typer.echo("data.store=FOLDER or $REGARD_CACHE choose another place.")


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
