"""Traces: the weights are the model's own, whatever the model; what cannot be looked at is an error that says so."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from torch import nn

from regard.core.errors import DataError, ModelError
from regard.core.types import BOS, EOS, pad_rows
from regard.data.tokenizers import TokenizerConfig, TokenizerPair
from regard.looking.part import Part
from regard.looking.trace import shrunk, statistics
from regard.looking.tracing import MOST_TOKENS, make_trace
from regard.models.base import MODELS, Recorder, build_model
from regard.search.config import SearchConfig
from regard.tasks.classification import TextClassifier
from regard.tasks.language_model import TextModel
from regard.tasks.masked import MaskedText
from regard.tasks.tagging import TextTagger
from regard.tasks.translation import Translator

TEXT = ["the animal is tired", "the street is wide", "it was too tired"] * 2
SIZES = {
    "transformer": {"width": 16, "layers": 2, "heads": 2},
    "universal": {"width": 16, "heads": 2, "steps": 3, "halting": "act"},
    "bahdanau": {"embedding": 8, "width": 8},
    "luong": {"embedding": 8, "width": 8, "layers": 1},
    "gnmt": {"width": 8, "layers": 2},
    "convs2s": {"embedding": 8, "width": 8, "layers": 2},
    "cho": {"embedding": 8, "width": 8},
}


@pytest.fixture(scope="module")
def tokenizers():
    return TokenizerPair.train(TEXT, TEXT, TokenizerConfig(kind="bpe", size=60))


def translator(name: str, tokenizers) -> Translator:
    torch.manual_seed(0)
    config = MODELS.get(name).Config(name=name, **SIZES[name])
    size = tokenizers.source.size
    model = build_model(name, config, source_vocabulary=size, target_vocabulary=size, shared=True)
    return Translator(model.eval(), tokenizers, SearchConfig(beam=2, max_length=12))


@pytest.mark.parametrize("name", SIZES)
def test_weights_are_those_of_the_model(name, tokenizers):
    task = translator(name, tokenizers)
    trace = make_trace(task, "the animal is wide", target="it is tired")
    (source,), (target,) = tokenizers.source.encode(["the animal is wide"]), tokenizers.target.encode(["it is tired"])
    record = Recorder()
    with torch.inference_mode():
        task.model(pad_rows([[*source, EOS]]), torch.tensor([[BOS, *target]]), record)
    for part in trace.parts.values():
        side, what = part.name.split(".")
        for layer in range(len(part.weights)):
            recorded = record.tensors[f"{side}.{layer}.{what}"][0].numpy()
            np.testing.assert_array_equal(part.weights[layer], recorded)
        rows, columns = len(trace.text(part.rows).tokens), len(trace.text(part.columns).tokens)
        assert part.weights.shape[2:] == (rows, columns)
    if name == "cho":
        assert not trace.parts
        with pytest.raises(ModelError, match="does not align"):
            trace.aligned("tokens")
    else:
        np.testing.assert_array_equal(trace.alignment, task.model.alignment(record)[0].numpy())
        assert trace.aligned("words")[1][-1] == "</s>"
    (scored,) = task.score(["the animal is wide"], ["it is tired"])
    assert trace.log_prob == pytest.approx(scored.log_prob, abs=1e-5)
    assert trace.target is not None
    assert trace.target.log_probs == pytest.approx(scored.token_log_probs, abs=1e-5)


def test_what_is_found_is_what_translate_finds(tokenizers):
    task = translator("transformer", tokenizers)
    trace = make_trace(task, "the street is wide")
    assert trace.target is not None
    assert trace.target.text == task.translate("the street is wide")
    assert len(trace.target.tokens) == len(trace.target.log_probs or []) == len(trace.alignment)  # type: ignore[arg-type]
    cut = make_trace(dataclasses_with(task, max_length=2), "the street is wide")
    assert not cut.finished
    assert cut.target is not None
    assert len(cut.target.tokens) == 2
    for part in cut.parts.values():
        shape = tuple(len(cut.text(side).tokens) for side in (part.rows, part.columns))
        assert part.weights.shape[2:] == shape


def dataclasses_with(task: Translator, **changes) -> Translator:
    other = translator("transformer", task.tokenizers)
    other.search = dataclasses.replace(other.search, **changes)
    return other


def test_pondering_is_counted_for_each_token_and_step(tokenizers):
    """The chances from the model's own weights, step by step; sums, remainders and weights by Graves' equations in float64."""
    task = translator("universal", tokenizers)
    for side in (task.model.encoder, task.model.decoder):
        nn.init.normal_(side.halting.weight, std=0.5)
        nn.init.constant_(side.halting.bias, -1.0)
    trace = make_trace(task, "the animal is wide", target="it is")
    taken = set()
    for side, block in (("source", task.model.encoder), ("input", task.model.decoder)):
        found = trace.pondered(side)
        read: list[np.ndarray] = []
        hook = block.halting.register_forward_pre_hook(lambda _, given, read=read: read.append(given[0][0].numpy()))
        with torch.inference_mode():
            trace.again()
        hook.remove()
        w, b = (p.detach().numpy().astype(np.float64) for p in (block.halting.weight[0], block.halting.bias))
        chances = np.stack([1 / (1 + np.exp(-(x @ w + b))) for x in read], 1)
        np.testing.assert_allclose(found.chances, chances, atol=1e-6)
        np.testing.assert_allclose(found.sums, chances.cumsum(1), atol=1e-6)
        assert len(found.chances) == len(trace.text(side).tokens)
        for i, row in enumerate(chances):
            over = [n for n in range(1, len(row)) if row[:n].sum() > 1 - found.epsilon]
            last = over[0] if over else len(row)
            rest = 1 - row[: last - 1].sum()
            assert found.steps[i] == last
            assert found.remainder[i] == pytest.approx(rest, abs=1e-6)
            np.testing.assert_allclose(found.weights[i], [*row[: last - 1], rest, *[0] * (len(row) - last)], atol=1e-6)
            taken.add(last)
        assert found.cost == pytest.approx(float((found.steps + found.remainder).mean()))
    assert len(taken) > 1, "tokens that all think equally long test little"
    with pytest.raises(ModelError, match="does not decide"):
        make_trace(translator("transformer", tokenizers), "the animal", target="it").pondered("source")


def test_a_language_model_has_one_text(tokenizers):
    torch.manual_seed(0)
    config = MODELS.get("gpt").Config(width=16, layers=2, heads=2, context=16)
    model = build_model("gpt", config, source_vocabulary=60, target_vocabulary=tokenizers.target.size, shared=True)
    task = TextModel(model.eval(), tokenizers)
    trace = make_trace(task, "the animal is")
    assert trace.target is None
    (part,) = trace.parts.values()
    assert part.causal
    assert part.weights.shape == (2, 2, len(trace.source.tokens), len(trace.source.tokens))
    assert np.triu(part.weights, 1).max() == 0
    (scored,) = task.score(["the animal is"])
    assert trace.source.log_probs == pytest.approx([0.0, *scored.token_log_probs[:-1]], abs=1e-5)
    with pytest.raises(ModelError, match="translates nothing"):
        make_trace(task, "the animal", target="x")


def test_what_cannot_be_looked_at_is_said(tokenizers):
    task = translator("transformer", tokenizers)
    with pytest.raises(DataError, match="it is empty"):
        make_trace(task, "  ")
    with pytest.raises(DataError, match=f"at most {MOST_TOKENS - 1:,} can be looked at"):
        make_trace(task, "tired " * 10_000)
    trace = make_trace(task, "the animal")
    with pytest.raises(ModelError, match="no part 'x'"):
        trace.head("x", 0, 0)
    with pytest.raises(ModelError, match=r"no layer 2\. Give 0 to 1"):
        trace.head("encoder.self", 2, 0)
    with pytest.raises(ModelError, match="no head 5"):
        trace.head("encoder.self", 0, 5)


def test_a_hidden_word_is_read_as_one():
    tokenizers = TokenizerPair.train_on_text(TEXT, TokenizerConfig(kind="bpe", size=60), tags=("<mask>",))
    torch.manual_seed(0)
    size = tokenizers.target.size
    config = MODELS.get("bert").Config(width=16, layers=1, heads=2, context=20)
    bert = build_model("bert", config, source_vocabulary=size, target_vocabulary=size, shared=True)
    task = MaskedText(bert, tokenizers)
    trace = make_trace(task, "the [MASK] is tired")
    assert trace.source.tokens.count("<mask>") == 1
    record = Recorder()
    with torch.inference_mode():
        task.model.states(pad_rows([task.masked_row("the [MASK] is tired").ids]), record)
    np.testing.assert_allclose(trace.parts["reader.self"].weights[0], record.tensors["reader.1.self"][0], atol=1e-6)
    assert "<mask>" not in make_trace(task, "the animal is tired").source.tokens


def test_small_pictures_keep_the_largest_weight():
    weights = np.zeros((1, 1, 100, 70))
    weights[0, 0, 99, 69] = 0.7
    small = shrunk(weights, 48)
    assert small.shape == (1, 1, 48, 48)
    assert small[0, 0, 47, 47] == 0.7
    assert small.sum() == 0.7
    np.testing.assert_array_equal(shrunk(weights[..., :3, :3], 48), weights[..., :3, :3])


def test_statistics_tell_heads_apart():
    even, diagonal, first = np.full((8, 8), 1 / 8), np.eye(8), np.zeros((8, 8))
    first[:, 0] = 1
    (row,) = statistics(Part("encoder.self", "source", "source", np.stack([even, diagonal, first])[None], False))
    assert [round(one["entropy"], 6) for one in row] == [3.0, 0.0, 0.0]
    assert row[1]["diagonal"] == 1.0
    assert row[2]["diagonal"] < 0.3
    assert [round(one["first"], 3) for one in row] == [0.125, 0.125, 1.0]


def test_the_answer_is_what_the_model_says(tokenizers):
    size = tokenizers.source.size
    task = translator("transformer", tokenizers)
    assert make_trace(task, "the street is wide").answer == task.translate("the street is wide")
    config = MODELS.get("transformer-tagger").Config(width=16, layers=1, heads=2)
    tagger = build_model("transformer-tagger", config, source_vocabulary=size, target_vocabulary=3, shared=False).eval()
    tags = TextTagger(tagger, tokenizers, ["N", "V"])
    answer = make_trace(tags, "the animal").header()["answer"]
    assert answer == " ".join(f"{one.word}/{one.tag}" for one in tags.tag("the animal"))
    config = MODELS.get("kim").Config(width=8, maps=3)
    kim = build_model("kim", config, source_vocabulary=size, target_vocabulary=3, shared=False).eval()
    labels = TextClassifier(kim, tokenizers, ["good", "bad"])
    best = labels.classify("the animal")
    assert str(make_trace(labels, "the animal").answer).startswith(f"{best.label} {best.probability:.1%}, ")
