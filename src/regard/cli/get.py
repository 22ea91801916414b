"""The verb `data get`: known corpora by name, with licence, size, checksum and source before anything is fetched."""

from __future__ import annotations

import contextlib
import shlex
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, TextColumn, TransferSpeedColumn
from rich.progress import Progress as Bar
from rich.table import Table

from regard.core.errors import ConfigError
from regard.data.catalogue import UNKNOWN, Corpus, catalogue, find_corpus, readable_size
from regard.data.downloading import Progress
from regard.data.fetch import LICENCE, SOURCE, Fetched, already_there, fetch_corpus

LINE_EVERY = 5.0  # seconds between lines of progress where there is no terminal


def register(app: typer.Typer) -> None:
    """Adds the verb to `regard data`."""

    @app.command("get")
    def get(
        name: Annotated[str, typer.Argument(help="A corpus; without it, all are listed.")] = "",
        out: Annotated[Path | None, typer.Option("--out", "-o", help="The new folder. Default: ./NAME")] = None,
        local: Annotated[
            Path | None, typer.Option("--from", metavar="FOLDER", help="Take a local copy instead of downloading.")
        ] = None,
        mirror: Annotated[
            str, typer.Option(metavar="URL", help="Download from this address, which holds the same files.")
        ] = "",
        yes: Annotated[bool, typer.Option("--yes", "-y", help="Fetch without asking.")] = False,
        listing: Annotated[bool, typer.Option("--list", help="List all known corpora.")] = False,
    ) -> None:
        """Fetch a known corpus by name, with its licence, size, checksum and source shown first."""
        run_get(name, out, local, mirror, yes, listing)


def run_get(
    name: str = "",
    out: Path | None = None,
    local: Path | None = None,
    mirror: str = "",
    yes: bool = False,
    listing: bool = False,
) -> None:
    if listing or not name:
        _list()
        return
    if local is not None and mirror:
        raise ConfigError("--from and --mirror", "both are given", "Keep one of them")
    corpus = find_corpus(name)
    folder = Path(corpus.name) if out is None else out
    if (there := already_there(corpus, folder)) is not None:
        _tell(corpus, there, folder)
        return
    _show(corpus, folder, local, mirror)
    if local is None and not yes:
        _ask(corpus)
    try:
        with _shown_progress() as progress:
            fetched = fetch_corpus(corpus, folder, local=local, mirror=mirror, progress=progress)
    except KeyboardInterrupt:
        print("Stopped. The same command goes on where it stopped.", file=sys.stderr)
        raise
    _tell(corpus, fetched, folder)


def _list() -> None:
    rows = [
        (
            corpus.name,
            "-".join(corpus.languages),
            corpus.amount,
            readable_size(corpus.download_size),
            corpus.licence,
            str(urlsplit(corpus.downloads[0].url).hostname),
        )
        for corpus in catalogue().values()
    ]
    heads = ("corpus", "languages", "holds", "to download", "licence", "from")
    if not sys.stdout.isatty():
        for row in (heads, *rows):
            print("\t".join(row))
        return
    console = Console(highlight=False)
    table = Table(*heads, show_lines=False)
    for row in rows:
        table.add_row(*row)
    table.columns[0].no_wrap = True
    console.print(table)
    console.print("All about one, before it is fetched: regard data get NAME", markup=False)


def _show(corpus: Corpus, folder: Path, local: Path | None, mirror: str) -> None:
    """Everything to know before a corpus is fetched."""
    rows = [
        ("corpus", f"{corpus.name}: {corpus.about}"),
        ("languages", ", ".join(corpus.languages)),
        ("holds", corpus.amount),
        ("licence", corpus.licence),
        ("attribution", corpus.attribution),
        ("home", corpus.home),
        ("known from", corpus.facts),
    ]
    width = max(len(label) for label, _ in rows) + 2
    for label, text in rows:
        print(f"{label + ':':<{width}}{text}")
    if local is not None:
        print(f"\nTaken from {local}, where the files are looked for by their names, packed or not.")
    else:
        print(f"\nTo download ({readable_size(corpus.download_size)}):")
        for file in corpus.downloads:
            address = f"{mirror.rstrip('/')}/{file.name}" if mirror else file.url
            print(f"  {address}")
            print(f"    size {readable_size(file.size)}, checksum {file.checksum or UNKNOWN}")
    print(f"\nTo write, into {folder}:")
    for text in corpus.files:
        print(f"  {text.name}  ({readable_size(text.size)}, checksum {text.checksum or UNKNOWN})")
    print(f"  {SOURCE}, {LICENCE}")
    _print_commands(corpus, folder, "\nTo go on then:")


def _print_commands(corpus: Corpus, folder: Path, head: str) -> None:
    if corpus.next:
        print(head)
        for command in corpus.commands(folder):
            print(f"  {command}")
    print()


def _ask(corpus: Corpus) -> None:
    if not sys.stdin.isatty():
        raise ConfigError(
            f"data get {corpus.name}",
            "nobody can be asked whether to download it, since there is no terminal",
            "Read the licence above and add --yes",
        )
    if not typer.confirm(f"Download {corpus.name} under these terms?"):
        print("Nothing was fetched.")
        raise typer.Exit(1)


def _tell(corpus: Corpus, fetched: Fetched, folder: Path) -> None:
    if fetched.already:
        print(f"{folder}: {corpus.name} is there already, and every file is what was fetched.")
    else:
        print(f"Written to {folder}:")
        for name, entry in fetched.files.items():
            size = readable_size(entry["bytes"])
            known = "" if entry.get("known") else "  (no checksum was known before; this one is recorded)"
            print(f"  {name}  {size}  sha256:{entry['sha256']}{known}")
    _print_commands(corpus, folder, "Go on with:")
    print(
        f"Where it comes from: {shlex.quote(str(folder / SOURCE))}. Its licence: {shlex.quote(str(folder / LICENCE))}."
    )


@contextlib.contextmanager
def _shown_progress() -> Iterator[Progress]:
    """Bars on a terminal, now and then a line elsewhere; on standard error both."""
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    if not console.is_terminal or console.is_dumb_terminal:
        yield _lines()
        return
    columns = (TextColumn("{task.description}"), BarColumn(bar_width=30), DownloadColumn(), TransferSpeedColumn())
    with Bar(*columns, console=console, refresh_per_second=4) as bar:
        tasks = {}

        def update(name: str, done: int, total: int | None) -> None:
            if name not in tasks:
                tasks[name] = bar.add_task(name, total=total)
            bar.update(tasks[name], completed=done, total=total)

        yield update


def _lines() -> Progress:
    last: dict[str, float] = {}

    def update(name: str, done: int, total: int | None) -> None:
        now = time.monotonic()
        if done == total or now - last.get(name, -LINE_EVERY) >= LINE_EVERY:
            last[name] = now
            of = f" of {readable_size(total)}" if total is not None else ""
            print(f"{name}: {readable_size(done)}{of}" if done else name, file=sys.stderr, flush=True)

    return update
