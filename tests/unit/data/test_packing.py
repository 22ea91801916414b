"""Packed batches: every pair once, both sides full, each sentence where it is said to be, and the same as padded ones."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from regard.core.errors import DataError
from regard.core.types import BOS, EOS, PAD
from regard.data.batching import BatchPlan, collate
from regard.data.packing import ROOMS, PackedBatch, PackedPlan, collate_packed, packs, places_for_sentences, room_for
from regard.data.store import TokenRows, TokenStore

TOKENS = 512


def store(count: int = 900, most: int = 60, seed: int = 1) -> TokenStore:
    """Pairs of like lengths, as translations have."""
    draw = np.random.default_rng(seed)
    source = draw.integers(1, most, count)
    target = np.maximum(0, source + draw.integers(-4, 5, count))
    sides = (TokenRows.from_lists(draw.integers(4, 50, n).tolist() for n in side) for side in (source, target))
    return TokenStore(*sides, kept=np.arange(count))


def plan(text: TokenStore, tokens: int = TOKENS, longest: int = 64, **more) -> PackedPlan:
    return PackedPlan(text.source.lengths, text.target.lengths, tokens, 3, longest, **more)


def packed(text: TokenStore, rows: np.ndarray, tokens: int = TOKENS) -> PackedBatch:
    return collate_packed(text.source, text.target, rows, tokens)


def test_every_pair_stands_in_one_batch_of_an_epoch_and_epochs_differ() -> None:
    text = store()
    subject = plan(text)
    first, second, again = subject.epoch(0), subject.epoch(1), plan(text).epoch(0)
    for batches in (first, second):
        assert sorted(np.concatenate(batches).tolist()) == list(range(len(text)))
    assert [b.tolist() for b in first] == [b.tolist() for b in again]
    assert {frozenset(b.tolist()) for b in first} != {frozenset(b.tolist()) for b in second}


def test_either_side_is_filled_and_padding_is_little() -> None:
    text = store(4000)
    batches = plan(text, 2048).epoch(0)
    assert all(packs(text, rows, 64) for rows in batches)
    sides = [side.lengths.astype(np.int64) + 1 for side in (text.source, text.target)]
    filled = [[int(side[rows].sum()) for side in sides] for rows in batches]
    assert all(max(both) <= 2048 for both in filled)
    assert sum(map(sum, filled)) / (2 * 2048 * len(batches)) > 0.95
    usual = BatchPlan(text.source.lengths, text.target.lengths, 2048, 3, multiple=8).epoch(0)
    padded = [collate(text.source, text.target, rows, 8, 2048) for rows in usual]
    cells = sum(batch.source.tokens.numel() + batch.target_in.numel() for batch in padded)
    assert sum(map(sum, filled)) / cells < 0.87  # which is what it is for
    rooms = [sorted(room_for(int(max(side[row] for side in sides))) for row in rows) for rows in batches]
    assert sum(one[0] != one[-1] for one in rooms) <= len(
        ROOMS
    )  # sentences of like lengths, but for a batch at each border
    assert len({packed(text, rows, 2048).shape for rows in batches}) <= len(ROOMS)


@pytest.mark.parametrize("seed", range(8))
def test_longer_pairs_are_batched_as_usual(seed: int) -> None:
    text = store(most=100, seed=seed)
    batches = plan(text, longest=32, multiple=8).epoch(2)
    assert sorted(np.concatenate(batches).tolist()) == list(range(len(text)))
    lengths = np.maximum(text.source.lengths, text.target.lengths) + 1
    for rows in batches:
        assert (lengths[rows] <= 32).all() == packs(text, rows, 32) == (lengths[rows] <= 32).any()
        if not packs(text, rows, 32):
            assert len(rows) * -(-lengths[rows].max() // 8) * 8 <= TOKENS


def test_weights_say_how_often_a_pair_comes() -> None:
    text = store(300)
    batches = plan(text, weights=np.where(np.arange(300) % 3 == 0, 2.0, 1.0)).epoch(0)
    counts = np.bincount(np.concatenate(batches), minlength=300)
    assert counts.tolist() == [2 if i % 3 == 0 else 1 for i in range(300)]


def test_batches_of_any_size_are_filled() -> None:
    """Also where one short sentence is all that is left of a class."""
    text = store(120, most=130)
    lengths = np.maximum(text.source.lengths, text.target.lengths) + 1
    for tokens in range(ROOMS[0], 300):
        longest = max(room for room in ROOMS if room <= tokens)
        batches = plan(text, tokens, longest).epoch(tokens)
        assert sorted(np.concatenate(batches).tolist()) == list(range(len(text)))
        for rows in batches:
            assert packs(text, rows, longest) == (lengths[rows].max() <= longest)
            if packs(text, rows, longest):
                assert packed(text, rows, tokens).target_in.shape == (1, tokens)


@pytest.mark.parametrize(("tokens", "longest"), [(64, 65), (4, 8), (512, 4), (512, 129)])
def test_what_does_not_fit_is_refused(tokens: int, longest: int) -> None:
    with pytest.raises(DataError, match="do not fit"):
        plan(store(10), tokens, longest)


@pytest.mark.parametrize("most", [6, 14, 30, 60])
def test_sentences_lie_where_it_says(most: int) -> None:
    text = store(most=most)
    for rows in plan(text).epoch(0):
        found = packed(text, rows)
        count = len(rows)
        for spans in found.source[1:]:
            starts = spans.starts.tolist()
            assert (starts[0], starts[-1]) == (0, TOKENS)
            widths = np.diff(starts)
            assert widths.min() >= 0
            assert widths.max() <= spans.longest
            assert spans.places.tolist() == [i for width in widths for i in range(width)]
            assert spans.sentences == places_for_sentences(spans.longest, TOKENS)
        (tokens, read, written), target_in, target_out, _ = found
        for i, row in enumerate(rows.tolist()):
            a, b = read.starts[i : i + 2].tolist()
            assert tokens[0, a:b].tolist() == [*text.source[row], EOS]
            a, b = written.starts[i : i + 2].tolist()
            assert target_in[0, a:b].tolist() == [BOS, *text.target[row]]
            assert target_out[0, a:b].tolist() == [*text.target[row], EOS]
        for side, spans in ((tokens, read), (target_in, written), (target_out, written)):
            assert side.shape == (1, TOKENS)
            assert side[0, int(spans.starts[count]) :].eq(PAD).all()
        assert found.rows == rows.tolist()


def test_one_sentence_that_fills_all_and_one_of_nothing() -> None:
    rows = TokenRows.from_lists([[5] * 63, []])
    found = collate_packed(rows, rows, np.array([0]), 64)
    assert found.source.spans.starts.tolist() == [0, 64, 64]
    found = collate_packed(rows, rows, np.array([1]), 64)
    assert found.source.spans.starts[:3].tolist() == [0, 1, 9]
    assert found.source.tokens[0, :2].tolist() == [EOS, PAD]
    assert found.target_in[0, :2].tolist() == [BOS, PAD]


def test_as_padded_batches_they_are_the_usual_ones() -> None:
    text = store()
    for rows in itertools.islice(plan(text).epoch(0), 8):
        found, usual = packed(text, rows).padded(), collate(text.source, text.target, rows)
        assert found.rows == usual.rows == rows.tolist()
        for one, other in zip(found.tensors(), usual.tensors(), strict=True):
            assert torch.equal(one, other)


def test_made_of_other_tensors_it_is_the_same() -> None:
    text = store()
    one, other = (packed(text, rows) for rows in plan(text).epoch(0)[:2])
    again = one.of(one.tensors())
    assert again.source.spans.longest == one.source.spans.longest
    assert all(map(torch.equal, again.tensors(), one.tensors()))
    assert all(map(torch.equal, one.to("cpu").of([t.clone() for t in other.tensors()]).tensors(), other.tensors()))
