"""The verb that opens the viewer."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from regard.cli.imports import whole_imports


def look(
    folders: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[DIR ...]", help="Run folders, or names that `regard models` lists. Default: the bundled model."
        ),
    ] = None,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port. Default: a free one.")] = 0,
    browser: Annotated[bool, typer.Option(help="Open a browser.")] = True,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
) -> None:
    """Look inside models in the browser: attention, step by step, on sentences of your own. Works offline."""
    with whole_imports():
        from regard.cli.look import run_look

    run_look(folders or [], host, port, browser, device)


def add_looking_verbs(app: typer.Typer) -> None:
    app.command()(look)
