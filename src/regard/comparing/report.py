"""Writes the report of a comparison: a page, the same as Markdown with pictures, and its rows as CSV and JSON."""

from __future__ import annotations

from pathlib import Path

from regard import __version__
from regard.comparing.differences import settings_table
from regard.comparing.page import page
from regard.comparing.pictures import write_pictures
from regard.comparing.summary import Summary, summarise
from regard.comparing.tables import markdown_table, markdown_text, to_csv, to_markdown
from regard.comparing.words import about_curves, about_seeds, caveats, finding, methods, title, why
from regard.core.errors import DataError
from regard.core.files import write_bytes, write_json
from regard.core.visible_text import visible

HTML, MARKDOWN, CSV, JSON = "report.html", "report.md", "rows.csv", "rows.json"


def write_report(folder: str | Path) -> Summary:
    """Writes the report of what is finished in the folder of a comparison, and gives what it says."""
    folder = Path(folder)
    summary = summarise(folder)
    try:
        write_bytes(folder / CSV, to_csv(summary.rows).encode())
        write_json(folder / JSON, [row.to_plain() for row in summary.rows])
        write_bytes(folder / HTML, page(summary).encode())
        write_bytes(folder / MARKDOWN, markdown(summary, write_pictures(folder, summary)).encode())
    except OSError as error:
        raise DataError(folder, f"the report cannot be written ({error.strerror})", "Check its permissions") from None
    return summary


def markdown(summary: Summary, pictures: dict[str, str]) -> str:
    """The report as Markdown; `pictures` are files by name, as `write_pictures` gives them."""
    plan = summary.plan
    parts = [
        f"# {markdown_text(title(plan))}",
        f"{markdown_text(about_seeds(summary))}. By regard {__version__}.",
        f"**{markdown_text(finding(summary), 20_000)}**",
        *(f"> {markdown_text(text, 20_000)}" for text in summary.warnings),
        "## Scores and costs",
        to_markdown(summary.rows).rstrip("\n"),
        "BLEU and chrF: mean ± standard deviation over seeds. 95 %: interval over sentences. Tokens are the target's; a batch "
        "of decoding is in tokens.",
    ]
    settings = settings_table([plan.entry(row.slug) for row in summary.rows])
    if settings is not None:
        lines = [[markdown_text(cell, 200) for cell in line] for line in (settings[0], *settings[1])]
        parts += ["## Settings that differ", markdown_table(lines[0], lines[1:]).rstrip("\n")]
    if "lengths" in pictures:
        parts += ["## BLEU by sentence length", f"![BLEU by sentence length]({pictures['lengths']})"]
    if "curves" in pictures:
        parts += ["## Training", f"![Validation loss over training]({pictures['curves']})"]
        parts += [markdown_text(note, 20_000)] if (note := about_curves(summary)) else []
    if summary.translations:
        parts += ["## One sentence", _sentence(summary), *_alignments(summary, pictures)]
    if summary.failures:
        parts += ["## Runs that failed", _failures(summary)]
    parts += [
        "## How it was measured",
        *caveats(summary),
        "\n".join(f"- {name}: {markdown_text(text, 5000)}" for name, text in methods(summary)),
        "## Commands",
        *(
            f"In {markdown_text(one['folder'], 4000)}:\n\n{_code([one['command']])}"
            for one in plan.commands
            if one["command"]
        ),
    ]
    commands = [command for result in summary.results for command in result.commands]
    if commands:
        parts += ["Each run, in the folder of the comparison, in which this file lies:", _code(commands)]
    return "\n\n".join(parts) + "\n"


def _sentence(summary: Summary) -> str:
    lines = [["source", summary.source], ["reference", summary.reference]]
    lines += [[row.entry, summary.translations[row.slug]] for row in summary.rows if row.slug in summary.translations]
    table = markdown_table(("System", "Translation"), [[markdown_text(cell, 2000) for cell in line] for line in lines])
    return table.rstrip("\n")


def _alignments(summary: Summary, pictures: dict[str, str]) -> list[str]:
    parts = []
    for row in summary.rows:
        name = markdown_text(row.entry)
        picture = pictures.get(f"alignment-{row.slug}")
        if picture is not None:
            parts.append(f"![Attention of {name}]({picture})")
        elif row.slug in summary.translations:
            parts.append(f"{name} does not attend.")
    return parts


def _failures(summary: Summary) -> str:
    return "\n".join(
        f"- {markdown_text(summary.plan.entry(failure.entry).name)}, seed {failure.seed}: "
        f"{markdown_text(why(failure), 2000)}"
        for failure in summary.failures
    )


def _code(commands: list[str]) -> str:
    """A block of commands; its fence is longer than any row of backticks in it."""
    text = "\n".join(visible(line, 4000) for command in commands for line in command.split("\n"))
    fence = "`" * 3
    while fence in text:
        fence += "`"
    return f"{fence}\n{text}\n{fence}"
