"""Reports made by hand, one of them with the most hostile text in every place."""

from __future__ import annotations

from regard.data.checks.report import Distribution, Example, Finding, Report, Statistics

HOSTILE = "<script>alert(1)</script>\"'&amp;[bold red]x[/]\x1b[31m\0\u202e\u200b\udce4\ud800`"


def lengths(most: float = 40) -> Distribution:
    edges = (0.0, 5.0, 10.0, 15.0, 20.0, 30.0, 1000.0)
    return Distribution(edges, (10, 200, 500, 200, 80, 10), 13.0, 12.0, 3.0, 31.0, 1.0, most)


def ratios() -> Distribution:
    return Distribution((0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 4.0), (1, 50, 400, 500, 48, 1), 1.0, 1.02, 0.6, 1.9, 0.3, 3.5)


def statistics(pairs: int = 1000, script: str = "Latin") -> Statistics:
    return Statistics(pairs, 13000, 12500, 70000, 76000, 4100, 5200, script, "Latin", lengths(), lengths(990), ratios())


def damaged_report() -> Report:
    findings = (
        Finding(
            "misaligned", "damage", 400, 0.4, "Line 601 is missing.", "Run `regard data clean`.",
            (Example(601, "One house.", "Zwei Bäume."), Example(602, "Two trees.", ""), Example(603, "x", "y")),
        ),
        Finding(
            "null-characters", "damage", 3, 0.003, "3 nulls.", "Remove them.",
            (Example(9, "a\0b", "c"), Example(850, "d", "e"), Example(1000, "f", "g")), True,
        ),
        Finding("duplicates", "warning", 20, 0.02, "20 pairs are there twice.", "Drop them."),
        Finding("soft-hyphens", "note", 1, 0.000001, "1 line.", "Nothing."),
    )  # fmt: skip
    return Report(("train.en", "train.de"), statistics(), findings, 1.25, {"places": {"duplicates": [0, 3, 0, 1]}})


def hostile_report() -> Report:
    example = Example(1, HOSTILE, HOSTILE * 500)
    finding = Finding(HOSTILE, "damage", 1, 0.5, HOSTILE, HOSTILE, (example,))
    return Report((HOSTILE, HOSTILE), statistics(script=HOSTILE), (finding,), 0.1)


def whole_report() -> Report:
    return Report(("pairs.tsv",), statistics(), (), 0.5)
