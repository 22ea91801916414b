"""Files of `torch.save`, read without torch's unpickler: the zip archives of today, and the older files without an archive.

Nothing in them is run (exchange/restricted_unpickling.py), nothing is unpacked to the disk, and nothing is believed: members of
an archive must be stored as they are, with plain names, each once, and together no larger than the file; storages must have the
size that the pickle says; tensors must lie within their storage and be no larger. Numbers are read only when a tensor is asked for.
"""

from __future__ import annotations

import math
import mmap
import struct
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.core.errors import CheckpointError
from regard.exchange.restricted_unpickling import Storage, TensorView, read_pickle

MOST_MEMBERS = 100_000
MOST_PICKLE = 256 << 20  # bytes; the numbers are elsewhere
PICKLE = 0x80  # the first byte of a pickle
MAGIC = 0x1950A86A20F9469CFC6C  # of files without an archive
KINDS: dict[str, torch.dtype] = {
    "FloatStorage": torch.float32,
    "DoubleStorage": torch.float64,
    "HalfStorage": torch.float16,
    "BFloat16Storage": torch.bfloat16,
    "LongStorage": torch.int64,
    "IntStorage": torch.int32,
    "ShortStorage": torch.int16,
    "CharStorage": torch.int8,
    "ByteStorage": torch.uint8,
    "BoolStorage": torch.bool,
}
_TODO = "Use a checkpoint that torch.save wrote, or restore it from a copy"


class TorchFile:
    """A file of torch.save: `value` is what was saved, with views in place of tensors; `tensor` reads one."""

    def __init__(self, path: Path):
        self.path = path
        try:
            if not path.is_file():
                raise CheckpointError(path, "the file is missing", "Give a checkpoint")
            with open(path, "rb") as file:
                self._content = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        except (OSError, ValueError) as error:  # ValueError: an empty file
            raise CheckpointError(path, f"the file cannot be read ({error})", _TODO) from None
        self._places: dict[str, tuple[int, int, int]] = {}  # of storages: begin, bytes, CRC
        self._tensors: dict[str, Tensor] = {}
        archive = bytes(self._content[:4]) == b"PK\x03\x04"
        self.value: Any = self._open_archive() if archive else self._open_old()

    def tensor(self, view: TensorView) -> Tensor:
        """A tensor in float32 if it holds fractions; it is a copy, the file stays as it is."""
        flat = self._numbers(view.storage)
        count = math.prod(view.shape)
        last = view.offset + sum((size - 1) * stride for size, stride in zip(view.shape, view.strides, strict=True))
        if count and (last >= len(flat) or count > len(flat)):
            what = f"a tensor {list(view.shape)} does not lie within its storage of {len(flat)} numbers"
            raise CheckpointError(self.path, what, _TODO)
        if not count:
            return torch.zeros(view.shape)
        found = torch.as_strided(flat, view.shape, view.strides, view.offset)
        return found.to(torch.float32, copy=True) if found.is_floating_point() else found.clone()

    def _numbers(self, storage: Storage) -> Tensor:
        if storage.kind not in KINDS:
            raise CheckpointError(self.path, f"{storage.kind[:60]} is not supported", "Use plain weights")
        dtype = KINDS[storage.kind]
        if storage.key not in self._places:
            raise CheckpointError(self.path, f"its storage {storage.key[:60]!r} is missing", _TODO)
        if storage.key not in self._tensors:
            begin, size, checksum = self._places[storage.key]
            if storage.count * dtype.itemsize != size:
                what = f"its storage {storage.key[:60]!r} has {size} bytes, and should have {storage.count} numbers"
                raise CheckpointError(self.path, what, _TODO)
            if not size:
                return torch.zeros(0, dtype=dtype)
            part = self._content[begin : begin + size]
            if checksum and zlib.crc32(part) != checksum:
                raise CheckpointError(self.path, f"its storage {storage.key[:60]!r} is corrupted (CRC)", _TODO)
            raw = np.frombuffer(part, np.uint8).copy()
            self._tensors = {storage.key: torch.from_numpy(raw).view(dtype)}  # the last one only: memory stays low
        found = self._tensors[storage.key]
        if found.dtype != dtype or len(found) != storage.count:
            raise CheckpointError(self.path, f"its storage {storage.key[:60]!r} has two kinds", _TODO)
        return found

    def _open_archive(self) -> Any:
        self._check_directory()
        try:
            with zipfile.ZipFile(self.path) as archive:
                members = archive.infolist()
        except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError, struct.error) as error:
            raise CheckpointError(self.path, f"its archive is damaged ({str(error)[:80]})", _TODO) from None
        names = [member.filename for member in members]
        pickles = [name for name in names if name.endswith("/data.pkl")]
        if len(pickles) != 1 or len(set(names)) < len(names) or len(names) > MOST_MEMBERS:
            raise CheckpointError(self.path, "its archive is not one that torch.save wrote", _TODO)
        if sum(member.file_size for member in members) > len(self._content):
            raise CheckpointError(self.path, "its archive says that it holds more than the file", _TODO)
        prefix = pickles[0].removesuffix("data.pkl")
        parts = {}
        for member in members:
            name = member.filename
            if not name.startswith(prefix) or ".." in name or "\\" in name or name.startswith("/"):
                raise CheckpointError(self.path, f"its archive has a member {name[:60]!r}", _TODO)
            if member.compress_type != zipfile.ZIP_STORED or member.file_size != member.compress_size:
                raise CheckpointError(self.path, f"its archive has a packed member {name[:60]!r}", _TODO)
            parts[name.removeprefix(prefix)] = (self._begin(member), member.file_size, member.CRC)
        order = parts.get("byteorder", (0, 6, 0))
        if order[1] != 6 or (order[0] and bytes(self._content[order[0] : order[0] + 6]) != b"little"):
            raise CheckpointError(self.path, "its bytes are in another order", "Save it again on a usual machine")
        self._places = {name.removeprefix("data/"): place for name, place in parts.items() if name.startswith("data/")}
        begin, size, _ = parts["data.pkl"]
        if size > MOST_PICKLE:
            raise CheckpointError(self.path, "its pickle is too large to be one of a checkpoint", _TODO)
        return read_pickle(self._content[begin : begin + size], self.path, file_bytes=len(self._content))[0]

    def _check_directory(self) -> None:
        """The size of the list of members, before it is read."""
        tail = bytes(self._content[-66_000:])
        at = tail.rfind(b"PK\x05\x06")
        if at < 0 or len(tail) - at < 22:
            raise CheckpointError(self.path, "its archive is damaged: it has no end", _TODO)
        size = struct.unpack_from("<I", tail, at + 12)[0]
        far = tail.rfind(b"PK\x06\x06", 0, at)
        if size == 0xFFFFFFFF and far >= 0:
            size = struct.unpack_from("<Q", tail, far + 40)[0]
        if size > MOST_MEMBERS * 200:
            raise CheckpointError(self.path, "its archive has too many members", _TODO)

    def _begin(self, member: zipfile.ZipInfo) -> int:
        """Where the bytes of a member are."""
        header = bytes(self._content[member.header_offset : member.header_offset + 30])
        if len(header) < 30 or header[:4] != b"PK\x03\x04":
            raise CheckpointError(self.path, "its archive is damaged", _TODO)
        begin = member.header_offset + 30 + sum(struct.unpack_from("<HH", header, 26))
        if begin + member.file_size > len(self._content):
            raise CheckpointError(self.path, "its archive is truncated", _TODO)
        return begin

    def _open_old(self) -> Any:
        """Pickles in a row (a magic number, a version, the machine, the value, the keys of storages), then the storages."""
        if self._content[0] != PICKLE:
            raise CheckpointError(self.path, "it is not a file that torch.save wrote", _TODO)
        value, at = read_pickle(self._content, self.path)
        if value != MAGIC:
            raise CheckpointError(self.path, "it is not a file that torch.save wrote", _TODO)
        version, at = read_pickle(self._content, self.path, at)
        machine, at = read_pickle(self._content, self.path, at)
        if version != 1001 or not isinstance(machine, dict) or machine.get("little_endian") is not True:
            raise CheckpointError(self.path, "it is of another version of torch.save, or of another machine", _TODO)
        value, at = read_pickle(self._content, self.path, at)
        keys, at = read_pickle(self._content, self.path, at)
        if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys) or len(set(keys)) < len(keys):
            raise CheckpointError(self.path, "it does not say what its storages are", _TODO)
        sizes = _item_sizes(value)
        for key in keys:
            if at + 8 > len(self._content) or key not in sizes:
                raise CheckpointError(self.path, "it is truncated, or has a storage that nothing uses", _TODO)
            count = struct.unpack_from("<q", self._content, at)[0]
            size = count * sizes[key]
            if count < 0 or size > len(self._content) - at - 8:
                raise CheckpointError(self.path, f"its storage {key[:60]!r} is longer than the file", _TODO)
            self._places[key] = (at + 8, size, 0)
            at += 8 + size
        return value


def _item_sizes(value: Any) -> dict[str, int]:
    """The bytes of a number of each storage that tensors in a value are views of."""
    found: dict[str, int] = {}
    seen: set[int] = set()
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, TensorView):
            found[one.storage.key] = KINDS[one.storage.kind].itemsize if one.storage.kind in KINDS else 1
        elif isinstance(one, Storage):
            found[one.key] = KINDS[one.kind].itemsize if one.kind in KINDS else 1
        elif id(one) not in seen:
            seen.add(id(one))
            if isinstance(one, dict):
                waiting.extend(one.values())
            elif isinstance(one, list | tuple | set | frozenset):
                waiting.extend(one)
            elif hasattr(one, "arguments"):
                waiting.extend((*one.arguments, one.state, one.items, one.members))
    return found
