"""Attention step by step: every number is the model's, and follows from its weights by the equations, in float64."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from regard.core.errors import ModelError
from regard.data.tokenizers import TokenizerConfig, TokenizerPair
from regard.looking.positions import position_tables
from regard.looking.steps import to_frame
from regard.looking.tracing import make_trace
from regard.models.base import MODELS, build_model
from regard.search.config import SearchConfig
from regard.tasks.language_model import TextModel
from regard.tasks.masked import MaskedText
from regard.tasks.tagging import TextTagger
from regard.tasks.translation import Translator

TEXT = ["the animal is tired", "the street is wide", "it was too tired"] * 2
VARIANTS = {
    "plain": {},
    "post": {"norm": "post"},
    "unscaled": {"scaling": False},
    "shaw": {"relative": "shaw", "positions": "none"},
    "t5": {"relative": "t5"},
    "rotary": {"relative": "rotary", "positions": "none"},
    "alibi": {"relative": "alibi", "positions": "none"},
    "swiglu": {"activation": "swiglu", "normalise": "rms"},
}


@pytest.fixture(scope="module")
def tokenizers():
    return TokenizerPair.train(TEXT, TEXT, TokenizerConfig(kind="bpe", size=60))


def build(name: str, tokenizers, **settings):
    torch.manual_seed(0)
    config = MODELS.get(name).Config(name=name, width=16, layers=2, heads=2, **settings)
    size = tokenizers.source.size
    model = build_model(name, config, source_vocabulary=size, target_vocabulary=size, shared=True).eval()
    for parameter in model.parameters():
        if parameter.dim() < 2 and len(parameter):
            torch.nn.init.normal_(parameter, 0.5, 0.3)  # biases and norms that are not 0 and 1
    return model


def translator(tokenizers, **settings) -> Translator:
    return Translator(build("transformer", tokenizers, **settings), tokenizers, SearchConfig(beam=1))


def tensors(steps) -> dict[str, np.ndarray]:
    return {
        f"{step.name}.{shown.name}": np.asarray(shown.values, dtype=np.float64)
        for step in steps
        for shown in step.tensors
    }


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("part", ["encoder.self", "decoder.self", "decoder.cross"])
def test_the_steps_lead_to_the_recorded_weights(variant, part, tokenizers):
    trace = make_trace(translator(tokenizers, **VARIANTS[variant]), "the animal is wide", target="it is tired")
    for layer, head, row in ((0, 0, 0), (1, 1, 2)):
        found = tensors(trace.steps(part, layer, head, row))
        np.testing.assert_allclose(found["softmax.weights"], trace.head(part, layer, head)[row], atol=1e-6)
        d = 8
        last = found["score.scores"] / (1 if variant == "unscaled" else math.sqrt(d))
        np.testing.assert_allclose(found["score.scores"], found["project.k"] @ found["project.q"], atol=1e-5)
        if variant == "unscaled":
            assert "scale.scaled" not in found
        else:
            np.testing.assert_allclose(found["scale.scaled"], last, atol=1e-6)
        if "relative.bias" in found:
            last = last + found["relative.bias"]
        if "mask.allowed" in found:
            assert part == "decoder.self"
            assert found["mask.allowed"].tolist() == [float(j <= row) for j in range(len(last))]
            last = np.where(found["mask.allowed"] > 0, last, -np.inf)
        weights = np.exp(last - last.max())
        np.testing.assert_allclose(found["softmax.weights"], weights / weights.sum(), atol=1e-6)
        np.testing.assert_allclose(
            found["multiply.products"].sum(0) + found.get("sum.relative", 0), found["sum.z"], atol=1e-6
        )
        joined = found["join.joined"].reshape(2, d)
        np.testing.assert_allclose(joined[head], found["sum.z"], atol=1e-5)  # the model's own, before W_O


def test_projection_join_and_residual_follow_from_the_weights(tokenizers):
    task = translator(tokenizers)
    trace = make_trace(task, "the animal is wide", target="it is tired")
    layer = task.model.encoder[1]
    found = tensors(trace.steps("encoder.self", 1, 1, 2))
    w, b = (
        p.detach().double().numpy()
        for p in (layer.attention.query_key_value.weight, layer.attention.query_key_value.bias)
    )
    np.testing.assert_allclose(found["project.q"], (w @ found["project.x"] + b)[8:16], atol=1e-5)
    np.testing.assert_allclose(found["project.k"][2], (w @ found["project.x"] + b)[24:32], atol=1e-5)
    np.testing.assert_allclose(found["project.v"][2], (w @ found["project.x"] + b)[40:48], atol=1e-5)
    w, b = (p.detach().double().numpy() for p in (layer.attention.out.weight, layer.attention.out.bias))
    np.testing.assert_allclose(found["join.written"], w @ found["join.joined"] + b, atol=1e-5)
    np.testing.assert_allclose(found["residual.sum"], found["residual.x"] + found["join.written"], atol=1e-6)
    inner = layer.feedforward.inner
    w, b = inner.weight.detach().double().numpy(), inner.bias.detach().double().numpy()
    np.testing.assert_allclose(found["feedforward.inner"], w @ found["feedforward.input"] + b, atol=1e-5)
    after = found["residual.sum"] + found["feedforward.written"]  # pre-norm
    np.testing.assert_allclose(found["feedforward.layer output"], after, atol=1e-5)


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_the_last_layer_ends_in_words(norm, tokenizers):
    task = translator(tokenizers, norm=norm)
    trace = make_trace(task, "the animal is wide", target="it is tired")
    steps = trace.steps("decoder.cross", 1, 0, 0)
    assert steps[-1].name == "vocabulary"
    (scored,) = task.score(["the animal is wide"], ["it is tired"])
    best = {
        name: value
        for shown in steps[-1].tensors[2:3]
        for name, value in zip(shown.names or [], shown.values, strict=True)
    }
    first = trace.target.tokens[0]  # type: ignore[union-attr]
    if first in best:
        assert best[first] == pytest.approx(scored.token_log_probs[0], abs=1e-5)
    assert sum(np.exp(list(best.values()))) < 1
    assert trace.steps("decoder.cross", 0, 0, 0)[-1].name == "feedforward"
    assert trace.steps("decoder.self", 1, 0, 0)[-1].name == ("residual" if norm == "pre" else "norm")


@pytest.mark.parametrize("residual", [True, False])
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_every_step_goes_on_from_the_one_before(norm, residual, tokenizers):
    """From the sum over values to the state that words are made of, by the equations of the paper, layer after layer."""
    task = translator(tokenizers, norm=norm, residual=residual)
    trace = make_trace(task, "the animal is wide", target="it is tired")

    def normed(module, x):
        x = (x - x.mean()) / math.sqrt(x.var() + module.eps)
        return x * module.weight.detach().numpy() + module.bias.detach().numpy()

    below = None
    for number, layer in enumerate(task.model.encoder):
        found = tensors(trace.steps("encoder.self", number, 0, 1))
        x = found["project.x"]
        if below is not None and norm == "post":
            np.testing.assert_allclose(x, below, atol=1e-5)
        if below is not None and norm == "pre":
            np.testing.assert_allclose(x, normed(layer.around_attention.norm, below), atol=1e-4)
        total = found["join.written"] + (found["residual.x"] if residual else 0)
        np.testing.assert_allclose(found["residual.sum"], total, atol=1e-5)
        around = layer.around_feedforward if norm == "pre" else layer.around_attention
        np.testing.assert_allclose(found["norm.normed"], normed(around.norm, total), atol=1e-4)
        np.testing.assert_allclose(found["feedforward.input"], found["norm.normed"], atol=1e-6)
        after = found["feedforward.written"]
        if residual:
            after = after + (total if norm == "pre" else found["norm.normed"])
        below = after if norm == "pre" else normed(layer.around_feedforward.norm, after)
        np.testing.assert_allclose(found["feedforward.layer output"], below, atol=1e-4)
    found = tensors(trace.steps("decoder.cross", 1, 0, 2))
    if norm == "pre":
        last = normed(task.model.decoder_norm, found["feedforward.layer output"])
        np.testing.assert_allclose(found["last-norm.h"], last, atol=1e-4)
        np.testing.assert_allclose(found["vocabulary.h"], found["last-norm.h"])
    else:
        assert "last-norm.h" not in found
        np.testing.assert_allclose(found["vocabulary.h"], found["feedforward.layer output"], atol=1e-6)


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_one_layer_that_is_used_again_and_again(norm, tokenizers):
    torch.manual_seed(0)
    config = MODELS.get("universal").Config(width=16, heads=2, steps=3, norm=norm, halting="act")
    size = tokenizers.source.size
    model = build_model("universal", config, source_vocabulary=size, target_vocabulary=size, shared=True).eval()
    trace = make_trace(Translator(model, tokenizers, SearchConfig(beam=1)), "the animal is", target="it was")
    for part in ("encoder.self", "decoder.self", "decoder.cross"):
        sums = []
        for layer in range(3):
            found = tensors(trace.steps(part, layer, 1, 1))
            np.testing.assert_allclose(found["softmax.weights"], trace.head(part, layer, 1)[1], atol=1e-6)
            np.testing.assert_allclose(found["join.joined"].reshape(2, 8)[1], found["sum.z"], atol=1e-5)
            sums.append(found["residual.sum"])
        assert not np.allclose(sums[0], sums[1])
    assert trace.steps("decoder.cross", 2, 0, 0)[-1].name == "vocabulary"


def test_readers_are_taken_apart_too(tokenizers):
    torch.manual_seed(0)
    size = tokenizers.source.size
    bert = build_model(
        "bert", MODELS.get("bert").Config(width=16, layers=2, heads=2, context=20),
        source_vocabulary=size, target_vocabulary=size, shared=True,
    ).eval()  # fmt: skip
    trace = make_trace(MaskedText(bert, tokenizers), "the animal is tired")
    assert trace.source.tokens[0] == "[CLS]"
    assert trace.source.tokens[-1] == "[SEP]"
    assert position_tables(bert)["positions"].shape == (20, 16)
    found = tensors(trace.steps("reader.self", 1, 0, 2))
    np.testing.assert_allclose(found["softmax.weights"], trace.head("reader.self", 1, 0)[2], atol=1e-6)
    config = MODELS.get("transformer-tagger").Config(width=16, layers=1, heads=2)
    tagger = build_model("transformer-tagger", config, source_vocabulary=size, target_vocabulary=3, shared=False).eval()
    trace = make_trace(TextTagger(tagger, tokenizers, ["a", "b"]), "the animal is tired")
    found = tensors(trace.steps("encoder.self", 0, 1, 2))
    np.testing.assert_allclose(found["softmax.weights"], trace.head("encoder.self", 0, 1)[2], atol=1e-6)


@pytest.mark.parametrize("settings", [{}, {"kv_heads": 1, "qk_norm": True, "relative": "rotary", "positions": "none"}])
def test_a_gpt_is_taken_apart_too(settings, tokenizers):
    task = TextModel(build("gpt", tokenizers, context=16, **settings), tokenizers)
    trace = make_trace(task, "the animal is")
    steps = trace.steps("decoder.self", 1, 1, 3)
    found = tensors(steps)
    np.testing.assert_allclose(found["join.joined"].reshape(2, 8)[1], found["sum.z"], atol=1e-5)
    assert steps[-1].name == "vocabulary"
    likeliest = task.next_words("the animal is", 1, tokens=True)[0].probability
    last = tensors(trace.steps("decoder.self", 1, 0, len(trace.source.tokens) - 1))
    assert last["vocabulary.probabilities"][0] == pytest.approx(likeliest, rel=0.5)  # specials are left out there


def test_steps_go_into_one_block(tokenizers):
    trace = make_trace(translator(tokenizers), "the animal", target="it")
    steps = trace.steps("encoder.self", 0, 0, 0)
    header, numbers = to_frame(steps)
    for step, plain in zip(steps, header["steps"], strict=True):
        for shown, about in zip(step.tensors, plain["tensors"], strict=True):
            size = int(np.prod(about["shape"]))
            np.testing.assert_array_equal(
                numbers[about["offset"] : about["offset"] + size], np.asarray(shown.values, dtype=np.float32).ravel()
            )
    assert [step["name"] for step in header["steps"][:6]] == ["project", "score", "scale", "softmax", "multiply", "sum"]


def test_rows_that_are_not_there_are_refused(tokenizers):
    trace = make_trace(translator(tokenizers), "the animal", target="it")
    with pytest.raises(ModelError, match="no row 99"):
        trace.steps("encoder.self", 0, 0, 99)


def test_watching_leaves_nothing_behind(tokenizers):
    task = translator(tokenizers)
    trace = make_trace(task, "the animal", target="it")
    trace.steps("encoder.self", 0, 0, 0)
    assert not any(module._forward_hooks for module in task.model.modules())
