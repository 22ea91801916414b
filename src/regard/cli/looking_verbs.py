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
    port: Annotated[int, typer.Option(help="The port. Default: 8020, or the next that is free.")] = 0,
    browser: Annotated[bool, typer.Option(help="Open a browser.")] = True,
    save: Annotated[
        Path | None, typer.Option(help="Instead: write one sentence's page into this HTML file, which opens offline.")
    ] = None,
    text: Annotated[str | None, typer.Option(help="With --save: the sentence.")] = None,
    layer: Annotated[
        int | None, typer.Option(help="With --save: whose steps are kept, from 1. Default: the last layer.", min=1)
    ] = None,
    head: Annotated[int | None, typer.Option(help="With --save: likewise. Default: 1.", min=1)] = None,
    row: Annotated[
        int | None, typer.Option(help="With --save: likewise, the token. Default: the first 24.", min=1)
    ] = None,
    all_steps: Annotated[
        bool, typer.Option("--all-steps", help="With --save: the steps of all layers, heads and tokens, if they fit.")
    ] = False,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(help="A name under which other machines may ask. May be repeated.", metavar="NAME"),
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
) -> None:
    """Look inside models in the browser: attention, step by step, on sentences of your own. Works offline."""
    with whole_imports():
        from regard.cli.look import run_look, run_save
        from regard.core.errors import ConfigError
        from regard.looking.saved_page import StepsKept

    chosen = {"layer": layer, "head": head, "row": row}
    if save is not None:
        places = {name: None if value is None else value - 1 for name, value in chosen.items()}
        run_save(folders or [], text, save, device, StepsKept(**places, everything=all_steps))
        return
    if text is not None:
        raise ConfigError("--text", "it goes with --save", "Type the sentence into the page")
    for name, value in {**chosen, "all-steps": all_steps or None}.items():
        if value is not None:
            raise ConfigError(f"--{name}", "it goes with --save", "Choose it on the page")
    run_look(folders or [], host, port, browser, device, allow_host or [])


def plot(
    kind: Annotated[str, typer.Argument(help="alignment, heads, head, positions or curves.")],
    text: Annotated[str, typer.Argument(help="The sentence. Default: that of the viewer.")] = "",
    out: Annotated[Path, typer.Option("--out", "-o", help="The picture: .png, .svg or .pdf.")] = Path("picture.png"),
    model: Annotated[
        Path | None, typer.Option("--model", "-m", help="A run folder. Default: the bundled model.")
    ] = None,
    part: Annotated[str, typer.Option(help="encoder.self, decoder.self, decoder.cross, or what a model has.")] = "",
    layer: Annotated[int, typer.Option(help="For head: from 1.", min=1)] = 1,
    head: Annotated[int, typer.Option(help="For head: from 1.", min=1)] = 1,
    target: Annotated[str | None, typer.Option(help="A translation to draw instead of the model's own.")] = None,
    tokens: Annotated[bool, typer.Option("--tokens", help="For alignment: tokens instead of words.")] = False,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
) -> None:
    """Draw what a model does with a sentence, for papers and slides."""
    with whole_imports():
        from regard.cli.plot import run_plot

    run_plot(kind, text, model, out, part, layer, head, target, tokens, device)


def heads(
    parsed: Annotated[Path, typer.Argument(metavar="FILE", help="A parsed text in CoNLL-U.")],
    model: Annotated[
        Path | None, typer.Option("--model", "-m", help="A run folder. Default: the bundled model.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Where the counts go. Default: heads.json in the run folder.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Counts as JSON.")] = False,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
) -> None:
    """Count how often each attention head follows a grammatical relation: who did what to whom."""
    with whole_imports():
        from regard.cli.heads import run_heads

    run_heads(parsed, model, out, as_json, device)


def add_looking_verbs(app: typer.Typer) -> None:
    for verb in (look, plot, heads):
        app.command()(verb)
