"""Each worker's part of a batch: together they are the batch, and none of them is ever without a row."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from regard.core.types import EOS, PAD
from regard.data.batching import ALL, BatchPlan, BatchStream, Part
from regard.data.store import TokenRows, TokenStore
from regard.data.token_stream import StreamBatches, StreamPlan, TokenStream

SIZES = [1, 2, 3, 4, 7]


def store(rows: int = 23) -> TokenStore:
    draw = np.random.default_rng(5)
    sides = [[draw.integers(5, 50, draw.integers(1, 9)).tolist() for _ in range(rows)] for _ in range(2)]
    return TokenStore(*(TokenRows.from_lists(side) for side in sides), np.arange(rows))


def rows_of(batch) -> list[tuple]:
    """Rows without padding, those that only fill up left out."""
    found = []
    for source, keep, target in zip(*batch.source, batch.target_out, strict=True):
        if int((target != PAD).sum()):
            found.append((tuple(source[keep].tolist()), tuple(target[target != PAD].tolist())))
    return found


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("fill", [0, 40])
def test_parts_of_pairs_are_the_batch(size, fill):
    kept = store()
    plan = BatchPlan.of(kept, 40, seed=3)
    whole = BatchStream(kept, plan, fill=fill)
    parts = [BatchStream(kept, plan, fill=fill, part=Part(rank, size)) for rank in range(size)]
    for _ in range(2 * len(plan.epoch(0)) + 3):
        expected = next(whole)
        drawn = [next(part) for part in parts]
        assert all(one.next == expected.next for one in drawn)
        assert all(len(one.batch.target_in) for one in drawn)
        found = [rows_of(one.batch) for one in drawn]
        together = [found[i % size][i // size] for i in range(sum(map(len, found)))]
        assert together == rows_of(expected.batch)


def test_a_worker_without_rows_gets_an_empty_one():
    kept = store(2)
    batch = next(BatchStream(kept, BatchPlan.of(kept, 1000, seed=3), part=Part(2, 3))).batch
    assert not bool((batch.target_out != PAD).any())
    assert not bool((batch.target_in != PAD).any())
    assert batch.source.keep.sum(1).tolist() == [1]
    assert batch.source.tokens[:, 0].tolist() == [EOS]


@pytest.mark.parametrize("size", [2, 3])
def test_lanes_of_a_text_stay_with_their_worker(size):
    stream = TokenStream(np.arange(5, 205))
    plan = StreamPlan(len(stream), 6, 5, seed=1, carried=True)
    whole = StreamBatches(stream, plan)
    parts = [StreamBatches(stream, plan, part=Part(rank, size)) for rank in range(size)]
    for _ in range(9):
        expected = next(whole)
        for rank, part in enumerate(parts):
            drawn = next(part)
            assert torch.equal(drawn.batch.target_out, expected.batch.target_out[rank::size])
            assert len(drawn.batch.source.tokens) == len(drawn.batch.target_out)
            assert drawn.next == expected.next


def test_a_part_is_at_most_its_share():
    assert [Part(0, size).share(10) for size in (1, 3, 4, 16)] == [10, 4, 3, 1]
    assert ALL.share(7) == 7
    assert list(Part(1, 3).slots(8)) == [1, 4, 7]
