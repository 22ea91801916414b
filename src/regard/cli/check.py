"""The verbs `data check`, `data stats` and `data findings`."""

from __future__ import annotations

import dataclasses
import io
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console

from regard.cli.line_progress import LineProgress
from regard.cli.outputs import check_outputs
from regard.cli.report_page import page
from regard.cli.report_terminal import show_names, show_report, show_statistics
from regard.core.errors import ConfigError, DataError
from regard.data.checks.check import check_pairs
from regard.data.checks.count import count_pairs
from regard.data.checks.findings import FINDINGS
from regard.data.checks.json_text import json_text
from regard.data.checks.mend import MENDS
from regard.data.checks.report import Report
from regard.data.reading import PairReader, open_pairs

PICTURES = (".png", ".svg", ".pdf")


def run_check(
    files: Sequence[str],
    format: str,
    columns: str,
    languages: tuple[str, str],
    valid: Sequence[str],
    test: Sequence[str],
    allow: Sequence[str],
    json: Path | None,
    html: Path | None,
) -> bool:
    """Prints and writes the report; true if the corpus is damaged."""
    check_outputs([json, html], inputs=[*files, *valid, *test])
    reader = open_files(files, format, columns)
    held_out = open_held_out(valid, test, format, columns)
    with LineProgress("Checking") as progress:
        report = check_pairs(reader, held_out=held_out, allow=allow, languages=languages, progress=progress)
    if html is not None:
        _write(html, page(report))
    if json is not None:
        _write(json, json_text(report.to_plain()))
    if str(json) != "-":
        print_wide(lambda console: show_report(report, console))
    return bool(report.refused)


def run_stats(files: Sequence[str], format: str, columns: str, json: Path | None, plot: Path | None) -> None:
    """Prints and writes the numbers, without a judgement."""
    if plot is not None and plot.suffix.lower() not in PICTURES:
        raise ConfigError(
            plot, f"{plot.suffix or 'no suffix'!r} is no format of pictures", f"Use {', '.join(PICTURES)}"
        )
    check_outputs([json, plot], inputs=files)
    reader = open_files(files, format, columns)
    began = time.monotonic()
    with LineProgress("Counting") as progress:
        statistics = count_pairs(reader, progress)
    seconds = time.monotonic() - began
    if plot is not None:
        from regard.evaluation.corpus_plots import draw_statistics
        from regard.evaluation.plots import save_figure

        save_figure(draw_statistics(statistics), plot)
    if json is not None:
        plain = {"files": reader.names, "statistics": dataclasses.asdict(statistics), "seconds": seconds}
        _write(json, json_text(plain))
    if str(json) != "-":
        report = Report(reader.names, statistics, (), seconds)
        print_wide(lambda console: show_statistics(report, console))


def run_findings() -> None:
    """Prints every name that `check` and `clean` know."""
    from regard.data.checks.clean import what_it_does

    explained = {name: (what_it_does(name), meaning) for name, meaning in {**MENDS, **FINDINGS}.items()}
    order = [*FINDINGS, *(name for name in MENDS if name not in FINDINGS)]
    print_wide(lambda console: show_names({name: explained[name] for name in order}, console))


def open_files(files: Sequence[str], format: str, columns: str) -> PairReader:
    """The reader of the files that a command line names."""
    if len(files) > 2:
        raise ConfigError(
            "the files", f"one or two are expected, got {len(files)}", "Give a source and a target, or one with both"
        )
    return open_pairs(files, format, [name.strip() for name in columns.split(",")] if columns else ())


def open_held_out(valid: Sequence[str], test: Sequence[str], format: str, columns: str) -> dict[str, PairReader]:
    """The readers of --valid and --test, by these names. They have the format of the corpus where they are one file."""
    readers = {}
    for name, files in (("valid", valid), ("test", test)):
        if len(files) > 2:
            raise ConfigError(f"--{name}", f"it is given {len(files)} times", "Give it once, or for source and target")
        if "-" in files:
            raise ConfigError(f"--{name}", "standard input is no held-out text", "Give a file")
        if files:
            readers[name] = open_files(files, format if len(files) == 1 else "auto", columns if len(files) == 1 else "")
    return readers


def print_wide(show: Callable[[Console], None]) -> None:
    """Prints to standard output; what is not a terminal gets no colour and no spaces at the ends of lines."""
    console = Console(highlight=False)
    if console.is_terminal:
        show(console)
        return
    text = io.StringIO()
    show(Console(file=text, width=console.width, highlight=False))
    print("\n".join(line.rstrip() for line in text.getvalue().splitlines()))


def _write(path: Path, text: str) -> None:
    if str(path) == "-":
        sys.stdout.write(text)
        return
    from regard.core.files import write_bytes

    try:
        write_bytes(path, text.encode("utf-8"))
    except OSError as error:
        raise DataError(
            path, f"it cannot be written ({error.strerror})", "Check the folder, its permissions and the free space"
        ) from None
