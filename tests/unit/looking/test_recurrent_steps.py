"""Recurrent attention step by step: scores from the model's weights in float64, weights as recorded, windows as in the paper."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from regard.core.errors import ModelError
from regard.data.tokenizers import TokenizerConfig, TokenizerPair
from regard.looking.tracing import make_trace
from regard.models.base import MODELS, build_model
from regard.search.config import SearchConfig
from regard.tasks.translation import Translator

TEXT = ["the animal is tired", "the street is wide", "it was too tired"] * 2
CASES = {
    "bahdanau": ("bahdanau", {"embedding": 8, "width": 6}),
    "luong-general": ("luong", {"embedding": 8, "width": 6, "layers": 2, "score": "general"}),
    "luong-dot": ("luong", {"embedding": 8, "width": 6, "layers": 1, "score": "dot", "input_feeding": False}),
    "luong-concat": ("luong", {"embedding": 8, "width": 6, "score": "concat"}),
    "luong-location": ("luong", {"embedding": 8, "width": 6, "score": "location"}),
    "luong-local-m": ("luong", {"embedding": 8, "width": 6, "attention": "local-m", "window": 1}),
    "luong-local-p": ("luong", {"embedding": 8, "width": 6, "attention": "local-p", "window": 2}),
    "gnmt-previous": ("gnmt", {"width": 6, "layers": 2, "query": "previous"}),
    "gnmt-current": ("gnmt", {"width": 6, "layers": 2, "query": "current"}),
}


@pytest.fixture(scope="module")
def tokenizers():
    return TokenizerPair.train(TEXT, TEXT, TokenizerConfig(kind="bpe", size=60))


def translator(case: str, tokenizers) -> Translator:
    name, sizes = CASES[case]
    torch.manual_seed(0)
    config = MODELS.get(name).Config(name=name, **sizes)
    size = tokenizers.source.size
    model = build_model(name, config, source_vocabulary=size, target_vocabulary=size, shared=True).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return Translator(model, tokenizers, SearchConfig(beam=1))


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("row", [0, 2])
def test_the_steps_lead_to_the_recorded_weights(case, row, tokenizers):
    task = translator(case, tokenizers)
    trace = make_trace(task, "the animal is wide", target="it is tired")
    steps = {step.name: step for step in trace.steps("decoder.cross", 0, 0, row)}
    found = {f"{name}.{shown.name}": shown.values for name, step in steps.items() for shown in step.tensors}
    np.testing.assert_allclose(found["softmax.weights"].sum(), 1, atol=1e-5)
    weights = found.get("gaussian.weights", found["softmax.weights"])
    np.testing.assert_array_equal(weights, trace.head("decoder.cross", 0, 0)[row])
    np.testing.assert_allclose(found["sum.c"], weights @ found["project.v"], atol=1e-5)
    assert ("gaussian" in steps) == (case == "luong-local-p")
    if "gaussian" in steps:
        np.testing.assert_allclose(found["softmax.weights"] * found["gaussian.Gaussian"], weights, atol=1e-5)
    score = task.model.score
    assert ("project.k" in found) == (case != "luong-location")  # which places alone decide
    q, k = found["project.q"].astype(np.float64), found.get("project.k", np.zeros(0)).astype(np.float64)
    if case.startswith(("bahdanau", "gnmt")):  # keys are U h already
        w, v = score.query.weight.detach().double().numpy(), score.v.detach().double().numpy()
        np.testing.assert_allclose(found["score.scores"], np.tanh(w @ q + k) @ v, atol=1e-5)
        assert steps["score"].formula == "sⱼ = vᵀ tanh(W q + kⱼ),  kⱼ = U hⱼ"
    elif case in ("luong-dot", "luong-general"):  # W is in the keys
        np.testing.assert_allclose(found["score.scores"], k @ q, atol=1e-5)
    assert steps["vocabulary"].chosen == trace.target.tokens[row]  # type: ignore[union-attr]
    (scored,) = task.score(["the animal is wide"], ["it is tired"])
    names = steps["vocabulary"].tensors[-1].names or []
    if steps["vocabulary"].chosen in names:
        place = names.index(str(steps["vocabulary"].chosen))
        assert found["vocabulary.log-probabilities"][place] == pytest.approx(scored.token_log_probs[row], abs=1e-4)
    logits, log_probs = found["vocabulary.logits"], found["vocabulary.log-probabilities"]
    np.testing.assert_allclose(logits - logits[0], log_probs - log_probs[0], atol=1e-4)
    if "local" in case:
        seen = found["mask.allowed"] > 0
        assert not found["softmax.weights"][~seen].any()
        local = trace.local()
        assert len(local["centres"]) == len(trace.target.tokens)  # type: ignore[union-attr]
        places = np.arange(len(seen))
        centre = min(local["centres"][row], len(seen) - 1)
        np.testing.assert_array_equal(seen, np.abs(places - centre) <= local["window"])
        assert local["sigma"] == (1.0 if case == "luong-local-p" else 0.0)
    else:
        assert "mask" not in steps
        with pytest.raises(ModelError, match="not local"):
            trace.local()


READOUTS = {
    **{case: CASES[case] for case in ("bahdanau", "luong-general", "luong-dot", "gnmt-previous", "gnmt-current")},
    "bahdanau-current": ("bahdanau", {"embedding": 8, "width": 6, "readout": 5, "readout_from": "current"}),
    "luong-local-p": CASES["luong-local-p"],
    "gnmt-residual": ("gnmt", {"width": 6, "layers": 4, "context_to": "above"}),
}


@pytest.mark.parametrize("case", READOUTS)
@pytest.mark.parametrize("row", [0, 2])
def test_from_the_context_to_the_chosen_word(case, row, tokenizers, monkeypatch):
    """Readout, logits and log-probabilities in float64 from the model's weights; what the output layer reads is the model's."""
    monkeypatch.setitem(CASES, case, READOUTS[case])
    task = translator(case, tokenizers)
    model = task.model
    trace = make_trace(task, "the animal is wide", target="it is tired")
    steps = {step.name: step for step in trace.steps("decoder.cross", 0, 0, row)}
    found = {
        f"{name}.{shown.name}": np.asarray(shown.values, np.float64)
        for name, step in steps.items()
        for shown in step.tensors
    }

    def weight(layer):
        return layer.weight.detach().double().numpy()

    if case.startswith("luong"):
        both = np.concatenate([found["sum.c"], found["project.q"]])  # it is the state after the step that asks
        readout = np.tanh(weight(model.combine) @ both)
        np.testing.assert_allclose(found["readout.h~"], readout, atol=1e-5)
    elif case.startswith("bahdanau"):
        word = weight(model.target_embedding)[trace.read[0, row]]
        s = found["project.q"]
        if case == "bahdanau-current":
            s = trace.gate("decoder", "state")[row].astype(np.float64)
        t = weight(model.readout_state) @ s + model.readout_state.bias.detach().double().numpy()
        t = t + weight(model.readout_word) @ word + weight(model.readout_context) @ found["sum.c"]
        np.testing.assert_allclose(found["readout.t~"], t, atol=1e-5)
        readout = t.reshape(-1, 2).max(1)
        np.testing.assert_allclose(found["maxout.t"], readout, atol=1e-5)
    else:
        tops = [name for name in found if name.startswith("readout.layer") and not name.endswith("LSTM")]
        assert len(tops) == model.config.layers
        if case == "gnmt-residual":
            np.testing.assert_allclose(
                found["readout.layer 4"], found["readout.layer 4, LSTM"] + found["readout.layer 3"], atol=1e-6
            )
            assert "readout.layer 2, LSTM" not in found
        readout = found[tops[-1]]
    with torch.inference_mode():
        hidden = trace.again().hidden[0, row].double().numpy()
    np.testing.assert_allclose(readout, hidden, atol=1e-5)
    np.testing.assert_allclose(found["vocabulary.h"], hidden, atol=1e-6)
    logits = weight(model.output) @ hidden + model.output.bias.detach().double().numpy()
    order = np.argsort(-logits)[:10]
    np.testing.assert_allclose(found["vocabulary.logits"], logits[order], atol=1e-5)
    log_probs = logits - np.log(np.exp(logits - logits.max()).sum()) - logits.max()
    np.testing.assert_allclose(found["vocabulary.log-probabilities"], log_probs[order], atol=1e-5)
    assert steps["vocabulary"].argmax == tokenizers.target.pieces([int(order[0])])[0]
    assert steps["vocabulary"].chosen == trace.target.tokens[row]  # type: ignore[union-attr]


@pytest.mark.parametrize("layer", [0, 1])
@pytest.mark.parametrize("row", [0, 2])
def test_every_layer_of_convs2s_is_taken_apart(layer, row, tokenizers):
    torch.manual_seed(0)
    config = MODELS.get("convs2s").Config(embedding=8, width=6, layers=2, kernel=3)
    size = tokenizers.source.size
    model = build_model("convs2s", config, source_vocabulary=size, target_vocabulary=size, shared=True).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    trace = make_trace(Translator(model, tokenizers, SearchConfig(beam=1)), "the animal is wide", target="it is tired")
    steps = trace.steps("decoder.cross", layer, 0, row)
    found = {
        f"{step.name}.{shown.name}": np.asarray(shown.values, np.float64) for step in steps for shown in step.tensors
    }
    np.testing.assert_allclose(found["convolve.h"], found["convolve.A"] * found["convolve.gate"], atol=1e-6)
    np.testing.assert_allclose(found["score.scores"], found["project.k"] @ found["project.q"], atol=1e-4)
    powers = np.exp(found["score.scores"] - found["score.scores"].max())
    np.testing.assert_allclose(found["softmax.weights"], powers / powers.sum(), atol=1e-5)
    np.testing.assert_array_equal(
        found["softmax.weights"], trace.head("decoder.cross", layer, 0)[row].astype(np.float64)
    )
    np.testing.assert_allclose(found["sum.c"], found["softmax.weights"] @ found["project.v"], atol=1e-5)
