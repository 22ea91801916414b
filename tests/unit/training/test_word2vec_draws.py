"""What word2vec draws: subsampling, windows, negatives, and batches that hold every word once."""

from __future__ import annotations

import pytest
import torch

from regard.models.word2vec import Word2Vec, Word2VecConfig
from regard.training.config import TrainConfig
from regard.training.word2vec_draws import (
    GROUP,
    MOST_SAME,
    TOGETHER,
    WordDraws,
    keep_probabilities,
    lowered_rates,
    words_at_once,
)
from regard.training.word2vec_steps import WordSteps
from regard.training.word2vec_tree import visits_of
from regard.training.word2vec_updates import MOST_CHANGES, update_for

COUNTS = torch.tensor([0, 0, 0, 0, 400, 300, 200, 100])


def draws(counts=COUNTS, **settings) -> WordDraws:
    model = Word2Vec(Word2VecConfig(width=4, **settings), vocabulary=len(counts))
    model.counts.copy_(counts)
    return WordDraws(model, counts, torch.device("cpu"))


def test_frequent_words_are_dropped_as_in_the_c_code():
    keep = keep_probabilities(COUNTS, 0.1)
    part = 0.1 / (COUNTS[4:] / 1000)
    torch.testing.assert_close(keep[4:], part.sqrt() + part)
    assert keep[:4].tolist() == [0, 0, 0, 0]
    assert float(keep[7]) >= 1
    assert keep_probabilities(COUNTS, 0.0).tolist() == [0, 0, 0, 0, 1, 1, 1, 1]


def test_so_many_words_are_kept():
    words = torch.full((20_000,), 4)
    kept, _ = draws(sample=0.01).windows(words, torch.Generator().manual_seed(1))
    expected = (0.01 / 0.4) ** 0.5 + 0.01 / 0.4
    assert len(kept) / len(words) == pytest.approx(expected, abs=0.01)


def test_windows_reach_each_distance_equally_often():
    one = draws(sample=0.0, window=4)
    words = torch.full((20_000,), 7)
    words[10_000] = 0  # two documents
    kept, codes = one.windows(words, torch.Generator().manual_seed(1))
    assert len(kept) == 19_999
    left, right = codes // 5, codes % 5
    assert (int(left[0]), int(right[9999]), int(left[10_000])) == (0, 0, 0)
    inside = torch.cat((left[4:9996], left[10_004:-4]))
    assert torch.equal(inside, torch.cat((right[4:9996], right[10_004:-4])))
    shares = torch.bincount(inside, minlength=5) / len(inside)
    torch.testing.assert_close(shares, torch.tensor([0, 0.25, 0.25, 0.25, 0.25]), atol=0.02, rtol=0)


def test_negatives_follow_the_counts_to_the_power():
    drawn = draws(shared=64, power=0.5).negatives(1000, torch.Generator().manual_seed(1))
    assert drawn.shape == (1000, 64)
    expected = COUNTS**0.5 / (COUNTS**0.5).sum()
    torch.testing.assert_close(
        torch.bincount(drawn.flatten(), minlength=8) / drawn.numel(), expected, atol=0.01, rtol=0
    )


@pytest.mark.parametrize("objective", ["negative", "tree"])
def test_batches_hold_every_word_once_and_in_order(objective):
    counts = torch.cat((torch.zeros(4, dtype=torch.long), torch.full((500,), 10)))
    one = draws(counts, sample=0.0, objective=objective, window=3)
    torch.manual_seed(0)
    words = torch.randint(4, 504, (3000,))
    batches = list(one.batches(words, seed=9))
    assert len(batches) > 1
    assert max(len(batch.codes) for batch in batches) <= one.most
    middles = torch.cat([batch.around[3:-3] for batch in batches])
    assert torch.equal(middles[:3000], words)
    assert not middles[3000:].any()
    codes = torch.cat([batch.codes for batch in batches])
    assert not codes[3000:].any()
    assert torch.equal(batches[0].around[-3:], batches[1].around[3:6])  # windows reach over the edge of a batch
    again = list(one.batches(words, seed=9))
    assert all(torch.equal(a.codes, b.codes) for a, b in zip(batches, again, strict=True))
    other = torch.cat([batch.codes for batch in one.batches(words, seed=10)])
    assert not torch.equal(codes, other)


@pytest.mark.parametrize("architecture", ["skipgram", "cbow"])
def test_each_batch_comes_with_the_paths_of_its_own_words(architecture):
    counts = torch.cat((torch.zeros(4, dtype=torch.long), torch.arange(1, 61)))
    one = draws(counts, sample=0.0, objective="tree", architecture=architecture, window=3)
    one.most = 160
    words = torch.randint(4, 64, (3001,), generator=torch.Generator().manual_seed(3))
    batches = list(one.batches(words, seed=9))
    assert len(batches) > TOGETHER[architecture] > 0
    assert one.tables is not None
    for batch in batches:
        told, mean = batch.around[None, 3:-3], architecture == "cbow"
        (expected,) = visits_of(told, batch.codes[None], 3, one.tables, mean)
        assert batch.visits is not None
        assert torch.equal(batch.visits.met.hits, expected.met.hits)
        assert torch.equal(batch.visits.inputs, expected.inputs)


def test_nothing_left_gives_no_batch():
    assert list(draws().batches(torch.zeros(5, dtype=torch.long), 1)) == []


def test_fewer_words_at_once_where_a_few_words_are_most_of_the_text():
    many = torch.cat((torch.zeros(4, dtype=torch.long), torch.full((10_000,), 10)))
    config = Word2VecConfig(sample=0.0)
    assert words_at_once(config, many) == 2048
    few = words_at_once(config, COUNTS)
    assert few < GROUP
    assert few % 16 == 0
    assert few > 0


@pytest.mark.parametrize("architecture", ["skipgram", "cbow"])
@pytest.mark.parametrize("objective", ["negative", "tree"])
def test_threads_share_the_words_that_are_under_way(architecture, objective):
    """Two threads with a batch of one thread's size each have diverged: neither sees what the other adds up."""
    config = Word2VecConfig(architecture=architecture, objective=objective, sample=0.0)
    counts = torch.cat((torch.zeros(4, dtype=torch.long), torch.full((200,), 10)))
    alone = words_at_once(config, counts)
    for threads in (2, 3, 16):
        assert threads * words_at_once(config, counts, threads) <= alone
    model = Word2Vec(config, vocabulary=204)
    model.counts.copy_(counts)
    with WordSteps(model, counts, TrainConfig(), torch.device("cpu"), 2) as steps:
        assert steps.draws.most == words_at_once(config, counts, 2)


@pytest.mark.parametrize(("architecture", "most"), [("skipgram", 4), ("cbow", 8)])
def test_rates_of_words_that_come_often_are_lowered(architecture, most):
    """In 1000 words, one that is a tenth of them comes 100 times, and one that comes 2 times keeps its rate."""
    counts = torch.tensor([0, 100, 2, 898])
    rates = lowered_rates(Word2VecConfig(architecture=architecture, sample=0.0), counts, 1000)
    assert rates.shape == (4,)
    assert rates[:3].tolist() == pytest.approx([1, most / 100, 1])
    assert float(rates[3]) == pytest.approx(most / 898)


@pytest.mark.parametrize("architecture", ["skipgram", "cbow"])
def test_lowered_rates_scale_all_that_moves_a_word(architecture):
    """Rows of a word with half the rate move half as far, in both tables; all others as before."""
    config = Word2VecConfig(architecture=architecture, width=8, window=2, shared=4)
    batch = next(WordDraws(Word2Vec(config, vocabulary=40), torch.ones(40).long(), torch.device("cpu")).batches(
        torch.arange(4, 36).repeat(8), seed=1
    ))  # fmt: skip
    moved = []
    for rates in (None, torch.ones(40).index_fill(0, torch.tensor([7]), 0.5)):
        torch.manual_seed(3)
        model = Word2Vec(config, vocabulary=40)
        torch.nn.init.normal_(model.output.weight)
        before = [table.weight.detach().clone() for table in (model.embedding, model.output)]
        assert batch.negatives is not None
        update_for(model, len(batch.codes), len(batch.codes) // len(batch.negatives), None, rates)(batch, 0.1)
        tables = (model.embedding, model.output)
        moved.append([table.weight.detach() - old for table, old in zip(tables, before, strict=True)])
    for plain, lowered in zip(*moved, strict=True):
        scale = torch.ones(40, 1)
        scale[7] = 0.5
        assert float(plain[7].norm()) > 0
        torch.testing.assert_close(lowered, plain * scale, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("architecture", ["skipgram", "cbow"])
def test_no_more_threads_than_words_allow(architecture):
    """Each thread goes through 16 words at once at least: with 64 of them, a text of a few words would overshoot."""
    config = Word2VecConfig(architecture=architecture, sample=0.0)
    before = torch.get_num_threads()
    for words in (2, 40, 400, 100_000):
        counts = torch.cat((torch.zeros(4, dtype=torch.long), torch.full((words,), 10)))
        model = Word2Vec(config, vocabulary=words + 4)
        with WordSteps(model, counts, TrainConfig(), torch.device("cpu"), 64) as steps:
            assert 1 <= steps.threads <= 64
            same = float((counts / counts.sum()).square().sum())
            assert steps.threads * steps.draws.most <= MOST_SAME / same * 1.001
            assert (steps.threads == 64) == (words >= 400)
        assert torch.get_num_threads() == before


@pytest.mark.parametrize("architecture", ["skipgram", "cbow"])
@pytest.mark.parametrize("objective", ["negative", "tree"])
def test_a_rare_word_that_comes_in_a_crowd_has_a_lower_rate_there(architecture, objective, monkeypatch):
    """A word that comes 64 times in a batch moves as far as one with 4 (CBOW: 8) changes would, on average."""
    counts = torch.full((40,), 1000)
    counts[:4] = 0
    config = Word2VecConfig(architecture=architecture, objective=objective, width=8, window=2, sample=0.0)
    words = torch.arange(4, 36).repeat(8)
    words[::4] = 7  # 64 of 256, and 8 where it stands already
    moved = []
    usual = MOST_CHANGES[architecture]
    for most in (1e9, usual):
        monkeypatch.setitem(MOST_CHANGES, architecture, most)
        torch.manual_seed(3)
        model = Word2Vec(config, vocabulary=40)
        model.counts.copy_(counts)
        for table in model.parameters():
            torch.nn.init.normal_(table)
        one = WordDraws(model, counts, torch.device("cpu"))
        one.most, one.unit = 256, 128
        batch = next(one.batches(words, seed=1))
        update = update_for(model, 256, 128, one.tables, torch.ones(40))
        before = model.embedding.weight.detach().clone()
        update(batch, 0.01)
        moved.append(model.embedding.weight.detach() - before)
    often = torch.bincount(words, minlength=40).clamp(min=1)[:, None]
    assert int(often[7]) > 64
    lowered = (usual / often).clamp(max=1)
    torch.testing.assert_close(moved[1], moved[0] * lowered, atol=1e-6, rtol=1e-4)
