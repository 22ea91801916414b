"""The verb `data clean`."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

from regard.cli.check import open_files, open_held_out, print_wide
from regard.cli.line_progress import LineProgress
from regard.cli.report_terminal import show_counts
from regard.core.errors import ConfigError
from regard.core.visible_text import visible
from regard.data.checks.clean import FILTERS, CleanResult, clean_pairs
from regard.data.checks.findings import FINDINGS
from regard.data.checks.mend import MENDS


def run_clean(
    files: Sequence[str],
    out: Path,
    format: str,
    columns: str,
    languages: tuple[str, str],
    valid: Sequence[str],
    test: Sequence[str],
    keep: Sequence[str],
    drop: Sequence[str],
    mends: bool,
) -> None:
    filters, mending = _chosen(keep, drop, mends)
    reader = open_files(files, format, columns)
    held_out = open_held_out(valid, test, format, columns)
    with LineProgress("Reading") as progress:

        def tell(stage: str, lines: int) -> None:
            progress.what = stage
            progress(lines)

        result = clean_pairs(
            reader,
            out,
            filters=filters,
            mends=mending,
            held_out=held_out,
            languages=languages,
            command=shlex.join(["regard", *sys.argv[1:]]),
            progress=tell,
        )
    print_wide(lambda console: _show(result, console))


def _chosen(keep: Sequence[str], drop: Sequence[str], mends: bool) -> tuple[set[str], set[str]]:
    """The filters and the mends that the options ask for."""
    filters = {name for name, on in FILTERS.items() if on} | set(drop)
    mending = set(MENDS) if mends else set()
    for name in keep:
        if name in drop:
            raise ConfigError(f"--keep {name}", "the same name is given to --drop", "Give it once")
        if name not in FILTERS and name not in MENDS:
            filters.add(name)  # its error names the nearest
    return filters - (set(keep) & set(FILTERS)), mending - set(keep)


def _show(result: CleanResult, console: Console) -> None:
    read = f"{result.source_lines:,}"
    if result.target_lines != result.source_lines:
        read += f" and {result.target_lines:,}"
    kept = f"{result.kept:,} pairs kept of {read} lines, in {result.seconds:.1f} s"
    console.print(Text(kept, style="bold"))
    if 2 * result.kept < min(result.source_lines, result.target_lines):
        console.print(
            Text(
                "Warning: more than half of the text is dropped. `regard data check` on it says why.", style="bold red"
            )
        )
    for found in result.misaligned[:10]:
        console.print(Text(f"Out of step: source lines {found.begin + 1:,} to {found.end:,}{_repair(found.shift)}"))
    if len(result.misaligned) > 10:
        console.print(Text(f"… and {len(result.misaligned) - 10:,} more such stretches"))
    show_counts("Dropped", result.dropped, FINDINGS, console)
    show_counts("Mended (lines of either side)", result.mended, MENDS, console)
    folder = visible(str(result.folder), 500)
    names = " ".join(shlex.quote(visible(str(result.folder / name), 500)) for name in result.files)
    console.print(
        Text(f"Written to {folder}: {', '.join(result.files)}, dropped.tsv, changes.tsv, report.json"), soft_wrap=True
    )
    console.print(Text(f"Look at it again with: regard data check {names}"), soft_wrap=True)


def _repair(shift: int | None) -> str:
    if shift is None:
        return " fit nothing on the other side and are left out"
    lines = "1 line" if abs(shift) == 1 else f"{abs(shift):,} lines"
    return f" now go with the target {lines} further {'on' if shift > 0 else 'back'}"
