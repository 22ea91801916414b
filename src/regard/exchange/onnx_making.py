"""Functions of a model to ONNX files: exported with every size free, checked in onnxruntime at other sizes than the example's."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from regard.core.errors import ModelError
from regard.core.types import SPECIALS
from regard.exchange.onnx_graphs import Function, Functions, functions_of
from regard.exchange.onnx_layers import prepared, translations
from regard.exchange.parity import ParityError
from regard.onnx.manifest import Port
from regard.onnx.sessions import open_graph

OPSET = 18
MOST_BYTES = 2_000_000_000  # of a file: what protobuf can hold
EXAMPLE = {"B": 3, "K": 2, "S": 5, "L": 4, "T": 6}
OTHERS = (  # none shares all of its sizes with the example; ones, and nothing written yet, are the sizes that go wrong
    {"B": 1, "K": 1, "S": 1, "L": 0, "T": 1},
    {"B": 1, "K": 4, "S": 9, "L": 0, "T": 3},
    {"B": 2, "K": 1, "S": 2, "L": 1, "T": 2},
    {"B": 4, "K": 3, "S": 13, "L": 7, "T": 9},
    {"B": 5, "K": 5, "S": 6, "L": 2, "T": 1},
)
LOUD = ("torch", "torch.onnx", "torch.export", "torch.__trace", "onnxscript", "onnx_ir")  # loggers
CLOSE = 1e-3  # what a number may differ by in float32, next to numbers of size 1


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """No shape checks of signatures, which do not know sizes that are names; no talk of the exporter, nor its warnings."""
    import jaxtyping

    checked = jaxtyping.config.jaxtyping_disable
    levels = {name: logging.getLogger(name).level for name in LOUD}
    jaxtyping.config.update("jaxtyping_disable", True)
    for name in levels:
        logging.getLogger(name).setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()), torch.no_grad(), _no_cache():
            warnings.simplefilter("ignore")
            yield
    finally:
        jaxtyping.config.update("jaxtyping_disable", checked)
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)


def _no_cache() -> contextlib.AbstractContextManager[None]:
    """PyTorch's cache of shapes costs a quarter of the time where sizes are names: hardly one of them comes twice."""
    import torch._dynamo.config

    return torch._dynamo.config.patch(fake_tensor_cache_enabled=False)


def write_graphs(model: Any, folder: Path) -> Functions:
    """Writes all graphs of a model (float32, on the CPU) into a folder, each checked; the model is not touched."""
    with _quiet():
        own, copied = functions_of(model), functions_of(prepared(model), model)
        tables = translations()
        for name, function in copied.functions.items():
            _write(function, folder / function.graph.file, tables, model.config.name)
            _check(own.functions[name], folder / function.graph.file, model)
    return own


def _write(function: Function, path: Path, tables: dict[Any, Any], name: str) -> None:
    graph = function.graph
    sizes = {name: max(size, function.least.get(name, 0)) for name, size in EXAMPLE.items()}
    sizes = {name: min(size, function.most.get(name, size)) for name, size in sizes.items()}
    inputs = [_random(port, sizes, torch.Generator().manual_seed(1), function.module) for port in graph.inputs]
    dims = {name: torch.export.Dim(name, **_range(name, function)) for name in EXAMPLE}
    shapes = [{i: dims[size] for i, size in enumerate(port.shape) if isinstance(size, str)} for port in graph.inputs]
    try:
        program = torch.export.export(
            function.module, (inputs,), dynamic_shapes=(shapes,), strict=False,
            prefer_deferred_runtime_asserts_over_guards=True,
        )  # fmt: skip
        made = torch.onnx.export(
            program,
            dynamo=True,
            verbose=False,
            optimize=True,
            opset_version=OPSET,
            input_names=[port.name for port in graph.inputs],
            output_names=[port.name for port in graph.outputs],
            custom_translation_table=tables,
        )
    except Exception as error:  # whatever goes wrong inside of two compilers
        first: BaseException = error
        while first.__cause__ is not None:
            first = first.__cause__
        reason = " ".join(str(first).split())[:300]
        what = f"its graph {path.stem} cannot be exported ({type(first).__name__}: {reason})"
        raise ModelError(f"model {name!r}", what, "Report it, with the model's settings") from error
    assert made is not None
    proto = made.model_proto
    if proto.ByteSize() > MOST_BYTES:
        what = f"its graph {path.stem} has {proto.ByteSize():,} bytes, and an ONNX file holds at most {MOST_BYTES:,}"
        raise ModelError(f"model {name!r}", what, "Use a smaller model")
    path.write_bytes(_plain(proto).SerializeToString())


def _plain(proto: Any) -> Any:
    """Without notes about the Python code that a node came from: they hold paths of this machine, and make files larger."""
    del proto.metadata_props[:]
    del proto.graph.metadata_props[:]
    for node in proto.graph.node:
        node.ClearField("doc_string")
        del node.metadata_props[:]
    for value in (*proto.graph.value_info, *proto.graph.input, *proto.graph.output):
        del value.metadata_props[:]
    del proto.graph.value_info[:]
    proto.producer_name, proto.producer_version = "regard", ""
    return proto


def _range(name: str, function: Function) -> dict[str, int]:
    found = {"min": function.least.get(name, 0 if name == "L" else 1)}
    if name in function.most:
        found["max"] = max(function.most[name], found["min"] + 1)
    return found


def _check(function: Function, path: Path, model: Any) -> None:
    """Compares the file with the model, at sizes that the example did not have."""
    session = open_graph(path, path.read_bytes(), function.graph)
    seen = set()
    for number, sizes in enumerate(OTHERS):
        sizes = {name: min(max(size, function.least.get(name, 0)), function.most.get(name, size))
                 for name, size in sizes.items()}  # fmt: skip
        generator = torch.Generator().manual_seed(number)
        inputs = [_random(port, sizes, generator, model) for port in function.graph.inputs]
        seen.add(tuple(tuple(one.shape) for one in inputs))
        wanted = function.module(inputs)
        found = session.run({p.name: x.numpy() for p, x in zip(function.graph.inputs, inputs, strict=True)})
        for port, one in zip(function.graph.outputs, wanted, strict=True):
            other = found[port.name]
            if tuple(one.shape) != other.shape or not _close(one.numpy(), other):
                how = f"at sizes {sizes} its output {port.name} is not what the model gives"
                raise ParityError(f"graph {path.stem}", how, "This is a mistake in the export: report it")
    if len(seen) < 4:
        what = "it cannot be checked at four sizes"
        raise ModelError(f"graph {path.stem}", what, "Use a model that reads longer texts")


def _close(one: np.ndarray, other: np.ndarray) -> bool:
    if one.dtype != np.float32:
        return bool((one == other).all())
    both = np.isinf(one) & (one == other)
    with np.errstate(invalid="ignore"):
        return bool((both | (np.abs(one - other) <= CLOSE * (1 + np.abs(one)))).all())


def _few_tokens(model: nn.Module) -> int:
    """A number that all tokens below are in every vocabulary of a model, that of three labels too."""
    rows = [one.num_embeddings for one in model.modules() if isinstance(one, nn.Embedding)]
    return min([8, *(count for count in rows if count > len(SPECIALS))])


def _random(port: Port, sizes: dict[str, int], generator: torch.Generator, model: nn.Module) -> Tensor:
    """An input that could be one: masks are those of texts, hypotheses see one slot of each position."""
    shape = [sizes[size] if isinstance(size, str) else size for size in port.shape]
    if port.type == "bool":
        lengths = torch.randint(1, shape[-1] + 1, (shape[0],), generator=generator)
        lengths[0] = shape[-1]
        keep = torch.arange(shape[-1]) < lengths[:, None]
        return keep.reshape(shape[0], *shape[1:])
    if port.type == "int64":
        if port.name == "places" or port.name == "length":
            return torch.randint(
                0 if port.name == "places" else 1, max(2, sizes["S"]), shape, generator=generator
            ).clamp(max=sizes["S"] - 1 if port.name == "places" else sizes["S"])
        if port.name == "tokens":
            return torch.randint(3, _few_tokens(model), shape, generator=generator)
        if port.shape == ("B",):
            return torch.full(shape, sizes["L"])
        return torch.randint(0, 3, shape, generator=generator)
    if port.shape == ("B", "K", "L", "K"):
        own = torch.randint(0, sizes["K"], (sizes["B"], sizes["K"], sizes["L"]), generator=generator)
        return torch.zeros(shape).masked_fill(torch.arange(sizes["K"]) != own[..., None], float("-inf"))
    return torch.randn(shape, generator=generator) * 0.5
