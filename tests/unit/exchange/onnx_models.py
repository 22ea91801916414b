"""Small models of every architecture, with weights large enough to have an opinion; and their graphs, in a runner."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest
import torch

from regard.core import config as configuration
from regard.core.types import EOS
from regard.exchange import onnx_making
from regard.exchange.onnx_making import write_graphs
from regard.exchange.parity_sides import weights_sha256
from regard.models.base import MODELS, build_model
from regard.onnx.manifest import Manifest
from regard.onnx.sessions import open_graph
from regard.onnx.writing import Writer

V, LABELS = 23, 4


def make(name: str, **settings: Any) -> Any:
    torch.manual_seed(1)
    config = configuration.build(MODELS.get(name).Config, {"name": name, **settings}, "model")
    labelling = MODELS.get(name).capabilities & {"classifies", "tags"}
    model = build_model(
        name, config, source_vocabulary=V, target_vocabulary=LABELS if labelling else V, shared=not labelling
    )
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(2.0)
            elif not parameter.any():
                parameter.normal_(std=0.3)
        bias = getattr(model.output, "bias", None)
        if bias is not None and not labelling:
            bias[EOS] = -1.0  # texts of some words
    return model.eval()


def runner(model: Any, folder: Path) -> Writer:
    """The graphs of a model that writes, as the runner has them."""
    made = write_graphs(model, folder)
    continues = "continues" in model.capabilities
    manifest = Manifest(
        task="continues" if continues else "translates",
        model=model.config.name,
        compute="float32",
        graphs={name: one.graph for name, one in made.functions.items()},
        memory=made.memory,
        state=made.state,
        source_vocabulary=V,
        target_vocabulary=V,
        source_limit=model.limits.source,
        target_limit=model.limits.target,
        least_source=made.least_source,
        opset=18,
        search={},
    )
    sessions = {}
    for name, graph in manifest.graphs.items():
        path = folder / graph.file
        sessions[name] = open_graph(path, path.read_bytes(), graph)
    return Writer(manifest, sessions)


MADE: dict[tuple[str, str], bytes] = {}  # graphs that were exported by this process


@pytest.fixture(scope="module")
def one_registry():
    """PyTorch builds its table of ONNX functions anew for every graph, which takes a quarter of the time: here only once. And the
    graphs of one and the same model are exported once; all checks are made each time."""
    from torch.onnx._internal.exporter._registration import ONNXRegistry

    plain, write = ONNXRegistry.__dict__["from_torchlib"], onnx_making._write

    def remembered(function: Any, path: Path, tables: Any, name: str) -> None:
        key = (f"{path.name} of {function.module.model.config}", weights_sha256(function.module))
        if key not in MADE:
            write(function, path, tables, name)
            MADE[key] = path.read_bytes()
        path.write_bytes(MADE[key])

    ONNXRegistry.from_torchlib = staticmethod(functools.cache(ONNXRegistry.from_torchlib))  # type: ignore[assignment]
    onnx_making._write = remembered
    yield
    ONNXRegistry.from_torchlib, onnx_making._write = plain, write
