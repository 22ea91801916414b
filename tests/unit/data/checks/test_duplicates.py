"""Repeated, similar and leaked pairs."""

from __future__ import annotations

import random

import numpy as np
import pytest
from invented_corpus import changed, invented

from regard.data.checks import duplicates
from regard.data.checks.duplicates import HeldOutPairs, SeenPairs, SimilarPairs
from regard.data.split import Pairs

CORPUS = invented(2_000)
S, T = CORPUS.sources, CORPUS.targets


def _lines(mask: np.ndarray) -> list[int]:
    return (np.flatnonzero(mask) + 1).tolist()


def test_different_pairs_are_no_duplicates():
    masks = SeenPairs().add(CORPUS)
    assert {name: _lines(mask) for name, mask in masks.items()} == {"duplicates": [], "near-duplicates": []}
    assert SeenPairs().most_copies() == (0, 0)
    assert [len(mask) for mask in SeenPairs().add(Pairs()).values()] == [0, 0]


def test_copies_are_found_in_one_chunk_and_across_chunks():
    seen = SeenPairs()
    copies = changed(CORPUS, {10: (S[2], T[2]), 1500: (S[2], T[2]), 1501: (S[7], T[7])})
    assert _lines(seen.add(copies)["duplicates"]) == [10, 1500, 1501]
    assert _lines(seen.add(Pairs(S[1990:], T[1990:]))["duplicates"]) == list(range(1, 11))
    assert seen.most_copies() == (12, 3)


@pytest.mark.parametrize(
    ("source", "target", "near"),
    [
        (S[0].upper(), T[0], True),
        (S[0], T[0].replace(".", " !"), True),
        ("  " + S[0].replace(" ", "  "), T[0], True),
        (S[0] + " 12", T[0] + " 1234", False),
        (S[0][:-2] + "x.", T[0], False),
        (S[0], T[1], False),
        (S[1], T[0], False),
        (T[0], S[0], False),
    ],
)
def test_pairs_that_differ_in_case_punctuation_and_spaces_are_nearly_the_same(source, target, near):
    masks = SeenPairs().add(changed(CORPUS, {5: (source, target)}))
    assert _lines(masks["near-duplicates"]) == ([5] if near else [])
    assert _lines(masks["duplicates"]) == []


def test_pairs_that_differ_in_numbers_are_nearly_the_same():
    pairs = Pairs(
        [f"Chapter number {n} begins here." for n in (1, 22, 3)],
        [f"Hier beginnt Kapitel Nummer {n}." for n in (1, 22, 3)],
    )
    assert _lines(SeenPairs().add(pairs)["near-duplicates"]) == [2, 3]
    digits = Pairs([f"{n} 5 {n}" for n in range(30)], [f"{n} {n} 5" for n in range(30)])
    assert _lines(SeenPairs().add(digits)["near-duplicates"]) == []


def test_an_exact_copy_is_not_also_a_near_one():
    masks = SeenPairs().add(Pairs([S[0], S[0].lower(), S[0]], [T[0]] * 3))
    assert (_lines(masks["duplicates"]), _lines(masks["near-duplicates"])) == ([3], [2])


def test_empty_lines_are_no_duplicates():
    masks = SeenPairs().add(Pairs(["", "", "a", "a"], ["x", "x", "", " "]))
    assert not any(mask.any() for mask in masks.values())


def _words(count: int, draw: random.Random) -> list[str]:
    return ["".join(draw.choices("abdefgiklmnoprstuz", k=draw.randrange(2, 9))) for _ in range(count)]


def _similar_corpus(changed_words: int, words: int = 14) -> Pairs:
    """300 pairs of random words; the last 100 are the first 100 with some words changed on each side."""
    draw = random.Random(changed_words)
    pairs = [(_words(words, draw), _words(words, draw)) for _ in range(200)]
    for source, target in pairs[:100]:
        sides = (list(source), list(target))
        for side in sides:
            for place in draw.sample(range(words), changed_words):
                side[place] = _words(1, draw)[0]
        pairs.append(sides)
    return Pairs([" ".join(source) for source, _ in pairs], [" ".join(target) for _, target in pairs])


@pytest.mark.parametrize(("words", "least", "most"), [(1, 0.85, 1.0), (7, 0.0, 0.02)])
def test_long_pairs_that_differ_by_a_word_are_similar_and_others_are_not(words, least, most):
    similar = SimilarPairs()
    similar.add(_similar_corpus(words))
    found = similar.repeats()
    assert len(found) == 300
    assert not found[:200].any()
    assert least <= found[200:].mean() <= most


def test_pairs_are_compared_across_chunks_and_those_of_a_mask_are_not():
    pairs = _similar_corpus(1)
    similar = SimilarPairs()
    for begin in range(0, 300, 50):
        without = np.zeros(50, dtype=bool)
        without[:25] = True
        similar.add(Pairs(pairs.sources[begin : begin + 50], pairs.targets[begin : begin + 50]), without)
    found = similar.repeats()
    assert found[225:250].mean() > 0.8
    assert not found[250:275].any()
    assert similar.complete


def test_short_and_empty_pairs_are_not_compared():
    similar = SimilarPairs()
    similar.add(
        Pairs(
            ["a b c d e f g"] * 5 + [""] * 5 + ["a b c d e f g h"] * 2,
            ["a b c d e f g h"] * 10 + ["a b c d e f g h"] * 2,
        )
    )
    assert _lines(similar.repeats()) == [12]
    assert SimilarPairs().repeats().tolist() == []


def test_text_without_spaces_is_compared_by_its_characters():
    draw = random.Random(5)
    lines = ["".join(chr(draw.randrange(0x4E00, 0x6000)) for _ in range(40)) for _ in range(50)]
    near = [line[:20] + "新" + line[21:] for line in lines]
    similar = SimilarPairs(source_unspaced=True, target_unspaced=True)
    similar.add(Pairs(lines + near, lines + near))
    found = similar.repeats()
    assert not found[:50].any()
    assert found[50:].mean() > 0.8


def test_so_many_pairs_are_compared_and_no_more(monkeypatch):
    monkeypatch.setattr(duplicates, "_MOST_PAIRS", 250)
    pairs = _similar_corpus(1)
    similar = SimilarPairs()
    for begin in range(0, 300, 50):
        similar.add(Pairs(pairs.sources[begin : begin + 50], pairs.targets[begin : begin + 50]))
    found = similar.repeats()
    assert found[200:250].mean() > 0.8
    assert not found[250:].any()
    assert not similar.complete


def test_held_out_pairs_are_found_in_training_text():
    held = Pairs(
        ["One boat.", "Two boats!", "Three boats.", "One boat.", ""],
        ["Ein Boot.", "Zwei Boote!", "Drei Boote.", "Ein Boot.", ""],
    )
    watch = HeldOutPairs([held])
    assert watch.lines == 4
    train = changed(CORPUS, {3: ("ONE BOAT", "ein Boot"), 1200: ("Two boats", "Zwei Schiffe"), 1300: ("", "")})
    masks = watch.add(train)
    assert (_lines(masks["leaked-pairs"]), _lines(masks["leaked-sources"])) == ([3], [1200])
    assert watch.leaked() == {"leaked-pairs": 2, "leaked-sources": 3}


def test_no_leak_is_none():
    watch = HeldOutPairs(invented(200, seed=4).chunks(70))
    other = Pairs([f"Other {line}" for line in S], T)
    assert not any(mask.any() for mask in watch.add(other).values())
    assert watch.leaked() == {"leaked-pairs": 0, "leaked-sources": 0}
    nothing = HeldOutPairs([])
    assert not any(mask.any() for mask in nothing.add(CORPUS).values())
    assert (nothing.lines, nothing.leaked()["leaked-pairs"]) == (0, 0)
