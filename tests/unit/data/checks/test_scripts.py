"""Scripts of letters."""

from __future__ import annotations

import pytest

from regard.data.checks.scripts import name_of, number_of, script_of, written_with


@pytest.mark.parametrize(
    ("letter", "script"),
    [
        ("a", "Latin"),
        ("ß", "Latin"),
        ("Ａ", "Latin"),  # full width
        ("𝐀", "Latin"),  # mathematical
        ("ª", "Latin"),
        ("ж", "Cyrillic"),
        ("λ", "Greek"),
        ("中", "Han"),
        ("々", "Han"),
        ("ひ", "Hiragana"),
        ("カ", "Katakana"),
        ("ｶ", "Katakana"),
        ("ー", "Katakana"),
        ("한", "Hangul"),
        ("ש", "Hebrew"),
        ("ب", "Arabic"),
        ("ก", "Thai"),
        ("क", "Devanagari"),
        ("7", "Other"),
        (" ", "Other"),
        ("!", "Other"),
        ("\u0301", "Other"),
        ("ʼ", "Other"),  # an apostrophe that counts as a letter
        ("\ue000", "Other"),
    ],
)
def test_a_letter_has_the_script_of_its_name(letter, script):
    assert script_of(letter) == script


def test_scripts_have_numbers_that_lead_back_to_them():
    numbers = {script: number_of(script) for script in ("Latin", "Greek", "Other")}
    assert len(set(numbers.values())) == 3
    assert numbers["Other"] == 0
    assert all(name_of(number) == script for script, number in numbers.items())
    assert number_of("Latin") == numbers["Latin"]


def test_japanese_is_written_with_three_scripts_and_latin_with_one():
    assert written_with("Hiragana") == written_with("Katakana") == {"Han", "Hiragana", "Katakana"}
    assert {"Hiragana", "Katakana"} < written_with("Han")
    assert written_with("Hangul") == {"Hangul", "Han"}
    assert written_with("Latin") == {"Latin"}
