"""GNMT's length normalisation and coverage penalty (Wu et al. 2016, eq. 14) over the recurrent models that attend.

Search adds up attention step by step as the hypotheses are reordered; here every score comes anew from the teacher-forced
log-probabilities and attention of the text that was found.
"""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
from plain_beam import plain_beam, sources_of
from toy_writer import toy_source

from regard.core import config as configuration
from regard.core.types import BOS, EOS, pad_rows
from regard.models.base import MODELS, Recorder, Writer, build_model
from regard.search import SearchConfig, search

V = 10
MODEL_CASES = {
    "bahdanau": ("bahdanau", {"embedding": 8, "width": 8}),
    "gnmt": ("gnmt", {"embedding": 8, "width": 8, "layers": 3}),
    "gnmt current": ("gnmt", {"embedding": 8, "width": 8, "layers": 2, "query": "current"}),
    "gnmt above": ("gnmt", {"embedding": 8, "width": 8, "layers": 2, "context_to": "above"}),
    "luong": ("luong", {"embedding": 8, "width": 8}),
    "luong local-m": ("luong", {"embedding": 8, "width": 8, "attention": "local-m", "window": 1}),
    "luong local-p": ("luong", {"embedding": 8, "width": 8, "attention": "local-p", "window": 2}),
}
# The paper's alpha = beta = 0.2; stronger ones, which move more texts; and a beam so short that texts are cut.
SETTINGS = {
    "paper": {"alpha": 0.2, "coverage": 0.2},
    "strong": {"alpha": 1.0, "coverage": 3.0, "stop": "exact"},
    "cut": {"alpha": 0.6, "coverage": 1.0, "max_extra": 0},
}


def make(case: str, seed: int) -> Writer:
    """A model with weights so large that its attention is uneven and its texts differ."""
    name, values = MODEL_CASES[case]
    config = configuration.build(MODELS.get(name).Config, {"name": name, **values}, "model")
    model = build_model(name, config, source_vocabulary=V, target_vocabulary=V, shared=False)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, 0.9, generator=generator)
        model.output.bias[EOS] += 1  # type: ignore[index]
    return model.eval()


def equation_14(model: Writer, source: list[int], written: list[int], alpha: float, beta: float) -> float:
    """s(Y, X) = log P(Y | X) / lp(Y) + cp(X; Y), of Y with its EOS, or of as much as was written of one that was cut."""
    record = Recorder()
    with torch.no_grad():
        hidden = model(pad_rows([source]), torch.tensor([[BOS, *written[:-1]]]), record).hidden
        logits = (hidden @ model.output.weight.t() + model.output.bias)[0].double().tolist()  # type: ignore[operator]
    p = model.alignment(record)[0].double().tolist()  # p[j][i]: what target position j takes from source position i
    log_p = 0.0
    for row, token in zip(logits, written, strict=True):
        log_p += row[token] - math.log(sum(math.exp(z) for z in row))
    lp = (5 + len(written)) ** alpha / (5 + 1) ** alpha
    cp = 0.0
    for i in range(len(source)):
        covered = sum(p[j][i] for j in range(len(written)))
        cp += math.log(min(max(covered, 1e-6), 1.0))  # what got no attention at all counts as a millionth
    return log_p / lp + beta * cp


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("case", MODEL_CASES)
def test_scores_are_equation_14(case: str, settings: str) -> None:
    config = SearchConfig(**{"beam": 4, "nbest": 4, "max_ratio": 1.0, "max_extra": 3, **SETTINGS[settings]})
    finished = cut = 0
    for seed in range(2):
        model, source = make(case, seed), toy_source(seed, 5, vocabulary=V)
        for found, tokens in zip(search(model, source, config), sources_of(source), strict=True):
            for hypothesis in found:
                written = [*hypothesis.tokens, EOS] if hypothesis.finished else hypothesis.tokens
                expected = equation_14(model, tokens, written, config.alpha, config.coverage)
                assert hypothesis.score == pytest.approx(expected, abs=1e-4)
                finished += hypothesis.finished
                cut += not hypothesis.finished
    assert finished > 12
    assert cut or settings != "cut"


@pytest.mark.parametrize("case", MODEL_CASES)
def test_lists_are_those_of_the_plain_beam(case: str) -> None:
    for seed, settings in enumerate(SETTINGS.values()):
        config = SearchConfig(**{"beam": 3, "nbest": 3, "max_ratio": 1.0, "max_extra": 3, **settings})
        model, source = make(case, seed), toy_source(seed, 3, vocabulary=V, longest=4)
        for found, tokens in zip(search(model, source, config), sources_of(source), strict=True):
            expected = plain_beam(model, tokens, config, [])
            assert [(tuple(h.tokens), h.finished) for h in found] == [(e.tokens, e.finished) for e in expected]
            assert [h.score for h in found] == pytest.approx([e.score for e in expected], abs=1e-4)


@pytest.mark.parametrize("case", MODEL_CASES)
def test_coverage_prefers_texts_that_attend_to_more(case: str) -> None:
    """beta does not steer the search, it ranks what was finished: the same texts, in another order."""
    changed = 0
    for seed in range(3):
        model, source = make(case, seed), toy_source(seed, 6, vocabulary=V)
        plain = SearchConfig(beam=6, nbest=6, alpha=0.2, max_ratio=1.0, max_extra=3)
        covering = dataclasses.replace(plain, coverage=2.0)
        pairs = zip(search(model, source, plain), search(model, source, covering), sources_of(source), strict=True)
        for without, found, tokens in pairs:
            if without[0].tokens == found[0].tokens or not found[0].finished:
                continue
            changed += 1
            penalty = [
                equation_14(model, tokens, [*h.tokens, EOS], 0.2, 1.0)
                - equation_14(model, tokens, [*h.tokens, EOS], 0.2, 0.0)
                for h in (without[0], found[0])
            ]
            assert penalty[1] > penalty[0]
    assert changed > 1
