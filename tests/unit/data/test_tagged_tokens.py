"""Words as tokens, windows over long sentences, chunks in tags, and how running text is cut into words."""

from __future__ import annotations

import random
import time

import pytest

from regard.core.types import UNK
from regard.data.chunks import are_chunk_tags, chunks_of, completed
from regard.data.cut_words import cut_words
from regard.data.tagged_tokens import WordEncoder, row_of, windows_of
from regard.data.tokenizers import Tokenizer, TokenizerConfig

SENTENCES = [["The", "cats", "sleep", "."], ["cats", "don't", "sleep", "in", "The", "sun"]]


def tokenizer(kind: str, size: int = 400) -> Tokenizer:
    texts = [" ".join(words) for words in SENTENCES] * 4
    return Tokenizer.train(texts, TokenizerConfig(kind=kind, size=size))


@pytest.mark.parametrize("kind", ["bpe", "unigram", "word", "space", "char", "byte", "bytebpe", "wordpiece"])
def test_words_have_the_tokens_that_they_have_in_a_sentence(kind):
    one = tokenizer(kind)
    for words, pieces in zip(SENTENCES, WordEncoder(one).encode(SENTENCES), strict=True):
        assert len(pieces) == len(words)
        tokens = row_of(pieces).tokens
        assert tokens == one.encode([" ".join(words)])[0]
        if kind != "wordpiece":  # which puts no space before a full stop
            assert one.decode([tokens]) == [" ".join(words)]


@pytest.mark.parametrize("kind", ["bpe", "word", "space"])
def test_a_word_is_the_same_wherever_it_stands(kind):
    first, second = WordEncoder(tokenizer(kind)).encode(SENTENCES)
    assert first[0] == second[4]
    assert first[1] == second[0]


def test_a_word_without_tokens_is_unknown():
    pieces = WordEncoder(tokenizer("bpe")).encode([["cats", "\u2028", "sun"], ["\u2028"]])
    assert pieces[0][1] == pieces[1][0] == [UNK]


def test_places_are_those_of_first_tokens():
    pieces = [[5], [6, 7, 8], [9, 10]]
    assert row_of(pieces) == ([5, 6, 7, 8, 9, 10], [0, 1, 4])
    assert row_of(pieces, 5) == ([5, 6, 7, 8], [0, 1])  # whole words only
    assert row_of(pieces, 6) == row_of(pieces)
    assert row_of([[5, 6, 7], [8]], 2) == ([5, 6], [0])  # of a first word that is too long, the beginning


def test_windows_cover_every_word_once_and_are_short_enough():
    draw = random.Random(0)
    for _ in range(500):
        pieces = [[1] * draw.choice([1, 1, 1, 2, 3, 9]) for _ in range(draw.randint(1, 40))]
        most = draw.randint(0, 8)
        windows = windows_of(pieces, most)
        assert [word for one in windows for word in range(one.first, one.last)] == list(range(len(pieces)))
        for one in windows:
            assert one.begin <= one.first <= one.last <= one.end
            tokens = sum(map(len, pieces[one.begin : one.end]))
            assert not most or tokens <= most or one.end - one.begin == 1


def test_windows_overlap_by_half():
    assert windows_of([[1]] * 5) == [(0, 5, 0, 5)]
    assert windows_of([[1]] * 5, 5) == [(0, 5, 0, 5)]
    assert windows_of([[1]] * 10, 4) == [(0, 4, 0, 3), (2, 6, 3, 5), (4, 8, 5, 7), (6, 10, 7, 10)]


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        ("O B-X I-X O", [("X", 1, 3)]),
        ("B-X B-X I-X", [("X", 0, 1), ("X", 1, 3)]),
        ("I-X I-X O I-X", [("X", 0, 2), ("X", 3, 4)]),  # IOB1
        ("B-X I-Y I-Y", [("X", 0, 1), ("Y", 1, 3)]),
        ("I-X B-X I-X", [("X", 0, 1), ("X", 1, 3)]),
        ("O O", []),
        ("B-X", [("X", 0, 1)]),
        ("B-A-b I-A-b", [("A-b", 0, 2)]),
    ],
)
def test_chunks(tags, expected):
    assert chunks_of(tags.split()) == expected


def test_which_labels_are_chunks():
    assert are_chunk_tags(["O", "B-X", "I-Y"])
    assert are_chunk_tags(["I-X"])
    for labels in (["O"], [], ["O", "B-X", "NOUN"], ["B", "I", "O"], ["B-", "O"]):
        assert not are_chunk_tags(labels)
    assert completed(["O", "I-X"]) == {"O", "B-X", "I-X"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("He isn't here, is he?", "He is n't here , is he ?"),
        ('"Yes," she said...', '" Yes , " she said ...'),
        ("Mr. J. Smith of the U.S. left.", "Mr. J. Smith of the U.S. left ."),
        ("I saw what I. did", "I saw what I . did"),
        ("It's $5, or 50% (of well-known 3,000)!", "It 's $ 5 , or 50 % ( of well-known 3,000 ) !"),
        ("@bob -3 .5 'n' -- they’re", "@bob -3 .5 ' n ' -- they ’re"),
        ("see http://example.org/a/.", "see http://example.org/a/ ."),
        ("?!", "? !"),
        ("  ", ""),
    ],
)
def test_text_is_cut_into_words(text, words):
    assert cut_words(text) == words.split()


def test_cutting_loses_no_character():
    text = "\"'tis\" (a.b.) ...x... e.g., l'eau -- [z]'s don't' %5% __init__ n't 's"
    assert "".join(cut_words(text)) == "".join(text.split())


@pytest.mark.parametrize("text", ["!?" * 150_000, "x" + ".!" * 150_000, "a" * 150_000 + "/!" * 75_000])
def test_the_time_of_cutting_grows_with_the_text_and_not_with_its_square(text):
    began = time.process_time()
    assert "".join(cut_words(text)) == text
    assert time.process_time() - began < 3  # tenths of a second, where the square would be half a minute
