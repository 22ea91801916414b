"""Diverse beam search: against a plain definition in Python, one sentence and one group at a time."""

from __future__ import annotations

import pytest
import torch
from tape import Tape

from regard.core.errors import ConfigError
from regard.core.types import BOS, EOS, PAD, pad_rows
from regard.models.base import MODELS, build_model
from regard.search import SearchConfig, replay, search, search_many

torch.set_num_threads(1)
V = 13
ROWS = [[5, 6, 7, 8, EOS], [9, 4, EOS], [7, 7, 10, EOS]]


def make(seed: int = 0):
    torch.manual_seed(seed)
    config = MODELS.get("transformer").Config(name="transformer", width=8, layers=1, heads=2, inner=12)
    model = build_model("transformer", config, source_vocabulary=V, target_vocabulary=V, shared=True).eval()
    for p in model.parameters():
        torch.nn.init.normal_(p, std=0.5)
    return model


def plainly(model, row: list[int], config: SearchConfig, limit: int) -> list[tuple[tuple[int, ...], float]]:
    """Texts with scores, by the words of group_beam.py."""
    size = config.beam // config.groups
    live = [[((), 0.0)] for _ in range(config.groups)]
    pools: list[list[tuple[float, int, tuple[int, ...]]]] = [[] for _ in range(config.groups)]
    for at in range(limit + 1):
        cost = dict.fromkeys(range(V), 0.0)
        grown = []
        for group in range(config.groups):
            candidates = []
            for slot, (text, total) in enumerate(live[group]):
                with torch.inference_mode():
                    forced = model(pad_rows([row]), torch.tensor([[BOS, *text]])).hidden[0, -1]
                    own = model.output.scores(forced[None])[0].tolist()
                for token, log_prob in enumerate(own):
                    if token not in (PAD, BOS, 3):
                        candidates.append((total + log_prob - cost[token], -slot, -token, total + log_prob, text))
            candidates.sort(reverse=True)
            going = []
            for rank, (_, _, token, total, text) in enumerate(candidates[: 2 * size]):
                if -token == EOS:
                    if rank < size:
                        pools[group].append((total / ((5 + at + 1) / 6) ** config.alpha, -at, text))
                elif len(going) < size:
                    going.append(((*text, -token), total))
            for text, _ in going:
                cost[text[-1]] += config.diversity
            grown.append(going)
            pools[group] = sorted(pools[group], key=lambda one: (-one[0], -one[1]))[:size]
        if all(len(pool) == size for pool in pools):
            break
        live = grown
    found: dict[tuple[int, ...], float] = {}
    for score, _, text in sorted((one for pool in pools for one in pool), key=lambda one: -one[0]):
        found.setdefault(text, score)
    return list(found.items())


@pytest.mark.parametrize(("beam", "groups", "diversity"), [(4, 2, 0.5), (6, 3, 1.5), (4, 4, 0.7), (6, 2, 0.0)])
def test_what_each_group_finds(beam, groups, diversity):
    model = make()
    config = SearchConfig(
        beam=beam, nbest=beam, groups=groups, diversity=diversity, max_ratio=0, max_extra=7, max_repeat=0
    )
    found = search(model, pad_rows(ROWS), config)
    for row, many in zip(ROWS, found, strict=True):
        expected = plainly(model, row, config, 7)
        finished = [h for h in many if h.finished]
        assert [tuple(h.tokens) for h in finished] == [text for text, _ in expected][: len(finished)]
        assert len(finished) == len(expected)
        assert [h.score for h in finished] == pytest.approx([score for _, score in expected], abs=1e-5)


def test_groups_differ_more():
    model = make(3)
    plain = search(model, pad_rows(ROWS), SearchConfig(beam=6, nbest=6, max_extra=7, max_ratio=0))
    apart = search(
        model, pad_rows(ROWS), SearchConfig(beam=6, nbest=6, groups=6, diversity=3, max_extra=7, max_ratio=0)
    )
    first = [sum(len({h.tokens[0] for h in many if h.tokens}) for many in found) for found in (plain, apart)]
    assert first[1] > first[0]
    assert all(len({tuple(h.tokens) for h in many}) == len(many) for many in apart)


def test_recorded_steps_find_the_same(monkeypatch):
    model = make(1)
    config = SearchConfig(beam=4, nbest=4, groups=2, max_extra=7, max_ratio=0)
    plain = search(model, pad_rows(ROWS), config)
    monkeypatch.setitem(replay.CAPTURES, "cpu", Tape)
    Tape.recorded = Tape.replayed = 0
    found = dict(search_many(model, ROWS, config, rows=2))
    assert Tape.replayed
    assert [[h.tokens for h in many] for many in plain] == [[h.tokens for h in found[i]] for i in range(len(ROWS))]


def test_what_cannot_be():
    with pytest.raises(ConfigError, match="does not divide"):
        SearchConfig(beam=5, groups=2)
    with pytest.raises(ConfigError, match="sampling"):
        SearchConfig(method="sample", groups=2)
