"""A corpus report as one page that needs nothing else: no script, no request, all text of the corpus escaped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from regard import __version__
from regard.cli.report_charts import lengths_chart, places_strip, ratios_chart
from regard.core.html_page import shown, whole_page
from regard.core.visible_text import visible
from regard.data.checks.report import Example, Finding, Report, Statistics

KINDS = {"damage": "Damage", "warning": "Warning", "note": "Note", "allowed": "Allowed"}
STYLE = """
.verdict.damaged { border-left-color: var(--damage); }
.numbers { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(15rem, 100%), 1fr)); gap: .75rem; margin: 0; }
.numbers div { background: var(--card); border: 1px solid var(--line); border-radius: .5rem; padding: .6rem .9rem;
  display: flex; flex-direction: column-reverse; }
.numbers dt { color: var(--soft); font-size: .85rem; }
.numbers dd { margin: 0; font-size: 1.3rem; font-variant-numeric: tabular-nums; }
figure.wide { grid-column: 1 / -1; }
.key { font-weight: 400; color: var(--soft); font-size: .9rem; margin-left: .6rem; white-space: nowrap; }
.key::before { content: ""; display: inline-block; width: .8em; height: .8em; margin-right: .35em; border-radius: .15em;
  background: currentColor; vertical-align: -.05em; }
.key.source::before { color: var(--source); } .key.target::before { color: var(--target); }
.chart .area { stroke-width: 1.5; fill-opacity: .22; }
.chart .middle { stroke-width: 1.25; stroke-dasharray: 4 4; }
.chart .source { stroke: var(--source); fill: var(--source); }
.chart .target { stroke: var(--target); fill: var(--target); } .chart .area.target { fill: none; stroke-width: 2; }
.chart .ratio { stroke: var(--ratio); fill: var(--ratio); }
.places { display: grid; grid-template-columns: max-content 1fr; gap: .35rem .8rem; align-items: center; margin: 0; }
.places dt { font-size: .9rem; text-align: right; max-width: 38vw; overflow-wrap: anywhere; line-height: 1.2; }
.places dd { margin: 0; } .ends { display: flex; justify-content: space-between; font-size: .9rem; }
.strip { display: block; width: 100%; height: 1.15rem; background: var(--track); shape-rendering: crispEdges; }
.strip .damage { fill: var(--damage); } .strip .warning { fill: var(--warning); }
.strip .note { fill: var(--note); } .strip .allowed { fill: var(--allowed); }
.card.damage { border-left-color: var(--damage); } .card.warning { border-left-color: var(--warning); }
.card.note { border-left-color: var(--note); } .card.allowed { border-left-color: var(--allowed); }
.head { display: flex; flex-wrap: wrap; gap: .3rem .7rem; align-items: baseline; }
.badge { font-size: .75rem; font-weight: 700; letter-spacing: .03em; padding: .1rem .5rem; border-radius: 1rem;
  color: var(--on); background: var(--note); }
.badge.damage { background: var(--damage); } .badge.warning { background: var(--warning); }
.badge.allowed { background: var(--allowed); }
.examples { margin-top: .6rem; border: 1px solid var(--line); border-radius: .4rem; overflow-x: auto; }
.examples table { table-layout: fixed; } .examples td { overflow-wrap: anywhere; }
.examples .number { width: 7rem; }
.examples caption { padding-top: .4rem; }
@media (max-width: 40rem) {
  .examples thead { position: absolute; clip-path: inset(50%); width: 1px; height: 1px; overflow: hidden; }
  .examples tr { display: block; padding: .4rem 0; border-top: 1px solid var(--line); }
  .examples td { display: block; width: auto; border: 0; padding: .1rem .6rem; text-align: start; }
  .examples td.number { width: auto; text-align: start; color: var(--soft); font-size: .85rem; }
  .examples td.number::before { content: "line "; } }
"""


def page(report: Report) -> str:
    """The report as HTML. Its policy lets a browser load nothing, whatever the text of the corpus says."""
    title = " and ".join(shown(name, 300) for name in report.files)
    body = [
        f"<header><h1>{title}</h1>",
        f'<p class="soft">Corpus report by regard {escape(__version__)}, read in {report.seconds:.1f} s</p></header>',
        _verdict(report),
        _numbers(report.statistics),
        _charts(report),
        _summary(report.findings),
        _details(report.findings),
        "<footer><p>Lines count from 1. Characters that cannot be seen are named: ␀ is a null, ⟨E4⟩ a byte that is not "
        "UTF-8, ⟨U+200B⟩ the character with that code. Long lines are cut.</p></footer>",
    ]
    return whole_page(f"{' and '.join(visible(name, 300) for name in report.files)} – corpus report", STYLE, body)


def _kind(finding: Finding) -> str:
    return "allowed" if finding.allowed else finding.severity


def _verdict(report: Report) -> str:
    if report.refused:
        names = ", ".join(shown(finding.name) for finding in report.refused)
        return f'<p class="verdict damaged">Damaged: {names}. Training refuses this corpus as it is.</p>'
    allowed = [finding for finding in report.findings if finding.allowed and finding.severity == "damage"]
    if allowed:
        names = ", ".join(shown(finding.name) for finding in allowed)
        return f'<p class="verdict">No other damage found. Allowed: {names}.</p>'
    return '<p class="verdict">No damage found.</p>'


def _numbers(statistics: Statistics) -> str:
    sides = "".join(
        f"<div><dt>{side} words, {different:,} different; {shown(script or 'no', 40)} script</dt><dd>{words:,}</dd></div>"
        for side, words, different, script in (
            ("source", statistics.source_words, statistics.source_vocabulary, statistics.source_script),
            ("target", statistics.target_words, statistics.target_vocabulary, statistics.target_script),
        )
    )
    return (
        '<section aria-label="Size"><dl class="numbers">'
        f"<div><dt>pairs</dt><dd>{statistics.pairs:,}</dd></div>{sides}</dl></section>"
    )


def _charts(report: Report) -> str:
    statistics = report.statistics
    if not statistics.pairs:
        return ""
    figures = [
        '<figure><figcaption>Lengths <span class="key source">source</span> '
        f'<span class="key target">target</span></figcaption>{lengths_chart(statistics)}</figure>',
        f"<figure><figcaption>Length ratios</figcaption>{ratios_chart(statistics)}</figure>",
    ]
    places = places_of(report)
    if places:
        kinds = {finding.name: _kind(finding) for finding in report.findings}
        strips = "".join(
            f"<dt>{shown(name, 40)}</dt><dd>{places_strip(visible(name, 40), kinds[name], counts)}</dd>"
            for name, counts in places.items()
        )
        figures.append(
            '<figure class="wide"><figcaption>Where in the file</figcaption>'
            f'<dl class="places">{strips}<dt class="soft">line</dt>'
            f'<dd class="ends soft"><span>1</span><span>{statistics.pairs:,}</span></dd></dl></figure>'
        )
    return f'<section><h2>Shape</h2><div class="charts">{"".join(figures)}</div></section>'


def places_of(report: Report, parts: int = 200) -> dict[str, list[float]]:
    """For each finding how often it is in each part of the file, where the check has counted that or shows all lines."""
    known: Mapping[str, Sequence[float]] = report.extra.get("places", {})
    places: dict[str, list[float]] = {}
    for finding in report.findings:
        counts = list(known.get(finding.name, ()))
        if not counts and len(finding.examples) >= finding.count:
            counts = [0.0] * parts
            for example in finding.examples:
                part = (example.line - 1) * parts // max(report.statistics.pairs, 1)
                counts[min(max(part, 0), parts - 1)] += 1
        if any(counts):
            places[finding.name] = counts
    return places


def _summary(findings: Sequence[Finding]) -> str:
    if not findings:
        return "<section><h2>Findings</h2><p>None.</p></section>"
    rows = "".join(
        f'<tr><th scope="row"><a href="#finding-{number}">{shown(finding.name)}</a></th>'
        f'<td><span class="badge {_kind(finding)}">{KINDS[_kind(finding)]}</span></td>'
        f'<td class="number">{finding.count:,}</td><td class="number">{_percent(finding.share)}</td></tr>'
        for number, finding in enumerate(findings)
    )
    return (
        '<section><h2>Findings</h2><div class="tablebox"><table><caption>What was found, the worst first</caption>'
        '<thead><tr><th scope="col">Name</th><th scope="col">Kind</th><th scope="col" class="number">Lines</th>'
        f'<th scope="col" class="number">Share</th></tr></thead><tbody>{rows}</tbody></table></div></section>'
    )


def _details(findings: Sequence[Finding]) -> str:
    if not findings:
        return ""
    cards = []
    for number, finding in enumerate(findings):
        kind = _kind(finding)
        cards.append(
            f'<article class="card {kind}" id="finding-{number}"><div class="head"><h3>{shown(finding.name)}</h3>'
            f'<span class="badge {kind}">{KINDS[kind]}</span>'
            f'<span class="soft">{finding.count:,} ({_percent(finding.share)})</span></div>'
            f"<p>{_with_code(finding.what)}</p><p><strong>To do:</strong> {_with_code(finding.todo)}</p>"
            f"{_examples(finding.examples)}</article>"
        )
    return f"<section><h2>In detail</h2>{''.join(cards)}</section>"


def _examples(examples: Sequence[Example]) -> str:
    if not examples:
        return ""
    rows = "".join(
        f'<tr><td class="number">{example.line:,}</td>{_side(example.source)}{_side(example.target)}</tr>'
        for example in examples
    )
    return (
        '<div class="examples"><table><caption>Examples</caption><thead><tr><th scope="col" class="number">Line</th>'
        f'<th scope="col">Source</th><th scope="col">Target</th></tr></thead><tbody>{rows}</tbody></table></div>'
    )


def _side(text: str) -> str:
    return f'<td dir="auto">{shown(text)}</td>' if text.strip() else '<td class="soft">(empty)</td>'


def _with_code(text: str) -> str:
    """A sentence of a finding; what stands between backticks is a command."""
    parts = shown(text, 1000).split("`")
    if len(parts) % 2 == 0:  # a backtick of the corpus itself
        return "`".join(parts)
    return "".join(f"<code>{part}</code>" if i % 2 else part for i, part in enumerate(parts))


def _percent(share: float) -> str:
    return f"{share * 100:.2f} %" if not 0 < share < 0.0001 else "under 0.01 %"
