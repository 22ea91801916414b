"""Examples of masked models: segments and whether one follows the other, which words are hidden and how, and resuming."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from regard.core.errors import DataError, TokenizerError
from regard.core.types import EOS, PAD, UNK
from regard.data.batching import Place
from regard.data.masking import (
    A_LENGTH,
    B_LENGTH,
    CODE,
    ELSEWHERE,
    FOLLOWS,
    NO_CODE,
    A,
    B,
    ExamplePlan,
    MaskedBatches,
    Masking,
    collate_masked,
    hidden_of,
)
from regard.data.sentence_stream import SentenceStream
from regard.data.tokenizers import Tokenizer, TokenizerConfig

FIRST, MASK = 100, 4  # a token is its own place from FIRST on
WINDOW = 30
SENTENCES = 900


def numbered(seed: int = 0, sentences: int = SENTENCES, documents: int = 60) -> SentenceStream:
    draw = np.random.default_rng(seed)
    begins = np.concatenate([[0], np.cumsum(draw.integers(1, 15, sentences))])
    cuts = np.sort(draw.choice(np.arange(1, sentences), documents - 1, replace=False))
    tokens = np.arange(FIRST, FIRST + begins[-1], dtype=np.int32)
    return SentenceStream(tokens, begins, np.concatenate([[0], cuts, [sentences]]))


STREAM = numbered()
MASKING = Masking(MASK, np.arange(5, 20_000), hidden_of(WINDOW))


def plan(stream: SentenceStream = STREAM, *, rows: int = 16, pairs: bool = True, seed: int = 1, window: int = WINDOW):
    return ExamplePlan(stream, rows, window, seed=seed, pairs=pairs)


def batch_of(examples: np.ndarray, *, epoch: int = 0, rows: int = 0, masking: Masking = MASKING, seed: int = 1):
    return collate_masked(STREAM, examples, masking, window=WINDOW, rows=rows or len(examples), seed=seed, epoch=epoch)


def restored(batch) -> np.ndarray:
    """The tokens as they were before any was hidden."""
    tokens = batch.source.tokens.clone()
    for row in range(len(tokens)):
        for place, word in zip(batch.target_in[row, 1:], batch.target_out[row, 1:], strict=True):
            if word != PAD:
                tokens[row, place] = word
    return tokens.numpy()


@pytest.fixture(scope="module")
def examples() -> np.ndarray:
    return np.concatenate([plan().examples(epoch) for epoch in range(12)])


@pytest.fixture(scope="module")
def different(examples) -> np.ndarray:
    """Examples that begin in different ways, and so draw different numbers."""
    return examples[np.unique(examples[:, [A, A_LENGTH]], axis=0, return_index=True)[1]]


@pytest.fixture(scope="module")
def batch(different):
    return batch_of(different)


class TestSegments:
    def test_half_of_the_second_segments_come_from_another_document(self, examples):
        codes = np.bincount(examples[:, CODE], minlength=3) / len(examples)
        assert codes[ELSEWHERE] == pytest.approx(0.5, abs=0.02)
        assert codes[NO_CODE] < 0.1  # single sentences at the end of a document
        assert codes[FOLLOWS] == pytest.approx(0.5 - codes[NO_CODE], abs=0.02)
        document = np.repeat(np.arange(60), np.diff(STREAM.begins[STREAM.documents]))  # of each token
        same = document[examples[:, A]] == document[np.minimum(examples[:, B], len(document) - 1)]
        assert not same[examples[:, CODE] == ELSEWHERE].any()
        assert same[examples[:, CODE] == FOLLOWS].all()
        other = examples[examples[:, CODE] == ELSEWHERE]
        assert len(np.unique(document[other[:, B]])) == 60  # any of them

    def test_what_follows_follows(self, examples):
        found = examples[examples[:, CODE] == FOLLOWS]
        assert np.array_equal(found[:, A] + found[:, A_LENGTH], found[:, B])
        assert np.isin(found[:, B], STREAM.begins).all()  # and begins with a sentence
        assert (found[:, [A_LENGTH, B_LENGTH]] > 0).all()

    def test_a_row_without_a_second_segment_is_the_last_sentence_of_a_document(self, examples):
        single = examples[examples[:, CODE] == NO_CODE]
        assert len(single) > 10
        assert (single[:, B_LENGTH] == 0).all()
        assert np.isin(single[:, A] + single[:, A_LENGTH], STREAM.begins[STREAM.documents]).all()

    def test_what_a_segment_from_elsewhere_takes_the_place_of_comes_next(self):
        covered = np.zeros(len(STREAM), dtype=bool)
        for a, a_length, b, b_length, code in plan().examples(0).tolist():
            covered[a : a + a_length] = True
            if code == FOLLOWS:
                covered[b : b + b_length] = True
        assert covered.mean() > 0.9  # the rest is what was too long

    def test_rows_are_filled_and_one_in_ten_is_shorter(self):
        stream = numbered(sentences=4000, documents=4)
        examples = np.concatenate([plan(stream).examples(epoch) for epoch in range(5)])
        lengths = examples[:, A_LENGTH] + examples[:, B_LENGTH]
        assert lengths.max() == WINDOW - 1  # the EOS between them has a place, too
        # a shorter target is reached by whole sentences, so that some of them fill a row all the same
        assert 0.04 < (lengths < WINDOW - 1).mean() < 0.12
        assert lengths.min() < 10

    def test_one_piece_of_text_where_the_next_sentence_is_not_asked(self):
        single = plan(pairs=False)
        examples = single.examples(0)
        assert (examples[:, [B_LENGTH, CODE]] == 0).all()
        assert examples[:, A_LENGTH].max() == WINDOW
        covered = np.zeros(len(STREAM), dtype=bool)
        for begin, length in examples[:, [A, A_LENGTH]]:
            covered[begin : begin + length] = True
        assert covered.mean() > 0.97  # short pieces may lose the end of a sentence
        full = (examples[:, A_LENGTH] == WINDOW).mean()
        assert full > 0.5

    def test_every_epoch_cuts_the_text_in_another_way(self):
        first, second = (set(map(tuple, plan().examples(epoch).tolist())) for epoch in (0, 1))
        assert len(first & second) < 0.5 * len(first)
        assert set(map(tuple, plan().examples(0).tolist())) == first
        assert set(map(tuple, plan(seed=2).examples(0).tolist())) != first

    def test_one_document_has_no_other(self):
        stream = SentenceStream(STREAM.tokens, STREAM.begins, np.array([0, SENTENCES]))
        with pytest.raises(DataError, match=r"it is one document.*divide it with data\.documents"):
            plan(stream)
        plan(stream, pairs=False)

    def test_a_row_has_room_for_two_segments(self):
        with pytest.raises(DataError, match=r"2 tokens are too few for two segments"):
            plan(window=2)


class TestHiding:
    def test_how_many(self, batch):
        lengths = batch.source.lengths.numpy()
        hidden = (batch.target_out[:, 1:] != PAD).sum(1).numpy()
        assert hidden.tolist() == [max(1, round(0.15 * (length + 2))) for length in lengths.tolist()]
        assert batch.target_in.shape == batch.target_out.shape == (len(lengths), 1 + 5)
        assert (hidden_of(1), hidden_of(30), hidden_of(126), hidden_of(510)) == (1, 5, 19, 77)

    def test_eighty_ten_ten(self, batch):
        there = batch.target_out[:, 1:] != PAD
        now = batch.source.tokens.gather(1, batch.target_in[:, 1:])[there]
        was = batch.target_out[:, 1:][there]
        masked, kept = (now == MASK).double().mean(), (now == was).double().mean()
        assert len(was) > 5000
        assert masked == pytest.approx(0.8, abs=0.02)
        assert kept == pytest.approx(0.1, abs=0.02)
        changed = now[(now != MASK) & (now != was)]
        assert len(changed) / len(was) == pytest.approx(0.1, abs=0.02)
        assert changed.min() >= 5  # no special token
        assert changed.double().mean() == pytest.approx(10_000, rel=0.1)  # of the whole vocabulary

    def test_every_place_is_hidden_alike_but_never_the_end(self, batch):
        tokens, hidden = torch.from_numpy(restored(batch)), torch.zeros_like(batch.source.keep)
        for row, (places, words) in enumerate(zip(batch.target_in[:, 1:], batch.target_out[:, 1:], strict=True)):
            hidden[row, places[words != PAD]] = True
        assert not hidden[tokens == EOS].any()
        assert not hidden[~batch.source.keep].any()
        full = batch.source.lengths == WINDOW
        rates = hidden[full].double().mean(0)
        assert rates == pytest.approx(np.full(WINDOW, 5 / 29), abs=0.06)

    def test_places_are_in_order_and_different(self, batch):
        places = torch.where(batch.target_out[:, 1:] != PAD, batch.target_in[:, 1:], 1000 + torch.arange(5))
        assert (places.diff(dim=1) > 0).all()
        assert (batch.target_out[:, 0] == PAD).all()

    def test_nothing_but_hidden_words_is_changed(self, batch, different):
        tokens = restored(batch)
        assert batch.target_in[:, 0].tolist() == different[:, CODE].tolist()
        for row, (a, a_length, b, b_length, _) in zip(tokens, different.tolist(), strict=True):
            whole = [*range(FIRST + a, FIRST + a + a_length)]
            whole += [EOS, *range(FIRST + b, FIRST + b + b_length)] if b_length else []
            assert row.tolist() == whole + [PAD] * (WINDOW - len(whole))

    def test_masks_differ_between_epochs_and_rows_but_are_always_the_same_there(self):
        examples = plan().examples(0)[:64]
        first, again, later = (batch_of(examples, epoch=epoch) for epoch in (0, 0, 1))
        assert torch.equal(first.source.tokens, again.source.tokens)
        assert (first.target_in == later.target_in).all(1).sum() < 20
        assert not torch.equal(first.target_in, batch_of(examples, seed=2).target_in)
        # what is hidden in a row does not depend on the rows beside it
        assert torch.equal(batch_of(examples[5:9]).source.tokens, first.source.tokens[5:9])

    def test_unknown_words_are_hidden_only_where_there_is_nothing_else(self):
        stream = SentenceStream(
            np.array([UNK, 200, UNK, UNK, UNK, UNK, UNK, UNK, UNK, UNK]), np.array([0, 5, 10]), np.array([0, 1, 2])
        )
        examples = np.array([[0, 5, 0, 0, 0], [5, 5, 0, 0, 0]])
        masking = Masking(MASK, np.array([200]), 3)
        batch = collate_masked(stream, examples, masking, window=16, rows=2, seed=1, epoch=0)
        assert batch.target_out.tolist() == [[PAD, 200, PAD, PAD], [PAD, UNK, PAD, PAD]]
        assert batch.target_in[0].tolist() == [0, 1, 0, 0]

    def test_rows_that_fill_a_batch_up(self):
        batch = batch_of(plan().examples(0)[:2], rows=5)
        assert batch.source.tokens.shape == (5, WINDOW)
        assert batch.source.tokens[2:].tolist() == [[EOS] + [PAD] * (WINDOW - 1)] * 3
        assert batch.source.lengths[2:].tolist() == [1, 1, 1]
        assert not batch.target_in[2:].any()
        assert not batch.target_out[2:].any()

    def test_random_words_are_never_special(self):
        tokenizer = Tokenizer.train(["a b c a b c"], TokenizerConfig(kind="word"), ("<mask>",))
        found = Masking.of(tokenizer, WINDOW)
        assert (found.mask, found.words.tolist(), found.most) == (4, [5, 6, 7], 5)
        with pytest.raises(TokenizerError, match="<mask>"):
            Masking.of(Tokenizer.train(["a b c a b c"], TokenizerConfig(kind="word")), WINDOW)


class TestBatches:
    def test_all_have_one_shape_and_an_epoch_has_every_example(self):
        made = plan(rows=7)
        examples = made.examples(0)
        count = -(-len(examples) // 7)
        with MaskedBatches(made, MASKING, Place()) as stream:
            batches = list(itertools.islice(stream, count + 1))
        assert {drawn.batch.source.tokens.shape for drawn in batches} == {(7, WINDOW)}
        assert {drawn.batch.target_in.shape for drawn in batches} == {(7, 6)}
        begins = [row for drawn in batches[:count] for row in drawn.batch.rows]
        assert sorted(begins) == sorted(examples[:, A].tolist())
        assert begins != examples[:, A].tolist()  # in random order
        assert batches[count - 1].next == Place(1, 0)
        assert batches[count].epoch == 1

    @pytest.mark.parametrize("workers", [0, 2])
    @pytest.mark.parametrize("pairs", [True, False])
    def test_a_stream_goes_on_from_any_place(self, workers, pairs):
        stream = numbered(sentences=200, documents=9)
        made = ExamplePlan(stream, 16, WINDOW, seed=3, pairs=pairs)
        with MaskedBatches(made, MASKING, Place()) as straight:
            whole = list(itertools.islice(straight, 20))
        for start in (1, 7, 13):
            with MaskedBatches(made, MASKING, whole[start - 1].next, workers) as resumed:
                for before, after in zip(whole[start:], resumed, strict=False):
                    assert after[1:] == before[1:]
                    for one, other in zip(before.batch[1:3], after.batch[1:3], strict=True):
                        assert torch.equal(one, other)
                    assert torch.equal(before.batch.source.tokens, after.batch.source.tokens)

    def test_a_place_beyond_the_epoch_is_refused(self):
        with pytest.raises(DataError, match="an epoch of this text has"):
            MaskedBatches(plan(), MASKING, Place(0, 10_000))
