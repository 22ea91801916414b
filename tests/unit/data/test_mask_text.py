"""Texts with hidden words: what each kind of tokenizer makes of them, and what may stand for a mask."""

from __future__ import annotations

import pytest

from regard.core.errors import DataError, TokenizerError
from regard.data.mask_text import MaskReader
from regard.data.tokenizers import Tokenizer, TokenizerConfig

TEXTS = ["a play in the gym . plays playing", "the gym, a line", "I play (in a line)"] * 4


def reader(kind: str) -> MaskReader:
    config = TokenizerConfig(kind=kind, size=320, min_count=1)  # pyright: ignore[reportArgumentType]
    return MaskReader(Tokenizer.train(TEXTS, config, ("<mask>",)))


def joined(found: MaskReader, text: str) -> tuple[str, list[bool]]:
    row = found.read(text)
    assert [row.ids[place] for place in row.places] == [4] * len(row.places)
    assert len(row.places) == len(row.begins) == row.ids.count(4)
    return " ".join(found.tokenizer.pieces(row.ids)), row.begins


@pytest.mark.parametrize(
    ("kind", "text", "tokens", "begins"),
    [
        ("word", "the [MASK] gym", "▁the <mask> ▁gym", [True]),
        ("word", "the <mask> gym", "▁the <mask> ▁gym", [True]),
        ("word", "[MASK] gym", "<mask> ▁gym", [True]),
        ("word", "the [MASK], in", "▁the <mask> , ▁in", [True]),
        ("word", "([MASK] [MASK])", "▁( <mask> <mask> )", [False, True]),
        ("bpe", "play[MASK] the", "▁play <mask> ▁the", [False]),
        ("bpe", "[MASK]ing", "<mask> ing", [True]),
        ("bpe", "[MASK][MASK] the", "<mask> <mask> ▁the", [True, False]),
        ("wordpiece", "the [MASK] gym", "the <mask> gym", [True]),
        ("wordpiece", "([MASK]) play[MASK]", "( <mask> ) play <mask>", [True, False]),
        ("wordpiece", "[MASK][MASK]", "<mask> <mask>", [True, False]),
        ("space", "the [MASK] gym", "▁the <mask> ▁gym", [True]),
        ("char", "in [MASK] a", "i n ▁ <mask> ▁ a", [True]),
        ("char", "i[MASK] [MASK]", "i <mask> ▁ <mask>", [False, True]),
        ("byte", "in [MASK] a", "i n Ġ <mask> Ġ a", [True]),
        ("bytebpe", "the [MASK] gym", "the <mask> Ġgym", [True]),
        ("bytebpe", "[MASK] gym", "<mask> Ġgym", [False]),
    ],
)
def test_the_tokens_of_a_text_with_masks(kind, text, tokens, begins):
    assert joined(reader(kind), text) == (tokens, begins)


@pytest.mark.parametrize("kind", ["bpe", "unigram", "wordpiece", "bytebpe", "word"])
def test_a_mask_is_as_long_as_one_token_and_changes_nothing_else(kind):
    found = reader(kind)
    whole = found.tokenizer.encode(["I play in a line"])[0]
    for number, word in enumerate(["play", "in", "a", "line"], start=1):
        text = "I play in a line".replace(f" {word}", " [MASK]", 1)
        row = found.read(text)
        if len(found.tokenizer.encode([word])[0]) == 1 and len(whole) == 5:
            assert row.ids == [*whole[:number], 4, *whole[number + 1 :]]
            assert row.places == [number]
            assert found.candidates(row.begins[0])[whole[number]]


def test_what_stands_for_a_mask_begins_a_word_or_goes_on():
    for kind, beginning, going_on in (
        ("bpe", "▁play", "ing"),
        ("wordpiece", "play", "##s"),
        ("bytebpe", "Ġplay", "ing"),
    ):
        found = reader(kind)
        numbers = {piece: i for i, piece in enumerate(found.tokenizer.pieces(range(found.tokenizer.size)))}
        assert found.candidates(True)[numbers[beginning]]
        assert not found.candidates(True)[numbers[going_on]]
        assert found.candidates(False)[numbers[going_on]]
        assert not found.candidates(False)[numbers[beginning]]
        for begins in (True, False):
            assert not found.candidates(begins)[:5].any()  # special tokens, the mask among them
        assert (found.shown(numbers[beginning]), found.shown(numbers[going_on])) == ("play", going_on.strip("#"))
    found = reader("char")
    assert found.candidates(True)[5:].all()
    assert found.candidates(False)[5:].all()
    assert found.shown(found.tokenizer.encode(["a a"])[0][1]) == " "


def test_a_space_alone_is_no_word():
    found = reader("bpe")
    space = found.tokenizer.pieces(range(found.tokenizer.size)).index("▁")
    assert not found.candidates(True)[space]


@pytest.mark.parametrize("text", ["no mask here", "[mask]", ""])
def test_a_text_without_a_mask_is_refused(text):
    with pytest.raises(DataError, match=r"my text: no \[MASK\] stands in it"):
        reader("word").read(text, "my text")


@pytest.mark.parametrize("text", ["the [MASK]. ", "play[MASK] it", "[MASK]ing", "[MASK][MASK]"])
def test_words_between_spaces_need_spaces_around_a_mask(text):
    with pytest.raises(DataError, match=r"Put white space around \[MASK\]"):
        reader("space").read(text)


def test_a_tokenizer_without_a_mask_is_refused():
    with pytest.raises(TokenizerError, match="<mask>"):
        MaskReader(Tokenizer.train(TEXTS, TokenizerConfig(kind="word")))
