"""CTranslate2's model.bin, read with NumPy alone: the mirror of ctranslate2_format.py, for files of any origin.

Everything in it is checked before it is believed: names, ranks and sizes against bounds, the bytes of an array against its shape
and the rest of the file, which is mapped and not read. Quantised matrices come out in float32: rows of int8 or int16 divided by
their scales.
"""

from __future__ import annotations

import math
import mmap
import struct
from pathlib import Path

import numpy as np

from regard.core.errors import CheckpointError
from regard.core.files import check_place

VERSIONS = (4, 5, 6)
KINDS = ("float32", "int8", "int16", "int32", "float16", "bfloat16")  # by their number in the file
BYTES = {"float32": 4, "int8": 1, "int16": 2, "int32": 4, "float16": 2, "bfloat16": 2}
MOST_ARRAYS = 100_000
MOST_NAME = 1000
MOST_AXES = 8
MOST_ITEMS = 1 << 40
_TODO = "Restore the file from a copy, or convert the model again"


class Arrays:
    """The named arrays of a model. `take` gives one in float32 and remembers that it was asked for."""

    def __init__(self, path: Path, specification: str, arrays: dict[str, np.ndarray], kinds: dict[str, str]):
        self.path, self.specification = path, specification
        self._arrays, self._kinds = arrays, kinds
        self._left = {name for name in arrays if not name.endswith("_scale")}

    def __contains__(self, name: str) -> bool:
        return name in self._arrays

    @property
    def left(self) -> list[str]:
        """What nobody has asked for."""
        return sorted(self._left)

    def same(self, one: str, other: str) -> bool:
        """Whether two names mean one and the same array."""
        return self._arrays.get(one) is self._arrays.get(other) is not None

    def number(self, name: str, usual: float = 0) -> float:
        """A single number; `usual` where it is not there."""
        self._left.discard(name)
        if name not in self._arrays:
            return usual
        array = self._arrays[name]
        if array.size != 1:
            raise CheckpointError(self.path, f"{name!r} is {list(array.shape)}, and one number was expected", _TODO)
        value = float(array.reshape(())) if self._kinds[name] != "bfloat16" else float(_widened(array).reshape(()))
        if not np.isfinite(value):
            raise CheckpointError(self.path, f"{name!r} is {value}", _TODO)
        return value

    def shape(self, name: str) -> tuple[int, ...]:
        if name not in self._arrays:
            raise CheckpointError(self.path, f"{name!r} is missing", "Only whole Transformer translators are read")
        return self._arrays[name].shape

    def take(self, name: str, *shape: int) -> np.ndarray:
        """A copy in float32, of exactly this shape."""
        if self.shape(name) != shape:
            what = f"{name!r} is {list(self.shape(name))}, and {list(shape)} was expected"
            raise CheckpointError(self.path, what, _TODO)
        self._left.discard(name)
        array, kind = self._arrays[name], self._kinds[name]
        if kind == "bfloat16":
            return _widened(array)
        if kind in ("int8", "int16") and f"{name}_scale" in self._arrays:
            return self._dequantised(name, array)
        if kind not in ("float32", "float16"):
            raise CheckpointError(self.path, f"{name!r} holds {kind} without scales", _TODO)
        return array.astype(np.float32)

    def _dequantised(self, name: str, array: np.ndarray) -> np.ndarray:
        scale = self._arrays[f"{name}_scale"].astype(np.float32)
        if scale.size not in (1, array.shape[0]) or not np.isfinite(scale).all() or (scale == 0).any():
            raise CheckpointError(self.path, f"the scales of {name!r} do not fit it", _TODO)
        scale = scale.reshape(-1, *[1] * (array.ndim - 1)) if scale.size > 1 else scale.reshape(())
        values = array.astype(np.float32)
        values /= scale
        return values


def _widened(array: np.ndarray) -> np.ndarray:
    """bfloat16, which NumPy does not know, given as its 16 bits: the upper half of a float32."""
    return (array.astype(np.uint32) << 16).view(np.float32)


def read_arrays(path: Path) -> Arrays:
    """The arrays of a model.bin, as views of the file until they are taken."""
    try:
        check_place(path)
        if not path.is_file():
            raise CheckpointError(path, "the file is missing", "Give a folder that a CTranslate2 converter wrote")
        with open(path, "rb") as file:
            content = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    except (OSError, ValueError) as error:  # ValueError: an empty file
        raise CheckpointError(path, f"the file cannot be read ({error})", _TODO) from None
    return arrays_of(content, path)


def arrays_of(content: memoryview, path: Path) -> Arrays:
    """The arrays of the content of a model.bin, all of its sizes checked."""
    try:
        return _Reader(content, path).arrays()
    except (struct.error, UnicodeDecodeError):
        raise CheckpointError(path, "the file is truncated, or no model of CTranslate2", _TODO) from None


class _Reader:
    """Goes through a file from its beginning to its end."""

    def __init__(self, content: memoryview, path: Path):
        self.content, self.path, self.at = content, path, 0

    def arrays(self) -> Arrays:
        version = self.numbers("I")[0]
        if version not in VERSIONS:
            what = f"it is no model of CTranslate2, or of an unknown version ({version})"
            raise CheckpointError(self.path, what, f"Convert the model to version {VERSIONS[-1]}")
        specification = self.text()
        self.numbers("I")  # the revision of the specification, which names of arrays tell, too
        arrays: dict[str, np.ndarray] = {}
        kinds: dict[str, str] = {}
        for _ in range(self.count("arrays")):
            name = self.text()
            if name in arrays:
                raise self.damaged(f"array {name[:60]!r} is there twice")
            arrays[name], kinds[name] = self.array(name)
        for _ in range(self.count("aliases")):
            alias, name = self.text(), self.text()
            if alias in arrays or name not in arrays:
                raise self.damaged(f"alias {alias[:60]!r} is there twice, or of nothing")
            arrays[alias], kinds[alias] = arrays[name], kinds[name]
            if f"{name}_scale" in arrays:
                arrays[f"{alias}_scale"] = arrays[f"{name}_scale"]
        if self.at != len(self.content):
            raise self.damaged(f"{len(self.content) - self.at} bytes are left over")
        return Arrays(self.path, specification, arrays, kinds)

    def array(self, name: str) -> tuple[np.ndarray, str]:
        axes = self.numbers("B")[0]
        if axes > MOST_AXES:
            raise self.damaged(f"array {name[:60]!r} has {axes} axes")
        shape = self.numbers(f"{axes}I")
        number, size = self.numbers("BI")
        if number >= len(KINDS):
            raise self.damaged(f"array {name[:60]!r} is of kind {number}")
        kind, items = KINDS[number], 1
        for length in shape:
            items *= length
        if items * BYTES[kind] != size or size > len(self.content) - self.at:
            raise self.damaged(f"array {name[:60]!r} is {list(shape)} of {kind}, and has {size} bytes")
        if math.prod(length for length in shape if length) > MOST_ITEMS:  # also of an array that is empty
            raise self.damaged(f"array {name[:60]!r} is {list(shape)} of {kind}")
        dtype = np.dtype("uint16" if kind == "bfloat16" else kind).newbyteorder("<")
        found = np.frombuffer(self.content, dtype, items, self.at).reshape(shape)
        self.at += size
        return found, kind

    def numbers(self, form: str) -> tuple[int, ...]:
        found = struct.unpack_from(f"<{form}", self.content, self.at)
        self.at += struct.calcsize(f"<{form}")
        return found

    def count(self, what: str) -> int:
        count = self.numbers("I")[0]
        if count > MOST_ARRAYS:
            raise self.damaged(f"it says that it has {count} {what}")
        return count

    def text(self) -> str:
        size = self.numbers("H")[0]
        if not 1 < size <= MOST_NAME + 1 or size > len(self.content) - self.at:
            raise self.damaged(f"a name has {size} bytes")
        content = bytes(self.content[self.at : self.at + size])
        self.at += size
        if content[-1] or 0 in content[:-1]:
            raise self.damaged("a name has no end")
        return content[:-1].decode()

    def damaged(self, what: str) -> CheckpointError:
        return CheckpointError(self.path, f"the file is damaged: {what}", _TODO)
