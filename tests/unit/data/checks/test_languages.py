"""Languages of whole texts: recognised, claimed by file names, contradicted."""

from __future__ import annotations

import unicodedata

import pytest
from invented_corpus import SENTENCES, invented

from regard.data.checks.function_words import ALIKE, FUNCTION_WORDS, SCRIPTS_OF, code_of, name_of
from regard.data.checks.languages import Recognised, claimed_by_names, recognise
from regard.data.checks.scripts import script_of

LATIN = {"Latin": 1.0}


@pytest.mark.parametrize("code", SENTENCES)
def test_a_language_is_recognised_by_its_small_words(code):
    script = script_of(SENTENCES[code][0])
    assert recognise([SENTENCES[code]] * 30, {script: 1.0}).code == code


def test_english_and_german_are_recognised():
    pairs = invented(100)
    assert recognise(pairs.sources, LATIN).code == "en"
    assert recognise(pairs.targets, LATIN).code == "de"
    assert recognise([line.upper() for line in pairs.targets], LATIN).code == "de"


@pytest.mark.parametrize(
    ("scripts", "code"),
    [
        ({"Han": 1.0}, "zh"),
        ({"Han": 0.9, "Hiragana": 0.1}, "ja"),
        ({"Han": 0.97, "Katakana": 0.03}, "zh"),
        ({"Hiragana": 0.6, "Han": 0.4}, "ja"),
        ({"Greek": 0.9, "Latin": 0.1}, "el"),
        ({"Hangul": 1.0}, "ko"),
        ({"Runic": 1.0}, ""),
        ({}, ""),
    ],
)
def test_some_languages_are_recognised_by_their_script(scripts, code):
    assert recognise(["x"] * 500, scripts).code == code


def test_little_text_and_text_in_no_language_are_not_recognised():
    few = invented(10).sources
    assert recognise(few, LATIN).code == ""
    assert recognise(["S P E L L I N G D L N S A I"] * 100, LATIN).code == ""
    assert recognise(["kalo miru tenga poli suran"] * 100, LATIN).code == ""


def test_letters_of_two_characters_are_the_same_letters():
    decomposed = unicodedata.normalize("NFD", SENTENCES["sv"])
    assert recognise([decomposed] * 30, LATIN).shares == recognise([SENTENCES["sv"]] * 30, LATIN).shares


def test_a_mixture_of_two_languages_is_neither():
    pairs = invented(200)
    assert recognise(pairs.sources + pairs.targets, LATIN).code == ""


def test_a_text_contradicts_what_it_is_said_to_be_only_if_it_is_clearly_another():
    german = recognise(invented(100).targets, LATIN)
    assert german.contradicts("en")
    assert german.contradicts("ru")
    assert not german.contradicts("de")
    assert not german.contradicts("")
    assert not german.contradicts("eo")  # whose words are not known here
    assert not Recognised("", {}).contradicts("en")
    assert not Recognised("da", {"da": 0.4, "no": 0.1}).contradicts("no")
    assert not Recognised("nl", {"nl": 0.3, "de": 0.2}).contradicts("de")
    assert Recognised("nl", {"nl": 0.3, "de": 0.1}).contradicts("de")
    assert Recognised("zh", {}).contradicts("ja")


@pytest.mark.parametrize(
    ("names", "claimed"),
    [
        (("data/train.en", "data/train.de"), ("en", "de")),
        (("train.en.gz", "train.fr.xz"), ("en", "fr")),
        (("train.lc.norm.tok.en", "train.lc.norm.tok.de"), ("en", "de")),
        (("corpus.eng", "corpus.deu.zst"), ("en", "de")),
        (("a.en-GB", "a.de-AT"), ("en", "de")),
        (("text.en.txt", "text.ja.txt"), ("en", "ja")),
        (("train.src", "train.tgt"), ("", "")),
        (("train.en", "train.tgt"), ("", "")),
        (("one.en", "two.en"), ("", "")),
        (("pairs.tsv",), ("", "")),
        (("en", "de"), ("", "")),
        (("folder.en/text", "folder.de/text"), ("", "")),
    ],
)
def test_file_names_claim_languages(names, claimed):
    assert claimed_by_names(names) == claimed


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ("en", "en"),
        ("ENG", "en"),
        ("en_US", "en"),
        ("German", "de"),
        ("pt-BR", "pt"),
        ("klingon", ""),
        ("", ""),
        ("nb", "no"),
    ],
)
def test_languages_have_many_names(given, code):
    assert code_of(given) == code


def test_the_words_of_each_language_are_in_its_script():
    assert len(FUNCTION_WORDS) >= 25
    for code, words in FUNCTION_WORDS.items():
        scripts = SCRIPTS_OF.get(code, {"Latin"})
        assert all(script_of(word[0]) in scripts for word in words), code
        assert len(words) >= 20
        assert name_of(code) != code


def test_no_language_has_mostly_the_words_of_another():
    for one, words in FUNCTION_WORDS.items():
        for other, others in FUNCTION_WORDS.items():
            if one != other and not any({one, other} <= alike for alike in ALIKE):
                assert len(words & others) < 0.6 * len(words), (one, other)
