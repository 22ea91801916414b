"""Batches of labelled text: what stands in them, and that their order is a pure function of (seed, epoch, position)."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest
import torch

from regard.core.types import EOS, PAD
from regard.data.batching import Place
from regard.data.labelled import Labelled
from regard.data.tokenizers import Tokenizer, TokenizerConfig
from regard.models.gpt_classifier import GPTClassifierConfig
from regard.training.config import TrainConfig
from regard.training.labelled_sizes import choose_labelled_sizes
from regard.training.labelled_text import LabelledStore, LabelledText, collate_labelled

ROWS = [[5, 6, 7], [8], [9, EOS, 10, 11, 12], [4, 4]]


@pytest.fixture
def store() -> LabelledStore:
    return LabelledStore(ROWS, [2, 1, 3, 1])


@pytest.fixture
def large() -> LabelledStore:
    draw = random.Random(0)
    rows = [[draw.randint(4, 30) for _ in range(draw.randint(1, 20))] for _ in range(100)]
    return LabelledStore(rows, [draw.randint(1, 3) for _ in rows])


def test_a_batch_is_texts_and_their_labels(store):
    batch = collate_labelled(store, np.array([0, 1, 2]))
    assert batch.source.tokens.tolist() == [[5, 6, 7, 0, 0], [8, 0, 0, 0, 0], [9, EOS, 10, 11, 12]]
    assert batch.source.lengths.tolist() == [3, 1, 5]
    assert torch.equal(batch.source.keep, torch.arange(5) < batch.source.lengths[:, None])
    assert batch.target_out.tolist() == [[2], [1], [3]]
    assert batch.target_in.tolist() == [[PAD]] * 3
    assert batch.rows == [0, 1, 2]


def test_widths_are_rounded_up_but_never_beyond_the_longest_allowed(store):
    assert collate_labelled(store, np.array([0, 1]), multiple=4).source.tokens.shape == (2, 4)
    assert collate_labelled(store, np.array([2]), multiple=4).source.tokens.shape == (1, 8)
    assert collate_labelled(store, np.array([2]), multiple=4, most=6).source.tokens.shape == (1, 6)


def test_rows_that_fill_a_batch_up_have_no_label(store):
    batch = collate_labelled(store, np.array([0, 3]), fill=16)
    assert batch.source.tokens[2:].tolist() == [[EOS, PAD, PAD]] * 3
    assert batch.source.lengths.tolist() == [3, 2, 1, 1, 1]
    assert batch.target_out.tolist() == [[2], [1], [PAD], [PAD], [PAD]]
    assert collate_labelled(store, np.array([0, 3]), fill=4).source.tokens.shape == (2, 3)


@pytest.mark.parametrize("on_cuda", [False, True])
def test_every_text_comes_once_an_epoch_within_the_budget(large, on_cuda):
    text = LabelledText(large, most=20)
    multiple = text.multiple(None, on_cuda)
    assert multiple == (8 if on_cuda else 1)
    config = TrainConfig(batch_tokens=48, workers=0)
    seen: list[int] = []
    with text.open(config, Place(), multiple, on_cuda) as stream:
        for drawn in stream:
            if drawn.epoch:
                break
            shape = drawn.batch.source.tokens.shape
            assert shape[0] * shape[1] <= 48
            if on_cuda:
                assert shape[1] in (8, 16, 20)
                assert shape[0] == 48 // shape[1]
            labels = [large.target[row][0] for row in drawn.batch.rows]
            assert drawn.batch.target_out[: len(labels), 0].tolist() == labels
            seen += drawn.batch.rows
    assert sorted(seen) == list(range(100))


def test_a_stream_can_begin_anywhere(large):
    text, config = LabelledText(large, most=20), TrainConfig(batch_tokens=64, workers=1, seed=5)
    with text.open(config, Place(), 1, False) as stream:
        first = list(itertools.islice(stream, 60))
    assert first[-1].epoch > 0
    for at in (0, 7, 31):
        with text.open(config, first[at].next, 1, False) as stream:
            again = next(stream)
        assert again.batch.rows == first[at + 1].batch.rows
        assert again.next == first[at + 1].next
        assert torch.equal(again.batch.source.tokens, first[at + 1].batch.source.tokens)
    with text.open(TrainConfig(batch_tokens=64, workers=0, seed=6), Place(), 1, False) as stream:
        assert [d.batch.rows for d in itertools.islice(stream, 5)] != [d.batch.rows for d in first[:5]]


def test_labels_are_numbered_from_1_and_long_texts_cut():
    tokenizer = Tokenizer.train(["a b c d"] * 2, TokenizerConfig(kind="word"))
    part = Labelled(["y", "x", "y"], ["a b c d", "a", "b c"])
    store = LabelledStore.of(part, ["x", "y"], tokenizer, 3, "training text")
    assert [store.target[i] for i in range(3)] == [[2], [1], [2]]
    assert store.cut == 1
    assert store.source[0] == tokenizer.encode(["a b c"])[0]


def test_fine_tuning_is_that_of_2018():
    model = GPTClassifierConfig(width=768, heads=12)
    chosen = choose_labelled_sizes(6920, 6920 * 100, model, cpu=False, fine_tuning=True)
    assert set(chosen) == {"train"}
    train = chosen["train"]
    assert train["lr"] == pytest.approx(6.25e-5)
    assert train["schedule"] == "linear"
    assert train["steps"] * 32 == pytest.approx(3 * 6920, rel=0.15)  # three epochs of 32 texts a batch
    assert train["warmup"] == max(1, round(0.002 * train["steps"]))
    assert train["label_smoothing"] == 0
    narrow = choose_labelled_sizes(6920, 692000, GPTClassifierConfig(width=192, heads=4), cpu=True, fine_tuning=True)
    assert narrow["train"]["lr"] == pytest.approx(4 * 6.25e-5)


def test_sizes_are_chosen_for_a_model_from_nothing():
    chosen = choose_labelled_sizes(1000, 50_000, GPTClassifierConfig(), cpu=True, steps=77)
    assert chosen["train"]["steps"] == 77
    assert GPTClassifierConfig(**chosen["model"]).context == 512
    assert chosen["tokenizer"]["size"] == 2000
