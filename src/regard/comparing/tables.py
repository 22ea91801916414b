"""The rows of a comparison as Markdown, LaTeX and CSV."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping, Sequence
from typing import Any

from regard.comparing.summary import BEST, BETTER, SAME, WORSE, Row
from regard.comparing.words import in_words
from regard.core.visible_text import visible

NOTHING = "–"
# Full triangles are for differences beyond the chance of training; of hollow ones that is not known, or not so.
SYMBOLS = {BEST: "★", WORSE: "▼", BETTER: "▲", SAME: "≈"}
_HOLLOW = {WORSE: "▽", BETTER: "△"}
_LATEX_SYMBOLS = {
    **{"★": r"$\star$", "▼": r"$\blacktriangledown$", "▲": r"$\blacktriangle$", "≈": r"$\approx$"},
    **{"▽": r"$\triangledown$", "△": r"$\vartriangle$", NOTHING: ""},
}
_LATEX = {
    **{character: f"\\{character}" for character in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\char34{}",
    "–": "--",
}
SCORE_COLUMNS = (
    "System",
    "BLEU",
    "95 %",
    "chrF",
    "95 %",
    "BLEU to the best",
    "p",
    "chrF to the best",
    "p",
    "Perplexity",
)
COST_COLUMNS = (
    "Seeds",
    "Parameters",
    "Steps",
    "Training time",
    "Training tokens/s",
    "Decoding tokens/s",
    "Decoding sentences/s",
    "Beam",
    "Decoding batch",
)


def to_markdown(rows: Sequence[Row]) -> str:
    """Two tables, as the report has them: scores, and costs."""
    scores = [[_marked(row), *(markdown_text(cell) for cell in score_cells(row))] for row in rows]
    costs = [[markdown_text(row.entry), *(markdown_text(cell) for cell in cost_cells(row))] for row in rows]
    return f"{markdown_table((*SCORE_COLUMNS, 'Against the best'), scores)}\n{markdown_table(('System', *COST_COLUMNS), costs)}"


def _marked(row: Row) -> str:
    name = markdown_text(row.entry)
    return f"**{name}** {SYMBOLS[BEST]}" if row.verdict == BEST else name


def score_cells(row: Row) -> list[str]:
    """A row of the table of scores behind its name, as plain text; the last is the verdict, by symbol and in words."""
    return [
        with_deviation(row.bleu, row.bleu_sd),
        interval(row.bleu_low, row.bleu_high),
        with_deviation(row.chrf, row.chrf_sd),
        interval(row.chrf_low, row.chrf_high),
        _signed(row.bleu_difference),
        p_value(row.bleu_p),
        _signed(row.chrf_difference),
        p_value(row.chrf_p),
        NOTHING if row.perplexity is None else f"{row.perplexity:.4g}",
        f"{symbol(row)} {in_words(row)}",
    ]


def symbol(row: Row) -> str:
    """The verdict of a row as one character."""
    return (SYMBOLS if row.beyond_chance else SYMBOLS | _HOLLOW).get(row.verdict, NOTHING)


def cost_cells(row: Row) -> list[str]:
    """A row of the table of costs behind its name, as plain text, in the order of `COST_COLUMNS`."""
    return [
        seeds(row),
        NOTHING if row.parameters is None else f"{row.parameters:,}",
        f"{row.steps:,}" if row.steps else NOTHING,
        duration(row.training_seconds),
        _rate(row.training_tokens_per_second),
        _rate(row.decoding_tokens_per_second),
        _rate(row.decoding_sentences_per_second),
        NOTHING if row.beam is None else str(row.beam),
        NOTHING if row.batch_tokens is None else f"{row.batch_tokens:,}",
    ]


def with_deviation(value: float | None, deviation: float | None) -> str:
    if value is None:
        return NOTHING
    return f"{value:.2f}" if deviation is None else f"{value:.2f} ± {deviation:.2f}"


def interval(low: float | None, high: float | None) -> str:
    return NOTHING if low is None or high is None else f"[{low:.1f}, {high:.1f}]"


def p_value(p: float | None) -> str:
    return NOTHING if p is None else "< 0.001" if p < 0.001 else f"{p:.3f}"


def seeds(row: Row) -> str:
    missing = [f"{count} {what}" for count, what in ((row.failed, "failed"), (row.left, "to do")) if count]
    return f"{row.seeds} ({', '.join(missing)})" if missing else str(row.seeds)


def duration(seconds: float | None) -> str:
    if seconds is None:
        return NOTHING
    if seconds < 100:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def _signed(value: float | None) -> str:
    return NOTHING if value is None else f"{value:+.2f}".replace("-", "−")


def _rate(value: float | None) -> str:
    return NOTHING if value is None else f"{value:,.0f}" if value >= 10 else f"{value:.1f}"


def markdown_table(header: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A table of cells that are Markdown already; all columns but the first and the last of words are to the right."""
    words = {0} | {i for i, name in enumerate(header) if name in ("Against the best", "Translation")}
    rule = ["---" if i in words else "---:" for i in range(len(header))]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in ([*header], rule, *lines))


def markdown_text(text: str, longest: int = 1000) -> str:
    """Text from outside that Markdown shows as it is, on one line."""
    return re.sub(r"([\\`*_{}\[\]<>|#~!&$])", r"\\\1", visible(text, longest))


def to_latex(rows: Sequence[Row]) -> str:
    """One table for a paper; it needs the packages booktabs and amssymb."""
    lines = []
    for row in rows:
        name = latex_text(row.entry)
        cells = [
            rf"\textbf{{{name}}}" if row.verdict == BEST else name,
            _latex_score(row.bleu, row.bleu_sd, row.bleu_low, row.bleu_high),
            _LATEX_SYMBOLS[symbol(row)],
            latex_text(p_value(row.bleu_p)),
            _latex_score(row.chrf, row.chrf_sd, row.chrf_low, row.chrf_high),
            latex_text(p_value(row.chrf_p)),
            *(latex_text(cell) for cell in (cost_cells(row)[i] for i in (0, 1, 4, 5))),
        ]
        lines.append("  " + " & ".join(cells) + r" \\")
    header = ("System", "BLEU", "", "$p$", "chrF", "$p$", "seeds", "parameters", "training", "decoding")
    return "\n".join(
        [
            "% needs \\usepackage{booktabs} and \\usepackage{amssymb}; training and decoding are in tokens per second.",
            "% Star: best by BLEU. Triangles: p < 0.05 against the best, by paired bootstrap and approximate randomisation,",
            "% corrected by Holm. Down: worse; up: better on the seeds that both have. Full: also beyond the chance of",
            "% training (twice the standard error over seeds); hollow: on this test text only: within that chance, or one",
            "% seed. Wave: not significantly different. Brackets: 95 % interval over sentences. Plus-minus: over seeds.",
            r"\begin{tabular}{lrcrrrrrrr}",
            r"  \toprule",
            "  " + " & ".join(header) + r" \\",
            r"  \midrule",
            *lines,
            r"  \bottomrule",
            r"\end{tabular}",
            "",
        ]
    )


def _latex_score(value: float | None, deviation: float | None, low: float | None, high: float | None) -> str:
    if value is None:
        return "--"
    spread = "" if deviation is None else rf" \pm {deviation:.2f}"
    around = "" if low is None or high is None else rf"\;[{low:.1f}, {high:.1f}]"
    return f"${value:.2f}{spread}{around}$"


def latex_text(text: str) -> str:
    """Text from outside that LaTeX sets as it is."""
    return "".join(_LATEX.get(character, character) for character in visible(text, 1000))


def to_csv(rows: Sequence[Row | Mapping[str, Any]]) -> str:
    """All columns, a line for each row; what is not known is empty."""
    plain = [row.to_plain() if isinstance(row, Row) else dict(row) for row in rows]
    names = list(dict.fromkeys(name for row in plain for name in row))
    file = io.StringIO(newline="")
    writer = csv.DictWriter(file, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(plain)
    return file.getvalue()
