"""Changes to text: what each does, what it leaves alone, and that a share is a share."""

import unicodedata
from collections import Counter
from itertools import pairwise

import pytest

from regard.data import noise
from regard.data.draws import Draws

SENTENCE = "The old miller, who owned 3 mills and 12b barrels, didn't sleep – a pity!"


def changed_words(old: str, new: str) -> list[tuple[str, str]]:
    return [(a, b) for a, b in zip(old.split(), new.split(), strict=True) if a != b]


def test_case():
    assert noise.in_capitals("Die Straße im Süden") == "DIE STRASSE IM SÜDEN"
    assert noise.in_small_letters("Die STRASSE im Süden") == "die strasse im süden"
    text = "„der  alte“ (mann) o'neill sah IBM-rechner 3x, 'ǆ' – ende."
    assert noise.as_headline(text) == "„Der  Alte“ (Mann) O'neill Sah IBM-rechner 3x, 'ǅ' – Ende."
    assert noise.as_headline("") == ""
    assert noise.as_headline("… !") == "… !"


def test_every_typo_is_one_error_in_one_word():
    kinds: Counter[str] = Counter()
    for key in range(300):
        new = noise.with_typos(SENTENCE, 1.0, Draws(key))
        pairs = changed_words(SENTENCE, new)
        assert [old for old, _ in pairs] == [
            "The",
            "old",
            "miller,",
            "who",
            "owned",
            "mills",
            "and",
            "barrels,",
            "didn't",
            "sleep",
            "pity!",
        ]
        for old, word in pairs:
            kinds[kind_of_error(old, word)] += 1
            assert [c for c in old if not c.isalpha()] == [c for c in word if not c.isalpha()]
    assert kinds.keys() == {"swapped", "left out", "doubled", "replaced"}
    assert min(kinds.values()) > 0.15 * kinds.total()


def kind_of_error(old: str, new: str) -> str:
    if any(old[:i] + old[i + 1 :] == new for i in range(len(old))):
        return "left out"
    if any(old[: i + 1] + old[i:] == new for i in range(len(old))):
        return "doubled"
    assert len(old) == len(new)
    differ = [i for i in range(len(old)) if old[i] != new[i]]
    if len(differ) == 2 and differ[1] == differ[0] + 1 and old[differ[0]] == new[differ[1]]:
        return "swapped"
    assert len(differ) == 1
    assert new[differ[0]].lower() in SENTENCE.lower()
    assert new[differ[0]].isupper() == old[differ[0]].isupper()
    return "replaced"


def test_the_share_of_words_with_typos():
    text = "miller " * 40
    words = sum(len(changed_words(text, noise.with_typos(text, 0.1, Draws(key)))) for key in range(200))
    assert 0.08 < words / 8000 < 0.12
    assert noise.with_typos(SENTENCE, 0.0, Draws(1)) == SENTENCE


@pytest.mark.parametrize("text", ["", " ", "a", "I, 1984 !", "10km 3rd – …", "x 5 y"])
def test_nothing_to_mistype(text):
    assert noise.with_typos(text, 1.0, Draws(3)) == text


def test_a_word_of_one_letter_repeated_still_changes():
    assert {noise.with_typos("aaa", 1.0, Draws(key)) for key in range(40)} == {"aa", "aaaa"}


def test_marks_stay_with_their_letters():
    text = unicodedata.normalize("NFD", "für später") + " हिन्दी"

    def marked(text: str) -> set[str]:
        return {a + b for a, b in pairwise(text) if unicodedata.category(b)[0] == "M"}

    for key in range(100):
        assert marked(noise.with_typos(text, 1.0, Draws(key))) <= marked(text)


def test_gaps_stay_as_they_are():
    assert noise.with_typos(" one\t two\n", 1.0, Draws(4)).split("\t ")[1].endswith("\n")
    assert noise.with_swaps(" one\t two\n", 1.0, Draws(4)) == " two\t one\n"


def test_swapped_words_leave_punctuation_in_place():
    assert noise.with_swaps("one two", 1.0, Draws(1)) == "two one"
    assert noise.with_swaps('He said: "come in, now!"', 1.0, Draws(1)) == 'said He: "in come, now!"'
    assert noise.with_swaps("a – b", 1.0, Draws(1)) == "a – b"
    assert noise.with_swaps("pay €five", 1.0, Draws(1)) == "five €pay"
    assert noise.with_swaps("alone", 1.0, Draws(1)) == "alone"
    assert noise.with_swaps("one\t two  three", 1.0, Draws(1)) == "two\t one  three"
    assert noise.with_swaps("हिन्दी और", 1.0, Draws(1)) == "और हिन्दी"


def test_the_share_of_swaps():
    text = " ".join(f"w{i}" for i in range(41))
    moved = 0
    for key in range(200):
        words = noise.with_swaps(text, 0.1, Draws(key)).split()
        assert sorted(words) == sorted(text.split())
        assert all(abs(int(word[1:]) - i) <= 1 for i, word in enumerate(words))  # no word wanders further
        moved += sum(word != f"w{i}" for i, word in enumerate(words)) // 2
    assert 0.07 < moved / 8000 < 0.12
    assert noise.with_swaps(text, 0.0, Draws(1)) == text
