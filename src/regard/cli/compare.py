"""The verb `compare`."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from regard.comparing.compare import Comparison, compare, report_comparison, resume_comparison
from regard.comparing.summary import BEST
from regard.comparing.tables import duration, p_value, with_deviation
from regard.comparing.words import finding
from regard.core.errors import ConfigError
from regard.core.files import quoted
from regard.core.visible_text import visible
from regard.training.progress import Reporter

WIDE = 120  # columns where there is no terminal to ask


def run_compare(
    words: Sequence[str],
    options: dict[str, Any],
    out: Path | None,
    report: Path | None,
    resume: Path | None,
    quiet: bool,
) -> None:
    names, settings = [w for w in words if "=" not in w], [w for w in words if "=" in w]
    given = {name: value for name, value in options.items() if not (value is None or value is False or value == "")}
    reporter = Reporter(quiet)
    if report is not None or resume is not None:
        option = "--report" if report is not None else "--resume"
        if words or given or out is not None or None not in (report, resume):
            what = "it reads what to do from the folder"
            raise ConfigError(option, what, "Leave the other arguments out, or give the whole command with --out")
        comparison = report_comparison(report) if report is not None else resume_comparison(resume or "", reporter)
    else:
        if len(names) > 1:
            advice = "Name models as --models a,b, and write settings as section.key=value without spaces"
            raise ConfigError("compare", f"more than one recipe is given ({', '.join(names)})", advice)
        if out is None:
            raise ConfigError("compare", "there is no output folder", "Give --out DIR")
        comparison = compare(
            names[0] if names else None,
            out=out,
            settings=settings,
            report=reporter,
            command=shlex.join(["regard", *sys.argv[1:]]),
            **given,
        )
    folder = quoted(comparison.folder)
    if comparison.interrupted is not None:
        typer.echo(f"Stopped. Go on with: regard compare --resume {folder}", err=True)
        raise typer.Exit(128 + comparison.interrupted)
    _show(comparison)
    if comparison.failures:
        for failure in comparison.failures:
            name = visible(comparison.plan.entry(failure.entry).name, 200)
            typer.echo(f"Failed: {name}, seed {failure.seed}: {visible(failure.reason, 1000)}", err=True)
        if report is None:
            typer.echo(f"Try the failed runs again with: regard compare --resume {folder}", err=True)
            raise typer.Exit(1)


def _show(comparison: Comparison) -> None:
    console = Console(highlight=False, soft_wrap=True)
    if not console.is_terminal:
        console = Console(highlight=False, soft_wrap=True, width=WIDE)
    table = Table("", box=None, pad_edge=False)
    for name in ("BLEU", "p", "chrF", "parameters", "training", "tokens/s", "decoding"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in comparison.summary.rows:
        table.add_row(
            Text(visible(row.entry, 80)),
            with_deviation(row.bleu, row.bleu_sd),
            "best" if row.verdict == BEST else p_value(row.bleu_p),
            with_deviation(row.chrf, row.chrf_sd),
            _short(row.parameters),
            duration(row.training_seconds),
            _short(row.training_tokens_per_second),
            _short(row.decoding_tokens_per_second),
        )
    console.print(table)
    console.print(visible(finding(comparison.summary), 5000), markup=False)
    console.print(f"Report: {comparison.report}", markup=False)


def _short(value: float | None) -> str:
    """A number to three digits: 1.44 M."""
    if value is None:
        return "–"
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if value >= size:
            shown = value / (1e3 if letter == "k" else size)
            return f"{shown:.3g} {letter}" if shown < 1000 else f"{shown:,.0f} {letter}"
    return f"{value:,.0f}"
