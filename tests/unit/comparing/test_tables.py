"""Rows as Markdown, LaTeX and CSV: the right numbers, and text that stays text."""

from __future__ import annotations

import csv
import io
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from comparisons import HOSTILE, write_comparison

from regard.comparing.summary import Row, summarise
from regard.comparing.tables import (
    COST_COLUMNS,
    cost_cells,
    duration,
    latex_text,
    markdown_text,
    p_value,
    score_cells,
    to_csv,
    to_latex,
    to_markdown,
)


def row(**changes) -> Row:
    values = {
        "entry": "luong", "slug": "luong", "model": "luong", "changes": "", "seeds": 2, "failed": 0, "left": 0,
        "steps": 1000, "verdict": "worse", "bleu": 31.234, "bleu_sd": 0.456, "bleu_low": 29.96, "bleu_high": 32.04,
        "chrf": 51.0, "chrf_sd": 0.1, "chrf_low": 50.04, "chrf_high": 52.0, "common_seeds": 2, "bleu_difference": -1.5,
        "bleu_p": 0.0204, "chrf_difference": 0.25, "chrf_p": 0.0001, "perplexity": 4.5678, "parameters": 1234567,
        "training_seconds": 75.04, "training_tokens_per_second": 12345.6, "decoding_tokens_per_second": 890.4,
        "decoding_sentences_per_second": 9.87, "beam": 5, "batch_tokens": 4096, "beyond_chance": True,
    }  # fmt: skip
    return Row(**(values | changes))


def test_cells():
    assert score_cells(row()) == [
        *("31.23 ± 0.46", "[30.0, 32.0]", "51.00 ± 0.10", "[50.0, 52.0]"),
        *("−1.50", "0.020", "+0.25", "< 0.001", "4.568", "▼ significantly worse"),
    ]
    assert cost_cells(row(failed=1, left=2)) == [
        *("2 (1 failed, 2 to do)", "1,234,567", "1,000", "75.0 s", "12,346", "890", "9.9", "5", "4,096"),
    ]
    assert len(cost_cells(row())) == len(COST_COLUMNS)
    assert score_cells(row(beyond_chance=False))[-1] == "▽ worse on this test text; within the chance of training"
    unknown = row(verdict="better", beyond_chance=None)
    assert score_cells(unknown)[-1] == "△ better on this test text; not known beyond the chance of training"
    best = row(verdict="best", bleu_sd=None, bleu_difference=None, bleu_p=None)
    assert score_cells(best)[0] == "31.23"
    assert score_cells(best)[4:6] == ["–", "–"]
    assert score_cells(best)[-1] == "★ best"


def test_numbers_in_words():
    assert [duration(s) for s in (None, 0.04, 99.94, 100, 3599.4, 3600, 7380)] == [
        *("–", "0.0 s", "99.9 s", "1 min 40 s", "59 min 59 s", "1 h 0 min", "2 h 3 min"),
    ]
    assert [p_value(p) for p in (None, 1.0, 0.05, 0.0012, 0.00099)] == ["–", "1.000", "0.050", "0.001", "< 0.001"]


def test_markdown_is_a_table_whatever_the_names():
    text = to_markdown([row(entry=HOSTILE, verdict="best"), row(entry="luong model.tie_all=true")])
    scores, costs = text.split("\n\n")
    for table, columns in ((scores, 11), (costs, 10)):
        lines = table.strip().splitlines()
        assert len(lines) == 4  # a header, a rule and two rows
        for line in lines:
            assert len(re.split(r"(?<!\\)\|", line)) == columns + 2
    assert r"luong model.tie\_all=true" in text
    assert r"\<script\>alert(1)\</script\>" in text
    assert "\x1b" not in text
    assert "★" in scores.splitlines()[2]


def test_markdown_text():
    assert markdown_text("a_b*c|d\n![x](y) `<b>` &amp;") == r"a\_b\*c\|d" + "␊" + r"\!\[x\](y) \`\<b\>\` \&amp;"


def test_latex_escapes():
    assert latex_text(r"50% of a_b & #1 {x} $y$ ~^\z") == (
        r"50\% of a\_b \& \#1 \{x\} \$y\$ \textasciitilde{}\textasciicircum{}\textbackslash{}z"
    )
    text = to_latex([row(entry="a_b & 50%", verdict="best", bleu_p=None), row(bleu=None, chrf=None)])
    assert r"\textbf{a\_b \& 50\%} & $31.23 \pm 0.46\;[30.0, 32.0]$ & $\star$ & -- &" in text
    for said in ("Star", "Triangles", "Down", "up", "Full", "hollow", "Wave", "Brackets", "Plus-minus"):
        assert said in text.split(r"\begin")[0]
    for verdict, beyond, symbol in (
        ("worse", True, "blacktriangledown"),
        ("worse", False, "triangledown"),
        ("better", True, "blacktriangle"),
        ("better", None, "vartriangle"),
        ("not different", None, "approx"),
        ("no result", None, ""),
    ):
        line = to_latex([row(verdict=verdict, beyond_chance=beyond)]).split(r"\midrule")[1]
        assert line.split("&")[2].strip() == (f"$\\{symbol}$" if symbol else "")
    body = text.split(r"\midrule")[1].split(r"\bottomrule")[0]
    columns = re.search(r"begin\{tabular\}\{(\w+)\}", text)[1]
    for line in body.strip().splitlines():
        assert len(re.split(r"(?<!\\)&", line)) == len(columns)
        assert line.endswith(r"\\")


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="there is no LaTeX")
def test_latex_compiles(tmp_path: Path):
    table = to_latex(
        [row(entry=r"a_b & 50% #{$~^\<>|"), row(verdict="best"), row(beyond_chance=None), row(verdict="better")]
    )
    (tmp_path / "t.tex").write_text(
        "\\documentclass{article}\\usepackage{booktabs,amssymb}\\begin{document}" + table + "\\end{document}"
    )
    subprocess.run(["pdflatex", "-halt-on-error", "t.tex"], cwd=tmp_path, check=True, capture_output=True)


def test_csv_reads_back():
    name = 'a_b, "50%" & \\ x'
    text = to_csv([row(entry=name, bleu_sd=None), row()])
    first, second = csv.DictReader(io.StringIO(text))
    assert first["entry"] == name
    assert first["bleu_sd"] == ""
    assert float(second["bleu"]) == 31.234
    assert list(first) == list(row().to_plain())
    assert to_csv([{"seed": 1}, {"seed": 2, "bleu": 3.5}]) == "seed,bleu\n1,\n2,3.5\n"


def test_rows_of_a_comparison(tmp_path: Path):
    write_comparison(tmp_path, {"a": 0.2, "b": 0.4}, seeds=(1, 2))
    summary = summarise(tmp_path)
    read = list(csv.DictReader(io.StringIO(to_csv(summary.rows))))
    assert [line["verdict"] for line in read] == ["best", "worse"]
    assert float(read[0]["bleu"]) == pytest.approx(summary.rows[0].bleu)
    assert len(list(csv.DictReader(io.StringIO(to_csv(summary.runs()))))) == 4
