"""A corpus report for eyes: a head, small histograms, the findings as a table. Colour only where a terminal shows it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from regard.core.visible_text import visible
from regard.data.checks.histograms import Bars, length_bars, length_top, ratio_bars
from regard.data.checks.report import Finding, Report, Statistics

WIDEST = 100
STYLES = {"damage": "bold red", "warning": "yellow", "note": "cyan", "allowed": "magenta"}
BLOCKS = " ▁▂▃▄▅▆▇█"


def show_report(report: Report, console: Console, examples: int = 2) -> None:
    """The whole report: size and shape of the corpus, then what was found, and the verdict."""
    show_statistics(report, console)
    _show_findings(report, console, examples)
    console.print(_verdict(report))


def show_statistics(report: Report, console: Console) -> None:
    statistics = report.statistics
    console.print(Text(" and ".join(visible(name, 500) for name in report.files), style="bold"))
    console.print(f"{statistics.pairs:,} {_plural(statistics.pairs, 'pair')}, read in {report.seconds:.1f} s")
    console.print()
    console.print(_sizes(statistics))
    if statistics.pairs:
        console.print()
        console.print(_charts(statistics, min(console.width, WIDEST)))


def _sizes(statistics: Statistics) -> Table:
    table = Table("", "source", "target", box=None, pad_edge=False, padding=(0, 3, 0, 0))
    table.columns[1].justify = table.columns[2].justify = "right"
    for name in ("words", "characters", "vocabulary"):
        sides = [getattr(statistics, f"{side}_{name}") for side in ("source", "target")]
        table.add_row("different words" if name == "vocabulary" else name, *(f"{value:,}" for value in sides))
    table.add_row(
        "script", *(Text(visible(s or "none", 30)) for s in (statistics.source_script, statistics.target_script))
    )
    lengths = (statistics.source_lengths, statistics.target_lengths)
    table.add_row("middle length", *(f"{d.median:g}" for d in lengths))
    table.add_row("98 % of lines are", *(f"{d.percentile_1:g} to {d.percentile_99:g}" for d in lengths))
    table.add_row("longest", *(f"{d.most:,g}" for d in lengths))
    return table


def _charts(statistics: Statistics, width: int) -> RenderableType:
    """Histograms of lengths and ratios, side by side where there is room."""
    columns = 3 if width >= 78 else 1
    room = (width - 4 * (columns - 1)) // columns
    top = length_top(statistics.source_lengths, statistics.target_lengths)
    charts = [
        _chart("source lengths", length_bars(statistics.source_lengths, room, top), room),
        _chart("target lengths", length_bars(statistics.target_lengths, room, top), room),
        _chart("target over source", ratio_bars(statistics.ratios, room), room),
    ]
    grid = Table.grid(padding=(0, 4, 0, 0), pad_edge=False)
    for start in range(0, 3, columns):
        grid.add_row(*charts[start : start + columns])
    return grid


def _chart(title: str, bars: Bars, width: int, rows: int = 4) -> Text:
    """A histogram of block characters, `rows` high, with its axis below."""
    each = max(1, width // len(bars.heights))
    top = max(bars.heights) or 1.0
    lines = [title]
    for row in reversed(range(rows)):
        line = ""
        for height in bars.heights:
            eighths = height / top * rows * 8 - row * 8
            if height and row == 0:
                eighths = max(eighths, 1)  # a bar that is not empty is seen
            line += BLOCKS[min(max(round(eighths), 0), 8)] * each
        lines.append(line.rstrip())
    lines.append("─" * (each * len(bars.heights)))
    lines.append(_axis(bars, each * len(bars.heights)))
    return Text("\n".join(lines), no_wrap=True, overflow="crop")


def _axis(bars: Bars, width: int) -> str:
    line = ""
    for place, label in bars.ticks:
        column = min(round(place * width), width - len(label))
        if column >= len(line) + (1 if line else 0):
            line = line.ljust(column) + label
    return line


def _show_findings(report: Report, console: Console, examples: int) -> None:
    console.print()
    if not report.findings:
        return
    table = Table("finding", "what it is, and what to do", box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.columns[0].max_width, table.columns[0].overflow = 24, "fold"
    for i, finding in enumerate(report.findings):
        last = i == len(report.findings) - 1
        table.add_row(_label(finding), Padding(_explanation(finding, examples), (0, 0, 0 if last else 1, 0)))
    console.print(table, width=min(console.width, WIDEST))
    console.print()


def _label(finding: Finding) -> Text:
    kind = "allowed" if finding.allowed else finding.severity
    share = f" ({_percent(finding.share)})" if finding.share else ""
    return Text.assemble((kind, STYLES[kind]), "\n", (visible(finding.name, 40), "bold"), f"\n{finding.count:,}{share}")


def _explanation(finding: Finding, examples: int) -> RenderableType:
    parts: list[RenderableType] = [
        Text(visible(finding.what, 600), overflow="fold"),
        Text(f"To do: {visible(finding.todo, 600)}", overflow="fold"),
    ]
    shown = finding.examples[: 1 if finding.severity == "note" else examples]
    if shown:
        grid = Table.grid(padding=(0, 1, 0, 0))
        grid.add_column(justify="right", style="dim", no_wrap=True)
        grid.add_column(overflow="fold", style="dim")
        for example in shown:
            grid.add_row(Text(f"{example.line:,}:"), Text(visible(example.source, 90) or "(empty)"))
            grid.add_row("", Text(visible(example.target, 90) or "(empty)"))
        parts.append(Padding(grid, (0, 0, 0, 2)))
    return Group(*parts)


def _verdict(report: Report) -> Text:
    if report.refused:
        names = ", ".join(finding.name for finding in report.refused)
        return Text(f"damaged: {visible(names, 500)}", style=STYLES["damage"])
    allowed = [finding.name for finding in report.findings if finding.allowed and finding.severity == "damage"]
    if allowed:
        return Text(f"no other damage found (allowed: {visible(', '.join(allowed), 500)})", style="green")
    return Text("no damage found", style="green")


def show_counts(title: str, counts: Mapping[str, int], explained: Mapping[str, str], console: Console) -> None:
    """Names with numbers, the largest first, and what each name means."""
    if not counts:
        return
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 2), show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(overflow="fold", style="dim")
    for name, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        table.add_row(Text(name), f"{count:,}", Text(explained.get(name, "")))
    console.print(Text(title, style="bold"))
    console.print(table, width=min(console.width, WIDEST))


def show_names(explained: Mapping[str, tuple[str, str]], console: Console) -> None:
    """Findings: what `clean` does about each, and what it is."""
    table = Table("finding", "clean", "what it is", box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.columns[0].no_wrap = table.columns[1].no_wrap = True
    for name, (done, meaning) in explained.items():
        table.add_row(Text(name, style="bold"), Text(done, style="dim"), Text(meaning))
    console.print(table, width=min(console.width, WIDEST))


def _percent(share: float) -> str:
    percent = share * 100
    return f"{percent:.0f} %" if percent >= 9.5 else f"{percent:.1f} %" if percent >= 0.1 else "under 0.1 %"


def _plural(count: int, word: str, words: Sequence[str] = ()) -> str:
    return word if count == 1 else words[0] if words else word + "s"
