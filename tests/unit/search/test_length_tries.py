"""Which lengths are tried for models that plan, and how what was found at several of them is put together."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from regard.core.errors import ModelError
from regard.core.types import EOS, Padded, pad_rows
from regard.models.base import build_model
from regard.models.rctm import RCTM2, RCTM2Config
from regard.search import Hypothesis, SearchConfig, search
from regard.search.lengths import Try, merge, tries

SOURCE = pad_rows([[4, 5, EOS], [6, EOS], [7, 8, 5, EOS]])


def planner() -> RCTM2:
    torch.manual_seed(0)
    sizes = {"source_vocabulary": 9, "target_vocabulary": 9, "shared": False}
    model: Any = build_model("rctm2", RCTM2Config(width=6, max_source=8, max_target=16), **sizes)
    return model.eval()


def tried(config: SearchConfig, limits: list[int], prefixes: tuple[int, ...] = (0, 0, 0)) -> list[Try]:
    with torch.no_grad():
        return list(tries(planner(), SOURCE, config, limits, prefixes))


def hypothesis(score: float, finished: bool = True) -> Hypothesis:
    return Hypothesis([4], score, 2 * score, [2 * score], finished)


def test_only_sentences_that_have_a_length_left_are_searched():
    found = tried(SearchConfig(lengths=9), [1, 4, 2], (0, 3, 0))
    assert [one.rows for one in found] == [[0, 1, 2], [0, 1, 2], [2]]
    assert [set(of_row) for of_row in zip(*(one.limits[:2] for one in found[:2]), strict=True)] == [{0, 1}, {3, 4}]
    assert sorted(one.limits[one.rows.index(2)] for one in found) == [0, 1, 2]


def test_a_single_length_is_searched_once(monkeypatch):
    model, started = planner(), []
    start = model.start
    monkeypatch.setattr(
        model, "start", lambda source, **how: (started.append(len(source.tokens)), start(source, **how))[1]
    )
    config = SearchConfig(min_length=6, max_length=6, lengths=9)
    assert [[len(h.tokens) for h in found] for found in search(model, SOURCE, config)] == [[6]] * 3
    assert started == [3]
    started.clear()
    search(model, SOURCE, SearchConfig(max_ratio=1.0, max_extra=0, lengths=9))  # up to 2, 1 and 3 words
    assert started == [3, 3, 2, 1]


def test_finished_texts_come_before_cut_ones_whatever_their_scores():
    found = [hypothesis(-1.0, finished=False), hypothesis(-3.0), hypothesis(-2.0), hypothesis(-0.5, finished=False)]
    best = merge(SearchConfig(beam=4, nbest=3), found)
    assert [(h.score, h.finished) for h in best] == [(-2, True), (-3, True), (-0.5, False)]


def test_equal_scores_keep_the_likelier_length_first():
    found = [hypothesis(-1.0), hypothesis(-1.0)]
    assert merge(SearchConfig(), found)[0] is found[0]


def test_samples_stay_in_the_order_of_drawing():
    found = [hypothesis(-3.0), hypothesis(-1.0, finished=False), hypothesis(-2.0)]
    assert merge(SearchConfig(method="sample", nbest=3), found) == found


def test_the_length_counts_in_finished_texts_alone():
    one = Try(SearchConfig(length_norm="plain", alpha=1.0), [0], [1], [-4.0])
    ((ended, cut),) = one.scored([[Hypothesis([4], -1.5, -3.0, [-1.0, -2.0], True), hypothesis(-1.0, finished=False)]])
    assert (ended.log_prob, ended.score) == (-7.0, -3.5)
    assert cut == hypothesis(-1.0, finished=False)


@pytest.mark.parametrize("method", ["beam", "sample"])
@pytest.mark.parametrize("value", [float("nan"), float("-inf"), float("inf")])
def test_length_scores_that_are_no_numbers_are_an_error(method, value, monkeypatch):
    model = planner()

    def scores(source: Padded, most: int) -> torch.Tensor:
        found = torch.zeros(len(source.tokens), most)
        found[1] = value
        return found

    monkeypatch.setattr(model, "length_scores", scores)
    with pytest.raises(ModelError, match="search: the model's scores are not numbers"):
        search(model, SOURCE, SearchConfig(method=method))
