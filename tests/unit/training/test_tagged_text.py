"""Batches of tagged text: what stands in them, and that their order is a pure function of (seed, epoch, position)."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest
import torch

from regard.core.types import EOS, PAD
from regard.data.batching import Place
from regard.data.tagged import TaggedSentences
from regard.data.tagged_tokens import WordRow
from regard.data.tokenizers import Tokenizer, TokenizerConfig
from regard.models.bert_tagger import BertTaggerConfig
from regard.models.recurrent_tagger import RecurrentTaggerConfig
from regard.training.config import TrainConfig
from regard.training.tagged_sizes import choose_tagged_sizes
from regard.training.tagged_text import TaggedStore, TaggedText, collate_tagged

ROWS = [WordRow([5, 6, 7], [0, 2]), WordRow([8], [0]), WordRow([9, 10, 11, 12, 13], [0, 1, 2, 3])]
LABELS = [[2, 1], [3], [1, 1, 2, 3]]


@pytest.fixture
def store() -> TaggedStore:
    return TaggedStore(ROWS, LABELS)


@pytest.fixture
def large() -> TaggedStore:
    draw = random.Random(0)
    rows = []
    for _ in range(100):
        tokens = [draw.randint(4, 30) for _ in range(draw.randint(1, 20))]
        rows.append(WordRow(tokens, [0, *sorted(draw.sample(range(1, len(tokens)), len(tokens) // 2))]))
    return TaggedStore(rows, [[draw.randint(1, 3) for _ in row.places] for row in rows])


def test_a_batch_is_sentences_the_places_of_their_words_and_their_labels(store):
    batch = collate_tagged(store, np.array([0, 2, 1]))
    assert batch.source.tokens.tolist() == [[5, 6, 7, 0, 0], [9, 10, 11, 12, 13], [8, 0, 0, 0, 0]]
    assert batch.source.lengths.tolist() == [3, 5, 1]
    assert batch.target_in.tolist() == [[0, 2, 0, 0], [0, 1, 2, 3], [0, 0, 0, 0]]
    assert batch.target_out.tolist() == [[2, 1, 0, 0], [1, 1, 2, 3], [3, 0, 0, 0]]
    assert batch.rows == [0, 2, 1]


def test_rows_that_fill_a_batch_up_have_no_labels_and_shapes_are_few(store):
    batch = collate_tagged(store, np.array([0, 1]), multiple=4, fill=16)
    assert batch.source.tokens.tolist() == [[5, 6, 7, 0], [8, 0, 0, 0], [EOS, 0, 0, 0], [EOS, 0, 0, 0]]
    assert (
        batch.target_in.shape == batch.target_out.shape == (4, 4)
    )  # as wide as the source, however many words there are
    assert batch.target_out[2:].tolist() == [[PAD] * 4] * 2


@pytest.mark.parametrize("on_cuda", [False, True])
def test_every_sentence_comes_once_an_epoch_within_the_budget(large, on_cuda):
    text = TaggedText(large, most=20)
    config = TrainConfig(batch_tokens=48, workers=0)
    seen: list[int] = []
    shapes = set()
    with text.open(config, Place(), text.multiple(None, on_cuda), on_cuda) as stream:
        for drawn in stream:
            if drawn.epoch:
                break
            batch = drawn.batch
            assert batch.source.tokens.numel() <= 48
            shapes.add((*batch.source.tokens.shape, *batch.target_in.shape))
            assert bool((batch.target_in < batch.source.lengths[:, None]).all())
            for row, labels in zip(batch.rows, batch.target_out.tolist(), strict=False):
                assert [label for label in labels if label != PAD] == large.target[row]
            seen += batch.rows
    assert sorted(seen) == list(range(100))
    if on_cuda:
        assert len(shapes) <= 3


def test_a_stream_can_begin_anywhere(large):
    text, config = TaggedText(large, most=20), TrainConfig(batch_tokens=64, workers=1, seed=5)
    with text.open(config, Place(), 1, False) as stream:
        first = list(itertools.islice(stream, 40))
    for at in (0, 7, 31):
        with text.open(config, first[at].next, 1, False) as stream:
            again = next(stream)
        assert again.batch.rows == first[at + 1].batch.rows
        assert torch.equal(again.batch.target_in, first[at + 1].batch.target_in)


def test_labels_are_numbered_from_1_and_long_sentences_cut():
    tokenizer = Tokenizer.train(["a b c d"] * 2, TokenizerConfig(kind="word"))
    part = TaggedSentences([["a", "b", "c", "d"], ["a"]], [["Y", "X", "Y", "X"], ["X"]])
    store = TaggedStore.of(part, ["X", "Y"], tokenizer, 3)
    assert [store.target[i] for i in range(2)] == [[2, 1, 2], [1]]
    assert store.cut == 1
    assert store.source[0] == tokenizer.encode(["a b c"])[0]


def test_sizes_are_chosen_for_a_model_from_nothing_and_for_one_that_is_tuned():
    chosen = choose_tagged_sizes(10_000, 150_000, RecurrentTaggerConfig(), cpu=True)
    assert chosen["model"] == {"width": 256, "layers": 2}  # no heads: it has none
    train = chosen["train"]
    assert train["steps"] * 32 == pytest.approx(20 * 10_000, rel=0.2)
    assert choose_tagged_sizes(10_000, 150_000, RecurrentTaggerConfig(), cpu=True, steps=70)["train"]["steps"] == 70
    tuned = choose_tagged_sizes(10_000, 150_000, BertTaggerConfig(), cpu=True, fine_tuning=True)
    assert set(tuned) == {"train"}
    assert tuned["train"]["lr"] == pytest.approx(5e-5)
    assert tuned["train"]["steps"] < train["steps"] / 5
