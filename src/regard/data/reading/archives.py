"""Opens gzip, xz and zstd archives piece by piece, and refuses the corrupt, the truncated and the bombs."""

from __future__ import annotations

import importlib
import lzma
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

from regard.core.errors import DataError

ENDINGS = {".gz": "gzip", ".xz": "xz", ".zst": "zstd", ".zstd": "zstd"}
MAGIC = {b"\x1f\x8b": ".gz", b"\xfd7zXZ\0": ".xz", b"\x28\xb5\x2f\xfd": ".zst"}
BOMB_BYTES = 64 << 20  # an archive may grow without limit up to here
BOMB_RATIO = 250  # and beyond it at most so many times
_BLOCK = 1 << 20
_XZ_MEMORY = 512 << 20  # what opening may need; xz -9 needs 65 MiB
_ZSTD_WINDOW_LOG = 27  # 128 MiB, zstd's own default limit
_ZSTD_PIECE = 1 << 8  # one byte of zstd may grow to 32 KiB, and `zstandard` sets no limit on what comes out


class _Corrupt(Exception):
    """The bytes are not an archive of their kind."""


class _Member(Protocol):
    """One of the archives that may stand one after another in a file."""

    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int) -> bytes: ...


def packing(data: bytes) -> str:
    """The file ending that belongs to data which begins like an archive, else an empty string."""
    return next((ending for magic, ending in MAGIC.items() if data.startswith(magic)), "")


def unpack(name: str, packed: Iterable[bytes], kind: str) -> Iterator[bytes]:
    """The content of an archive (`gzip`, `xz` or `zstd`), or of several one after another. `name` is for messages."""
    create, member, members, fed, total = _opener(name, kind), None, 0, 0, 0
    for data in packed:
        fed += len(data)
        while True:
            if member is None:
                data = data.lstrip(b"\0") if members else data  # padding between archives is allowed
                if not data:
                    break
                member, members = create(), members + 1
            try:
                out = member.decompress(data, _BLOCK)
            except (_Corrupt, zlib.error, lzma.LZMAError) as error:
                raise _refusal(name, str(error)) from None
            total += len(out)
            if total > max(BOMB_BYTES, BOMB_RATIO * fed):
                raise DataError(
                    name,
                    f"the archive grows to more than {BOMB_RATIO} times its size, as a bomb does",
                    "If you trust it, decompress it yourself and give the plain file",
                )
            if out:
                yield out
            data = b""
            if member.eof:
                data, member = member.unused_data, None
            elif member.needs_input:
                break
    if member is not None:
        raise DataError(name, "the archive is truncated", "Download or compress the file again")


def _refusal(name: str, reason: str) -> DataError:
    if "emory" in reason:
        return DataError(
            name,
            f"opening the archive needs too much memory ({reason})",
            "Compress the file again with a lower level and without --long",
        )
    return DataError(name, f"the archive is corrupt ({reason})", "Download or compress the file again")


def _opener(name: str, kind: str) -> Callable[[], _Member]:
    if kind == "gzip":
        return _GzipMember
    if kind == "xz":
        return lambda: lzma.LZMADecompressor(memlimit=_XZ_MEMORY)
    try:
        native = importlib.import_module("compression.zstd")  # in the standard library since Python 3.14
    except ImportError:
        pass
    else:
        return lambda: _NativeZstdMember(native)
    try:
        package = importlib.import_module("zstandard")
    except ImportError:
        raise DataError(
            name, "reading zstd needs the package zstandard", 'Install it with pip install "regard[data]"'
        ) from None
    return lambda: _ZstdMember(package)


class _GzipMember:
    """zlib's decompressor with the manners of lzma's."""

    def __init__(self) -> None:
        self._zlib = zlib.decompressobj(wbits=31)
        self.needs_input = True

    @property
    def eof(self) -> bool:
        return self._zlib.eof

    @property
    def unused_data(self) -> bytes:
        return self._zlib.unused_data

    def decompress(self, data: bytes, max_length: int) -> bytes:
        out = self._zlib.decompress(data or self._zlib.unconsumed_tail, max_length)
        self.needs_input = not self._zlib.unconsumed_tail and len(out) < max_length
        return out


class _ZstdMember:
    """The decompressor of the package `zstandard` with the manners of lzma's, fed with small pieces."""

    def __init__(self, package: Any) -> None:
        self._errors = package.ZstdError
        self._zstd = package.ZstdDecompressor(max_window_size=1 << _ZSTD_WINDOW_LOG).decompressobj()
        self._waiting = memoryview(b"")

    @property
    def eof(self) -> bool:
        return self._zstd.eof

    @property
    def needs_input(self) -> bool:
        return not self._waiting

    @property
    def unused_data(self) -> bytes:
        return bytes(self._zstd.unused_data) + bytes(self._waiting)

    def decompress(self, data: bytes, max_length: int) -> bytes:
        if data:
            self._waiting = memoryview(data)
        parts, size = [], 0
        while self._waiting and size < max_length and not self._zstd.eof:
            piece, self._waiting = self._waiting[:_ZSTD_PIECE], self._waiting[_ZSTD_PIECE:]
            try:
                parts.append(self._zstd.decompress(piece))
            except self._errors as error:
                raise _Corrupt(str(error)) from None
            size += len(parts[-1])
        return parts[0] if len(parts) == 1 else b"".join(parts)


class _NativeZstdMember:
    """The decompressor of Python's own `compression.zstd`, with a limit on its memory."""

    def __init__(self, module: Any) -> None:
        limit = {module.DecompressionParameter.window_log_max: _ZSTD_WINDOW_LOG}
        self._errors = module.ZstdError
        self._zstd = module.ZstdDecompressor(options=limit)

    @property
    def eof(self) -> bool:
        return self._zstd.eof

    @property
    def needs_input(self) -> bool:
        return self._zstd.needs_input

    @property
    def unused_data(self) -> bytes:
        return self._zstd.unused_data

    def decompress(self, data: bytes, max_length: int) -> bytes:
        try:
            return self._zstd.decompress(data, max_length)
        except self._errors as error:
            raise _Corrupt(str(error)) from None
