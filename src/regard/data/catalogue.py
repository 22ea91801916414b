"""The corpora that are known by name: where they are, what they hold, under which licence, and how that is known."""

from __future__ import annotations

import difflib
import functools
import re
import shlex
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path, PurePosixPath
from typing import Any

from regard.core.errors import DataError

UNKNOWN = "not known"
MEMBER = "!"  # archive!member
CONVERSIONS = ("copy", "utf8", "segments", "tagged", "pronunciations")  # see unpacking.py
DIGESTS = {"sha256": 64, "md5": 32}  # name -> hexadecimal digits


@dataclass(frozen=True, kw_only=True)
class Download:
    """A file on a server."""

    name: str  # what it is called in a local copy or on a mirror
    url: str
    size: int | None = None  # bytes
    checksum: str = ""  # sha256:... or md5:...


@dataclass(frozen=True, kw_only=True)
class Piece:
    """What a text is made from: a download, or a member of one (a pattern joins all that fit, in order)."""

    download: str
    member: str = ""


@dataclass(frozen=True, kw_only=True)
class TextFile:
    """A file of the finished corpus: its pieces, converted and joined."""

    name: str
    pieces: tuple[Piece, ...]
    conversion: str = "copy"
    size: int | None = None  # bytes, when finished
    checksum: str = ""  # of the finished text


@dataclass(frozen=True, kw_only=True)
class Corpus:
    """A corpus known by name."""

    name: str
    about: str
    task: str
    languages: tuple[str, ...]
    amount: str
    licence: str
    attribution: str
    home: str
    facts: str  # how sizes, checksums and the licence are known
    downloads: tuple[Download, ...]
    files: tuple[TextFile, ...]
    next: tuple[str, ...] = ()  # commands to go on with; {out} stands for the folder
    aliases: tuple[str, ...] = ()

    def download(self, name: str) -> Download:
        return next(each for each in self.downloads if each.name == name)

    @property
    def download_size(self) -> int | None:
        """All bytes to fetch, or None where one size is not known."""
        sizes = [each.size for each in self.downloads]
        return None if None in sizes else sum(size for size in sizes if size is not None)

    def commands(self, out: Path) -> list[str]:
        """The commands to go on with, as they are typed into a shell."""
        return [shlex.join(word.replace("{out}", str(out)) for word in shlex.split(line)) for line in self.next]


@functools.cache
def catalogue() -> Mapping[str, Corpus]:
    """All known corpora by name, in the order of the file."""
    text = (resources.files("regard.data") / "catalogue.toml").read_text(encoding="utf-8")
    return parse_catalogue(text)


def parse_catalogue(text: str) -> dict[str, Corpus]:
    """Reads and checks a catalogue; whatever is wrong with an entry is a ValueError, since no user writes it."""
    return {name: _corpus(name, entry) for name, entry in tomllib.loads(text).items()}


def find_corpus(name: str) -> Corpus:
    """The corpus of a name or an alias."""
    known = {alias: corpus for corpus in catalogue().values() for alias in (corpus.name, *corpus.aliases)}
    wanted = name.strip().lower()
    if wanted in known:
        return known[wanted]
    near = difflib.get_close_matches(wanted, known, n=3, cutoff=0.5)
    near += [each for each in known if wanted and each.startswith(wanted) and each not in near]
    advice = f"Did you mean {' or '.join(near[:4])}?" if near else "List all with: regard data get --list"
    raise DataError(f"corpus {name!r}", "no corpus of this name is known", advice)


def readable_size(size: int | None) -> str:
    """Bytes in words."""
    if size is None:
        return UNKNOWN
    if size < 1000:
        return f"{size} bytes"
    unit, scale = next(
        ((unit, scale) for unit, scale in (("kB", 10**3), ("MB", 10**6)) if size < 1000 * scale), ("GB", 10**9)
    )
    return f"{size / scale:.3g} {unit}"


def _corpus(name: str, entry: dict[str, Any]) -> Corpus:
    if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name):
        raise ValueError(f"corpus name {name!r}")
    entry = dict(entry)
    base = entry.pop("base", "")
    files = tuple(_file(name, file, dict(fields)) for file, fields in entry.pop("files").items())
    plain = {
        file.pieces[0].download: file
        for file in files
        if len(file.pieces) == 1 and not file.pieces[0].member and file.conversion == "copy"
    }
    downloads = tuple(
        _download(each, base, dict(fields), plain.get(each)) for each, fields in entry.pop("downloads").items()
    )
    named = {each.name for each in downloads}
    used = {piece.download for file in files for piece in file.pieces}
    if named != used:
        raise ValueError(f"{name}: downloads and files disagree: {sorted(named ^ used)}")
    lists = {key: tuple(entry.pop(key, ())) for key in ("languages", "next", "aliases")}
    return Corpus(name=name, files=files, downloads=downloads, **lists, **entry)


def _download(name: str, base: str, fields: dict[str, Any], plain: TextFile | None) -> Download:
    url = fields.pop("url", base + name)
    size, checksum = fields.pop("bytes", None), fields.pop("checksum", "")
    if plain is not None and not name.endswith((".gz", ".xz", ".zst", ".bz2")):  # it is the finished text itself
        size, checksum = size or plain.size, checksum or plain.checksum
    if fields or not url.startswith("https://") or not _safe(name) or "/" in name:
        raise ValueError(f"download {name!r}: {url} {fields}")
    return Download(name=name, url=url, size=size, checksum=_checked(checksum))


def _file(corpus: str, name: str, fields: dict[str, Any]) -> TextFile:
    origin = fields.pop("from")
    pieces = tuple(_piece(each) for each in ([origin] if isinstance(origin, str) else origin))
    conversion, size = fields.pop("as", "copy"), fields.pop("bytes", None)
    checksum = next((f"{kind}:{fields.pop(kind)}" for kind in DIGESTS if kind in fields), "")
    if fields or conversion not in CONVERSIONS or not pieces or not _safe(name) or "/" in name:
        raise ValueError(f"{corpus}: file {name!r}: {conversion} {fields}")
    return TextFile(name=name, pieces=pieces, conversion=conversion, size=size, checksum=_checked(checksum))


def _piece(text: str) -> Piece:
    download, _, member = text.partition(MEMBER)
    if member and not _safe(member):
        raise ValueError(f"member {member!r}")
    return Piece(download=download, member=member)


def _checked(checksum: str) -> str:
    kind, _, digits = checksum.partition(":")
    if checksum and not re.fullmatch(rf"[0-9a-f]{{{DIGESTS.get(kind, 0)}}}", digits):
        raise ValueError(f"checksum {checksum!r}")
    return checksum


def _safe(name: str) -> bool:
    path = PurePosixPath(name)
    return bool(name) and not path.is_absolute() and ".." not in path.parts and "\\" not in name
