"""Graphs in onnxruntime, opened safely: bytes whose hash is known, no data outside of them, no operators from elsewhere."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.core.errors import CheckpointError, ModelError
from regard.core.processors import processors
from regard.onnx.manifest import Graph
from regard.onnx.protobuf import check_model

if TYPE_CHECKING:
    import numpy as np

MOST_BYTES = (1 << 31) - 1
MOST_THREADS = 8
_TYPES = {"float32": "tensor(float)", "int64": "tensor(int64)", "bool": "tensor(bool)"}


def threads() -> int:
    """As many as there are processors for this process, or as OMP_NUM_THREADS says."""
    given = os.environ.get("OMP_NUM_THREADS", "")
    if given.isdigit() and int(given) > 0:
        return int(given)
    return min(processors(), MOST_THREADS)


class Session:
    """A graph that can be run."""

    def __init__(self, where: Path, inner: Any, graph: Graph):
        self.where, self._inner, self.graph = where, inner, graph
        self.outputs = [port.name for port in graph.outputs]

    def run(self, inputs: dict[str, np.ndarray], outputs: list[str] | None = None) -> dict[str, np.ndarray]:
        """The outputs that are asked for, or all, by name."""
        names = self.outputs if outputs is None else outputs
        try:
            return dict(zip(names, self._inner.run(names, inputs), strict=True))
        except Exception as error:  # onnxruntime has many, and none of ours
            reason = " ".join(str(error).split())[:200]
            raise ModelError(
                self.where, f"onnxruntime cannot run it ({reason})", "Give less at once, or report it"
            ) from None


def open_graph(where: Path, content: bytes, graph: Graph) -> Session:
    """A session for the bytes of a file that was checked against its hash."""
    if len(content) > MOST_BYTES:
        raise CheckpointError(where, "the file is too large to be a graph", "Restore it from a copy")
    check_model(content, where)
    try:
        import onnxruntime as ort
    except ModuleNotFoundError:
        raise ModelError("onnxruntime", "it is not installed", "Install it with `pip install onnxruntime`") from None
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads(), 1
    options.log_severity_level = 4
    try:
        inner = ort.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime has many, and none of ours
        reason = " ".join(str(error).split())[:200]
        raise CheckpointError(where, f"onnxruntime does not take it ({reason})", "Restore it from a copy") from None
    for side, ports, found in (
        ("inputs", graph.inputs, inner.get_inputs()),
        ("outputs", graph.outputs, inner.get_outputs()),
    ):
        wanted = [(port.name, _TYPES[port.type]) for port in ports]
        if [(one.name, one.type) for one in found] != wanted:
            raise CheckpointError(where, f"its {side} are not those that onnx.json names", "Restore it from a copy")
    return Session(where, inner, graph)
