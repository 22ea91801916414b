"""The corpus page: it stands alone, loads nothing, and shows hostile text as text."""

from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser

from reports import HOSTILE, damaged_report, hostile_report, whole_report

from regard.cli.report_page import page, places_of

VOID = {"meta", "rect", "line", "path", "br"}


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

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append((self.open[-1] if self.open else "", data))

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]

    def text(self, tag: str) -> list[str]:
        return [data for inside, data in self.texts if inside == tag]


def test_the_page_loads_nothing_and_runs_nothing() -> None:
    for report in (damaged_report(), hostile_report(), whole_report()):
        text = page(report)
        read = Reading(text)
        known = {
            "html head meta title style body main header h1 h2 h3 p section dl div dt dd figure figcaption span svg rect",
            "line path text table caption thead tbody tr th td a article strong code footer",
        }
        assert {tag for tag, _ in read.elements} <= set(" ".join(known).split())
        for tag, attributes in read.elements:
            assert not {name for name in attributes if name.startswith("on")} | ({"src", "style"} & set(attributes)), (
                tag
            )
            assert (attributes.get("href") or "#").startswith("#")
        assert "url(" not in text
        assert "@import" not in text
        text.encode("utf-8")  # no half characters are left


def test_the_policy_allows_this_style_alone() -> None:
    text = page(damaged_report())
    style = re.search(r"<style>(.*?)</style>", text, re.DOTALL)
    assert style is not None
    expected = base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode()
    policy = next(meta["content"] for meta in Reading(text).all("meta") if "http-equiv" in meta)
    assert policy == f"default-src 'none'; style-src 'sha256-{expected}'; base-uri 'none'; form-action 'none'"
    assert text.index("http-equiv") < text.index("<style>")


def test_hostile_text_is_shown_as_text() -> None:
    read = Reading(page(hostile_report()))
    shown = "<script>alert(1)</script>\"'&amp;[bold red]x[/]␛[31m␀⟨U+202E⟩⟨U+200B⟩⟨E4⟩⟨U+D800⟩`"
    cells = read.text("td")
    assert shown in cells
    assert any(cell.endswith("…") and len(cell) < 1000 for cell in cells)  # the long one is cut
    assert f"{shown} and {shown}" in read.text("h1")
    assert all(character not in page(hostile_report()) for character in "\x1b\0\u202e\u200b")


def test_findings_charts_and_verdict_are_there() -> None:
    read = Reading(page(damaged_report()))
    assert any(text.startswith("Damaged: misaligned.") for text in read.text("p"))
    assert "regard data clean" in read.text("code")
    assert {"601", "603", "40.00 %", "under 0.01 %", "(empty)"} <= set(read.text("td"))
    assert len(read.all("svg")) == 2 + 2  # lengths, ratios, and where two findings are
    for svg in read.all("svg"):
        assert svg["role"] == "img"
    assert "duplicates: between 25% and 100% of the file" in read.text("title")
    links = {link["href"] for link in read.all("a")}
    assert links == {f"#{card['id']}" for card in read.all("article")}
    assert len(read.text("caption")) == len(read.all("table")) == 3
    assert read.text("h2") == ["Shape", "Findings", "In detail"]


def test_a_whole_corpus_is_said_to_be_whole() -> None:
    read = Reading(page(whole_report()))
    assert "No damage found." in read.text("p")
    assert read.all("article") == []


def test_places_come_from_the_check_or_else_from_the_examples() -> None:
    places = places_of(damaged_report(), parts=10)
    assert places["duplicates"] == [0, 3, 0, 1]
    assert places["null-characters"] == [1, 0, 0, 0, 0, 0, 0, 0, 1, 1]
    assert "misaligned" not in places  # it has more lines than examples
    assert "soft-hyphens" not in places


def test_hostile_text_is_what_the_tests_say() -> None:
    assert all(chr(code) in HOSTILE for code in (0, 0x1B, 0x200B, 0x202E, 0xD800, 0xDCE4))
