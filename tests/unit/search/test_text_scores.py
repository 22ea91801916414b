"""Validation's quick mean beside the exact one."""

import numpy as np
import pytest
import torch

from regard.core.types import EOS
from regard.models.base import MODELS
from regard.search import text_scores
from regard.search.text_scores import mean_score, stream_scores

CPU = torch.device("cpu")


def model_of(name: str, **settings):
    torch.manual_seed(1)
    kind = MODELS.get(name)
    model = kind(kind.Config(**settings), vocabulary=23).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    return model


def exact(model, tokens) -> float:
    return sum(float(part.sum()) for part in stream_scores(model, tokens, CPU, context=8, stride=4)) / len(tokens)


@pytest.fixture
def few_lanes(monkeypatch):
    monkeypatch.setattr(text_scores, "LANES", 3)
    monkeypatch.setattr(text_scores, "WARM_UP", 16)


@pytest.mark.parametrize("length", [16 * 12, 16 * 12 + 1, 301, 16 + 3 * 100])
def test_lanes_score_every_token_once(few_lanes, length):
    """A model that sees four words back gives the same in lanes, whatever is left over at their ends."""
    model = model_of("nplm", order=5, embedding=6, width=7)
    tokens = np.random.default_rng(3).integers(4, 23, length).astype(np.int32)
    tokens[::11] = EOS
    assert mean_score(model, tokens, CPU, context=8) == pytest.approx(exact(model, tokens), abs=1e-6)


def test_lanes_of_a_recurrent_model_are_close(few_lanes):
    model = model_of("lstmlm", width=8, layers=1, dropout=0.0)
    tokens = np.random.default_rng(3).integers(4, 23, 400).astype(np.int32)
    quick, slow = mean_score(model, tokens, CPU, context=8), exact(model, tokens)
    assert quick != slow
    assert quick == pytest.approx(slow, abs=1e-3)


def test_a_short_text_is_read_from_end_to_end():
    model = model_of("lstmlm", width=8, layers=1, dropout=0.0)
    tokens = np.random.default_rng(3).integers(4, 23, 400).astype(np.int32)
    assert mean_score(model, tokens, CPU, context=8) == pytest.approx(exact(model, tokens), abs=1e-9)
