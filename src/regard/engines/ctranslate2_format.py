"""CTranslate2's model files, written with NumPy alone: its own writer imports torch, which takes longer than a translation.

model.bin is: version, name of the specification, its revision, then named arrays, then aliases (names of equal arrays).
"""

from __future__ import annotations

import dataclasses
import json
import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from regard.engines.ctranslate2_limits import Compute

BINARY_VERSION, SPECIFICATION, REVISION = 6, "TransformerSpec", 7
CONFIG = "config.json"
TYPES = ("float32", "int8", "int16", "int32")  # by their number in the file
MOST_BYTES = (1 << 32) - 1  # of one array: its size is written as 32 bits


@dataclasses.dataclass
class Variables:
    """Named arrays of a model. Matrices that are multiplied or looked up can be quantised, all else stays as it is."""

    plain: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)
    matrices: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)

    def matrix(self, name: str, value: np.ndarray) -> None:
        self.matrices[name] = value

    def put(self, name: str, value: np.ndarray) -> None:
        self.plain[name] = value

    def number(self, name: str, value: float | bool, kind: type = np.int8) -> None:
        self.plain[name] = np.asarray(value, dtype=kind)


def quantised(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Each row as whole numbers from -127 to 127, and what each row was multiplied by. The matrix given is not changed."""
    matrix = matrix.astype(np.float32, copy=False)
    largest = np.abs(matrix).max(axis=1)
    largest[largest == 0] = 127.0
    largest = np.maximum(largest, np.float32(127) / np.finfo(np.float32).max)
    scale = (np.float32(127) / largest).astype(np.float32)
    return np.rint(matrix * scale[:, None]).astype(np.int8), scale


def model_bytes(
    variables: Variables, compute: Compute, specification: str = SPECIFICATION, revision: int = REVISION
) -> bytes:
    """The content of model.bin. Arrays that are one and the same object are written once."""
    first: dict[int, str] = {}
    aliases: list[tuple[str, str]] = []
    arrays: dict[str, np.ndarray] = {}
    for name, array in sorted({**variables.plain, **variables.matrices}.items()):
        if array.ndim and id(array) in first:
            aliases.append((name, first[id(array)]))
            continue
        first[id(array)] = name
        if name in variables.matrices and compute != "float32":
            arrays[name], arrays[f"{name}_scale"] = quantised(array)
        else:
            arrays[name] = array.astype(np.float32, copy=False) if array.dtype.kind == "f" else array
    parts = [struct.pack("<I", BINARY_VERSION), _text(specification), struct.pack("<II", revision, len(arrays))]
    for name, array in sorted(arrays.items()):
        if array.nbytes > MOST_BYTES:
            raise ValueError(f"{name} has {array.nbytes:,} bytes, and the format holds {MOST_BYTES:,}")
        shape = struct.pack(f"<B{array.ndim}I", array.ndim, *array.shape)
        kind = struct.pack("<BI", TYPES.index(array.dtype.name), array.nbytes)
        parts += [_text(name), shape, kind, array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()]
    parts.append(struct.pack("<I", len(aliases)))
    parts += [_text(name) for pair in aliases for name in pair]
    return b"".join(parts)


def _text(text: str) -> bytes:
    content = text.encode()
    return struct.pack("<H", len(content) + 1) + content + b"\0"


def vocabulary_files(source: Sequence[str], target: Sequence[str]) -> dict[str, bytes]:
    """The files of the vocabularies: one where both are the same."""
    if list(source) == list(target):
        return {"shared_vocabulary.json": _json(list(source))}
    return {"source_vocabulary.json": _json(list(source)), "target_vocabulary.json": _json(list(target))}


def vocabulary_file(tokens: Sequence[str]) -> dict[str, bytes]:
    """The file of the vocabulary of a model that does not translate."""
    return {"vocabulary.json": _json(list(tokens))}


def config_file(
    specials: Mapping[str, str], epsilon: float, *, translates: bool = True, grouped: bool = False
) -> dict[str, bytes]:
    """config.json: the names of the special tokens, and what a norm adds to the variance.

    `grouped`: there are fewer heads of keys and values than of queries.
    """
    settings = {**specials, "layer_norm_epsilon": epsilon, "multi_query_attention": grouped}
    if translates:
        settings |= {"add_source_bos": False, "add_source_eos": False}
    return {CONFIG: _json(dict(sorted(settings.items())))}


def _json(value: Any) -> bytes:
    return (json.dumps(value, indent=2) + "\n").encode()
