"""The report of a comparison as one page that needs nothing else: no script, no request, all text escaped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from regard import __version__
from regard.comparing.charts import NARROW, alignment_chart, curves_chart, lengths_chart, range_chart, swatch
from regard.comparing.differences import settings_table
from regard.comparing.page_style import STYLE
from regard.comparing.summary import BEST, Row, Summary, mean_curves
from regard.comparing.tables import (
    COST_COLUMNS,
    NOTHING,
    SYMBOLS,
    cost_cells,
    interval,
    score_cells,
    symbol,
    with_deviation,
)
from regard.comparing.words import about_curves, about_seeds, caveats, finding, in_words, methods, title, why
from regard.core.html_page import shown, whole_page


def page(summary: Summary) -> str:
    """The whole page."""
    name = title(summary.plan)
    numbers = {row.slug: number for number, row in enumerate(summary.rows)}
    body = [
        f'<header><h1>{escape(name)}</h1><p class="soft">{shown(about_seeds(summary), 1000)}. By regard '
        f"{escape(__version__)}.</p></header>",
        f'<p class="verdict">{shown(finding(summary), 20_000)}</p>',
        *(f'<p class="verdict warned">{shown(text, 20_000)}</p>' for text in summary.warnings),
        _scores(summary, numbers),
        _costs(summary.rows),
        _settings(summary),
        _lengths(summary, numbers),
        _curves(summary, numbers),
        _alignments(summary),
        _translations(summary),
        _failures(summary),
        _methods(summary),
        _commands(summary),
        "<footer><p>Everything on this page can be rebuilt from the folder it lies in: <code>regard compare --report "
        "DIR</code>.</p></footer>",
    ]
    return whole_page(name, STYLE, body)


def _scores(summary: Summary, numbers: Mapping[str, int]) -> str:
    known = [row for row in summary.rows if row.bleu_low is not None and row.bleu_high is not None]
    limits = min((row.bleu_low or 0 for row in known), default=0), max((row.bleu_high or 0 for row in known), default=1)
    rows = []
    for row in summary.rows:
        cells = score_cells(row)
        picture = ""
        if row.bleu is not None and row.bleu_low is not None and row.bleu_high is not None:
            seeds = [run.scores["bleu"].value for run in summary.of(row.slug)]
            picture = range_chart(
                numbers[row.slug], row.bleu, row.bleu_low, row.bleu_high, limits, seeds if len(seeds) > 1 else []
            )
        if row.bleu is None:
            rows.append(
                f'<tr>{_name(row, numbers)}<td colspan="5" data-name="BLEU">{NOTHING} {escape(in_words(row))}</td></tr>'
            )
            continue
        rows.append(
            f"<tr{_winner(row)}>{_name(row, numbers)}"
            f'<td class="number" data-name="BLEU"><strong>{escape(with_deviation(row.bleu, row.bleu_sd))}</strong></td>'
            f'<td class="nowrap" data-name="95 % interval"><div>{picture}'
            f'<span class="small soft">{escape(interval(row.bleu_low, row.bleu_high))}</span></div></td>'
            f'<td class="number" data-name="chrF"><div>{escape(cells[2])}<br>'
            f'<span class="small soft">{escape(cells[3])}</span></div></td>'
            f'<td class="alone" data-name="Against the best"><div>{_verdict(row, cells)}</div></td>'
            f'<td class="number" data-name="Perplexity">{escape(cells[8])}</td></tr>'
        )
    spread = "Mean ± standard deviation over seeds. " if any(row.bleu_sd is not None for row in summary.rows) else ""
    seen = "; thin lines are seeds" if spread else ""
    return (
        '<section><h2>Scores</h2><div class="tablebox"><table class="stack"><caption>'
        f"{spread}Brackets: 95 % interval over sentences. Pictures of intervals share one axis"
        f"{seen}. {SYMBOLS[BEST]}\N{NO-BREAK SPACE}best by BLEU.</caption><thead><tr>"
        '<th scope="col">System</th><th scope="col" class="number">BLEU</th><th scope="col">BLEU, 95 % interval</th>'
        '<th scope="col" class="number">chrF</th><th scope="col">Against the best</th>'
        f'<th scope="col" class="number">Perplexity</th></tr></thead><tbody>{"".join(rows)}</tbody></table></div></section>'
    )


def _winner(row: Row) -> str:
    return ' class="winner"' if row.verdict == BEST else ""


def _name(row: Row, numbers: Mapping[str, int] | None = None) -> str:
    picture = "" if numbers is None else swatch(numbers[row.slug])
    star = f" {SYMBOLS[BEST]}" if row.verdict == BEST else ""
    return f'<th scope="row" class="name">{picture}{_entry(row)}{star}</th>'


def _entry(row: Row) -> str:
    """The name of an entry; what makes it a variant is less bold."""
    if row.changes and row.entry.endswith(row.changes):
        return f'{shown(row.entry.removesuffix(row.changes))}<span class="changes">{shown(row.changes)}</span>'
    return shown(row.entry)


def _verdict(row: Row, cells: Sequence[str]) -> str:
    said = f"{symbol(row)} {escape(in_words(row))}"
    if row.bleu_p is None:
        return said
    seeds = f"<br>on {row.common_seeds} common seeds" if row.common_seeds != row.seeds else ""
    return (
        f'{said}<br><span class="small soft"><span class="nowrap">BLEU {escape(cells[4])}, p {_equals(cells[5])}</span><br>'
        f'<span class="nowrap">chrF {escape(cells[6])}, p {_equals(cells[7])}</span>{seeds}</span>'
    )


def _equals(p: str) -> str:
    return escape(p if p.startswith("<") else f"= {p}")


def _costs(rows: Sequence[Row]) -> str:
    header = "".join(f'<th scope="col" class="number">{name}</th>' for name in COST_COLUMNS)
    lines = ""
    for row in rows:
        cells = "".join(
            f'<td class="number" data-name="{name}">{escape(cell)}</td>'
            for name, cell in zip(COST_COLUMNS, cost_cells(row), strict=True)
        )
        lines += f"<tr{_winner(row)}>{_name(row)}{cells}</tr>"
    return (
        '<section><h2>Costs</h2><div class="tablebox"><table class="stack"><caption>Means over seeds. Tokens are the '
        "target's; a batch of decoding is in tokens.</caption><thead><tr>"
        f'<th scope="col">System</th>{header}</tr></thead><tbody>{lines}</tbody></table></div></section>'
    )


def _settings(summary: Summary) -> str:
    table = settings_table([summary.plan.entry(row.slug) for row in summary.rows])
    if table is None:
        return ""
    header = "".join(f'<th scope="col" class="value">{shown(name)}</th>' for name in table[0])
    lines = ""
    for name, *cells in table[1]:
        values = "".join(f'<td class="value">{shown(cell, 200)}</td>' for cell in cells)
        lines += f'<tr><th scope="row" class="name">{shown(name)}</th>{values}</tr>'
    return (
        '<section><h2>Settings that differ</h2><div class="tablebox"><table><caption>All others are the same for all systems '
        f"({NOTHING}: the model has no such setting).</caption><thead><tr>{header}</tr></thead><tbody>{lines}</tbody></table>"
        "</div></section>"
    )


def _legend(summary: Summary, numbers: Mapping[str, int], slugs: Sequence[str]) -> str:
    names = {row.slug: row.entry for row in summary.rows}
    items = "".join(f"<li>{swatch(numbers[slug])}{shown(names[slug])}</li>" for slug in slugs)
    return f'<ul class="legend">{items}</ul>'


def _ordered(summary: Summary, slugs: Mapping[str, object]) -> list[str]:
    return [row.slug for row in summary.rows if row.slug in slugs]


def _lengths(summary: Summary, numbers: Mapping[str, int]) -> str:
    lengths = {slug: summary.lengths[slug] for slug in _ordered(summary, summary.lengths)}
    if not lengths:
        return ""
    names = {row.slug: row.entry for row in summary.rows}
    bins = next(iter(lengths.values()))
    header = "".join(f'<th scope="col" class="number">{escape(part.label)}</th>' for part in bins)
    lines = ""
    for slug, parts in lengths.items():
        cells = "".join(
            f'<td class="number">{part.bleu.value:.1f} '
            f'<span class="soft small">{interval(part.bleu.low, part.bleu.high)}</span></td>'
            for part in parts
        )
        lines += f'<tr><th scope="row" class="name">{shown(names[slug])}</th>{cells}</tr>'
    return (
        "<section><h2>BLEU by sentence length</h2><figure><figcaption>The longer the sentence, the more a model must "
        f"remember{_legend(summary, numbers, list(lengths))}</figcaption>"
        f"{lengths_chart(lengths, numbers)}{lengths_chart(lengths, numbers, NARROW)}</figure>"
        '<details><summary>The same as a table</summary><div class="tablebox"><table><caption>BLEU by words in the source'
        f', with 95 % intervals</caption><thead><tr><th scope="col">System</th>{header}</tr></thead>'
        f"<tbody>{lines}</tbody></table></div></details></section>"
    )


def _curves(summary: Summary, numbers: Mapping[str, int]) -> str:
    curves, axis = mean_curves(summary)
    if not curves:
        return ""
    note = about_curves(summary)
    mean = ", mean over seeds" if any(row.seeds > 1 for row in summary.rows) else ""
    return (
        f"<section><h2>Training</h2><figure><figcaption>Validation loss{mean}{_legend(summary, numbers, list(curves))}"
        f"</figcaption>{curves_chart(curves, numbers, axis)}{curves_chart(curves, numbers, axis, NARROW)}"
        + (f'<p class="soft">{shown(note, 20_000)}</p>' if note else "")
        + "</figure></section>"
    )


def _alignments(summary: Summary) -> str:
    figures = []
    for row in summary.rows:
        runs = summary.of(row.slug)
        if runs:
            attention = runs[0].alignment
            picture = (
                '<p class="soft">It does not attend.</p>'
                if attention is None
                else alignment_chart(row.entry, attention)
            )
            figures.append(
                f'<figure><figcaption>{_entry(row)}</figcaption><div class="scroll">{picture}</div></figure>'
            )
    if not figures:
        return ""
    return (
        "<section><h2>Where each model looks</h2>"
        f'<p class="soft">One sentence, by the first seed of each. Across: <q dir="auto">{shown(summary.source, 2000)}</q> '
        "Down: what the model wrote. No colour is 0, full colour is 1.</p>"
        f'<div class="maps">{"".join(figures)}</div></section>'
    )


def _translations(summary: Summary) -> str:
    if not summary.translations:
        return ""
    texts = [("source", summary.source), ("reference", summary.reference)]
    lines = "".join(
        f'<tr><th scope="row" class="name soft">{name}</th><td dir="auto">{shown(text, 2000)}</td></tr>'
        for name, text in texts
    )
    for row in summary.rows:
        if row.slug in summary.translations:
            text = summary.translations[row.slug]
            cell = f'<td dir="auto">{shown(text, 2000)}</td>' if text.strip() else '<td class="soft">(empty)</td>'
            lines += f'<tr><th scope="row" class="name">{_entry(row)}</th>{cell}</tr>'
    return (
        '<section><h2>How each model translates it</h2><div class="tablebox"><table><thead><tr><th scope="col">System</th>'
        f'<th scope="col">Text</th></tr></thead><tbody>{lines}</tbody></table></div></section>'
    )


def _failures(summary: Summary) -> str:
    if not summary.failures:
        return ""
    cards = "".join(
        f'<article class="card failed"><h3>{shown(summary.plan.entry(failure.entry).name)}, seed {failure.seed}</h3>'
        f"<p>{shown(why(failure), 2000)}</p>"
        f"<details><summary>What it said last</summary><pre>{_lines(failure.details)}</pre></details></article>"
        for failure in summary.failures
    )
    return f'<section id="failures"><h2>Runs that failed</h2>{cards}</section>'


def _methods(summary: Summary) -> str:
    facts = "".join(f"<dt>{escape(name)}</dt><dd>{shown(text, 5000)}</dd>" for name, text in methods(summary))
    said = "".join(f"<p>{escape(text)}</p>" for text in caveats(summary))
    return f'<section><h2>How it was measured</h2>{said}<dl class="facts">{facts}</dl></section>'


def _commands(summary: Summary) -> str:
    made = "".join(
        f'<p class="soft">In <code>{shown(one["folder"], 4000)}</code>:</p><pre>{_lines(one["command"])}</pre>'
        for one in summary.plan.commands
        if one["command"]
    )
    runs = "\n".join(command for result in summary.results for command in result.commands)
    each = (
        f"<details><summary>The commands of all {len(summary.results)} runs</summary><p>To be given in the folder of the "
        f"comparison, in which this page lies.</p><pre>{_lines(runs)}</pre></details>"
    )
    return (
        f"<section><h2>Commands</h2>{made}"
        f'{each if runs else ""}<p class="soft">All settings of a system are in <code>recipes/</code>.</p></section>'
    )


def _lines(text: str) -> str:
    return "\n".join(shown(line, 4000) for line in text.split("\n"))
