"""A step of word2vec in parts: each is gone through once, by whichever thread is free."""

from __future__ import annotations

import threading

import pytest
import torch

from regard.core.types import Padded
from regard.data.batching import Batch
from regard.models.word2vec import Word2Vec, Word2VecConfig
from regard.training.config import TrainConfig
from regard.training.word2vec_draws import WordDraws
from regard.training.word2vec_steps import WordSteps

VOCABULARY, PART = 1004, 200


def steps_of(threads: int) -> WordSteps:
    torch.manual_seed(1)
    counts = torch.full((VOCABULARY,), 10)
    counts[:4] = 0
    model = Word2Vec(Word2VecConfig(architecture="cbow", objective="tree", width=8), vocabulary=VOCABULARY)
    model.counts.copy_(counts)
    return WordSteps(model, counts, TrainConfig(lr=0.05, schedule="constant", warmup=0), torch.device("cpu"), threads)


def words_of(count: int) -> Batch:
    words = torch.randint(4, VOCABULARY, (1, count), generator=torch.Generator().manual_seed(2))
    none = torch.ones(1, 1, dtype=torch.long)
    return Batch(Padded(none, none.bool()), words, words, [0])


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("count", [90, 2000, 2001])
def test_each_part_is_gone_through_once(monkeypatch, threads, count):
    seen, lock, batches = [], threading.Lock(), WordDraws.batches

    def noted(self: WordDraws, words: torch.Tensor, seed: int):
        with lock:
            seen.append((words, seed))
        return batches(self, words, seed)

    monkeypatch.setattr("regard.training.word2vec_steps.PART", PART)
    monkeypatch.setattr(WordDraws, "batches", noted)
    batch = words_of(count)
    with steps_of(threads) as steps:
        computed = steps(batch, 1.0)
        steps.step(computed[0], 1.0, 1)
        assert 0 < float(computed[0]) < 2 * steps.draws.unlearnt  # a mean over pairs, not a sum over parts
    assert len(seen) % threads == 0
    assert max(len(words) for words, _ in seen) <= PART
    assert len(seen) == threads * -(-count // (threads * PART))
    assert len({seed for _, seed in seen}) == len(seen)
    start = batch.target_out.storage_offset()
    seen.sort(key=lambda one: one[0].storage_offset() - start)
    assert torch.equal(torch.cat([words for words, _ in seen]), batch.target_out[0])


def test_one_thread_goes_through_parts_alike_every_time(monkeypatch):
    monkeypatch.setattr("regard.training.word2vec_steps.PART", PART)
    tables = []
    for _ in range(2):
        with steps_of(1) as steps:
            for number in (1, 2):
                steps.step(steps(words_of(1500), 1.0)[0], 1.0, number)
            tables.append([table.detach().clone() for table in steps.model.parameters()])
    assert all(torch.equal(one, other) for one, other in zip(*tables, strict=True))
    assert float(tables[0][1].norm()) > 0
