"""What goes between a program and the processes that cut text into tokens for it: JSON one way, arrays the other."""

from __future__ import annotations

import json
import struct
from typing import IO, Any

import numpy as np

_SIZE = struct.Struct("<Q")
Rows = tuple[np.ndarray, np.ndarray]  # the tokens of all texts, and how many are each text's


def send_texts(file: IO[bytes], value: Any) -> None:
    content = json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")
    file.write(_SIZE.pack(len(content)))
    file.write(content)
    file.flush()


def receive_texts(file: IO[bytes]) -> Any:
    """What was sent; EOFError at the end."""
    return json.loads(_receive(file).decode("utf-8", "surrogatepass"))


def send_rows(file: IO[bytes], rows: Rows) -> None:
    for array, kind in zip(rows, ("<i4", "<i8"), strict=True):
        content = array.astype(kind, copy=False).tobytes()
        file.write(_SIZE.pack(len(content)))
        file.write(content)
    file.flush()


def receive_rows(file: IO[bytes]) -> Rows:
    flat = np.frombuffer(_receive(file), dtype="<i4")
    return flat, np.frombuffer(_receive(file), dtype="<i8")


def _receive(file: IO[bytes]) -> bytes:
    return _exactly(file, _SIZE.unpack(_exactly(file, _SIZE.size))[0])


def _exactly(file: IO[bytes], size: int) -> bytes:
    content = file.read(size)
    if len(content) < size:
        raise EOFError("the other process has ended")
    return content
