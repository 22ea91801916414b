"""A look into the bytes of an ONNX model before onnxruntime gets them, without the onnx package.

Refused are tensors whose data stand in other files, operators of domains that onnxruntime does not bring along, and bytes that
are no protobuf. Nothing is copied: messages are walked through in place, to a bounded depth.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from regard.core.errors import CheckpointError

DOMAINS = {b"", b"ai.onnx", b"ai.onnx.ml", b"com.microsoft"}
DEEPEST = 16
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
# messages: field number -> kind of message inside; kinds with rules of their own are in `_check`
_INSIDE = {
    "model": {7: "graph", 8: "opset", 25: "function"},
    "graph": {1: "node", 5: "tensor", 15: "sparse"},
    "function": {7: "node", 9: "opset", 11: "attribute"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse", 23: "sparse"},
    "sparse": {1: "tensor", 2: "tensor"},
    "tensor": {},
    "opset": {},
}
_DOMAIN = {"node": 7, "opset": 1, "function": 10}  # the field with the name of a domain
_EXTERNAL, _LOCATION = 13, 14  # of a tensor: where its data are


class _Bad(Exception):
    pass


def check_model(content: bytes, where: Path) -> None:
    """Raises a CheckpointError unless the bytes are a model that can be given to onnxruntime."""
    try:
        _check(memoryview(content), "model", 0)
    except _Bad as error:
        raise CheckpointError(where, str(error), "Export the model again") from None


def _check(message: memoryview, kind: str, depth: int) -> None:
    if depth > DEEPEST:
        raise _Bad("it is nested too deeply to be a graph")
    inside, domain = _INSIDE[kind], _DOMAIN.get(kind)
    for number, wire, value, part in _fields(message):
        if kind == "tensor" and (number == _EXTERNAL or (number == _LOCATION and value)):
            raise _Bad("it has data in another file")
        if part is None:
            if number in inside:
                raise _Bad("it is not an ONNX model, or a damaged one")
            continue
        if number == domain and bytes(part[:64]) not in DOMAINS:
            raise _Bad(f"it has operators of a domain that is not known ({bytes(part[:40])!r})")
        if number in inside:
            _check(part, inside[number], depth + 1)
        del wire


def _fields(message: memoryview) -> Iterator[tuple[int, int, int, memoryview | None]]:
    """Field numbers, wire types, numbers, and of fields with a length their bytes."""
    at, end = 0, len(message)
    while at < end:
        key, at = _varint(message, at)
        number, wire = key >> 3, key & 7
        value, part = 0, None
        if wire == _VARINT:
            value, at = _varint(message, at)
        elif wire == _BYTES:
            size, at = _varint(message, at)
            if size > end - at:
                raise _Bad("it is cut off, or no ONNX model")
            part, at = message[at : at + size], at + size
        elif wire in (_FIXED64, _FIXED32):
            at += 8 if wire == _FIXED64 else 4
            if at > end:
                raise _Bad("it is cut off, or no ONNX model")
        else:
            raise _Bad("it is not an ONNX model, or a damaged one")
        if number == 0:
            raise _Bad("it is not an ONNX model, or a damaged one")
        yield number, wire, value, part


def _varint(message: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(message) or shift > 63:
            raise _Bad("it is cut off, or no ONNX model")
        byte = message[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value, at
        shift += 7
