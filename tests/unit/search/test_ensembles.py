"""Several models that write together: against the definition, computed from each model by itself."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from regard.core.errors import ConfigError, ModelError
from regard.core.types import BOS, EOS, pad_rows
from regard.models.base import MODELS, build_model
from regard.search import SearchConfig, search
from regard.search.ensembles import Ensemble
from regard.search.forcing import score_pairs
from regard.search.many import search_many

torch.set_num_threads(1)
V = 19
SIZES = {
    "transformer": {"width": 8, "layers": 2, "heads": 2},
    "bahdanau": {"embedding": 8, "width": 6},
    "convs2s": {"embedding": 8, "width": 8, "layers": 2},
    "sutskever": {"embedding": 8, "width": 6, "layers": 2},
    "gpt": {"width": 8, "layers": 1, "heads": 2},
    "lstmlm": {"width": 6, "layers": 1},
    "rctm2": {},
}


def make(name: str, seed: int):
    torch.manual_seed(seed)
    config = MODELS.get(name).Config(name=name, **SIZES[name])
    model = build_model(name, config, source_vocabulary=V, target_vocabulary=V, shared=True).eval()
    for p in model.parameters():
        torch.nn.init.normal_(p, std=0.5)
    return model


SOURCE = pad_rows([[5, 6, 7, EOS], [9, 4, EOS]])
TARGETS = [[4, 8, 5], [10]]


def distributions(model, target: list[int], row: int) -> torch.Tensor:
    """log p(. | source, target so far) at each place, by teacher forcing."""
    source = SOURCE.take(torch.tensor([row]))
    with torch.inference_mode():
        return model.output.scores(model(source, torch.tensor([[BOS, *target]])).hidden)[0]


@pytest.mark.parametrize("mix", ["log", "mean"])
@pytest.mark.parametrize("names", [("transformer", "transformer"), ("transformer", "bahdanau", "convs2s")])
def test_scores_are_the_mean_of_the_members(names, mix):
    members = [make(name, seed) for seed, name in enumerate(names)]
    weights = [3.0, 1.0, 2.0][: len(members)]
    shares = torch.tensor(weights) / sum(weights)
    together = Ensemble(members, weights, mix).eval()
    scored = score_pairs(together, SOURCE, TARGETS)
    for row, target in enumerate(TARGETS):
        each = torch.stack([distributions(member, target, row) for member in members]).double()
        if mix == "log":
            expected = torch.einsum("m,mtv->tv", shares.double(), each)
            expected = expected - expected.exp().sum(-1, keepdim=True).log()
        else:
            expected = torch.einsum("m,mtv->tv", shares.double(), each.exp()).log()
        wanted = [float(expected[t, token]) for t, token in enumerate([*target, EOS])]
        assert scored[row][1] == pytest.approx(wanted, abs=1e-5)
        assert float(expected.exp().sum(-1)[0]) == pytest.approx(1.0)


def test_a_language_model_adds_its_share():
    translator, beside = make("transformer", 1), make("lstmlm", 2)
    together = Ensemble([translator], language_model=beside, fusion=0.3).eval()
    scored = score_pairs(together, SOURCE, TARGETS)
    for row, target in enumerate(TARGETS):
        expected = distributions(translator, target, row) + 0.3 * distributions(beside, target, row)
        wanted = [float(expected[t, token]) for t, token in enumerate([*target, EOS])]
        assert scored[row][1] == pytest.approx(wanted, abs=1e-5)
    silent = Ensemble([translator], language_model=beside, fusion=0.0).eval()
    config = SearchConfig(beam=3, nbest=3, max_length=8)
    same = zip(search(silent, SOURCE, config), search(translator, SOURCE, config), strict=True)
    for found, alone in same:
        assert [h.tokens for h in found] == [h.tokens for h in alone]


@pytest.mark.parametrize("method", ["beam", "sample"])
def test_search_finds_what_scores_say(method):
    """Step by step with reordering, what search gives is what teacher forcing scores."""
    together = Ensemble([make("transformer", 1), make("bahdanau", 2), make("sutskever", 3)]).eval()
    config = SearchConfig(method=method, beam=4, nbest=4, max_length=9, max_repeat=0)
    found = search(together, SOURCE, config)
    for row, hypotheses in enumerate(found):
        assert len(hypotheses) == 4
        for one in hypotheses:
            source = SOURCE.take(torch.tensor([row]))
            ((_, own),) = score_pairs(together, source, [one.tokens])
            assert one.token_log_probs == pytest.approx(own[: len(one.token_log_probs)], abs=1e-4)
    many = dict(search_many(together, [[5, 6, 7, EOS], [9, 4, EOS]], config))
    assert [[h.tokens for h in many[i]] for i in range(2)] == [[h.tokens for h in hyps] for hyps in found]


def test_two_of_one_kind_are_that_one():
    model = make("bahdanau", 4)
    config = SearchConfig(beam=3, nbest=2, max_length=8, coverage=0.2)
    for mix in ("log", "mean"):
        together = Ensemble([model, model], mix=mix).eval()
        for found, alone in zip(search(together, SOURCE, config), search(model, SOURCE, config), strict=True):
            assert [h.tokens for h in found] == [h.tokens for h in alone]
            assert [h.score for h in found] == pytest.approx([h.score for h in alone], abs=1e-5)
    plain = dataclasses.replace(config, coverage=0.0)
    row = search(Ensemble([model, make("sutskever", 1)]).eval(), SOURCE, plain, attention=True)[0][0].attention
    assert row is not None
    torch.testing.assert_close(row.sum(-1), torch.ones(len(row)))


def test_what_cannot_write_together_is_refused():
    model = make("transformer", 1)
    with pytest.raises(ConfigError, match="0 models were given"):
        Ensemble([])
    with pytest.raises(ConfigError, match="there are 3 for 2 models"):
        Ensemble([model, model], [1.0, 2.0, 3.0])
    with pytest.raises(ConfigError, match="not all above 0"):
        Ensemble([model, model], [1.0, 0.0])
    with pytest.raises(ConfigError, match="'max' is not one of log, mean"):
        Ensemble([model, model], mix="max")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"-1\.0 is not from 0"):
        Ensemble([model], language_model=make("gpt", 1), fusion=-1.0)
    with pytest.raises(ModelError, match="model 2 does not translate"):
        Ensemble([model, make("gpt", 1)])
    with pytest.raises(ModelError, match="no language model"):
        Ensemble([model], language_model=model)
    with pytest.raises(ModelError, match="length of a text before"):
        Ensemble([model, make("rctm2", 1)])
    config = MODELS.get("gpt").Config(name="gpt", **SIZES["gpt"])
    other = build_model("gpt", config, source_vocabulary=9, target_vocabulary=9, shared=True)
    with pytest.raises(ModelError, match="vocabularies of 9, 19 tokens"):
        Ensemble([model], language_model=other, fusion=0.1)
    with pytest.raises(ModelError, match="not trained"):
        Ensemble([model]).output.loss(torch.zeros(1, 8), torch.zeros(1, dtype=torch.long))
