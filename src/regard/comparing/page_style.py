"""The style of the comparison page, and the colours of its lines."""

from __future__ import annotations

from regard.evaluation.series import COLOURS

DARK = (  # the same on black
    *("#6db8f2", "#ff9a5c", "#5fd0a5", "#f090c8", "#e0c050"),
    *("#b5a0ff", "#5fd3e0", "#ff8a80", "#b4bfcc", "#d9a07a"),
)
STYLE = (
    ":root { "
    + " ".join(f"--s{i}: {colour};" for i, colour in enumerate(COLOURS))
    + " }\n@media (prefers-color-scheme: dark) { :root { "
    + " ".join(f"--s{i}: {colour};" for i, colour in enumerate(DARK))
    + " } }\n"
    + "\n".join(f".s{i} {{ stroke: var(--s{i}); fill: var(--s{i}); }}" for i in range(len(COLOURS)))
    + """
.curve { fill: none; stroke-width: 2; stroke-linejoin: round; } .mark { stroke: var(--card); stroke-width: 1; }
.d1 { stroke-dasharray: 7 4; } .d2 { stroke-dasharray: 2 3; }
.range { fill: none; stroke-width: 1.4; stroke-opacity: .75; } .seed { stroke: var(--soft); stroke-width: 1; }
.chart .small { font-size: 12px; }
.scroll { overflow-x: auto; } .narrow { display: none; }
.swatch { width: 34px; height: 16px; vertical-align: -3px; margin-right: .4rem; }
.interval { width: 150px; height: 20px; display: block; } .interval .grid { stroke: var(--line); }
.interval .range { stroke-width: 7; stroke-opacity: .4; }
.legend { list-style: none; display: flex; flex-wrap: wrap; gap: .15rem 1.2rem; margin: .2rem 0 .6rem; padding: 0;
  font-weight: 400; font-size: .9rem; } .legend li { overflow-wrap: anywhere; }
.name { min-width: 9rem; overflow-wrap: anywhere; } .name .swatch { display: inline-block; }
.winner th, .winner td { background: var(--track); }
.small { font-size: .85rem; } .changes { font-weight: 400; } .nowrap { white-space: nowrap; }
.verdict + p { margin-top: -.3rem; } .warned { border-left-color: var(--warning); }
.alone { min-width: 13.5rem; } thead .number { white-space: normal; } .value { overflow-wrap: anywhere; min-width: 4.5rem; }
.maps { display: flex; flex-wrap: wrap; gap: .75rem; } .maps figure { max-width: 100%; flex: 0 1 auto; min-width: 12rem; }
.maps figcaption { max-width: 24rem; overflow-wrap: anywhere; }
.alignment { display: block; } .alignment text { fill: var(--ink); font-size: 13px;
  font-family: inherit; } .alignment.dense text { font-size: 11px; }
.alignment .sheet { fill: var(--track); } .alignment .cell { fill: var(--source); }
.facts { display: grid; grid-template-columns: max-content 1fr; gap: .3rem 1rem; margin: .75rem 0; }
.facts dt { color: var(--soft); } .facts dd { margin: 0; overflow-wrap: anywhere; }
pre { background: var(--card); border: 1px solid var(--line); border-radius: .5rem; padding: .7rem .9rem; margin: .5rem 0;
  overflow-x: auto; font-size: .85rem; line-height: 1.45; }
details { margin: .5rem 0; } details > summary { cursor: pointer; padding: .3rem 0; }
.failed { border-left-color: var(--damage); }
@media (max-width: 40rem) { .facts { grid-template-columns: 1fr; gap: 0; } .facts dd { margin-bottom: .5rem; }
  .chart.wide { display: none; } .chart.narrow { display: block; }
  .stack, .stack caption, .stack tbody { display: block; } .stack tr { display: block; padding: .5rem 0 .6rem;
    border-top: 1px solid var(--line); } .stack tr.winner { background: var(--track); }
  .stack thead { position: absolute; clip-path: inset(50%); width: 1px; height: 1px; overflow: hidden; }
  .stack th, .stack td { display: block; border: 0; padding: .1rem .8rem; text-align: start; min-width: 0; }
  .stack td { display: flex; gap: .8rem; } .stack td::before { content: attr(data-name); color: var(--soft);
    flex: 0 0 8.5rem; font-size: .85rem; font-weight: 400; white-space: normal; } }
"""
)
