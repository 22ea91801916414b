"""Texts by way of their words: the same tokens as each text by itself, in whatever chunks, with tags and limits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from regard.data import known_words
from regard.data.known_words import KnownWords
from regard.data.store import _kept, _with_tags
from regard.data.tokenizers import Tokenizer, TokenizerConfig

TEXTS = [
    "the red house is near the old river",
    "",
    "no house is red",
    "  two   spaces and a tab\there ",
    "unknown Ωmega signs, and an end.",
    "the river the river the river",
]


def _tokenizer(kind: Any = "bpe"):
    return Tokenizer.train(TEXTS * 20, TokenizerConfig(kind=kind, size=300 if kind == "bytebpe" else 80))


@pytest.mark.parametrize("kind", ["bpe", "unigram", "word", "char", "bytebpe"])
@pytest.mark.parametrize("size", [1, 2, 6])
def test_rows_are_what_encode_gives(kind, size):
    tokenizer = _tokenizer(kind)
    known, wanted = KnownWords(tokenizer), tokenizer.encode(TEXTS)
    found = []
    for begin in range(0, len(TEXTS), size):
        flat, lengths = known.rows(TEXTS[begin : begin + size])
        assert flat.dtype == np.int32
        found += [part.tolist() for part in np.split(flat, np.cumsum(lengths)[:-1])]
    assert found == wanted


def test_many_words_are_forgotten_and_met_again(monkeypatch):
    monkeypatch.setattr(known_words, "MOST_WORDS", 3)
    tokenizer = _tokenizer()
    known = KnownWords(tokenizer)
    for _ in range(3):
        flat, lengths = known.rows(TEXTS)
        assert flat.tolist() == [i for ids in tokenizer.encode(TEXTS) for i in ids]
        assert lengths.tolist() == [len(ids) for ids in tokenizer.encode(TEXTS)]


def test_nothing_gives_nothing():
    flat, lengths = KnownWords(_tokenizer()).rows([])
    assert (len(flat), len(lengths)) == (0, 0)
    flat, lengths = KnownWords(_tokenizer()).rows(["", " "])
    assert (len(flat), lengths.tolist()) == (0, [0, 0])


def test_rows_that_do_not_fit_are_left_out():
    rows = _kept(np.arange(6, dtype=np.int32), np.array([2, 0, 3, 1]), np.array([True, True, False, True]))
    assert [rows[i] for i in range(3)] == [[0, 1], [], [5]]


def test_tags_stand_in_front():
    class Source:
        @staticmethod
        def tag(name):
            return {"a": 70, "b": 71}[name]

    class Pair:
        source = Source()

    flat, lengths = _with_tags(np.array([5, 6, 7]), np.array([2, 0, 1]), ["a", "b", ""], Pair())  # type: ignore[arg-type]
    assert (flat.tolist(), lengths.tolist()) == ([70, 5, 6, 71, 7], [3, 1, 1])
