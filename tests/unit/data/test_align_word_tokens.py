"""Which word each token belongs to, for every kind of tokenizer and every odd text."""

from __future__ import annotations

import random

import pytest

from regard.core.errors import TokenizerError
from regard.core.types import UNK
from regard.data.tokenizers import Tokenizer, TokenizerConfig
from regard.data.word_tokens import WordTokenizer

KINDS = ("bpe", "unigram", "word", "char", "byte")
TEXTS = [
    "Hello, world.",
    'He said (twice): "No way!"',
    "Don't pay $1,984.50 – it's a trap…",
    "Grüß Gott, schöne Welt!",
    "if a<b then </s> or <s> or <pad><unk> end",
]


def trained(kind: str, **settings) -> Tokenizer:
    return Tokenizer.train(TEXTS * 3, TokenizerConfig(**{"kind": kind, "size": 150, "min_count": 1, **settings}))


@pytest.fixture(scope="module", params=KINDS)
def tokenizer(request) -> Tokenizer:
    return trained(request.param)


@pytest.mark.parametrize("text", [*TEXTS, "  Hello,\u00a0 world. \t", "\u3000He\u2003said\u2028a\x0bworld.\u2009", "a"])
def test_the_tokens_of_a_word_spell_it(tokenizer: Tokenizer, text: str) -> None:
    """And each word has some, in order, none left over but white space at the end."""
    (found,) = WordTokenizer(tokenizer).encode([text])
    words = text.split()
    assert found.ids == tokenizer.encode([text])[0]
    assert found.count == len(words)
    assert found.words == sorted(found.words)
    for number, word in enumerate(words):
        own = [i for i, place in zip(found.ids, found.words, strict=True) if place == number]
        assert tokenizer.decode([own])[0].strip() == word
    rest = [i for i, place in zip(found.ids, found.words, strict=True) if place == len(words)]
    assert tokenizer.decode([rest])[0].strip() == ""


def test_by_hand() -> None:
    """White space goes with the word after it, punctuation with the word it touches."""
    expected = {
        "word": [0, 0, 1, 1],  # Hello , ▁world .
        "char": [*[0] * 6, *[1] * 7],  # ▁ and six letters
        "byte": [0, 0, *[0] * 6, *[1] * 8, 2],  # two spaces before each word, one after the last
    }
    for kind, words in expected.items():
        (found,) = WordTokenizer(trained(kind)).encode(["  Hello,  world. "])
        assert found.words == words, kind


def test_words_that_are_not_known() -> None:
    (found,) = WordTokenizer(trained("word")).encode(["Hello, Zyx zyx. world"])
    assert found.words == [0, 0, 1, 2, 2, 3]
    assert [i == UNK for i in found.ids] == [False, False, True, True, False, False]
    (found,) = WordTokenizer(trained("char")).encode(["a ☃☃ b"])
    assert found.words == [0, 1, 1, 1, 2, 2]


@pytest.mark.parametrize("kind", ["bpe", "unigram", "word"])
def test_texts_that_normalisation_changes(kind: str) -> None:
    """A literal ▁ is no space; a character that becomes a space and another one stays in its word; case may add one."""
    settings = {"normalize": "nfkc", "lowercase": True}
    (found,) = WordTokenizer(trained(kind, **settings)).encode(["a▁b x´y ﬁ İ nai\u0308ve ▁ ´ z"])
    assert found.count == 8
    assert sorted(set(found.words)) == list(range(8))
    assert found.words == sorted(found.words)


@pytest.mark.parametrize("kind", ["bpe", "unigram", "word"])
@pytest.mark.parametrize("normalize", ["nfc", "nfkc", "none"])
def test_random_texts_word_by_word(kind: str, normalize: str) -> None:
    """These kinds cut a text as they cut each of its words alone."""
    tokenizer = trained(kind, normalize=normalize)
    draw = random.Random(1)
    texts = ["".join(draw.choices("abHl.,'ü\u0301ﬁ´☃▁<>7 \t\u00a0\u2003  ", k=30)) for _ in range(200)]
    for text, found in zip(texts, WordTokenizer(tokenizer).encode(texts), strict=True):
        alone = tokenizer.encode(text.split())
        assert found.ids == [i for ids in alone for i in ids]
        assert found.words == [number for number, ids in enumerate(alone) for _ in ids]


def test_a_word_may_have_no_token() -> None:
    """A separator that is white space to us and text to the tokenizer: one token goes across two words."""
    (found,) = WordTokenizer(trained("word")).encode(["a\x1cb Hello"])
    assert (found.words, found.count) == ([0, 2], 3)


@pytest.mark.parametrize("text", ["", " ", "\t\u00a0 "])
def test_blank_texts(tokenizer: Tokenizer, text: str) -> None:
    (found,) = WordTokenizer(tokenizer).encode([text])
    assert found.count == 0
    assert set(found.words) <= {0}
    assert found.ids == tokenizer.encode([text])[0]


def test_special_tokens_in_a_text_are_text(tokenizer: Tokenizer) -> None:
    (found,) = WordTokenizer(tokenizer).encode(["a </s> <pad>"])
    assert found.ids == tokenizer.encode(["a </s> <pad>"])[0]
    assert set(found.words) == {0, 1, 2}


def test_what_is_no_text_is_said(tokenizer: Tokenizer) -> None:
    with pytest.raises(TokenizerError, match="not valid Unicode"):
        WordTokenizer(tokenizer).encode(["a", "b\udc80"])
