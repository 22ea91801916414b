"""Gates and states over time, and the words that won a maximum: all as the model itself has them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from regard.core.errors import ModelError
from regard.core.types import EOS, pad_rows
from regard.data.tokenizers import TokenizerConfig, TokenizerPair
from regard.looking.recurrent import gates
from regard.looking.tracing import make_trace
from regard.models.base import MODELS, build_model
from regard.search.config import SearchConfig
from regard.tasks.classification import TextClassifier
from regard.tasks.language_model import TextModel
from regard.tasks.translation import Translator

TEXT = ["the animal is tired", "the street is wide", "it was too tired"] * 2
SIZES = {
    "bahdanau": {"embedding": 8, "width": 6},
    "luong": {"embedding": 8, "width": 6, "layers": 2},
    "gnmt": {"width": 6, "layers": 2},
    "cho": {"embedding": 8, "width": 6},
    "sutskever": {"embedding": 8, "width": 6, "layers": 2},
}


@pytest.fixture(scope="module")
def tokenizers():
    return TokenizerPair.train(TEXT, TEXT, TokenizerConfig(kind="bpe", size=60))


def model(name: str, tokenizers, **sizes):
    torch.manual_seed(0)
    config = MODELS.get(name).Config(name=name, **sizes)
    size = tokenizers.source.size
    return build_model(name, config, source_vocabulary=size, target_vocabulary=size, shared=True).eval()


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_gates_lead_from_one_state_to_the_next(kind):
    torch.manual_seed(0)
    layer = kind(4, 3, batch_first=True)
    x = torch.randn(1, 7, 4)
    with torch.inference_mode():
        h, last = layer(x)
        found = gates(layer, x[0], h[0])
    before = np.vstack([np.zeros(3), found["state"][:-1]])
    if kind is nn.LSTM:
        np.testing.assert_allclose(found["output gate"] * np.tanh(found["cell"]), found["state"], atol=1e-6)
        np.testing.assert_allclose(found["cell"][-1], last[1][0, 0].numpy(), atol=1e-6)
        assert found["forget gate"].min() > 0
    else:
        mixed = (1 - found["update gate"]) * found["candidate"] + found["update gate"] * before
        np.testing.assert_allclose(mixed, found["state"], atol=1e-6)


@pytest.mark.parametrize("name", SIZES)
def test_every_layer_has_a_row_for_each_token(name, tokenizers):
    task = Translator(model(name, tokenizers, **SIZES[name]), tokenizers, SearchConfig(beam=1))
    trace = make_trace(task, "the animal is wide", target="it is tired")
    layers = trace.recurrent()
    assert {layer.tokens for layer in layers.values()} == {"source", "input"}
    for layer in layers.values():
        for values in layer.values.values():
            assert values.shape == (len(trace.text(layer.tokens).tokens), layer.to_plain()["width"])
            assert np.isfinite(values).all()


@pytest.mark.parametrize(
    ("name", "more", "layers"),
    [
        ("bahdanau", {"reset": "after"}, ["decoder"]),
        ("bahdanau", {"reset": "before"}, ["decoder"]),
        ("cho", {}, ["decoder"]),
        ("luong", {}, ["decoder.0", "decoder.1", "decoder.fed"]),
        ("gnmt", {}, ["decoder.1", "decoder.0"]),
    ],
)
def test_gates_of_decoders_that_look_while_they_write(name, more, layers, tokenizers):
    """From the state of one step and the gates, the state of the next; and nothing is shown twice."""
    task = Translator(model(name, tokenizers, **SIZES[name], **more), tokenizers, SearchConfig(beam=1))
    for parameter in task.model.parameters():
        nn.init.normal_(parameter, std=0.5)
    shown = make_trace(task, "the animal is wide", target="it is tired").recurrent()
    assert [key for key, layer in shown.items() if layer.tokens == "input"] == layers
    found = shown[layers[-1] if name == "gnmt" else layers[0]].values
    if name in ("bahdanau", "cho"):
        mixed = (1 - found["update gate"][1:]) * found["candidate"][1:] + found["update gate"][1:] * found["state"][:-1]
        np.testing.assert_allclose(mixed, found["state"][1:], atol=1e-5)
        assert found["reset gate"].std() > 0.01
    else:
        cell = found["forget gate"][1:] * found["cell"][:-1] + found["input gate"][1:] * found["candidate"][1:]
        np.testing.assert_allclose(cell, found["cell"][1:], atol=1e-5)
        np.testing.assert_allclose(found["output gate"] * np.tanh(found["cell"]), found["state"], atol=1e-5)


@pytest.mark.parametrize("name", ["sutskever", "gnmt"])
def test_gates_of_a_decoder_begin_with_the_state_that_it_was_given(name, tokenizers):
    task = Translator(model(name, tokenizers, **SIZES[name]), tokenizers, SearchConfig(beam=1))
    for parameter in task.model.parameters():
        nn.init.normal_(parameter, std=0.5)
    layers = make_trace(task, "the animal is wide", target="it is tired").recurrent()
    decoders = [layer for layer in layers.values() if layer.tokens == "input" and "cell" in layer.values]
    assert decoders
    for layer in decoders:
        found = layer.values
        np.testing.assert_allclose(found["output gate"] * np.tanh(found["cell"]), found["state"], atol=1e-5)


@pytest.mark.parametrize("name", ["sutskever", "luong"])
def test_a_text_that_was_cut_has_as_many_rows_as_tokens(name, tokenizers):
    task = Translator(model(name, tokenizers, **SIZES[name]), tokenizers, SearchConfig(beam=1, max_length=3))
    with torch.no_grad():
        task.model.output.bias[EOS] = -50.0
    trace = make_trace(task, "the animal is wide")
    assert not trace.finished
    for layer in trace.recurrent().values():
        assert len(layer.values["state"]) == len(trace.text(layer.tokens).tokens)


def test_what_is_read_backwards_is_shown_in_the_order_of_the_text(tokenizers):
    """The backward layer has read all but the first word when it comes to the first: there it knows the most."""
    task = Translator(model("bahdanau", tokenizers, **SIZES["bahdanau"]), tokenizers, SearchConfig(beam=1))
    one, two = (make_trace(task, text, target="it").recurrent() for text in ("the animal is wide", "it animal is wide"))
    back, there = (next(name for name in one if way in name) for way in ("backwards", "forwards"))
    same = [np.array_equal(one[name].values["state"][-3:], two[name].values["state"][-3:]) for name in (back, there)]
    assert same == [True, False]


def test_states_of_the_decoder_are_those_it_carries(tokenizers):
    task = Translator(model("cho", tokenizers, **SIZES["cho"]), tokenizers, SearchConfig(beam=1))
    trace = make_trace(task, "the animal", target="it is")
    assert trace.read is not None
    with torch.inference_mode():
        memory, state = task.model.start(pad_rows([[*tokenizers.source.encode(["the animal"])[0], 2]]))
        _, state = task.model.advance(trace.read[:, None], memory, state)
    np.testing.assert_allclose(trace.gate("decoder", "state")[-1], state.h[0, 0].numpy(), atol=1e-5)


def test_a_recurrent_language_model_has_one_text(tokenizers):
    task = TextModel(model("lstmlm", tokenizers, width=6, layers=2), tokenizers)
    layers = make_trace(task, "the animal is").recurrent()
    assert {layer.tokens for layer in layers.values()} == {"source"}
    assert any("cell" in layer.values for layer in layers.values()) or any(".c" in name for name in layers)


def test_what_is_not_there_is_said(tokenizers):
    sizes = {"width": 16, "layers": 1, "heads": 2}
    trace = make_trace(Translator(model("transformer", tokenizers, **sizes), tokenizers), "the animal", target="it")
    with pytest.raises(ModelError, match="no convolutions"):
        trace.convolutions()
    task = Translator(model("cho", tokenizers, **SIZES["cho"]), tokenizers)
    trace = make_trace(task, "the animal", target="it")
    with pytest.raises(ModelError, match="there is no layer 'x'"):
        trace.gate("x", "state")
    with pytest.raises(ModelError, match="it has no 'x'"):
        trace.gate("decoder", "x")


@pytest.mark.parametrize("border", ["wide", "narrow"])
def test_winners_are_the_windows_with_the_largest_values(border, tokenizers):
    torch.manual_seed(0)
    config = MODELS.get("kim").Config(width=8, maps=3, windows=(2, 3), border=border)
    kim = build_model("kim", config, source_vocabulary=tokenizers.source.size, target_vocabulary=3, shared=False).eval()
    nn.init.normal_(kim.embedding.weight)
    for part in kim.filters:
        nn.init.normal_(part.weight)
    task = TextClassifier(kim, tokenizers, ["a", "b"])
    trace = make_trace(task, "the animal is tired")
    found = trace.convolutions()
    assert [layer["kernel"] for layer in found["layers"]] == [2, 3]
    (ids,) = tokenizers.source.encode(["the animal is tired"])
    words = kim.embedding(torch.tensor(ids)).detach().numpy()
    assert found["winners"]
    for one in found["winners"]:
        h, number = (2, one["filter"]) if one["filter"] < 3 else (3, one["filter"] - 3)
        weight = kim.filters[h - 2].weight[number].detach().numpy().reshape(h, 8)
        values = {}
        around = h - 1 if border == "wide" else 0
        padded = np.vstack([np.zeros((around, 8)), words, np.zeros((around, 8))])
        for place in range(len(padded) - h + 1):
            begin = place - around
            values[max(0, begin), min(len(ids), begin + h)] = float((padded[place : place + h] * weight).sum())
        assert max(values.values()) == pytest.approx(one["score"], abs=1e-4)
        assert values[one["begin"], one["end"]] == pytest.approx(one["score"], abs=1e-4)


def test_convs2s_shows_its_kernels(tokenizers):
    task = Translator(model("convs2s", tokenizers, embedding=8, width=8, layers=2, kernel=3), tokenizers)
    found = make_trace(task, "the animal", target="it").convolutions()
    assert (found["layers"], found["winners"]) == ([{"kernel": 3, "dilation": 1}] * 2, [])
    assert [layer["name"] for layer in found["gates"]] == ["encoder.0", "encoder.1", "decoder.0", "decoder.1"]
    assert {(layer["tokens"], layer["width"]) for layer in found["gates"]} == {("source", 8), ("input", 8)}


def test_gates_of_convs2s_are_those_of_its_equations(tokenizers):
    """Encoder: from embeddings through every layer in float64 by hand. Decoder: the stepper's, of every row."""
    convs2s = model("convs2s", tokenizers, embedding=8, width=6, layers=2, kernel=3)
    for parameter in convs2s.parameters():
        nn.init.normal_(parameter, std=0.5)
    trace = make_trace(Translator(convs2s, tokenizers), "the animal is wide", target="it is tired")
    (ids,) = tokenizers.source.encode(["the animal is wide"])
    with torch.inference_mode():
        e = convs2s.source_embedding(torch.tensor([*ids, EOS])) + convs2s.source_positions(
            torch.arange(len(ids) + 1), len(ids) + 1
        )
        x = convs2s.encoder_in(e).double().numpy()

    def affine(layer):
        """Weight normalisation: W = g v / |v|."""
        v, g, b = (getattr(layer, name).detach().double().numpy() for name in ("v", "g", "bias"))
        return v * (g.reshape(-1, 1) / np.linalg.norm(v, axis=1, keepdims=True)), b

    for i, layer in enumerate(convs2s.encoder):
        padded = np.vstack([np.zeros((1, 6)), x, np.zeros((1, 6))])
        seen = np.hstack([padded[:-2], padded[1:-1], padded[2:]])
        weight, bias = affine(layer)
        a, b = np.split(seen @ weight.T + bias, 2, axis=1)
        gate = 1 / (1 + np.exp(-b))
        np.testing.assert_allclose(trace.convolution_gate(f"encoder.{i}", "gate σ(B)"), gate, atol=1e-5)
        np.testing.assert_allclose(trace.convolution_gate(f"encoder.{i}", "A ⊗ σ(B)"), a * gate, atol=1e-4)
        x = (a * gate + x) * 0.5**0.5
    assert trace.target is not None
    for layer in range(2):
        for row in range(len(trace.target.tokens)):
            shown = {one.name: one.values for one in trace.steps("decoder.cross", layer, 0, row)[0].tensors}
            np.testing.assert_allclose(
                trace.convolution_gate(f"decoder.{layer}", "gate σ(B)")[row], shown["gate"], atol=1e-6
            )
    with pytest.raises(ModelError, match="there is no layer 'x'"):
        trace.convolution_gate("x", "A")


@pytest.mark.parametrize("folding", [True, False])
def test_winners_of_a_dcnn_are_the_largest_values_of_its_lowest_layer(folding, tokenizers):
    torch.manual_seed(0)
    size = tokenizers.source.size
    config = MODELS.get("dcnn").Config(width=8, windows=(3, 2), maps=(2, 2), k_top=2, folding=folding)
    model = build_model("dcnn", config, source_vocabulary=size, target_vocabulary=3, shared=False).eval()
    trace = make_trace(TextClassifier(model, tokenizers, ["a", "b"]), "the animal is tired")
    (ids,) = tokenizers.source.encode(["the animal is tired"])
    found = trace.convolutions()
    with torch.inference_mode():
        words = model.embedding(torch.tensor(ids)).double().numpy()
    padded = np.vstack([np.zeros((2, 8)), words, np.zeros((2, 8))])
    weight = model.layers[0].convolution.weight.detach().double().numpy()  # rows, window, maps
    every = np.stack([[padded[i : i + 3, row] @ weight[row] for i in range(len(ids) + 2)] for row in range(8)])
    every = every[0::2] + every[1::2] if folding else every
    assert len(found["winners"]) == every.shape[0] * 2
    for one in found["winners"]:
        number, row = divmod(one["filter"], every.shape[0])
        values = every[row, :, number]
        assert one["score"] == pytest.approx(values.max(), abs=1e-5)
        begin = int(values.argmax()) - 2
        assert (one["begin"], one["end"]) == (max(0, begin), min(len(ids), begin + 3))
    assert "lowest of 2 layers" in found["note"]
