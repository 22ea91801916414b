"""Pages that need nothing else: no script, no request, one style, light and dark, all text from outside escaped."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from html import escape

from regard.core.visible_text import visible

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
.card, .tablebox, figure { background: var(--card); border: 1px solid var(--line); border-radius: .5rem; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(26rem, 100%), 1fr)); gap: .75rem; }
figure { margin: 0; padding: .9rem 1rem; }
figcaption { font-weight: 600; margin-bottom: .4rem; }
.chart { width: 100%; height: auto; display: block; }
.chart text { fill: var(--soft); font-size: 13px; font-family: inherit; }
.chart .grid { stroke: var(--line); stroke-width: 1; }
.tablebox { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; }
caption { text-align: left; padding: .7rem .9rem .3rem; color: var(--soft); font-size: .9rem; }
th, td { text-align: left; padding: .45rem .9rem; border-top: 1px solid var(--line); vertical-align: top; }
thead th { border-top: 0; color: var(--soft); font-weight: 600; font-size: .85rem; }
tbody th { font-weight: 600; }
.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.card { padding: 1rem; margin: .75rem 0; border-left-width: .4rem; }
a { color: var(--source); } code { font-size: .92em; overflow-wrap: anywhere; }
footer { margin-top: 2.5rem; color: var(--soft); font-size: .9rem; }
@media (max-width: 40rem) { main { padding: 1rem .75rem 2rem; } th, td { padding: .4rem .6rem; } }
"""


def whole_page(title: str, style: str, body: Sequence[str]) -> str:
    """A page of parts that are HTML already. Its policy lets a browser load nothing, whatever the parts say.

    `style` comes after the style of all pages. Pictures are SVG inside the page, without style attributes, which the
    policy forbids.
    """
    style = STYLE + style
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="referrer" content="no-referrer">\n'
        f"<title>{shown(title, 700)}</title>\n<style>{style}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(part for part in body if part)
        + "\n</main>\n</body>\n</html>\n"
    )


def shown(text: str, longest: int = 300) -> str:
    """Text from outside as HTML: escaped, on one line, cut where it is long, nothing in it hidden."""
    return escape(visible(text, longest), quote=True)
