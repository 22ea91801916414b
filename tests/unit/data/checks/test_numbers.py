"""Numbers that agree although they are written otherwise, and numbers that do not."""

from __future__ import annotations

import time

import pytest

from regard.data.checks.numbers import numbers_agree


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("It cost 1,000.50 in 1999.", "1999 kostete es 1.000,50."),
        ("12 500 people", "12.500 Leute"),
        ("12\u202f500 people", "12500 Leute"),
        ("1'250 francs", "1 250 Franken"),
        ("3.5 per cent", "3,5 Prozent"),
        ("on 01.02.2003", "on 2/1/2003"),
        ("at 12:30", "um 12.30 Uhr"),
        ("at 5 p.m.", "um 17 Uhr"),
        ("at 11.45 at night", "um 23:45"),
        ("in the 1990s", "in den 90er Jahren"),
        ("3 cats", "drei Katzen"),
        ("twenty cats", "20 Katzen"),
        ("at 7:45", "um Viertel vor acht"),
        ("page ٤٢", "Seite 42"),
        ("page ４２", "Seite 42"),
        ("007", "7"),
        ("on 5 100 people came", "am 5. kamen 100 Leute"),
        ("on 05 100 people came", "am 5. kamen 100 Leute"),
        ("On 5 May 1998, 200 came", "1998 kamen am 5. Mai 200"),
        ("no numbers", "keine Zahlen"),
        ("7 and 7", "7"),
    ],
)
def test_numbers_agree(source, target):
    assert numbers_agree(source, target)
    assert numbers_agree(target, source)


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("in 1989", "im Jahr 1998"),
        ("3 cats", "4 Katzen"),
        ("page 42", "Seite 43"),
        ("1,000 people", "10.000 Leute"),
        ("$300", "dreihundert Dollar"),
        ("in 1972 and 5", "5"),
        ("25 of 30", "30"),
        ("12 and 500", "12 und 50"),
        ("at 5 p.m.", "um 18 Uhr"),
        ("in the 1990s", "in den 80er Jahren"),
    ],
)
def test_numbers_disagree(source, target):
    assert not numbers_agree(source, target)
    assert not numbers_agree(target, source)


def test_very_long_runs_of_digits_are_no_trouble():
    assert numbers_agree("9" * 100_000, "9" * 100_000)
    assert not numbers_agree("9" * 100_000, "8" * 100_000)
    assert not numbers_agree("1 2 3 " * 1000, "4 5 6 " * 1000)
    began = time.perf_counter()
    assert not numbers_agree("1" + "'111" * 20_000 + "9", "8" * 10)
    assert time.perf_counter() - began < 5
