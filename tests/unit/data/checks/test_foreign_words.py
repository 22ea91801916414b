"""Lines that the small words of another language give away."""

from __future__ import annotations

import pytest
from invented_corpus import SENTENCES, invented

from regard.data.checks.block import Block
from regard.data.checks.foreign_words import ForeignWords

CORPUS = invented(300)
GERMAN = ForeignWords("de")


@pytest.mark.parametrize("code", ["fr", "es", "it", "nl", "sv", "fi", "pl", "hu", "tr"])
def test_a_line_of_another_language_is_found_with_its_code(code):
    assert GERMAN.find(Block([*CORPUS.targets[:5], SENTENCES[code], "", *CORPUS.targets[:5]])) == {5: code}


def test_lines_of_the_own_language_are_not_found():
    assert GERMAN.find(Block(CORPUS.targets)) == {}
    assert ForeignWords("en").find(Block(CORPUS.sources)) == {}
    assert GERMAN.find(Block([])) == {}
    assert GERMAN.find(Block(["", "Wort"])) == {}


def test_lines_of_the_other_side_are_found_as_such():
    found = GERMAN.find(Block(CORPUS.sources))
    assert len(found) > 250
    assert set(found.values()) == {"en"}


@pytest.mark.parametrize(
    "line",
    [
        "Er las „The Lord of the Rings“ und „Gone with the Wind“ in der Bahn, und das war nicht alles.",
        "Das ist the best of.",  # too few
        "Charles de la Motte und Jean de la Fontaine sind mit der Bahn gekommen, aber nicht zu uns.",
        "the of and ist der die",  # as many of its own
    ],
)
def test_a_few_foreign_words_in_a_line_are_no_foreign_line(line):
    assert GERMAN.find(Block([line])) == {}


def test_close_languages_are_not_told_apart():
    danish = "Og det var ikke noget som han kunne have set når han ved at hun er der."
    assert ForeignWords("no").find(Block([danish])) == {}
    assert ForeignWords("de").find(Block([danish])) in ({0: "da"}, {0: "no"})
