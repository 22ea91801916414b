"""The laws of search over a toy model: what holds for every model that keeps the contract."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
from plain_beam import plain_score
from toy_writer import BlindWriter, ToyWriter, toy_source

from regard.core.errors import ModelError
from regard.core.types import BOS, EOS, PAD, UNK, Padded, pad_rows
from regard.models.base import Recorder
from regard.search import Hypothesis, SearchConfig, attend, score_pairs, search

torch.set_num_threads(1)

METHODS = {
    "greedy": SearchConfig(beam=1),
    "beam": SearchConfig(beam=4, nbest=4),
    "exact": SearchConfig(beam=3, nbest=3, stop="exact", length_norm="plain"),
    "coverage": SearchConfig(beam=3, nbest=3, coverage=0.4),
    "sample": SearchConfig(method="sample", nbest=3),
    "filtered sample": SearchConfig(method="sample", nbest=3, temperature=1.3, top_k=4, top_p=0.9, min_p=0.05),
}


def same(a: list[Hypothesis], b: list[Hypothesis]) -> None:
    assert [(h.tokens, h.finished) for h in a] == [(h.tokens, h.finished) for h in b]
    assert [h.score for h in a] == pytest.approx([h.score for h in b], abs=1e-5)
    assert [h.log_prob for h in a] == pytest.approx([h.log_prob for h in b], abs=1e-5)


@pytest.mark.parametrize("seed", range(5))
def test_a_beam_of_one_is_greedy(seed: int) -> None:
    model, source = ToyWriter(seed), toy_source(seed, 6)
    config = SearchConfig(beam=1, max_ratio=1.0, max_extra=3, max_repeat=0)
    for i, (hypothesis,) in enumerate(search(model, source, config)):
        alone = source.take(torch.tensor([i]))
        written: list[int] = []
        ended = False
        for _ in range(int(alone.lengths) - 1 + 3 + 1):
            with torch.no_grad():
                scores = model.output.scores(model(alone, torch.tensor([[BOS, *written]])).hidden[0, -1])
            scores[[PAD, BOS, UNK]] = -math.inf
            token = int(scores.argmax())
            ended = token == EOS
            if ended or len(written) == int(alone.lengths) - 1 + 3:
                break
            written.append(token)
        assert (hypothesis.tokens, hypothesis.finished) == (written, ended)


@pytest.mark.parametrize("method", METHODS)
def test_log_prob_is_the_teacher_forced_one(method: str) -> None:
    for seed in range(4):
        model, source = ToyWriter(seed), toy_source(seed, 6)
        found = search(model, source, METHODS[method])
        for rank in range(METHODS[method].nbest):
            scored = score_pairs(model, source, [hypotheses[rank].tokens for hypotheses in found])
            for hypothesis, (total, each) in zip((h[rank] for h in found), scored, strict=True):
                if not hypothesis.finished:
                    each = each[:-1]
                    total = math.fsum(each)
                assert hypothesis.log_prob == pytest.approx(total, abs=1e-5)
                assert hypothesis.token_log_probs == pytest.approx(each, abs=1e-5)
                assert len(each) == len(hypothesis.tokens) + hypothesis.finished


@pytest.mark.parametrize("method", METHODS)
def test_the_score_is_the_normalised_log_prob_of_what_was_written(method: str) -> None:
    config = dataclasses.replace(METHODS[method], coverage=0.5, max_ratio=0.5, max_extra=2)
    cut = 0
    for seed in range(4):
        for hypotheses in search(ToyWriter(seed), toy_source(seed, 6), config, attention=True):
            for h in hypotheses:
                assert h.attention is not None
                cut += not h.finished
                expected = plain_score(config, tuple(h.token_log_probs), h.attention.tolist())
                assert h.score == pytest.approx(expected, abs=1e-5)
    assert cut or method == "exact"


@pytest.mark.parametrize("method", METHODS)
def test_batch_mates_order_and_padding_change_nothing(method: str) -> None:
    config = dataclasses.replace(METHODS[method], max_ratio=1.0, max_extra=8)
    for seed in range(3):
        model, source = ToyWriter(seed), toy_source(seed, 12)
        prefix = [[5] if i % 3 == 1 else [] for i in range(12)]
        found = search(model, source, config, prefix)
        order = torch.randperm(12, generator=torch.Generator().manual_seed(seed))
        shuffled = search(model, source.take(order), config, [prefix[i] for i in order])
        for place, i in enumerate(order.tolist()):
            same(shuffled[place], found[i])
        wide = Padded(torch.nn.functional.pad(source.tokens, (0, 5)), torch.nn.functional.pad(source.keep, (0, 5)))
        for a, b in zip(search(model, wide, config, prefix), found, strict=True):
            same(a, b)
        for i in range(0, 12, 3):
            same(search(model, source.take(torch.tensor([i])), config, [prefix[i]])[0], found[i])


@pytest.mark.parametrize("stop", ["full", "exact"])
def test_lists_are_sorted_distinct_and_whole(stop: str) -> None:
    for seed in range(6):
        config = SearchConfig(beam=5, nbest=5, stop=stop, max_extra=5, max_ratio=1.0)  # type: ignore[arg-type]
        for hypotheses in search(ToyWriter(seed), toy_source(seed, 8), config):
            assert len(hypotheses) == 5
            assert len({tuple(h.tokens) for h in hypotheses}) == 5
            ranks = [(not h.finished, -h.score) for h in hypotheses]
            assert ranks == sorted(ranks)


@pytest.mark.parametrize("method", METHODS)
def test_limits_specials_and_minimum_are_kept(method: str) -> None:
    config = dataclasses.replace(METHODS[method], max_ratio=0.5, max_extra=3, max_length=5, min_length=2)
    cut = 0
    for seed in range(4):
        source = toy_source(seed, 8, longest=9)
        for hypotheses, length in zip(search(ToyWriter(seed), source, config), source.lengths.tolist(), strict=True):
            for hypothesis in hypotheses:
                limit = min(int(0.5 * (length - 1) + 3), 5)
                assert 2 <= len(hypothesis.tokens) <= limit
                assert not {PAD, BOS, EOS, UNK} & set(hypothesis.tokens)
                assert hypothesis.finished or len(hypothesis.tokens) == limit
                cut += not hypothesis.finished
    assert cut or method == "exact"


def test_a_models_own_limit_leaves_room_for_bos() -> None:
    model = ToyWriter(0, target_limit=4, hurry=0.0)
    for hypotheses in search(model, toy_source(0, 5), SearchConfig(beam=3, nbest=3)):
        assert max(len(h.tokens) for h in hypotheses) <= 3
    with pytest.raises(ModelError, match="target 1: 4 tokens and EOS are beyond the model's maximum of 4"):
        score_pairs(model, toy_source(0, 1), [[4, 4, 4, 4]])


def test_unknown_is_written_only_where_allowed() -> None:
    model, source = ToyWriter(0), toy_source(0, 6)
    with torch.no_grad():
        model.output.linear.bias[UNK] = 8
    for method in ("beam", "sample"):
        config = SearchConfig(method=method, beam=3, nbest=3)  # type: ignore[arg-type]
        assert not any(UNK in h.tokens for hs in search(model, source, config) for h in hs)
        allowed = dataclasses.replace(config, ban_unknown=False)
        assert any(UNK in h.tokens for hs in search(model, source, allowed) for h in hs)


@pytest.mark.parametrize("method", METHODS)
def test_prefixes_of_different_lengths_are_kept(method: str) -> None:
    model, source = ToyWriter(3), toy_source(3, 5)
    prefix = [[], [7], [UNK, 8, 8], [4, 5, 4, 5, 4, 5, 4, 5], [6, 6]]
    config = dataclasses.replace(METHODS[method], max_repeat=1, no_repeat_ngram=2)
    found = search(model, source, config, prefix)
    for hypotheses, forced in zip(found, prefix, strict=True):
        assert all(h.tokens[: len(forced)] == forced for h in hypotheses)
        if config.method == "beam":
            assert len({tuple(h.tokens) for h in hypotheses}) == len(hypotheses)
    same(found[0], search(model, source, config)[0])


def test_a_prefix_as_long_as_the_limit_still_ends() -> None:
    model, source = ToyWriter(1), pad_rows([[5, EOS]])
    config = SearchConfig(beam=2, nbest=2, max_ratio=0.0, max_extra=3)
    (found,) = search(model, source, config, [[4, 5, 6]])
    assert [h.tokens for h in found] == [[4, 5, 6]]  # fewer, because only one exists
    with pytest.raises(ModelError, match="prefix of sentence 1: it has 4 tokens, the sentence may have 3"):
        search(model, source, config, [[4, 5, 6, 7]])


def test_guards_stop_a_model_that_repeats_itself() -> None:
    model, source = ToyWriter(0), toy_source(0, 3)
    with torch.no_grad():
        model.output.linear.bias.copy_(torch.tensor([0, 0, -9, 0, 30, 20, 0, 0, 0.0]))
    (free, *_), *_ = search(model, source, SearchConfig(beam=1, max_repeat=0))
    assert set(free.tokens) == {4}
    (guarded, *_), *_ = search(model, source, SearchConfig(beam=1, max_repeat=3))
    assert guarded.tokens[:8] == [4, 4, 4, 5, 4, 4, 4, 5]
    (once, *_), *_ = search(model, source, SearchConfig(beam=1, no_repeat_ngram=2))
    pairs = list(zip(once.tokens, once.tokens[1:], strict=False))
    assert len(set(pairs)) == len(pairs)


def test_attention_is_that_of_the_steps() -> None:
    model, source = ToyWriter(0), toy_source(0, 4)
    config = SearchConfig(beam=3, nbest=3, max_ratio=0.5, max_extra=2)
    found = search(model, source, config, attention=True)
    assert not all(h.finished for hypotheses in found for h in hypotheses)
    for i, hypotheses in enumerate(found):
        alone = source.take(torch.tensor([i]))
        for hypothesis in hypotheses:
            memory, state = model.start(alone)
            rows = []
            for token in [BOS, *hypothesis.tokens][: len(hypothesis.token_log_probs)]:
                record = Recorder()
                with torch.no_grad():
                    _, state = model.step(torch.tensor([[token]]), memory, state, record)
                rows.append(model.alignment(record)[0, 0, 0])
            assert hypothesis.attention is not None
            assert hypothesis.attention.shape == (len(rows), int(alone.lengths))
            torch.testing.assert_close(hypothesis.attention, torch.stack(rows), rtol=0, atol=1e-5)
            torch.testing.assert_close(hypothesis.attention.sum(-1), torch.ones(len(rows)), rtol=0, atol=1e-5)
    assert search(model, source, config)[0][0].attention is None
    assert attend(model, source, [[] for _ in found]) == [[], [], [], []]


def test_groups_of_sentences_score_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    model, source = ToyWriter(0), toy_source(0, 7)
    targets = [[4] * n for n in range(7)]
    whole = score_pairs(model, source, targets)
    found = search(model, source, SearchConfig(beam=2, nbest=2), attention=True)
    monkeypatch.setattr("regard.search.forcing.GROUP_CELLS", 150)
    monkeypatch.setattr("regard.search.forcing.SCORE_CELLS", 30)
    for (total, each), (total_again, each_again) in zip(whole, score_pairs(model, source, targets), strict=True):
        assert total_again == pytest.approx(total, abs=1e-5)
        assert each_again == pytest.approx(each, abs=1e-5)
    for hypotheses, weights in zip(found, attend(model, source, found), strict=True):
        for hypothesis, weight in zip(hypotheses, weights, strict=True):
            torch.testing.assert_close(hypothesis.attention, weight, rtol=0, atol=1e-5)


def test_samples_follow_the_seed_and_are_independent_of_their_number() -> None:
    model, source = ToyWriter(5), toy_source(5, 4)
    config = SearchConfig(method="sample", nbest=6)
    many = search(model, source, config)
    for few, all_six in zip(search(model, source, dataclasses.replace(config, nbest=2)), many, strict=True):
        same(few, all_six[:2])
    short = dataclasses.replace(config, max_length=200)
    for a, b in zip(search(model, source, short), many, strict=True):
        same(a, b)
    other = search(model, source, dataclasses.replace(config, seed=2))
    assert [[h.tokens for h in hs] for hs in other] != [[h.tokens for h in hs] for hs in many]
    assert len({tuple(h.tokens) for h in many[0]}) > 1


def test_samples_are_distributed_as_the_model_says() -> None:
    model, source = ToyWriter(3), toy_source(3, 1)
    with torch.no_grad():
        model.output.linear.bias[[PAD, BOS]] = -30  # never written, so that the model's own distribution is drawn from
    counts: dict[tuple[int, ...], int] = {}
    draws = 0
    for seed in range(20):
        config = SearchConfig(method="sample", nbest=64, seed=seed, max_repeat=0, ban_unknown=False)
        for hypothesis in search(model, source, config)[0]:
            counts[tuple(hypothesis.tokens)] = counts.get(tuple(hypothesis.tokens), 0) + 1
            draws += 1
    common = sorted(counts, key=lambda text: -counts[text])[:5]
    for text in common:
        probability = math.exp(score_pairs(model, source, [list(text)])[0][0])
        spread = math.sqrt(draws * probability * (1 - probability))
        assert abs(counts[text] - probability * draws) < 4 * spread


def test_a_narrow_filter_is_greedy() -> None:
    model, source = ToyWriter(1), toy_source(1, 5)
    greedy = search(model, source, SearchConfig(beam=1))
    for narrow in ({"top_k": 1}, {"top_p": 1e-9}, {"min_p": 1.0}, {"temperature": 1e-4}):
        config = SearchConfig(method="sample", nbest=2, **narrow)  # type: ignore[arg-type]
        for samples, best in zip(search(model, source, config), greedy, strict=True):
            same(samples, [best[0], best[0]])


def test_a_request_that_cannot_be_served_says_why() -> None:
    model, source = ToyWriter(0), toy_source(0, 2)
    config = SearchConfig()
    with pytest.raises(ModelError, match="BlindWriter has no attention"):
        search(BlindWriter(0), source, SearchConfig(coverage=0.2))
    with pytest.raises(ModelError, match="BlindWriter has no attention"):
        search(BlindWriter(0), source, config, attention=True)
    assert search(BlindWriter(0), source, config)
    with pytest.raises(ModelError, match="training mode"):
        search(ToyWriter(0).train(), source, config)
    with pytest.raises(ModelError, match="1 prefixes for 2 sentences"):
        search(model, source, config, [[4]])
    for bad in (PAD, BOS, EOS, 99, -1):
        with pytest.raises(ModelError, match="prefix of sentence 2"):
            search(model, source, config, [[], [bad]])
    with pytest.raises(ModelError, match="without any token"):
        search(model, Padded(source.tokens, torch.zeros_like(source.keep)), config)
    with pytest.raises(ModelError, match="for 1 of 2 sources"):
        score_pairs(model, source, [[4]])
    with pytest.raises(ModelError, match="outside the vocabulary of 9"):
        score_pairs(model, source, [[4], [9]])
    assert search(model, source.take(torch.tensor([], dtype=torch.long)), config) == []


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("method", METHODS)
def test_a_gpu_finds_the_same(method: str) -> None:
    for seed in range(4):
        model, source = ToyWriter(seed), toy_source(seed, 8)
        prefix = [[5] if i % 3 == 1 else [] for i in range(8)]
        here = search(model, source, METHODS[method], prefix, attention=True)
        there = search(model.to("cuda"), source.to("cuda"), METHODS[method], prefix, attention=True)
        for a, b in zip(here, there, strict=True):
            same(a, b)


@pytest.mark.parametrize("method", ["beam", "sample"])
def test_scores_that_are_not_numbers_are_an_error(method: str) -> None:
    model = ToyWriter(0)
    with torch.no_grad():
        model.output.linear.weight[5] = math.nan
    with pytest.raises(ModelError, match="not numbers"):
        search(model, toy_source(0, 2), SearchConfig(method=method, beam=2))  # type: ignore[arg-type]
