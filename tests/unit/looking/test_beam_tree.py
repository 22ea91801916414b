"""The beam as a tree: the same search, every candidate in its place, and where a reference was lost."""

from __future__ import annotations

import copy
import math

import pytest
import torch

from regard.core.errors import ModelError
from regard.core.types import BOS, EOS, pad_rows
from regard.data.tokenizers import TokenizerConfig, TokenizerPair
from regard.looking.tracing import make_trace
from regard.models.base import MODELS, Recorder, build_model
from regard.search.config import SearchConfig
from regard.tasks.translation import Translator

TEXT = ["the animal is tired", "the street is wide", "it was too tired"] * 2


@pytest.fixture(scope="module")
def tokenizers():
    return TokenizerPair.train(TEXT, TEXT, TokenizerConfig(kind="bpe", size=60))


@pytest.fixture(scope="module")
def task(tokenizers):
    torch.manual_seed(3)
    config = MODELS.get("bahdanau").Config(embedding=8, width=8)
    size = tokenizers.source.size
    model = build_model("bahdanau", config, source_vocabulary=size, target_vocabulary=size, shared=True).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.6)
    return Translator(model, tokenizers, SearchConfig(beam=3, max_extra=4, max_ratio=1.0))


@pytest.fixture(scope="module")
def ending(task):
    """The same model, less reluctant to end."""
    model = copy.deepcopy(task.model)
    with torch.no_grad():
        model.output.bias[EOS] += 3.0
    return model


def path(nodes, node):
    found = [node]
    while found[-1]["parent"] is not None:
        found.append(nodes[found[-1]["parent"]])
    return found[::-1]


def test_the_best_path_is_the_text_that_search_finds(task):
    trace = make_trace(task, "the animal is wide")
    tree = trace.beam()
    marked = [node for node in tree["nodes"] if node["best"]]
    assert trace.target is not None
    assert [node["token"] for node in marked[1:]] == trace.target.tokens
    assert marked[-1]["total"] == pytest.approx(trace.log_prob, abs=1e-5)
    if trace.finished:
        assert marked[-1]["score"] == pytest.approx(trace.score, abs=1e-6)
        assert marked[-1]["state"] == "finished"


def test_every_node_is_where_it_belongs(task):
    tree = make_trace(task, "the animal is wide").beam()
    nodes = tree["nodes"]
    for node in nodes[1:]:
        parent = nodes[node["parent"]]
        assert parent["state"] == "kept"
        assert node["step"] == parent["step"] + 1
        assert node["total"] == pytest.approx(parent["total"] + node["log_prob"], abs=1e-5)
        assert node["score"] == pytest.approx(node["total"] / ((5 + node["step"]) / 6) ** 0.6, abs=1e-6)
        assert node["state"] != "finished" or node["token"] == "</s>"
    for step in range(1, max(node["step"] for node in nodes) + 1):
        here = [node for node in nodes if node["step"] == step]
        assert [node["rank"] for node in here] == sorted(node["rank"] for node in here)
        totals = [node["total"] for node in here]
        assert totals == sorted(totals, reverse=True)
        kept = [node for node in here if node["state"] == "kept"]
        assert len(kept) <= tree["width"]
        for node in here:
            if node["state"] == "pruned" and node["token"] != "</s>":
                assert node["total"] <= kept[-1]["total"]


def test_a_reference_is_followed_to_where_it_was_lost(task):
    tree = make_trace(task, "the animal is wide", target="it was too tired").beam()
    nodes = {node["id"]: node for node in tree["nodes"]}
    tokens = [nodes[i]["token"] for i in tree["reference"]]
    assert "".join(tokens[1:-1]).replace("▁", " ").strip() == "it was too tired"
    assert tokens[-1] == "</s>"
    (scored,) = task.score(["the animal is wide"], ["it was too tired"])
    assert nodes[tree["reference"][-1]]["total"] == pytest.approx(scored.log_prob, abs=1e-4)
    alone = [nodes[i] for i in tree["reference"] if nodes[i]["rank"] is None]
    assert alone, "a random model does not look at this text"
    assert all(node["state"] == "pruned" for node in alone)
    assert math.isfinite(alone[-1]["score"])


def test_a_greedy_search_is_shown_with_a_second_hypothesis(task):
    tree = make_trace(task, "the animal", beam=1).beam()
    assert tree["width"] == 2


@pytest.mark.parametrize(
    ("norm", "alpha", "coverage"), [("gnmt", 0.6, 0.0), ("gnmt", 0.9, 0.2), ("plain", 1.0, 0.5), ("none", 0.6, 0.2)]
)
def test_the_parts_of_every_score_add_up_to_it(ending, tokenizers, norm, alpha, coverage):
    """Kept, dropped, finished and given nodes: log P, what the length adds, and the penalty are the score."""
    settings = SearchConfig(
        beam=3, max_extra=4, max_ratio=1.0, length_norm=norm, alpha=alpha, coverage=coverage, stop="exact"
    )
    covering = Translator(ending, tokenizers, settings)
    trace = make_trace(covering, "the animal is wide", target="it is")
    found = trace.beam()
    divisors = {"gnmt": lambda n: ((5 + n) / 6) ** alpha, "plain": lambda n: n**alpha, "none": lambda n: 1.0}
    assert {node["state"] for node in found["nodes"]} == {"kept", "pruned", "finished"}
    assert any(node["rank"] is None for node in found["nodes"])
    for node in found["nodes"][1:]:
        divisor = divisors[norm](node["step"])
        assert node["divisor"] == pytest.approx(divisor, abs=1e-12)
        assert node["length"] == pytest.approx(node["total"] / divisor - node["total"], abs=1e-9)
        assert (node["coverage"] is not None) == (coverage > 0)
        parts = node["total"] + node["length"] + (node["coverage"] or 0.0)
        assert node["score"] == pytest.approx(parts, abs=1e-9)
    assert ("β" in found["formula"]) == (coverage > 0)


def test_the_coverage_penalty_is_that_of_what_the_path_looked_at(ending, tokenizers):
    """Of every node: from the weights that the model records when it is made to write the node's path."""
    settings = SearchConfig(beam=3, max_extra=4, max_ratio=1.0, coverage=0.3)
    covering = Translator(ending, tokenizers, settings)
    nodes = make_trace(covering, "the animal is wide", target="it is").beam()["nodes"]
    known = {piece: i for i, piece in enumerate(tokenizers.target.pieces(range(tokenizers.target.size)))}
    known["</s>"] = EOS
    source = pad_rows([[*tokenizers.source.encode(["the animal is wide"])[0], EOS]])
    for node in [*nodes[1:20], *nodes[-4:]]:
        tokens = [known[one["token"]] for one in path(nodes, node)[1:]]
        record = Recorder()
        with torch.inference_mode():
            ending(source, torch.tensor([[BOS, *tokens[:-1]]]), record)
        looked = ending.alignment(record)[0].double().sum(0)
        penalty = 0.3 * looked.clamp(1e-6, 1).log().sum().item()
        assert node["coverage"] == pytest.approx(penalty, abs=1e-4)


def test_the_score_with_coverage_is_the_one_that_search_gives(ending, tokenizers):
    covering = Translator(
        ending, tokenizers, SearchConfig(beam=3, max_extra=4, max_ratio=1.0, coverage=0.3, stop="exact")
    )
    trace = make_trace(covering, "the animal is wide")
    marked = [node for node in trace.beam()["nodes"] if node["best"]]
    assert trace.finished
    assert marked[-1]["state"] == "finished"
    assert marked[-1]["score"] == pytest.approx(trace.score, abs=1e-5)


def test_sampling_has_no_tree(task, tokenizers):
    sampling = Translator(task.model, tokenizers, SearchConfig(method="sample", max_extra=4))
    with pytest.raises(ModelError, match="no single beam"):
        make_trace(sampling, "the animal").beam()
