"""The corpus report in a terminal and in a pipe: readable at 80 columns, safe whatever the text is."""

from __future__ import annotations

import io

import pytest
from reports import damaged_report, hostile_report, lengths, ratios, statistics, whole_report
from rich.cells import cell_len
from rich.console import Console

from regard.cli.report_terminal import show_report
from regard.core.visible_text import visible
from regard.data.checks.histograms import length_bars, length_top, ratio_bars
from regard.data.checks.report import Distribution, Example, Finding, Report


def shown(report: Report, width: int = 80, terminal: bool = False) -> str:
    text = io.StringIO()
    colours = "standard" if terminal else "auto"
    console = Console(file=text, width=width, force_terminal=terminal, highlight=False, color_system=colours)
    show_report(report, console)
    return text.getvalue()


@pytest.mark.parametrize("width", [40, 80, 200])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    for report in (damaged_report(), hostile_report(), whole_report()):
        assert max(cell_len(line) for line in shown(report, width).splitlines()) <= width


def test_what_the_report_says() -> None:
    text = shown(damaged_report())
    for part in (
        "train.en and train.de", "1,000 pairs, read in 1.2 s", "13,000", "Latin", "misaligned", "400 (40 %)",
        "Line 601 is missing.", "To do: Run `regard data clean`.", "601: One house.", "Zwei Bäume.", "(empty)",
        "a␀b", "allowed", "under 0.1 %", "damaged: misaligned",
    ):  # fmt: skip
        assert part in text, part
    assert "603:" not in text  # two examples are enough here
    assert text.index("misaligned") < text.index("duplicates") < text.index("soft-hyphens")
    assert text.rstrip().endswith("damaged: misaligned")
    assert shown(whole_report()).rstrip().endswith("no damage found")


def test_allowed_damage_is_no_damage() -> None:
    report = damaged_report()
    report = Report(report.files, report.statistics, report.findings[1:], 1.0)
    assert shown(report).rstrip().endswith("no other damage found (allowed: null-characters)")


def test_colour_only_in_a_terminal() -> None:
    assert "\x1b" not in shown(damaged_report())
    assert "\x1b[" in shown(damaged_report(), terminal=True)


def test_hostile_text_moves_nothing_and_is_no_markup() -> None:
    text = shown(hostile_report(), width=1000)
    assert not {c for c in text if ord(c) < 32} - {"\n"}
    assert "[bold red]x[/]␛[31m␀⟨U+202E⟩⟨U+200B⟩⟨E4⟩⟨U+D800⟩" in text


def test_nothing_of_a_report_is_markup() -> None:
    parts = {name: f"[red]{name}[/]" for name in ("file", "script", "name", "what", "todo", "source", "target")}
    example = Example(1, parts["source"], parts["target"])
    finding = Finding(parts["name"], "damage", 1, 0.5, parts["what"], parts["todo"], (example,))
    text = shown(Report((parts["file"],), statistics(script=parts["script"]), (finding,), 0.1))
    for name, part in parts.items():
        assert part in text, name
    assert f"damaged: {parts['name']}" in text


def test_visible_text_is_cut_and_named() -> None:
    assert visible("a\tb\n\x7f\xa0c") == "a␉b␊␡⟨U+00A0⟩c"
    assert visible("x" * 200, 10) == "x" * 10 + "…"
    assert visible("x" * 10, 10) == "x" * 10
    assert visible("e" + "\u0301" * 300, 500) == "e" + "\u0301" * 4
    assert visible("می\u200cخواهم") == "می\u200cخواهم"


def test_bars_hold_all_lines() -> None:
    for bars in (length_bars(lengths(), 20), length_bars(lengths(990), 64), ratio_bars(ratios(), 24)):
        assert sum(bars.heights) == pytest.approx(1000)
        assert all(0 <= place <= 1 for place, _ in bars.ticks)


def test_the_last_bar_has_what_is_longer_and_bars_are_whole_words() -> None:
    top = length_top(lengths(990))
    assert top == 33  # past 99 % of the lines
    bars = length_bars(lengths(990), 20, top)
    assert (bars.low, bars.high) == (0, 34)  # 2 words each
    assert len(bars.heights) == 17
    assert bars.heights[0] == pytest.approx(4)  # 10 lines of 0 to 5 words, spread evenly
    assert bars.heights[-1] == pytest.approx(10 * (1000 - 32) / 970)  # with all that are longer than 34


def test_ratios_are_on_a_logarithmic_axis() -> None:
    bars = ratio_bars(ratios(), 24)
    assert (bars.low, bars.high) == (-1, 2)
    assert [label for _, label in bars.ticks] == ["1/2", "1", "2", "4"]
    assert bars.heights[0] > 1  # those below the axis are in the first bar


def test_a_distribution_at_one_value_can_be_drawn() -> None:
    one = Distribution((3.0, 3.0), (7,), 3.0, 3.0, 3.0, 3.0, 3.0, 3.0)
    assert sum(length_bars(one, 20).heights) == 7
    nothing = Distribution((0.0, 1.0), (0,), 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    assert sum(ratio_bars(nothing, 20).heights) == 0
