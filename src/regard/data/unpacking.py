"""Takes texts out of archives, without trust in them: only named members, bounded sizes, no path of theirs is used."""

from __future__ import annotations

import bz2
import contextlib
import errno
import fnmatch
import gzip
import io
import lzma
import re
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import IO, Any

from regard.core.errors import DataError

MAX_MEMBERS = 200_000
MAX_RATIO = 100  # text against its compressed form
RATIO_FROM = 1 << 20  # bytes below which the ratio does not matter
MAX_LINE_BYTES = 16 << 20
ENDINGS = (".gz", ".xz", ".zst", ".bz2")
_BLOCK = 1 << 20
_ZIP, _TAR = (".zip",), (".tar", ".tgz", ".tar.gz", ".tar.xz", ".txz", ".tar.bz2", ".tbz2", ".tar.zst")
_DAMAGE = (zipfile.BadZipFile, tarfile.TarError, gzip.BadGzipFile, lzma.LZMAError, zlib.error, EOFError)


def is_archive(name: str) -> bool:
    """Whether a file of this name holds several members."""
    return name.lower().endswith(_ZIP + _TAR)


@contextlib.contextmanager
def open_text(path: Path) -> Iterator[IO[bytes]]:
    """A file as it reads when decompressed (by its ending). More than a compressed text can hold is a DataError."""
    with damage_told(path), contextlib.ExitStack() as stack:
        stream = stack.enter_context(_decompressed(path))
        bounded = _Bounded(stream, path, _allowance(path)) if path.suffix.lower() in ENDINGS else stream
        yield bounded  # type: ignore[misc]


def extract(archive: Path, patterns: Sequence[str], folder: Path) -> dict[str, list[Path]]:
    """Writes the members that fit the patterns into a folder, under names of our own: for each pattern, in their order."""
    folder.mkdir(parents=True, exist_ok=True)
    found: dict[str, list[tuple[str, Path]]] = {pattern: [] for pattern in patterns}
    members = _zip_members if archive.name.lower().endswith(_ZIP) else _tar_members
    with damage_told(archive):
        seen: set[str] = set()
        for name, link, open_member in members(archive):
            if not _is_safe(name):
                raise DataError(
                    archive,
                    f"the archive is not safe, it holds a member called {name[:200]!r}",
                    "Do not unpack it; download it again from its source",
                )
            name = str(PurePosixPath(name))
            fitting = [pattern for pattern in patterns if fnmatch.fnmatchcase(name, pattern)]
            if not fitting:
                continue
            if link or name in seen:
                what = "is a link or a device" if link else "is in it twice"
                raise DataError(
                    archive,
                    f"the archive is not safe, its member {name!r} {what}",
                    "Do not unpack it; download it again from its source",
                )
            seen.add(name)
            target = folder / f"member-{len(seen)}"
            with contextlib.closing(open_member()) as stream, open(target, "wb") as out:
                while block := stream.read(_BLOCK):
                    out.write(block)
            for pattern in fitting:
                found[pattern].append((name, target))
    for pattern, places in found.items():
        if not places:
            raise DataError(
                archive,
                f"the archive does not hold {pattern}",
                "It is another archive than the known one: download it again from its source",
            )
    return {pattern: [path for _, path in sorted(places)] for pattern, places in found.items()}


def convert(stream: IO[bytes], conversion: str, where: object) -> Iterator[bytes]:
    """The text of one piece, as the finished file has it."""
    if conversion == "copy":
        while block := stream.read(_BLOCK):
            yield block
        return
    change = _CONVERSIONS[conversion]
    while line := stream.readline(MAX_LINE_BYTES + 1):
        if len(line) > MAX_LINE_BYTES:
            raise DataError(where, f"it has a line of more than {MAX_LINE_BYTES >> 20} MiB", "It is not the known file")
        if (text := change(line.rstrip(b"\r\n"))) is not None:
            yield text + b"\n"


def _utf8(line: bytes) -> bytes:
    """A line of UTF-8 as it is, another one from Latin-1."""
    try:
        line.decode("utf-8")
    except UnicodeDecodeError:
        return line.decode("latin-1").encode()
    return line


_SEGMENT = re.compile(rb"<seg\b[^>]*>(.*)</seg>", re.IGNORECASE)
_TALK = re.compile(rb"\s*</?(url|talkid|keywords|speaker|reviewer|translator|doc)\b")
_HEADLINE = re.compile(rb"</?(title|description)>")


def _segment(line: bytes) -> bytes | None:
    """The text of a <seg> line of a test set in SGML or XML, with its entities as they are."""
    match = _SEGMENT.search(line)
    return match[1].strip() if match else None


def _tagged(line: bytes) -> bytes | None:
    """A sentence of a TED training text; lines about the talk go, and the marks around its title."""
    return None if _TALK.match(line) else _HEADLINE.sub(b"", line).strip()


def _pronunciation(line: bytes) -> bytes | None:
    """`WORD 1 P H O` as letters and phonemes, with a tab between them."""
    fields = line.split()
    return (
        b" ".join(fields[0][i : i + 1] for i in range(len(fields[0]))) + b"\t" + b" ".join(fields[2:])
        if fields
        else None
    )


_CONVERSIONS: dict[str, Callable[[bytes], bytes | None]] = {
    "utf8": _utf8,
    "segments": _segment,
    "tagged": _tagged,
    "pronunciations": _pronunciation,
}

_Member = tuple[str, bool, Callable[[], IO[bytes]]]  # name, whether it is no plain file, how to open it


def _zip_members(archive: Path) -> Iterator[_Member]:
    try:
        opened = zipfile.ZipFile(archive)
    except UnicodeDecodeError:
        raise zipfile.BadZipFile("a member's name is no UTF-8") from None
    with opened as file:
        entries = file.infolist()
        if len(entries) > MAX_MEMBERS:
            raise _too_many(archive)
        allowed = _allowance(archive)
        for entry in entries:
            if entry.is_dir():
                if not _is_safe(entry.filename.rstrip("/")):
                    yield entry.filename, True, io.BytesIO
                continue
            mode = entry.external_attr >> 16
            special = stat.S_IFMT(mode) not in (0, stat.S_IFREG)

            def open_member(entry: zipfile.ZipInfo = entry) -> IO[bytes]:
                nonlocal allowed
                allowed -= entry.file_size
                if allowed < 0:
                    raise _bomb(archive)
                try:
                    return file.open(entry)  # reads no more than the entry says
                except UnicodeDecodeError:
                    raise zipfile.BadZipFile("a member's name is no UTF-8") from None

            yield entry.filename, special, open_member


def _tar_members(archive: Path) -> Iterator[_Member]:
    with contextlib.ExitStack() as stack:
        stream = stack.enter_context(_decompressed(archive))
        bounded: Any = _Bounded(stream, archive, _allowance(archive))
        file = stack.enter_context(tarfile.open(fileobj=bounded, mode="r|"))
        for count, entry in enumerate(file, 1):
            if count > MAX_MEMBERS:
                raise _too_many(archive)
            if entry.isdir() and _is_safe(entry.name):
                continue

            def open_member(entry: tarfile.TarInfo = entry) -> IO[bytes]:
                member = file.extractfile(entry)
                assert member is not None  # a plain file has content
                return member

            yield entry.name, not entry.isreg(), open_member


class _Bounded:
    """A stream that refuses to give more than it may."""

    def __init__(self, stream: IO[bytes], path: Path, limit: int):
        self.stream, self.path, self.left = stream, path, limit

    def read(self, size: int = -1) -> bytes:
        block = self.stream.read(min(size, self.left + 1) if size >= 0 else self.left + 1)
        return self._taken(block)

    def readline(self, size: int = -1) -> bytes:
        return self._taken(self.stream.readline(size))

    def _taken(self, block: bytes) -> bytes:
        self.left -= len(block)
        if self.left < 0:
            raise _bomb(self.path)
        return block


@contextlib.contextmanager
def damage_told(path: Path) -> Iterator[None]:
    """What is wrong with an archive, in a sentence."""
    try:
        yield
    except EOFError:
        raise DataError(path, "the archive is truncated", "Download it again") from None
    except _DAMAGE as error:
        said = re.sub(r"[^ -~]+", " ", str(error))[:200]
        raise DataError(path, f"the archive is corrupt ({said})", "Download it again") from None
    except OSError as error:
        if error.errno not in (None, errno.EINVAL):
            raise
        # bz2's word for it; or a zip file that names a place before its beginning
        raise DataError(path, f"the archive is corrupt ({error})", "Download it again") from None
    except (RuntimeError, NotImplementedError) as error:  # a password, or an unknown way of packing
        said = re.sub(r"[^ -~]+", " ", str(error))[:200]
        raise DataError(
            path, f"the archive cannot be unpacked ({said})", "Unpack it by hand and use --from FOLDER"
        ) from None


def _decompressed(path: Path) -> Any:
    name = path.name.lower()
    if name.endswith((".gz", ".tgz")):
        return gzip.open(path, "rb")
    if name.endswith((".xz", ".txz")):
        return lzma.open(path, "rb")
    if name.endswith((".bz2", ".tbz2")):
        return bz2.open(path, "rb")
    if name.endswith(".zst"):
        return _zstd(path)
    return open(path, "rb")


@contextlib.contextmanager
def _zstd(path: Path) -> Iterator[IO[bytes]]:
    try:
        import zstandard
    except ImportError:
        raise DataError(
            path, "reading zstd files needs the package zstandard", 'Install it with: pip install "regard[data]"'
        ) from None
    with open(path, "rb") as raw:
        try:
            with io.BufferedReader(_Frames(raw, zstandard.ZstdDecompressor(max_window_size=1 << 27)), _BLOCK) as stream:
                yield stream
        except zstandard.ZstdError as error:
            raise DataError(path, f"the archive is corrupt ({error})", "Download it again") from None


class _Frames(io.RawIOBase):
    """Reads zstd frames and sees a cut, which the package's own reader takes for an end."""

    def __init__(self, raw: IO[bytes], decompressor: Any):
        self.raw, self.decompressor = raw, decompressor
        self.frame: Any = None
        self.rest = b""  # compressed
        self.ready = b""  # decompressed

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self.ready:
            data = self.rest or self.raw.read(1 << 10)  # little, so that little comes out at once
            if not data:
                if self.frame is not None:
                    raise EOFError
                return 0
            if self.frame is None:
                self.frame = self.decompressor.decompressobj()
            self.ready, self.rest = self.frame.decompress(data), b""
            if self.frame.eof:
                self.frame, self.rest = None, self.frame.unused_data
        count = min(len(buffer), len(self.ready))
        buffer[:count], self.ready = self.ready[:count], self.ready[count:]
        return count


def _allowance(path: Path) -> int:
    return RATIO_FROM + MAX_RATIO * path.stat().st_size


def _bomb(path: Path) -> DataError:
    return DataError(
        path,
        f"it unpacks to more than {MAX_RATIO} times its size, which no text does",
        "Download it again from its source",
    )


def _too_many(path: Path) -> DataError:
    return DataError(path, f"the archive has more than {MAX_MEMBERS} members", "Download it again from its source")


def _is_safe(name: str) -> bool:
    path = PurePosixPath(name)
    return not (
        not name
        or path.is_absolute()
        or ".." in path.parts
        or "\\" in name
        or "\0" in name
        or re.match(r"[A-Za-z]:", name)
    )
