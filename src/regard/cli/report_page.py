"""A corpus report as one page that needs nothing else: no script, no request, all text of the corpus escaped."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from html import escape

from regard import __version__
from regard.cli.report_charts import lengths_chart, places_strip, ratios_chart
from regard.cli.visible_text import visible
from regard.data.checks.report import Example, Finding, Report, Statistics

KINDS = {"damage": "Damage", "warning": "Warning", "note": "Note", "allowed": "Allowed"}
STYLE = """
:root { color-scheme: light dark;
  --page: #f6f7f9; --card: #ffffff; --ink: #1c2430; --soft: #55606f; --line: #d9dee5; --track: #edf0f4;
  --source: #0060a0; --target: #c04a00; --ratio: #00704f; --damage: #b3261e; --warning: #8a5a00; --note: #00607a;
  --allowed: #7a3f9d; --good: #00704f; --on: #ffffff; }
@media (prefers-color-scheme: dark) { :root {
  --page: #12161c; --card: #1b212a; --ink: #e6eaf0; --soft: #a3aebc; --line: #333d4a; --track: #262e39;
  --source: #6db8f2; --target: #ff9a5c; --ratio: #5fd0a5; --damage: #ff8a80; --warning: #f0c060; --note: #6fcbe4;
  --allowed: #d3a4f0; --good: #5fd0a5; --on: #12161c; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif; }
main { max-width: 68rem; margin: 0 auto; padding: 1.5rem 1rem 3rem; }
h1 { font-size: 1.6rem; line-height: 1.25; margin: 0 0 .25rem; overflow-wrap: anywhere; }
h2 { font-size: 1.2rem; margin: 2.25rem 0 .75rem; }
h3 { font-size: 1.05rem; margin: 0; overflow-wrap: anywhere; }
p { margin: .4rem 0; overflow-wrap: anywhere; }
.soft { color: var(--soft); }
.verdict { margin: 1rem 0; padding: .7rem 1rem; border-radius: .5rem; font-weight: 600; background: var(--card);
  border: 1px solid var(--line); border-left: .4rem solid var(--good); }
.verdict.damaged { border-left-color: var(--damage); }
.numbers { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(15rem, 100%), 1fr)); gap: .75rem; margin: 0; }
.numbers div, .card, .tablebox, figure { background: var(--card); border: 1px solid var(--line); border-radius: .5rem; }
.numbers div { padding: .6rem .9rem; display: flex; flex-direction: column-reverse; }
.numbers dt { color: var(--soft); font-size: .85rem; }
.numbers dd { margin: 0; font-size: 1.3rem; font-variant-numeric: tabular-nums; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(26rem, 100%), 1fr)); gap: .75rem; }
figure { margin: 0; padding: .9rem 1rem; }
figure.wide { grid-column: 1 / -1; }
figcaption { font-weight: 600; margin-bottom: .4rem; }
.key { font-weight: 400; color: var(--soft); font-size: .9rem; margin-left: .6rem; white-space: nowrap; }
.key::before { content: ""; display: inline-block; width: .8em; height: .8em; margin-right: .35em; border-radius: .15em;
  background: currentColor; vertical-align: -.05em; }
.key.source::before { color: var(--source); } .key.target::before { color: var(--target); }
.chart { width: 100%; height: auto; display: block; }
.chart text { fill: var(--soft); font-size: 13px; font-family: inherit; }
.chart .grid { stroke: var(--line); stroke-width: 1; }
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
.tablebox { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; }
caption { text-align: left; padding: .7rem .9rem .3rem; color: var(--soft); font-size: .9rem; }
th, td { text-align: left; padding: .45rem .9rem; border-top: 1px solid var(--line); vertical-align: top; }
thead th { border-top: 0; color: var(--soft); font-weight: 600; font-size: .85rem; }
tbody th { font-weight: 600; }
.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.card { padding: 1rem; margin: .75rem 0; border-left-width: .4rem; }
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
a { color: var(--source); } code { font-size: .92em; overflow-wrap: anywhere; }
footer { margin-top: 2.5rem; color: var(--soft); font-size: .9rem; }
@media (max-width: 40rem) { main { padding: 1rem .75rem 2rem; } th, td { padding: .4rem .6rem; }
  .examples thead { position: absolute; clip-path: inset(50%); width: 1px; height: 1px; overflow: hidden; }
  .examples tr { display: block; padding: .4rem 0; border-top: 1px solid var(--line); }
  .examples td { display: block; width: auto; border: 0; padding: .1rem .6rem; text-align: start; }
  .examples td.number { width: auto; text-align: start; color: var(--soft); font-size: .85rem; }
  .examples td.number::before { content: "line "; } }
"""


def page(report: Report) -> str:
    """The report as HTML. Its policy lets a browser load nothing, whatever the text of the corpus says."""
    style = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{style}'; base-uri 'none'; form-action 'none'"
    title = " and ".join(_text(name, 300) for name in report.files)
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
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="referrer" content="no-referrer">\n'
        f"<title>{title} – corpus report</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(part for part in body if part)
        + "\n</main>\n</body>\n</html>\n"
    )


def _text(text: str, longest: int = 300) -> str:
    return escape(visible(text, longest), quote=True)


def _kind(finding: Finding) -> str:
    return "allowed" if finding.allowed else finding.severity


def _verdict(report: Report) -> str:
    if report.refused:
        names = ", ".join(_text(finding.name) for finding in report.refused)
        return f'<p class="verdict damaged">Damaged: {names}. Training refuses this corpus as it is.</p>'
    allowed = [finding for finding in report.findings if finding.allowed and finding.severity == "damage"]
    if allowed:
        names = ", ".join(_text(finding.name) for finding in allowed)
        return f'<p class="verdict">No other damage found. Allowed: {names}.</p>'
    return '<p class="verdict">No damage found.</p>'


def _numbers(statistics: Statistics) -> str:
    sides = "".join(
        f"<div><dt>{side} words, {different:,} different; {_text(script or 'no', 40)} script</dt><dd>{words:,}</dd></div>"
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
            f"<dt>{_text(name, 40)}</dt><dd>{places_strip(visible(name, 40), kinds[name], counts)}</dd>"
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
        f'<tr><th scope="row"><a href="#finding-{number}">{_text(finding.name)}</a></th>'
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
            f'<article class="card {kind}" id="finding-{number}"><div class="head"><h3>{_text(finding.name)}</h3>'
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
    return f'<td dir="auto">{_text(text)}</td>' if text.strip() else '<td class="soft">(empty)</td>'


def _with_code(text: str) -> str:
    """A sentence of a finding; what stands between backticks is a command."""
    parts = _text(text, 1000).split("`")
    if len(parts) % 2 == 0:  # a backtick of the corpus itself
        return "`".join(parts)
    return "".join(f"<code>{part}</code>" if i % 2 else part for i, part in enumerate(parts))


def _percent(share: float) -> str:
    return f"{share * 100:.2f} %" if not 0 < share < 0.0001 else "under 0.01 %"
