"""The beam as a tree: the same search, every candidate in its place, and where a reference was lost."""

from __future__ import annotations

import math

import pytest
import torch

from regard.core.errors import ModelError
from regard.data.tokenizers import TokenizerConfig, TokenizerPair
from regard.looking.tracing import make_trace
from regard.models.base import MODELS, build_model
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
        assert (node["score"] is not None) == (node["state"] == "finished")
        if node["score"] is not None:
            n = node["step"]
            assert node["score"] == pytest.approx(node["total"] / ((5 + n) / 6) ** 0.6, abs=1e-6)
            assert node["token"] == "</s>"
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


def test_scores_with_coverage_are_not_made_up(task, tokenizers):
    covering = Translator(task.model, tokenizers, SearchConfig(beam=3, max_extra=4, max_ratio=1.0, coverage=0.2))
    found = make_trace(covering, "the animal is wide", target="it is").beam()
    assert "</s>" in [node["token"] for node in found["nodes"]]
    assert all(node["score"] is None for node in found["nodes"])
    assert "coverage" in found["formula"]


def test_sampling_has_no_tree(task, tokenizers):
    sampling = Translator(task.model, tokenizers, SearchConfig(method="sample", max_extra=4))
    with pytest.raises(ModelError, match="no single beam"):
        make_trace(sampling, "the animal").beam()
