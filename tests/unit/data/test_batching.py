"""Batches: budget, padding, exact order from any place and with any number of workers."""

import threading
import time
from itertools import islice

import numpy as np
import pytest
import torch

from regard.core.errors import ConfigError, DataError
from regard.core.types import BOS, EOS, PAD
from regard.data.batching import BatchPlan, BatchStream, Place, collate
from regard.data.corpus import load_corpus
from regard.data.corpus_config import DataConfig
from regard.data.split import Pairs
from regard.data.store import TokenRows, TokenStore
from regard.data.tokenizers import TokenizerConfig, TokenizerPair


def store(n: int = 200, seed: int = 0) -> TokenStore:
    draw = np.random.default_rng(seed)
    sources = [draw.integers(4, 99, draw.integers(0, 12)).tolist() for _ in range(n)]
    targets = [draw.integers(4, 99, draw.integers(0, 12)).tolist() for _ in range(n)]
    return TokenStore(TokenRows.from_lists(sources), TokenRows.from_lists(targets), np.arange(n))


def flat(batches: list[np.ndarray]) -> list[list[int]]:
    return [batch.tolist() for batch in batches]


def test_collate_adds_the_special_tokens_and_pads():
    sources = TokenRows.from_lists([[5, 6], [9], [], [7, 8, 9]])
    targets = TokenRows.from_lists([[10], [11], [12, 13], [14]])
    batch = collate(sources, targets, [3, 0, 2])
    assert batch.source.tokens.tolist() == [[7, 8, 9, EOS], [5, 6, EOS, PAD], [EOS, PAD, PAD, PAD]]
    assert batch.source.keep.tolist() == [[True] * 4, [True] * 3 + [False], [True] + [False] * 3]
    assert batch.target_in.tolist() == [[BOS, 14, PAD], [BOS, 10, PAD], [BOS, 12, 13]]
    assert batch.target_out.tolist() == [[14, EOS, PAD], [10, EOS, PAD], [12, 13, EOS]]
    assert batch.rows == [3, 0, 2]
    assert batch.target_in.dtype == batch.target_out.dtype == batch.source.tokens.dtype == torch.long


def test_collate_rounds_widths_up():
    rows = TokenRows.from_lists([[5] * 7, [5] * 8])
    assert collate(rows, rows, [0], multiple=8).target_out.shape == (1, 8)
    assert collate(rows, rows, [1], multiple=8).target_out.shape == (1, 16)
    assert collate(rows, rows, [1], multiple=8).source.lengths.tolist() == [9]


def test_every_row_once_within_the_budget():
    data = store(1000)
    plan = BatchPlan.of(data, 100, seed=1)
    for epoch in range(3):
        batches = plan.epoch(epoch)
        assert sorted(np.concatenate(batches).tolist()) == list(range(1000))
        for rows in batches:
            widest = max(data.source.lengths[rows].max(), data.target.lengths[rows].max()) + 1
            assert len(rows) * widest <= 100
    assert len(batches) < 1.1 * sum(np.maximum(data.source.lengths, data.target.lengths) + 1) / 100


def test_batches_cannot_take_one_row_more():
    lengths = np.full(50, 9)
    assert {len(rows) for rows in BatchPlan(lengths, lengths, 100, 1).epoch(0)} == {10}


def test_a_pair_beyond_the_budget_stands_alone_and_rows_are_capped():
    lengths = np.array([3, 500, 3, 700, 3])
    assert sorted(map(len, BatchPlan(lengths, lengths, 100, 1).epoch(0))) == [1, 1, 3]
    assert max(map(len, BatchPlan(np.ones(90), np.ones(90), 1000, 1, max_rows=8).epoch(0))) == 8


def test_order_is_a_function_of_seed_and_epoch():
    data = store(500)
    order = flat(BatchPlan.of(data, 80, seed=3).epoch(5))
    assert flat(BatchPlan.of(data, 80, seed=3).epoch(5)) == order
    assert flat(BatchPlan.of(data, 80, seed=3).epoch(6)) != order
    assert flat(BatchPlan.of(data, 80, seed=4).epoch(5)) != order
    assert {frozenset(rows) for rows in flat(BatchPlan.of(data, 80, seed=3).epoch(6))} != {
        frozenset(rows) for rows in order
    }


def test_order_never_changes_between_versions():
    """Old runs resume only while this holds."""
    lengths = np.array([3, 5, 3, 5, 2, 2, 3])
    assert flat(BatchPlan(lengths, lengths[::-1], 13, seed=7).epoch(2)) == [[2, 6, 0], [4, 1], [3, 5]]


def test_lengths_are_spread_over_the_epoch():
    widths = [len(rows) for rows in BatchPlan.of(store(3000), 60, seed=1).epoch(0)]
    middle = len(widths) // 2
    assert abs(np.mean(widths[:middle]) - np.mean(widths[middle:])) < 0.15 * np.mean(widths)


@pytest.fixture(scope="module")
def tatoeba():
    pairs = load_corpus(DataConfig(pairs="bundled:tatoeba-en-de", max_pairs=20_000)).train
    tokenizers = TokenizerPair.train(pairs.sources, pairs.targets, TokenizerConfig(size=2000))
    return pairs, tokenizers, TokenStore.from_pairs(pairs, tokenizers)


@pytest.mark.parametrize(("budget", "most"), [(600, 0.03), (4096, 0.08)])
def test_little_padding_on_real_text(tatoeba, budget, most):
    data = tatoeba[2]
    real = padded = 0
    for rows in BatchPlan.of(data, budget, seed=1).epoch(0):
        for side in (data.source, data.target):
            real += int(side.lengths[rows].sum()) + len(rows)
            padded += len(rows) * (int(side.lengths[rows].max()) + 1)
    assert 1 - real / padded < most


def test_store_keeps_the_tokens_of_each_pair(tatoeba, monkeypatch):
    pairs, tokenizers, _ = tatoeba
    monkeypatch.setattr("regard.data.store.CHUNK", 300)
    some = pairs.head(1000)
    data = TokenStore.from_pairs(some, tokenizers, max_length=8)
    sources, targets = tokenizers.source.encode(some.sources), tokenizers.target.encode(some.targets)
    fitting = [i for i in range(1000) if len(sources[i]) <= 8 and len(targets[i]) <= 8]
    assert 0 < len(fitting) < 1000
    assert data.kept.tolist() == fitting
    assert data.dropped == 1000 - len(fitting)
    assert [data.source[row] for row in range(len(data))] == [sources[i] for i in fitting]
    assert [data.target[row] for row in range(len(data))] == [targets[i] for i in fitting]
    with pytest.raises(DataError, match="all 1000 pairs are longer than 1 tokens"):
        TokenStore.from_pairs(some, tokenizers, max_length=1)
    with pytest.raises(DataError, match="no pairs"):
        TokenStore.from_pairs(Pairs(), tokenizers)


def test_stream_goes_through_the_epochs():
    data = store(60)
    plan = BatchPlan.of(data, 80, seed=1)
    sizes = [len(plan.epoch(epoch)) for epoch in range(3)]
    with BatchStream(data, plan) as stream:
        drawn = list(islice(stream, sum(sizes)))
    assert [one.batch.rows for one in drawn] == [rows for epoch in range(3) for rows in flat(plan.epoch(epoch))]
    assert [one.epoch for one in drawn] == [epoch for epoch in range(3) for _ in range(sizes[epoch])]
    assert drawn[0].next == Place(0, 1)
    assert drawn[sizes[0] - 1].next == Place(1, 0)


@pytest.mark.parametrize("workers", [0, 1, 2, 5])
def test_stream_is_the_same_from_any_place_with_any_workers(workers):
    data = store(60)
    plan = BatchPlan.of(data, 80, seed=1)
    with BatchStream(data, plan) as stream:
        whole = list(islice(stream, 40))
    for done in (0, 1, 7, 16, 29):
        place = whole[done - 1].next if done else Place()
        with BatchStream(data, plan, *place, workers=workers) as stream:
            for expected, got in zip(whole[done:], stream, strict=False):
                assert (got.batch.rows, got.epoch, got.next) == (expected.batch.rows, expected.epoch, expected.next)
                assert torch.equal(got.batch.source.tokens, expected.batch.source.tokens)
                assert torch.equal(got.batch.target_out, expected.batch.target_out)


def test_end_of_an_epoch_is_the_beginning_of_the_next():
    data = store(60)
    plan = BatchPlan.of(data, 80, seed=1)
    size = len(plan.epoch(0))
    with BatchStream(data, plan, 0, size) as stream:
        first = next(stream)
    assert (first.batch.rows, first.next) == (plan.epoch(1)[0].tolist(), Place(1, 1))
    with pytest.raises(DataError, match=rf"position {size + 1}: an epoch of this text has {size} batches"):
        BatchStream(data, plan, 0, size + 1, workers=2)


def test_threads_end_and_look_ahead_is_bounded(monkeypatch):
    data = store(500)
    calls = []
    original = BatchStream._collate
    monkeypatch.setattr(BatchStream, "_collate", lambda *given: (calls.append(1), original(*given))[1])
    before = threading.active_count()
    stream = BatchStream(data, BatchPlan.of(data, 20, seed=1), workers=2)
    next(stream)
    time.sleep(0.1)
    assert 1 < len(calls) < 20
    stream.close()
    assert threading.active_count() == before
    assert list(stream) == []
    stream.close()


def test_an_error_in_a_worker_reaches_the_reader(monkeypatch):
    data = store(50)
    monkeypatch.setattr(BatchStream, "_collate", lambda *given: 1 / 0)
    with BatchStream(data, BatchPlan.of(data, 80, seed=1), workers=2) as stream, pytest.raises(ZeroDivisionError):
        next(stream)


def test_a_million_pairs_are_planned_in_seconds():
    draw = np.random.default_rng(0)
    plan = BatchPlan(draw.poisson(12, 1_000_000), draw.poisson(13, 1_000_000), 1200, seed=1)
    begin = time.process_time()
    assert len(plan.epoch(0)) > 10_000
    assert time.process_time() - begin < 4


def test_bad_sizes():
    for settings in ({"batch_tokens": 0}, {"batch_tokens": 5, "max_rows": -1}):
        with pytest.raises(ConfigError):
            BatchPlan(np.ones(3), np.ones(3), seed=1, **settings)
    with pytest.raises(DataError):
        BatchPlan(np.ones(3), np.ones(2), 10, 1)
    with pytest.raises(DataError):
        BatchPlan(np.ones(0), np.ones(0), 10, 1)


def test_mixed_batches_hold_all_lengths_every_row_once_within_the_budget():
    lengths = np.arange(400) % 20 + 1
    plan = BatchPlan(lengths, lengths, 420, seed=1, mixed=True)
    batches = plan.epoch(0)
    assert sorted(np.concatenate(batches).tolist()) == list(range(400))
    assert all(len(rows) * (lengths[rows].max() + 1) <= 420 for rows in batches)
    assert np.mean([len(np.unique(lengths[rows])) for rows in batches]) > 10  # of about 20 rows
    sorted_ones = BatchPlan(lengths, lengths, 420, seed=1).epoch(0)
    assert np.mean([len(np.unique(lengths[rows])) for rows in sorted_ones]) < 3
    assert flat(plan.epoch(1)) != flat(batches)
