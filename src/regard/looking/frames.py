"""Numbers on their way to the page: a JSON header and one block of binary numbers in one answer.

    4 bytes, little-endian: length n of the header; n bytes of JSON; zero bytes up to a multiple of 4; the numbers, row by row

Lists of numbers in JSON would be ten times as large, and a page of 512 tokens would not open.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

Kind = Literal["u8", "f32"]
MEDIA_TYPE = "application/vnd.regard.frame"


def framed(numbers: np.ndarray, kind: Kind = "f32", header: Mapping[str, Any] | None = None) -> bytes:
    """The numbers and what is to be known of them. `u8` is for pictures: shares from 0 to 1 in 256 steps."""
    about = {"type": kind, "shape": list(numbers.shape), **(header or {})}
    text = json.dumps(about, ensure_ascii=False, allow_nan=False).encode()
    fill = -(4 + len(text)) % 4
    return b"".join((struct.pack("<I", len(text)), text, bytes(fill), _packed(numbers, kind)))


def unframed(content: bytes) -> tuple[dict[str, Any], np.ndarray]:
    """The header and the numbers of a frame."""
    (length,) = struct.unpack_from("<I", content)
    about = json.loads(content[4 : 4 + length])
    begin = 4 + length + (-(4 + length) % 4)
    numbers = np.frombuffer(content, dtype="<f4" if about["type"] == "f32" else np.uint8, offset=begin)
    return about, numbers.reshape(about["shape"])


def _packed(numbers: np.ndarray, kind: Kind) -> bytes:
    if kind == "f32":
        return np.ascontiguousarray(numbers, dtype="<f4").tobytes()
    return np.rint(np.clip(np.nan_to_num(numbers), 0, 1) * 255).astype(np.uint8).tobytes()
