"""Ways in which files go bad, as functions of the content: each gives bytes that differ from what was there."""

from __future__ import annotations

import json
import random
from collections.abc import Callable

PAGE = 4096


def flip(content: bytes, draw: random.Random, _other: bytes) -> bytes:
    changed = bytearray(content)
    for _ in range(draw.choice([1, 1, 1, 8])):
        changed[draw.randrange(len(changed))] ^= 1 << draw.randrange(8)
    return bytes(changed)


def truncate(content: bytes, draw: random.Random, _other: bytes) -> bytes:
    return content[: draw.choice([0, 7, 8, len(content) - 1, draw.randrange(len(content))])]


def extend(content: bytes, draw: random.Random, other: bytes) -> bytes:
    return content + draw.choice([b"\0", content[:100], other, bytes(PAGE)])


def zero(content: bytes, draw: random.Random, _other: bytes) -> bytes:
    """A page, or a part of one where the file is short: what a disk gives that has lost it."""
    size = min(PAGE, max(1, len(content) // 3))
    start = draw.randrange(0, len(content), size)
    hole = content[start : start + size]
    return content[:start] + bytes(len(hole)) + content[start + size :]


def splice(content: bytes, draw: random.Random, other: bytes) -> bytes:
    """The beginning of this file and the end of the same file of another checkpoint, or a piece of it in the middle."""
    cut = draw.randrange(len(content))
    if draw.random() < 0.5:
        return content[:cut] + other[cut:]
    size = draw.randrange(1, 512)
    return content[:cut] + other[cut : cut + size] + content[cut + size :]


def exchange(_content: bytes, _draw: random.Random, other: bytes) -> bytes:
    return other


def lying_header(content: bytes, draw: random.Random, _other: bytes) -> bytes:
    """Of a safetensors file: its length, or what it says of types, shapes and places. Of other files: a changed number."""
    if content[:1] == b"{":
        value = json.loads(content)
        keys = [key for key in value if isinstance(value[key], (int, dict))]
        value[draw.choice(keys)] = draw.choice([2, -1, 1 << 70, None, "1", []])
        return json.dumps(value).encode()
    size = int.from_bytes(content[:8], "little")
    how = draw.randrange(4)
    if how == 0:
        wrong = draw.choice([0, 1, size - 1, size + 1, size + 8, 1 << 31, (1 << 64) - 1])
        return wrong.to_bytes(8, "little") + content[8:]
    header = json.loads(content[8 : 8 + size])
    name = draw.choice([key for key in header if key != "__metadata__"])
    entry = header[name]
    if how == 1:
        entry["shape"] = draw.choice([[1 << 40, 1 << 40], [-1], [*entry["shape"], 2], [0]])
    elif how == 2:
        begin, end = entry["data_offsets"]
        entry["data_offsets"] = draw.choice([[begin, end + 4], [end, begin], [0, len(content) * 2], [-4, end]])
    else:
        entry["dtype"] = draw.choice(["F64", "BOOL", "Q7", 5])
    text = json.dumps(header, separators=(",", ":")).encode()
    return len(text).to_bytes(8, "little") + text + content[8 + size :]


WAYS: dict[str, Callable[[bytes, random.Random, bytes], bytes]] = {
    "flip": flip,
    "truncate": truncate,
    "extend": extend,
    "zeroed page": zero,
    "splice": splice,
    "another's file": exchange,
    "lying header": lying_header,
}


def same_meaning(name: str, one: bytes, two: bytes) -> bool:
    """Whether two contents of a file say the same: a manifest without its last line feed is no damage."""
    if one == two:
        return True
    if name != "manifest.json":
        return False
    try:
        return json.loads(one) == json.loads(two)
    except ValueError:
        return False


def corrupt(name: str, content: bytes, other: bytes, draw: random.Random) -> tuple[str, bytes]:
    """A way and what it makes of a file; `other` is the same file of another checkpoint."""
    while True:
        way = draw.choice(list(WAYS))
        changed = WAYS[way](content, draw, other)
        if not same_meaning(name, content, changed):
            return way, changed
