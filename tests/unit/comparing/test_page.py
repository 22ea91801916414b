"""The report of a comparison: it stands alone, loads nothing, says what was found, and shows hostile text as text."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from comparisons import HOSTILE, plan_of, references, result_of, write_comparison

from regard.comparing.page import page
from regard.comparing.report import write_report
from regard.comparing.results import Alignment, Budget, write_plan, write_result
from regard.comparing.summary import summarise
from regard.core.errors import CheckpointError

VOID = {"meta", "rect", "line", "path", "circle", "br"}
TAGS = (
    "html head meta title style body main header h1 h2 h3 p section div dl dt dd figure figcaption span svg rect line path "
    "circle text table caption thead tbody tr th td article strong code footer ul li details summary pre q br"
)
KNOWN = set(TAGS.split())


class Reading(HTMLParser):
    """All elements and texts of a page; every element must be closed by its own end tag."""

    def __init__(self, text: str):
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append((self.open[-1] if self.open else "", data))

    def said(self) -> str:
        return " ".join(data for inside, data in self.texts if inside != "style")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four systems: two alike, one worse that does not attend, one that failed."""
    folder = tmp_path_factory.mktemp("comparison")
    rates = {"luong": 0.2, "heads": 0.21, "sutskever": 0.5, "lost": 0.1}
    names = {slug: slug for slug in rates} | {"heads": "transformer model.heads=1"}
    lost = [("lost", 1), ("lost", 2)]
    plan = plan_of(names, (1, 2))
    more = {"command": "regard compare demo --models sutskever --out ../compared", "folder": "/home/someone"}
    entries = [dataclasses.replace(e, values={"model": {"heads": 1 + (e.slug == "luong")}}) for e in plan.entries]
    changes = {"commands": (*plan.commands, more), "entries": tuple(entries)}
    write_comparison(
        folder, rates, names, (1, 2), failed=lost, blind=["sutskever"], reason="it ran out of memory", **changes
    )
    write_report(folder)
    return folder


def test_what_the_page_says(folder: Path):
    text = (folder / "report.html").read_text(encoding="utf-8")
    read = Reading(text)
    said = read.said()
    summary = summarise(folder)
    best = summary.rows[0].entry
    for part in (
        f"{best} is best with",
        "sutskever (",
        "is significantly worse",
        "lost has no result",
        "2 of 8 runs failed",
        "▼ significantly worse",
        "model.heads",  # of the settings that differ
        "/home/someone/work",
        "regard compare demo --models sutskever --out ../compared",
        "/home/someone",
        "To be given in the folder of the comparison",
        "Decoding sentences/s",
        "4,096",
        "validation, saving and waiting for batches included",
        "≈ not significantly different",
        "★ best",
        "It does not attend.",
        "it ran out of memory",
        "standard deviation over seeds",
        "nrefs:1|bs:1000|seed:12345|case:mixed|eff:no|tok:13a|smooth:exp|version:",
        "Linux x86_64, 2 cores",
        "regard compare demo --models luong,transformer --seeds 3 --out compared",
        "regard train recipes/luong.toml --out runs/luong/seed-2 train.seed=2",
        "d" * 64,
        "equal steps",
        summary.source,
        summary.translations["luong"],
    ):
        assert part.replace("bs:1000", "bs:100") in said or part in said, part
    headings = [data for inside, data in read.texts if inside == "h2"]
    assert headings == [
        *("Scores", "Costs", "Settings that differ", "BLEU by sentence length", "Training", "Where each model looks"),
        *("How each model translates it", "Runs that failed", "How it was measured", "Commands"),
    ]
    assert text.count('class="alignment') == 2  # the third does not attend
    for table in re.findall(r"<tbody>.*?</tbody>", text)[:2]:  # of scores and of costs: the best first
        names = re.findall(r'<th scope="row" class="name">(?:<svg.*?</svg>)?(.*?)</th>', table)
        assert [re.sub(r"<.*?>| ★", "", name) for name in names] == [row.entry for row in summary.rows]
        assert names[0].endswith("★")


def test_the_page_loads_nothing_and_runs_nothing(folder: Path):
    text = (folder / "report.html").read_text(encoding="utf-8")
    read = Reading(text)
    assert {tag for tag, _ in read.elements} <= KNOWN
    for tag, attributes in read.elements:
        assert not {name for name in attributes if name.startswith("on")} | (
            {"src", "style", "href"} & set(attributes)
        ), tag
    assert "url(" not in text
    assert "@import" not in text
    style = re.search(r"<style>(.*?)</style>", text, re.DOTALL)
    expected = base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode()
    policy = next(a["content"] for tag, a in read.elements if tag == "meta" and "http-equiv" in a)
    assert policy == f"default-src 'none'; style-src 'sha256-{expected}'; base-uri 'none'; form-action 'none'"
    assert text.index("http-equiv") < text.index("<style>")


def test_the_other_files(folder: Path):
    rows = json.loads((folder / "rows.json").read_text(encoding="utf-8"))
    assert rows == [row.to_plain() for row in summarise(folder).rows]
    assert (folder / "rows.csv").read_text(encoding="utf-8").count("\n") == 5
    text = (folder / "report.md").read_text(encoding="utf-8")
    pictures = re.findall(r"!\[[^\]]*\]\(([^)]*)\)", text)
    assert len(pictures) == 4  # lengths, curves, two alignments
    for picture in pictures:
        assert (folder / picture).read_bytes().startswith(b"\x89PNG")
    for part in (
        "sutskever does not attend.",
        "- lost, seed 1: it ran out of memory (exit code 1)",
        "## Commands\n\nIn /home/someone/work:\n\n```\nregard compare demo --models luong,transformer",
        "In /home/someone:\n\n```\nregard compare demo --models sutskever",
        "Each run, in the folder of the comparison",
        "## Settings that differ\n\n| System | model.heads |\n| --- | ---: |\n",
    ):
        assert part in text


def test_hostile_text_is_text(tmp_path: Path):
    names = {"a": f"{HOSTILE} model.x=1", "b": "b"}
    changes = {
        "recipe": HOSTILE,
        "commands": ({"command": f"regard {HOSTILE}\n```\n<b>", "folder": HOSTILE},),
        "machine": HOSTILE,
        "versions": {HOSTILE: HOSTILE},
    }
    values = ({"model": {HOSTILE: HOSTILE}}, {"model": {HOSTILE: [HOSTILE]}})
    entries = [dataclasses.replace(e, values=of) for e, of in zip(plan_of(names, (1,)).entries, values, strict=True)]
    changes["entries"] = tuple(entries)
    plan = write_comparison(tmp_path, {"a": 0.2, "b": 0.4}, names, (1, 2), failed=[("b", 2)], reason=HOSTILE, **changes)
    pieces = Alignment(source=("▁" + HOSTILE, "\ud7ff"), target=(HOSTILE,), weights=((0.5, 0.5),))
    texts = [HOSTILE] * 60
    write_result(tmp_path, result_of(plan, "a", 1, texts, references(), alignment=pieces, commands=(HOSTILE,)), texts)
    write_report(tmp_path)
    html = (tmp_path / "report.html").read_text(encoding="utf-8")
    read = Reading(html)
    assert {tag for tag, _ in read.elements} <= KNOWN
    assert not any(name.startswith("on") for _, attributes in read.elements for name in attributes)
    shown = "<script>alert(1)</script>\"'&amp; | `x` $\\n$ _%#~^{} ⟨U+202E⟩␛[31m"
    assert read.said().count(shown) >= 10
    for text in (html, (tmp_path / "report.md").read_text(encoding="utf-8")):
        assert "\x1b" not in text
        assert "\u202e" not in text
    markdown = (tmp_path / "report.md").read_text(encoding="utf-8")
    outside = re.sub(r"^(`{3,})\n.*?\n\1$", "", markdown, flags=re.DOTALL | re.MULTILINE)
    assert "<script" not in re.sub(r"\\<", "", outside)
    assert "```" not in outside  # a fence is longer than what it holds


def test_a_part_of_a_comparison_has_a_report(tmp_path: Path):
    write_plan(tmp_path, plan_of({"a": "a", "b": "b"}, (1,), recipe="", budget=Budget(kind="time", seconds=10.0)))
    write_report(tmp_path)
    said = Reading((tmp_path / "report.html").read_text(encoding="utf-8")).said()
    assert "No run has finished." in said
    assert "2 of 2 runs are still to do" in said
    write_comparison(tmp_path / "one", {"a": 0.3, "b": 0.2}, seeds=(1,), left=[("b", 1)])
    write_report(tmp_path / "one")
    said = Reading((tmp_path / "one" / "report.html").read_text(encoding="utf-8")).said()
    assert "Each entry was trained once." in said
    assert "b has no result" in said
    with pytest.raises(CheckpointError, match="it is no comparison"):
        write_report(tmp_path / "nothing")


def test_many_systems_can_be_told_apart(tmp_path: Path):
    rates = {f"m{i}": 0.1 + 0.02 * i for i in range(12)}
    write_comparison(tmp_path, rates, seeds=(1,), count=20)
    text = page(summarise(tmp_path))
    swatches = re.findall(r'<svg class="swatch".*?</svg>', text)
    assert len(swatches) == 3 * 12
    assert len(set(swatches)) == 12
    without_colour = {re.sub(r"\bs\d\b", "", swatch) for swatch in swatches}
    assert len(without_colour) == 12
