"""The verb that serves models."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from regard.cli.imports import whole_imports


def serve(
    folders: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[DIR ...]",
            help="Run folders, or NAME=DIR; DIR+DIR write together. Default: the bundled model.",
        ),
    ] = None,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port; 0 is any that is free.")] = 5000,
    key_file: Annotated[
        Path | None,
        typer.Option(help="Keys that clients must show, one on each line. Default: those in the variable REGARD_KEYS."),
    ] = None,
    engine: Annotated[str, typer.Option(help="Of translators: auto, ctranslate2 or torch.")] = "auto",
    compute: Annotated[
        str, typer.Option(help="Numbers: auto, float32, bfloat16; on a CPU int8, int8_float32.")
    ] = "auto",
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
    limit: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="A bound, such as beam=8: see docs/serving.md.")
    ] = None,
    proxy: Annotated[
        list[str] | None,
        typer.Option(metavar="ADDRESS", help="A proxy whose word about where requests come from is believed."),
    ] = None,
    origin: Annotated[
        list[str] | None,
        typer.Option(metavar="ORIGIN", help="A web page that may ask from a browser, such as https://example.org."),
    ] = None,
    detector: Annotated[
        str | None, typer.Option(metavar="DIR", help="A text classifier whose labels are language codes, for /detect.")
    ] = None,
    quota: Annotated[
        int, typer.Option(help="Characters that DeepL's interface translates until the server ends; 0: any.", min=0)
    ] = 0,
    glossary: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=FILE", help="Terms that requests may want to be written, as of `regard translate`."),
    ] = None,
    draft: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[NAME=]DIR", help="A small model that guesses what a served one writes, where asked for."
        ),
    ] = None,
    ahead: Annotated[int, typer.Option(help="How many tokens --draft guesses at a time.")] = 2,
    channel: Annotated[
        list[str] | None,
        typer.Option(metavar="[NAME=]DIR", help="A translator of the other direction, for requests that rerank."),
    ] = None,
    rerank_lm: Annotated[
        list[str] | None, typer.Option(metavar="[NAME=]DIR", help="A language model, for requests that rerank.")
    ] = None,
    rerank_with: Annotated[
        list[str] | None, typer.Option(metavar="[NAME=]DIR", help="Another translator, for requests that rerank.")
    ] = None,
    fuse: Annotated[
        list[str] | None,
        typer.Option(metavar="[NAME=]DIR", help="A language model whose log-probabilities are added (shallow fusion)."),
    ] = None,
    fusion: Annotated[float, typer.Option(help="The weight of --fuse.")] = 0.1,
    mix: Annotated[str, typer.Option(help="How models joined by + write together: log or mean.")] = "log",
    most_loaded: Annotated[
        int, typer.Option(help="Models in memory at the same time; the one unused for longest goes. 0: all.", min=0)
    ] = 0,
    page: Annotated[bool, typer.Option(help="Serve a page to translate in.")] = True,
    access_log: Annotated[bool, typer.Option("--access-log", help="Log each request, without its query.")] = False,
    guard: Annotated[
        bool, typer.Option("--guard/--no-guard", help="Take another hypothesis for a loop, nothing, a copy.")
    ] = True,
) -> None:
    """Serve models to programs that know LibreTranslate, DeepL or OpenAI, and on a page. Ends with Ctrl-C or SIGTERM."""
    with whole_imports():
        from regard.cli.serve import run_serve

    run_serve(
        folders or [], host=host, port=port, key_file=key_file, engine=engine, compute=compute, device=device,
        limits=limit or [], proxies=proxy or [], origins=origin or [], detector=detector, quota=quota,
        glossaries=glossary or [], most_loaded=most_loaded, page=page, access_log=access_log, guard=guard,
        beside={
            "--draft": draft or [], "--channel": channel or [], "--rerank-lm": rerank_lm or [],
            "--rerank-with": rerank_with or [], "--fuse": fuse or [],
        },
        ahead=ahead, fusion=fusion, mix=mix,
    )  # fmt: skip


def add_serving_verbs(app: typer.Typer) -> None:
    app.command()(serve)
