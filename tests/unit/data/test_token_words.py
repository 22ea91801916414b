"""Which words the tokens of every kind of tokenizer are."""

from __future__ import annotations

import pytest

from regard.data.token_words import token_words
from regard.data.tokenizers import Tokenizer, TokenizerConfig

TEXT = ["the cat, the dog and the bird sang </s>", "a singing dog, singing"] * 3


def words_of(kind: str, tags=(), **more) -> tuple[Tokenizer, list[str | None]]:
    tokenizer = Tokenizer.train(TEXT, TokenizerConfig(kind=kind, size=300, **more), tags=tags)
    return tokenizer, token_words(tokenizer)


def test_words_have_no_mark_and_special_tokens_are_none():
    tokenizer, words = words_of("word", tags=("<mask>",))
    assert len(words) == tokenizer.size
    assert words[:5] == [None] * 5
    assert {"the", "cat", ",", "dog"} <= set(words)
    assert all(word is None or "▁" not in word for word in words)
    assert words[tokenizer.encode(["dog"])[0][0]] == "dog"


def test_words_of_space_are_as_they_stand():
    tokenizer, words = words_of("space")
    assert {"cat,", "</s>", "dog,"} <= set(words)
    assert words.index("</s>") == tokenizer.encode(["</s>"])[0][0] > 3


def test_pieces_that_go_on_a_word_are_none():
    tokenizer, words = words_of("bpe")
    for piece, word in zip(tokenizer.pieces(range(tokenizer.size)), words, strict=True):
        if piece == "▁":
            assert word is None
        elif piece.startswith("▁"):
            assert word == piece[1:]
        elif piece[:1].isalpha():
            assert word is None
    assert words.count(",") == 1
    assert "singing" in words


def test_pieces_of_bytes_begin_a_word_with_a_space():
    _, words = words_of("bytebpe")
    assert {"the", "dog", ","} <= set(words)
    assert words.count("the") == 1


@pytest.mark.parametrize("kind", ["char", "byte"])
def test_characters_are_words_of_one_letter(kind):
    _, words = words_of(kind)
    assert {"c", "a", "t", ","} <= set(words)
    assert not {"▁", " "} & {*words}
