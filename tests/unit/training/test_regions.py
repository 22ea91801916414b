"""Compiled layers: which they are, when compiling pays, and that one piece of code serves all of a kind."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch

from regard.core.config import build
from regard.models.base import MODELS, build_model
from regard.training import regions
from regard.training.config import TrainConfig
from regard.training.regions import CompiledRegions, compile_pays, estimated_seconds, repeated_layers


def outline(name: str, **choices):
    with torch.device("meta"):
        config = build(MODELS.get(name).Config, {"name": name, **choices}, "model")
        return build_model(name, config, source_vocabulary=100, target_vocabulary=100, shared=True)


@pytest.mark.parametrize(("name", "count"), [("transformer", 6), ("gpt", 6), ("luong", 0), ("lstmlm", 0), ("kim", 0)])
def test_layers_with_attention_are_compiled_and_loops_over_time_are_not(name, count):
    assert len(repeated_layers(outline(name))) == count


def test_compiling_is_for_runs_that_earn_the_time_back(monkeypatch):
    model = outline("transformer", width=512, layers=6, heads=8)
    cuda, cpu = torch.device("cuda"), torch.device("cpu")
    monkeypatch.setattr(regions.importlib.util, "find_spec", lambda name: object())
    long, short = TrainConfig(steps=20_000, batch_tokens=32_000), TrainConfig(steps=500, batch_tokens=4096)
    parameters = sum(p.numel() for p in model.parameters())
    assert estimated_seconds(long, parameters) == pytest.approx(6 * parameters * 20_000 * 32_000 / 2e14)
    assert compile_pays(long, model, cuda)
    assert not compile_pays(long, model, cpu)
    assert not compile_pays(short, model, cuda)
    assert not compile_pays(long, outline("luong"), cuda)
    assert compile_pays(TrainConfig(compile=True, steps=1), model, cpu), "what is asked for is done"
    assert not compile_pays(TrainConfig(compile=False, steps=10**6), model, cuda)
    monkeypatch.setattr(regions.importlib.util, "find_spec", lambda name: None)
    assert not compile_pays(long, model, cuda), "without Triton, nothing can be compiled"


def test_layers_are_as_they_were_outside():
    model = outline("gpt")
    layers = repeated_layers(model)
    subject = CompiledRegions(layers, backend="eager")
    with subject.applied():
        assert all("forward" in layer.__dict__ for layer in layers)
    assert not any("forward" in layer.__dict__ for layer in layers)


SHARED = """
import contextlib, torch
from torch._dynamo.utils import counters
from regard.core.types import Padded
from regard.data.batching import Batch
from regard.models.gpt import GPT, GPTConfig
from regard.training.gradient import Gradients
from regard.training.regions import CompiledRegions, repeated_layers
config = GPTConfig(width=16, layers=2, heads=2, dropout=0.0, attention_dropout=0.0)
models = []
for compile in (False, True):
    torch.manual_seed(0)
    model = GPT(config, vocabulary=20).train()
    options = {"regions": CompiledRegions(repeated_layers(model), backend="eager")} if compile else {}
    models.append((model, Gradients(model, contextlib.nullcontext, compile=compile, **options)))
graphs = []
for rows, width in ((4, 8), (3, 5), (6, 7)):
    text = torch.randint(4, 20, (rows, width + 1))
    one = torch.full((rows, 1), 2)
    batch = Batch(Padded(one, one > 0), text[:, :-1], text[:, 1:], [])
    for model, gradients in models:
        model.zero_grad()
        gradients(batch, 0.1)
    for p, q in zip(*(model.parameters() for model, _ in models)):
        torch.testing.assert_close(p.grad, q.grad)
    graphs.append(counters["stats"]["unique_graphs"])
assert not counters["graph_break"], counters["graph_break"]
print(graphs)
"""


def test_one_piece_of_code_serves_all_layers_and_soon_all_shapes():
    """In a process of its own: checks of shapes, on in tests, would be compiled too."""
    path = os.pathsep.join(sys.path)
    done = subprocess.run(
        [sys.executable, "-c", SHARED],
        env={**os.environ, "PYTHONPATH": path, "REGARD_CHECKS": ""},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stdout.strip() == "[1, 2, 2]", done.stderr
