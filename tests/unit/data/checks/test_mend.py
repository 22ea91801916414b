"""Mends of lines: what is certain is mended, what may be meant is left alone."""

from __future__ import annotations

import pytest

from regard.data.checks.mend import MENDS, mend_line, mend_lines, on_one_line, undo_mojibake

WINDOWS = {byte: bytes([byte]).decode("cp1252", "ignore") or chr(byte) for byte in range(256)}

WHOLE = [
    "Grüße aus Köln – „Ähre“ und Übermut",
    "It’s 20 °C — “nice”…",
    "Привет, как дела?",
    "桜が咲いた",
    "voilà, c’est ça à la fin",
    "Österreich, KÖLN",
    "une œuvre naïve",
    "Tiếng Việt dễ",
    "vlk běžel přes řeku, kůň též",
    "😀 so viel Spaß",
    "Καλημέρα κόσμε",
    "בוקר טוב לכולם",
    "zażółć gęślą",
    "¿Qué? señor",
    "Ça va?",
    "20 € im Monat",
]


def damaged(text: str, times: int, latin: bool) -> str:
    """UTF-8, read as cp1252 or Latin-1 so many times."""
    for _ in range(times):
        text = "".join(chr(byte) if latin else WINDOWS[byte] for byte in text.encode())
    return text


@pytest.mark.parametrize("text", WHOLE)
@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("latin", [False, True])
def test_mojibake_is_undone(text: str, times: int, latin: bool) -> None:
    assert undo_mojibake(damaged(text, times, latin)) == text


@pytest.mark.parametrize(
    "text",
    [
        *WHOLE,
        "«CAFÉ»",
        "CAFÉ»",
        "Ele é…”",
        "MANHÃ”",
        "“MANHÃ”",
        "L’ÉTÉ’",
        "voilà”…",
        "das Wort „Ä“",
        "5 Ã— 3",  # may be a product; a line that may be meant is left
        "À\xa0: é",
        "Ü…",
        "é«»",
        "NÃO AÇÃO",
        "Ä“",
    ],
)
def test_text_that_may_be_meant_is_left_alone(text: str) -> None:
    assert undo_mojibake(text) == text


def test_damage_in_one_part_of_a_line_is_undone_there() -> None:
    assert undo_mojibake("schÃ¶n – sehr schön, donâ€™t") == "schön – sehr schön, don’t"


def test_windows_characters_read_as_latin_are_undone() -> None:
    assert undo_mojibake("It\x92s \x93fine\x94") == "It’s “fine”"
    assert undo_mojibake("a\x85b") == "a\x85b"  # perhaps a line end


def test_foreign_letters_touching_latin_ones_need_more_evidence() -> None:
    assert undo_mojibake("Annaå¾\x88å¥½") == "Anna很好"  # no whole text has U+0088
    assert undo_mojibake("caféé…”") == "caféé…”"


@pytest.mark.parametrize(
    ("line", "mended", "names"),
    [
        ("\ufeffa b", "a b", ("byte-order-marks",)),
        ("a b\r", "a b", ("crlf",)),
        ("a\0b", "ab", ("null-characters",)),
        ("a\x07b\x7f", "ab", ("control-characters",)),
        ("a\u2028b\x0bc", "a b c", ("line-separators",)),
        ("a\rb", "a b", ("line-separators",)),
        ("da \u200b\u200bund", "da und", ("invisible-characters",)),
        ("Pe\xadni\xadzil\xadlin", "Penizillin", ("soft-hyphens",)),
        ("e\u0301te\u0301", "été", ("mixed-normal-forms",)),
        ("  a \t b ", "a b", ("white-space",)),
        ("a\tb", "a b", ("white-space",)),
        ("a\xa0b", "a\xa0b", ()),  # a single space that does not break is meant
        ("می\u200cخواهم", "می\u200cخواهم", ()),  # Persian is written with it
        ("wo\u200crd", "word", ("invisible-characters",)),
        ("👩\u200d🚀 fliegt", "👩\u200d🚀 fliegt", ()),
        ("שלום\u200f abc", "שלום\u200f abc", ()),
        ("abc\u202e def", "abc def", ("invisible-characters",)),
        ("ไทย\u200bไทย", "ไทย\u200bไทย", ()),
        ("ï»¿schÃ¶n", "schön", ("mojibake",)),
        ("plain text, nothing to do", "plain text, nothing to do", ()),
        ("", "", ()),
    ],
)
def test_each_mend(line: str, mended: str, names: tuple[str, ...]) -> None:
    assert mend_line(line) == (mended, names)


def test_mends_that_are_not_asked_for_are_not_done() -> None:
    line = "\ufeffschÃ¶n  \x07e\u0301\r"
    assert mend_line(line, ()) == (line, ())
    assert mend_line(line, ["mojibake"])[1] == ("mojibake",)
    everything, names = mend_line(line)
    assert everything == "schön é"
    assert list(names) == [name for name in MENDS if name in names]  # in the order they are done


def test_many_lines_are_counted() -> None:
    mended, changed, counts = mend_lines(["a", "b\r", "c\r ", "d  e\r"])
    assert mended == ["a", "b", "c", "d e"]
    assert changed == {1: ("crlf",), 2: ("line-separators", "white-space"), 3: ("crlf", "white-space")}
    assert counts == {"crlf": 2, "white-space": 2, "line-separators": 1}


def test_a_line_without_mends_is_still_one_line() -> None:
    assert on_one_line("a\nb\r") == "a b "
    assert on_one_line("a\x0bb") == "a\x0bb"
