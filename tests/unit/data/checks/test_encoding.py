"""Damage by encodings: each kind in one line of several, and what looks like it but is whole."""

from __future__ import annotations

import pytest

from regard.data.checks.block import Block
from regard.data.checks.encoding import encoding_flags, mojibake_lines

CLEAN = ["The weather is fine.", "Schöne Grüße aus Köln!", "Ça va très bien, merci.", "Łódź, žluťoučký kůň", ""]


def _found(line: str, script: str = "Latin") -> set[str]:
    """The findings of one line among clean ones, which must have none."""
    flags = encoding_flags(Block([*CLEAN, line, *CLEAN]), script)
    for mask in flags.values():
        assert mask.tolist() == [False] * 5 + [True] + [False] * 5
    return set(flags)


def test_clean_lines_have_no_flags():
    assert encoding_flags(Block(CLEAN), "Latin") == {}
    assert encoding_flags(Block([]), "Latin") == {}


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("null\0 here", {"null-characters"}),
        (b"caf\xe9 au lait".decode("utf-8", "surrogateescape"), {"not-utf8"}),
        ("the first byte \udc80", {"not-utf8"}),
        ("half \ud83d of a pair", {"lone-surrogates"}),
        ("half " + chr(0xDD00), {"lone-surrogates"}),
        (b"CESU \xed\xa0\xbd\xed\xb8\x80".decode("utf-8", "surrogateescape"), {"lone-surrogates"}),
        (b"both \xed\xa0\xbd and \xff".decode("utf-8", "surrogateescape"), {"lone-surrogates", "not-utf8"}),
        ("lost \ufffd character", {"replacement-characters"}),
        ("joined\ufefffiles", {"byte-order-marks"}),
        ("Windows line\r", {"crlf"}),
        ("return \r in the middle", {"control-characters"}),
        ("both \r and\r", {"control-characters", "crlf"}),
        ("a\x0cform feed", {"line-separators"}),
        ("next\x85line", {"line-separators"}),
        ("line\u2028separator", {"line-separators"}),
        ("bell \x07 rings", {"control-characters"}),
        ("delete \x7f", {"control-characters"}),
        ("private \ue123", {"control-characters"}),
        ("no character \ufffe", {"control-characters"}),
        ("zero\u200bwidth", {"invisible-characters"}),
        ("word\u2060joiner", {"invisible-characters"}),
        ("joi\u200dned", {"invisible-characters"}),
        ("left\u200e to right", {"invisible-characters"}),
        ("hidden \u202e direction", {"invisible-characters"}),
        ("soft\u00adhyphen", {"soft-hyphens"}),
        ("no\u00a0break", {"special-spaces"}),
        ("narrow\u202fspace", {"special-spaces"}),
        ("tab\tis fine", set()),
        ("wide\u3000space", set()),
    ],
)
def test_each_kind_is_found_in_its_line_only(line, names):
    assert _found(line) == names


@pytest.mark.parametrize(
    ("line", "script"),
    [
        ("می\u200cخواهم", "Arabic"),  # Persian is written with the non-joiner
        ("क्\u200dष", "Devanagari"),
        ("ไทย\u200bแลนด์", "Thai"),
        ("\u200fשלום\u200e", "Hebrew"),
        ("\u200f12.5 (ABC)", "Hebrew"),
        ("He said \u202bשלום\u202c to us", "Latin"),  # a quotation that runs from right to left
        ("A family: 👩\u200d👧\u200d👦", "Latin"),
        ("A heart: ❤\ufe0f\u200d🔥", "Latin"),
    ],
)
def test_invisible_characters_are_fine_where_text_is_written_with_them(line, script):
    assert "invisible-characters" not in encoding_flags(Block([line]), script)


def test_a_direction_mark_in_a_script_of_joiners_is_still_found():
    assert "invisible-characters" in encoding_flags(Block(["ไทย\u200fแลนด์"]), "Thai")
    assert "invisible-characters" in encoding_flags(Block(["שלו\u200dם"]), "Hebrew")


WHOLE = [
    "Müller trinkt gern Öl, naïve Façade, Ångström",
    "„Das ist doch Spaß“, sagte er. Und daß… ach",
    "«CAFÉ» – «CAFÉ»… MANHû, «PÂ», À…",
    "L’ÉTÉ’s Åland–Öland Ö’s",
    "Il y a «\u00a0à\u00a0» et «\u00a0é\u00a0»…",
    "10 × 5 ÷ 2 ± 3 µm² ½ ¿qué? ¡sí!",
    "The price is £5 – or €6 – ¥700 §12 ©2001 ®",
    "Dvořák, Škoda, Łódź, Ñandú, Þórr, ðð",
]


@pytest.mark.parametrize("line", WHOLE)
def test_whole_text_with_many_accents_is_no_mojibake(line):
    assert not mojibake_lines(Block([line])).any()


TEXTS = [
    "Schöne Grüße",
    "Über allen Gipfeln",
    "München",
    "NÃO",
    "don’t",
    "“quoted”",
    "a – b",
    "5 € each",
    "trade mark™",
    "20 °C",
    "«oui»",
    "à demain",
    "był człowiek",
    "był",
    "да",
    "Привет, мир",
    "Καλημέρα",
    "שלום",
    "مرحبا",
    "日本語です",
    "नमस्ते",
    "안녕하세요",
    "smile 😀",
    "…",
    "žluť",
]


@pytest.mark.parametrize("encoding", ["cp1252", "latin-1"])
@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("times", [1, 2])
def test_utf8_that_was_read_as_something_else_is_found(text, encoding, times):
    damaged = text
    for _ in range(times):
        data = damaged.encode()
        if encoding == "cp1252":  # unused bytes are read as in Latin-1
            damaged = "".join(bytes([b]).decode("cp1252", "ignore") or chr(b) for b in data)
        else:
            damaged = data.decode("latin-1")
    assert damaged != text
    flags = encoding_flags(Block(["fine", damaged, "fine"]), "Latin")
    assert flags["mojibake"].tolist() == [False, True, False]


@pytest.mark.parametrize("text", TEXTS)
def test_the_same_texts_as_they_should_be_are_not(text):
    assert not mojibake_lines(Block([text])).any()
