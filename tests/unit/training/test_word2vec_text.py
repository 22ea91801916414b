"""A text as word2vec reads it: one number for a word however it stands, and no batch without words."""

from __future__ import annotations

import pytest

from regard.core.types import PAD
from regard.data.batching import Place
from regard.data.tokenizers import Tokenizer, TokenizerConfig
from regard.training.config import TrainConfig
from regard.training.word2vec_text import WordText

LINES = ['She said "tea is hot" (tea is good).', "Hot tea, good tea , hot-tea", "...", "Good is good"]


def words_of(tokenizer: Tokenizer, text: WordText) -> list[str]:
    return [piece.removeprefix("▁") for piece in tokenizer.pieces(text.words.tolist())]


@pytest.fixture
def tokenizer():
    return Tokenizer.train(LINES, TokenizerConfig(kind="word", size=100, lowercase=True, min_count=2))


def test_a_word_is_the_same_with_a_space_before_it_and_without(tokenizer):
    text = WordText.from_documents(LINES, tokenizer)
    words = words_of(tokenizer, text)
    assert words.count("tea") == 5
    assert len({int(i) for i, word in zip(text.words, words, strict=True) if word == "tea"}) == 1
    assert text.counts(tokenizer.size).max() == 5
    assert len(text) == len(text.words) - 3  # ends of documents, but for the last one


@pytest.mark.parametrize("size", range(1, 40))
def test_every_batch_has_a_word(tokenizer, size):
    """A last batch of nothing but the end of a document would be divided by no words."""
    text = WordText.from_documents([*LINES[:2], *LINES[3:], "nobody knows"], tokenizer)
    config = TrainConfig(batch_tokens=size)
    batches = text.open(config, Place(), 1, False)
    drawn = [next(batches) for _ in range(-(-len(text.words) // size))]
    assert sum(int((one.batch.target_out != PAD).sum()) for one in drawn) == len(text)
    if size > 1:
        assert all((one.batch.target_out != PAD).any() for one in drawn)


def test_whether_words_meet(tokenizer):
    assert WordText.from_documents(["hot tea"], tokenizer).has_pairs()
    assert not WordText.from_documents(["tea", "tea", "unheard"], tokenizer).has_pairs()
    assert not WordText.from_documents(["unheard of"], tokenizer).has_pairs()
    assert len(WordText.from_documents(["unheard of"], tokenizer).words) == 0
