"""Single words, capitals, emoji, other scripts, very long and mixed text: each is answered within bounds, and it is said how."""

from __future__ import annotations

import dataclasses

import pytest

import regard
from regard.core.search_config import SearchConfig
from regard.tasks.confidence import Calibration
from regard.tasks.guarding import Guard
from regard.tasks.lines import Translation
from regard.tasks.odd_input import COPIED, SMALL, in_small_letters, is_unknown, search_readable
from regard.tasks.translation import Translator

ODD = [
    "Dog", "dog", "Tom", "I.", "a", "HELP", "WHERE IS THE NEAREST BANK?", "I LOVE YOU.", "NASA", "😀", "😀 😀😀!", "I love you 😀",
    "Ich liebe dich.", "Where is der Bahnhof, bitte?", "C'est la vie, my friend.", "你好", "I said 你好 to him.", "Привет", "עברית",
    "3.14", "12", "...", "?!", "https://example.org/a?b=c", "e\u0301", "\u200b", "\u202eabc", "no no no no no no no no no no",
    "Tom\tis here.\nSo am I.", " ", "",
]  # fmt: skip


@pytest.fixture(scope="module")
def plain() -> Translator:
    return regard.load(engine="torch", device="cpu")


@pytest.fixture(scope="module", params=["torch", "auto"])
def guarded(request) -> Translator:
    return regard.load(engine=request.param, device="cpu").guarded(Guard())


def test_all_of_it_is_answered(guarded):
    found = guarded.hypotheses(ODD)
    guard = Guard()
    for text, many in zip(ODD, found, strict=True):
        assert len(many) == 1
        best = many[0]
        assert best.finished or best.note or len(best.tokens) >= 20
        assert len(best.text) < 400
        if any(map(str.isalnum, text)):
            assert best.text.strip()
        if "\n" not in text and not best.note:  # what the guard has not spoken of is a translation by its rule
            assert not guard.fault(text, best)
    alone = [guarded.translate(text) for text in ODD]
    assert [many[0].text for many in found] == alone  # in company and alone


def test_single_words_are_translated(guarded):
    assert guarded.translate("dog").strip(".!") in ("Hund", "Hunde")
    assert guarded.translate("Tom").strip(".!") == "Tom"


def test_capitals_are_read_and_written(plain):
    guarded = plain.guarded(Guard())
    for text in ("WHERE IS THE NEAREST BANK?", "I LOVE YOU.", "HE IS MY BROTHER."):
        small = text.capitalize()
        (raw,), (low,) = plain.hypotheses([text, small])
        (best,) = guarded.hypotheses([text])[0]
        assert low.score > raw.score  # or the next lines mean nothing
        assert best.text == plain.translate(small).upper()
        assert best.note == SMALL
        assert best.score == pytest.approx(low.score)
    for text in ("I", "12", "Where is the bank?", "", "OK then"):
        (ids,) = plain.tokenizers.source.encode([text])
        for sentence in plain.split([text]):
            assert ids == sentence.ids
            assert in_small_letters(sentence, plain.tokenizers.source) is None


def test_capitals_stay_where_the_model_knows_them_better(plain):
    (sentence,) = plain.split(["HELP ME"])
    asked: list[list[str]] = []

    def search(some):
        asked.append([one.text for one in some])
        scores = {"HELP ME": -1.0, "Help me": -2.0}
        return [[Translation(one.text.lower(), scores[one.text], -1.0, [], [], [], True)] for one in some]

    ((best,),) = search_readable([sentence], plain.tokenizers, search)
    assert asked == [["HELP ME", "Help me"]]  # in one call
    assert (best.text, best.note) == ("help me", "")


def test_what_the_model_cannot_read_is_left_as_it_is(plain):
    guarded = plain.guarded(Guard())
    for text in ("😀", "你好", "😀😀 😀", "Привет"):
        ((best,),) = guarded.hypotheses([text])
        assert (best.text, best.note) == (text, COPIED)
        assert plain.translate(text) != text  # made up
    for text in ("I love you 😀", "...", "I said 你好 to him.", "é"):
        (sentence,) = plain.split([text])
        assert not is_unknown(sentence, plain.tokenizers.source)
        assert COPIED not in guarded.hypotheses([text])[0][0].note


def test_very_long_text(guarded):
    text = "The dog sleeps and the cat plays in the garden of my brother, " * 40 + "and Tom is here."
    found = guarded.hypotheses([text])[0][0]
    assert 0.3 * len(text) < len(found.text) < 3 * len(text)
    words = found.text.split()
    assert len(words) > 200
    endless = guarded.translate("ab" * 300)
    assert 0 < len(endless) < 6000
    many = guarded.translate("I like tea. " * 120)
    assert len(many.split()) >= 240


def test_a_second_search_of_a_beam_in_groups_and_its_confidence(plain):
    """A guard that finds everything wrong searches again: without groups, and with confidences as the first time."""
    never = Guard(from_tokens=1, longest=1.0001)
    translator = plain.guarded(never)
    translator.calibration = Calibration((1.0, 0.0), (1.0, 1.0, 0.0))
    search = dataclasses.replace(SearchConfig(), beam=4, groups=4, nbest=1)
    for (best,) in translator.hypotheses(["Hi", "Where is the bank?"], search=search):
        assert best.confidence is not None
