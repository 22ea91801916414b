"""Validation: its loss is what evaluation reports of the same text, whatever kind of model it is."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from regard.core.config import build
from regard.data.split import Pairs
from regard.data.tokenizers import TokenizerConfig, TokenizerPair
from regard.evaluation.metrics import perplexity
from regard.models.base import MODELS, build_model
from regard.tasks.translation import Translator
from regard.training.validation import Validation

SOURCES = ["a b c", "b", "c c a b d", "d a", "b a d c a b c"]
TARGETS = ["C B A", "B B", "A", "A D C A", "C B A C D"]


@pytest.mark.parametrize("name", ["transformer", "rctm1", "rctm2"])
def test_the_loss_is_the_logarithm_of_the_perplexity(name):
    """Of a model that plans, both count how probable the lengths are."""
    torch.manual_seed(0)
    tokenizers = TokenizerPair.train(SOURCES, TARGETS, TokenizerConfig(kind="word"))
    sizes: Any = {"source_vocabulary": tokenizers.source.size, "target_vocabulary": tokenizers.target.size}
    config = build(MODELS.get(name).Config, {"name": name, "width": 16}, "model")
    model = build_model(name, config, **sizes, shared=False).eval()
    if name == "rctm2":
        model.length.log_mean.data += 0.5 * torch.randn(256)  # type: ignore[union-attr]
    translator = Translator(model, tokenizers)
    pairs = Pairs(SOURCES, TARGETS)
    validation = Validation(pairs, translator, batch_tokens=12, max_tokens=50, decoded=0, metrics=(), language="")
    scored = translator.score(SOURCES, TARGETS)
    expected = perplexity(-sum(s.log_prob for s in scored), sum(len(s.token_log_probs) for s in scored))
    assert math.exp(validation.nll(model, torch.device("cpu"))) == pytest.approx(expected, rel=1e-5)
