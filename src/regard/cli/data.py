"""The verbs of `regard data`. Each is a thin layer over a documented function; imports are inside the verbs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    name="data",
    help="Get, check, clean, count and prepare parallel text.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

FilesArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="SRC TGT | FILE",
        help="Two aligned text files, or one file with both sides (.tsv, .csv, .jsonl, .tmx, .parquet; .gz, .xz or .zst "
        "of each); - is standard input.",
    ),
]
FormatOption = Annotated[
    str, typer.Option("--format", "-f", help="auto (by the file's ending), text, tsv, csv, jsonl, tmx or parquet.")
]
ColumnsOption = Annotated[
    str,
    typer.Option(
        metavar="SOURCE,TARGET", help="Which columns, keys or languages of a file hold the two sides; numbers from 0."
    ),
]
SourceLanguageOption = Annotated[str, typer.Option("--src-lang", metavar="CODE", help="Source language, such as en.")]
TargetLanguageOption = Annotated[str, typer.Option("--tgt-lang", metavar="CODE", help="Target language, such as de.")]
ValidOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="FILE", help="Validation text, which must not leak: once for one file, twice for source and target."
    ),
]
TestOption = Annotated[list[str] | None, typer.Option(metavar="FILE", help="Test text, given in the same way.")]


@app.command()
def check(
    files: FilesArgument,
    format: FormatOption = "auto",
    columns: ColumnsOption = "",
    src_lang: SourceLanguageOption = "",
    tgt_lang: TargetLanguageOption = "",
    valid: ValidOption = None,
    test: TestOption = None,
    allow: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Do not refuse for this finding (repeatable); see `regard data findings`."),
    ] = None,
    json: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the report as JSON; - prints it, and nothing else.")
    ] = None,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the report as a page for a browser.")] = None,
) -> None:
    """Look for damage: lines out of step, broken encoding, copies, leaks and more. The exit code is 1 for damage."""
    from regard.cli.imports import whole_imports

    with whole_imports():
        from regard.cli.check import run_check

    damaged = run_check(files, format, columns, (src_lang, tgt_lang), valid or (), test or (), allow or (), json, html)
    if damaged:
        raise typer.Exit(1)


@app.command()
def stats(
    files: FilesArgument,
    format: FormatOption = "auto",
    columns: ColumnsOption = "",
    json: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the numbers as JSON; - prints them, and nothing else.")
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw the distributions into this .png, .svg or .pdf.")
    ] = None,
) -> None:
    """Count pairs, words and vocabulary, and show how long the lines are. Judges nothing."""
    from regard.cli.imports import whole_imports

    with whole_imports():
        from regard.cli.check import run_stats

    run_stats(files, format, columns, json, plot)


@app.command()
def clean(
    files: FilesArgument,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="The new folder for the clean text.")],
    format: FormatOption = "auto",
    columns: ColumnsOption = "",
    src_lang: SourceLanguageOption = "",
    tgt_lang: TargetLanguageOption = "",
    valid: ValidOption = None,
    test: TestOption = None,
    keep: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="Leave this finding alone: neither drop lines for it nor mend it (repeatable)."
        ),
    ] = None,
    drop: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Drop lines with this finding too, which is off by default (repeatable)."),
    ] = None,
    mends: Annotated[bool, typer.Option(help="Mend lines where it is certain (encoding, spaces).")] = True,
) -> None:
    """Write a repaired and filtered copy, the list of what was dropped and why, and a report. Never in place."""
    from regard.cli.imports import whole_imports

    with whole_imports():
        from regard.cli.clean import run_clean

    run_clean(files, out, format, columns, (src_lang, tgt_lang), valid or (), test or (), keep or (), drop or (), mends)


@app.command()
def findings() -> None:
    """All that `check` can find, by name; what `clean` drops and mends."""
    from regard.cli.check import run_findings

    run_findings()


@app.command()
def get(
    name: Annotated[str, typer.Argument(help="The corpus; without it, all that are known are listed.")] = "",
    out: Annotated[Path | None, typer.Option("--out", "-o", metavar="DIR", help="The folder for its files.")] = None,
    local: Annotated[
        Path | None, typer.Option("--from", metavar="FOLDER", help="Take the files from here, and fetch nothing.")
    ] = None,
    mirror: Annotated[str, typer.Option(metavar="URL", help="Fetch the files from another server.")] = "",
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Fetch without asking.")] = False,
    listing: Annotated[bool, typer.Option("--list", help="List all known corpora.")] = False,
) -> None:
    """Get a known corpus: shows its licence, size and source first, then fetches, checks and unpacks it."""
    from regard.cli.get import run_get

    run_get(name, out, local, mirror, yes, listing)


@app.command()
def prepare(
    recipe: Annotated[
        list[str] | None,
        typer.Argument(metavar="[RECIPE] [section.key=value ...]", help="As for `regard train`."),
    ] = None,
    src: Annotated[str, typer.Option(help="Source text.")] = "",
    tgt: Annotated[str, typer.Option(help="Target text, aligned with the source.")] = "",
    pairs: Annotated[str, typer.Option(help="Instead: one file with both sides.")] = "",
    allow: Annotated[list[str] | None, typer.Option(metavar="NAME", help="Do not refuse for this finding.")] = None,
) -> None:
    """Check and tokenise a large text beforehand, once for all runs on it."""
    from regard.cli.imports import whole_imports

    with whole_imports():
        from regard.cli.prepare import run_prepare

    words = recipe or []
    names = [word for word in words if "=" not in word]
    run_prepare(names, src, tgt, pairs, [word for word in words if "=" in word], allow or ())
