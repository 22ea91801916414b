"""Prompts that are read at once in a recording: the same texts, and what cannot be read so is read step by step."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
from tape import Tape
from test_replay import METHODS, make, plainly, same

from regard.core.errors import ModelError
from regard.core.types import EOS, Padded, pad_rows
from regard.search import SearchConfig, looks, recordings, replay, search, search_many

torch.set_num_threads(1)
MODELS = ("gpt", "lstmlm", "nplm")


@pytest.fixture(autouse=True)
def tape(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(replay.CAPTURES, "cpu", Tape)
    Tape.recorded = Tape.replayed = 0


def nothing(rows: int) -> Padded:
    return pad_rows([[EOS]] * rows)


def prompts(seed: int, rows: int = 3, shortest: int = 4) -> list[list[int]]:
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randint(4, 23, (rows, shortest + rows), generator=generator).tolist()
    return [row[: shortest + i] for i, row in enumerate(drawn)]


def kept(model) -> replay.Replayed:
    (found,) = recordings._kept(model).shapes.values()
    return found


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("method", METHODS)
def test_other_prompts_of_the_same_length(name: str, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, config, read = make(name), METHODS[method], []
    advance = type(model).advance

    def counted(self, tokens, *others):
        read.append(tokens.shape[-1])
        return advance(self, tokens, *others)

    for seed in (1, 2, 3, 4, 5):
        expected = search(model, nothing(3), plainly(config), prompts(seed))
        monkeypatch.setattr(type(model), "advance", counted)
        same(search(model, nothing(3), config, prompts(seed)), expected)
        monkeypatch.setattr(type(model), "advance", advance)
    assert ("start", 4) in kept(model).recordings
    assert read.count(4) == 3  # at first, into tensors that stay, recorded; and then never again


def test_few_lengths_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay, "MOST_READINGS", 2)
    model, config = make("gpt"), METHODS["greedy"]
    for _ in range(3):
        for length in (2, 3, 4):
            asked = prompts(length, shortest=length)
            same(search(model, nothing(3), config, asked), search(model, nothing(3), plainly(config), asked))
    assert [what for what in kept(model).recordings if what[0] == "start"] == [("start", 3), ("start", 4)]


def impossible(model, token: int) -> None:
    with torch.no_grad():
        model.output.bias[token] = -math.inf


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("whole", [1 << 16, 0])
def test_impossible_tokens_are_found_out_later(method: str, whole: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A prompt has one; with `whole` looks and others, alone and among others."""
    monkeypatch.setattr(looks, "WHOLE", whole)
    model, config = make("lstmlm"), METHODS[method]
    impossible(model, 7)
    good, bad = prompts(1), prompts(2)
    good = [[8 if token == 7 else token for token in one] for one in good]
    bad[1][1] = 7
    for asked in (good, good, good, bad, good, bad):
        same(search(model, nothing(3), config, asked), search(model, nothing(3), plainly(config), asked))
    assert ("start", 4) in kept(model).recordings
    assert ("start", 0) in kept(model).seen
    many = [*good, *bad, *good, *bad]
    expected = [search(model, nothing(1), plainly(config), [one])[0] for one in many]
    for rows in (1, 2, 5):
        found = dict(search_many(model, [[EOS]] * len(many), config, many, rows=rows))
        same([found[i] for i in range(len(many))], expected)


def test_scores_that_are_not_numbers_are_an_error() -> None:
    model, config = make("gpt"), METHODS["greedy"]
    for seed in (1, 2, 3):
        search(model, nothing(3), config, prompts(seed))
    model.output.weight.data[5] = math.nan
    with pytest.raises(ModelError, match="not numbers"):
        search(model, nothing(3), config, prompts(4))
    assert not recordings._kept(model).shapes


@pytest.mark.parametrize("name", ["transformer", "gpt"])
@pytest.mark.parametrize("method", METHODS)
def test_texts_that_do_not_come_with_a_look(name: str, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looks, "WHOLE", 0)
    model, config = make(name), METHODS[method]
    sources = [[4 + i, 5, EOS] for i in range(7)] if name == "transformer" else [[EOS]] * 7
    forced = [[4 + i] * (i % 4) for i in range(7)]
    expected = [search(model, pad_rows([s]), plainly(config), [f])[0] for s, f in zip(sources, forced, strict=True)]
    for rows in (3, 7):
        found = dict(search_many(model, sources, config, forced, rows=rows))
        same([found[i] for i in range(7)], expected)


def test_as_many_texts_as_each_search_wants() -> None:
    model, source = make("transformer"), pad_rows([[4, 5, EOS], [6, EOS]])
    for nbest in (1, 3, 2):
        config = dataclasses.replace(METHODS["beam"], nbest=nbest)
        found = search(model, source, config)
        same(found, search(model, source, plainly(config)))
        assert [len(one) for one in found] == [nbest, nbest]
    assert len(recordings._kept(model).shapes) == 1


def test_weights_that_move_while_a_search_is_under_way() -> None:
    model, config = make("transformer"), SearchConfig(beam=1, max_length=12)
    sources = [[4 + i, 5, 6, EOS] for i in range(6)]
    coming = search_many(model, sources, config, rows=2)
    next(coming)
    with torch.no_grad():
        model.decoder_norm.weight = torch.nn.Parameter(model.decoder_norm.weight * 2)
    list(coming)
    found = search(model, pad_rows(sources[:2]), config)
    same(found, search(model, pad_rows(sources[:2]), plainly(config)))


@torch.inference_mode()
def test_a_look_stays_while_the_next_is_asked_for() -> None:
    model = make("transformer")
    search(model, pad_rows([[4, EOS]]), METHODS["greedy"])
    batch = kept(model)
    before = batch.work.at.clone()
    first = batch.look()
    batch.work.at.add_(1)
    assert torch.equal(batch.look().get().work.at, before + 1)
    assert torch.equal(first.get().work.at, before)
