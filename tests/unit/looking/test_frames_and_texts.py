"""Frames carry numbers as they are; words are their tokens together."""

from __future__ import annotations

import numpy as np
import pytest

from regard.data.tokenizers import TokenizerConfig, TokenizerPair
from regard.looking.frames import framed, unframed
from regard.looking.texts import ShownText, merge_words, word_spans, words_of


@pytest.mark.parametrize("name", ["", "a", "ab", "abc", "ü"])
def test_a_frame_gives_back_its_numbers_and_header(name):
    numbers = np.linspace(-3, 7, 12, dtype=np.float32).reshape(3, 4)
    content = framed(numbers, "f32", {"name": name})
    about, again = unframed(content)
    assert (about["name"], about["shape"], about["type"]) == (name, [3, 4], "f32")
    np.testing.assert_array_equal(again, numbers)
    assert (len(content) - numbers.nbytes) % 4 == 0  # a browser reads floats at multiples of 4 only


def test_pictures_are_shares_in_256_steps():
    about, again = unframed(framed(np.array([0.0, 0.5, 1.0, 1.5, -1.0, np.nan]), "u8"))
    assert about["type"] == "u8"
    assert again.tolist() == [0, 128, 255, 255, 0, 0]


def test_words_begin_where_tokens_show_a_space():
    tokens = ["▁The", "▁ani", "mal", "▁didn", "'", "t", "</s>"]
    special = [False] * 6 + [True]
    assert word_spans(tokens, special, True) == [(0, 1), (1, 3), (3, 6), (6, 7)]
    assert word_spans(["play", "##ing", "[SEP]"], [False, False, True], False) == [(0, 2), (2, 3)]
    assert word_spans(["a", "b"], [False, False], None) == [(0, 1), (1, 2)]
    assert word_spans([], [], True) == []


def test_signs_around_a_word_are_no_part_of_it():
    def words(*tokens):
        return [tokens[begin:end] for begin, end in word_spans(tokens, [False] * len(tokens), True)]

    assert words("▁tir", "ed", ".") == [("▁tir", "ed"), (".",)]
    assert words("▁(", '"', "so", ")", ".") == [("▁(",), ('"',), ("so",), (")",), (".",)]
    assert words("▁don", "'", "t", "!") == [("▁don", "'", "t"), ("!",)]
    assert words("▁", "x", "▁…", ".") == [("▁", "x"), ("▁…",), (".",)]


def test_words_are_read_without_their_marks():
    shown = ShownText("The animal", ["▁The", "▁ani", "mal", "</s>"], [False] * 3 + [True], [(0, 1), (1, 3), (3, 4)])
    assert words_of(shown) == ["The", "animal", "</s>"]


def test_merging_sums_over_columns_and_means_over_rows():
    rows = ShownText("", ["▁a", "b", "▁c"], [False] * 3, [(0, 2), (2, 3)])
    columns = ShownText("", ["▁x", "▁y", "z"], [False] * 3, [(0, 1), (1, 3)])
    weights = np.array([[0.2, 0.3, 0.5], [0.6, 0.1, 0.3], [1.0, 0.0, 0.0]])
    np.testing.assert_allclose(merge_words(weights, rows, columns), [[0.4, 0.6], [1.0, 0.0]])


def test_a_text_shows_the_tokens_of_its_tokenizer():
    texts = ["the bank of the river", "the river bank"] * 3
    tokenizer = TokenizerPair.train_on_text(texts, TokenizerConfig(kind="bpe", size=40)).target
    (ids,) = tokenizer.encode(["the river"])
    shown = ShownText.of(tokenizer, "the river", ids, before=["<s>"], after=["</s>"])
    assert words_of(shown) == ["<s>", "the", "river", "</s>"]
    assert shown.special == [True] + [False] * len(ids) + [True]
