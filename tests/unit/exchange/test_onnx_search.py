"""The runner's search keeps the rules of regard's own: the same n-best lists under every setting, and the same samples."""

from __future__ import annotations

import numpy as np
import pytest
from onnx_models import V, make, one_registry, runner  # noqa: F401
from test_onnx_models import WRITERS, same_lists

from regard.core.errors import ModelError
from regard.core.types import BOS, EOS, PAD, pad_rows
from regard.onnx.constraints import forbid
from regard.onnx.hypothesis import largest
from regard.onnx.searching import search
from regard.search.config import SearchConfig
from regard.search.search import search as torch_search
from regard.search.text_scores import no_source

SOURCES = [[5, 9, 4, 11, 7, EOS], [6, EOS], [8, 8, 10, 12, EOS], [4, 5, 6, 7, 8, 9, 10, 11, EOS]]
SETTINGS = [
    {"beam": 1},
    {"beam": 1, "stop": "exact"},
    {"beam": 4, "nbest": 4},
    {"beam": 4, "nbest": 4, "stop": "exact", "length_norm": "plain", "alpha": 1.0},
    {"beam": 3, "nbest": 3, "length_norm": "none"},
    {"beam": 5, "nbest": 5, "min_length": 4},
    {"beam": 3, "nbest": 3, "no_repeat_ngram": 1},
    {"beam": 3, "nbest": 3, "no_repeat_ngram": 2, "max_repeat": 0},
    {"beam": 3, "nbest": 3, "max_repeat": 1},
    {"beam": 2, "nbest": 2, "max_repeat": 2, "max_ratio": 3.0},
    {"beam": 4, "nbest": 2, "ban_unknown": False, "max_extra": 1, "max_ratio": 0.0},
    {"beam": 30, "nbest": 30, "max_length": 3},
]
SAMPLING = [
    {"nbest": 3},
    {"nbest": 2, "temperature": 0.5, "top_k": 5},
    {"nbest": 3, "top_p": 0.7, "seed": 7},
    {"nbest": 3, "top_k": 10, "top_p": 0.9, "min_p": 0.1, "min_length": 3},
]


@pytest.fixture(scope="module")
def translator(tmp_path_factory: pytest.TempPathFactory, one_registry):  # noqa: F811
    model = make("cho", **WRITERS["cho"])
    return model, runner(model, tmp_path_factory.mktemp("cho"))


@pytest.fixture(scope="module")
def text_model(tmp_path_factory: pytest.TempPathFactory, one_registry):  # noqa: F811
    model = make("gpt", width=8, layers=1, heads=2, context=14)
    return model, runner(model, tmp_path_factory.mktemp("gpt"))


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_beams_find_the_same(translator, settings):
    model, writer = translator
    config = SearchConfig(**{"max_length": 12, **settings})
    found = search(writer, SOURCES, config)
    same_lists(found, torch_search(model, pad_rows(SOURCES), config))
    assert len({tuple(one.tokens) for many in found for one in many}) > 1


def test_forced_beginnings(translator):
    model, writer = translator
    config = SearchConfig(beam=3, nbest=3, max_length=9, no_repeat_ngram=2)
    prefixes = [[7, 5, 7, 5], [], [3, 9], [4]]  # a banned token, and one that repeats itself: forced all the same
    found = search(writer, SOURCES, config, prefixes)
    assert all(one.tokens[: len(p)] == p for p, many in zip(prefixes, found, strict=True) for one in many)
    same_lists(found, torch_search(model, pad_rows(SOURCES), config, prefixes))


@pytest.mark.parametrize("settings", SAMPLING, ids=str)
def test_samples_are_the_same(translator, settings):
    model, writer = translator
    config = SearchConfig(method="sample", max_length=8, **settings)
    found = search(writer, SOURCES, config)
    assert len({tuple(one.tokens) for many in found for one in many}) >= 3
    same_lists(found, torch_search(model, pad_rows(SOURCES), config))


@pytest.mark.parametrize("settings", [{"beam": 3, "nbest": 3}, {"method": "sample", "nbest": 3}], ids=str)
def test_texts_after_prompts(text_model, settings):
    model, writer = text_model
    config = SearchConfig(max_length=6, max_repeat=0, **settings)
    prompts = [[5, 9, 6], [4, 7, 8, 10, 11], [12, 13, 5, 6]]
    found = search(writer, [[EOS]] * 3, config, prompts)
    same_lists(found, torch_search(model, no_source(3, "cpu"), config, prompts))
    assert all(len(one.tokens) <= 13 for many in found for one in many)  # the context, which holds BOS too
    with pytest.raises(ModelError, match=r"prompt 1: it has 13 tokens, and the model reads at most 12"):
        search(writer, [[EOS]], config, [[5] * 13])


def test_what_cannot_be_done_is_said(translator):
    _, writer = translator
    with pytest.raises(ModelError, match="coverage needs attention weights"):
        search(writer, SOURCES, SearchConfig(coverage=0.2))
    with pytest.raises(ModelError, match="a token that is padding, BOS, EOS or outside"):
        search(writer, SOURCES[:1], SearchConfig(), [[V]])
    with pytest.raises(ModelError, match="2 prefixes for 4 sentences"):
        search(writer, SOURCES, SearchConfig(), [[], []])
    assert search(writer, [], SearchConfig()) == []


def test_loops_are_forbidden_where_they_would_close():
    config = SearchConfig(max_repeat=2, ban_unknown=False)
    history = np.array([[[7, 7], [6, 7]], [[9, 8], [5, 5]]])
    scores = np.zeros((2, 2, 12), np.float32)
    forbid(config, scores, history, np.zeros(2, int), None)
    banned = {(b, k): set(np.flatnonzero(scores[b, k] == -np.inf)) - {PAD, BOS} for b in range(2) for k in range(2)}
    assert banned == {(0, 0): {7}, (0, 1): set(), (1, 0): set(), (1, 1): {5}}


def test_equal_values_come_in_the_order_of_places():
    values, places = largest(np.array([[1.0, 3.0, 3.0, 2.0, 3.0]]), 2)
    assert places.tolist() == [[0, 1, 2, 3, 4]]
    assert values[0, 1] == 3
    row = np.zeros((1, 100), np.float32)
    row[0, [3, 50, 70]] = 1
    assert set(largest(row, 3)[1][0]) >= {3, 50, 70}
