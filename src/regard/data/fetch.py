"""Fetches a known corpus, from its source or from a local copy: a folder that appears whole, with where it comes from."""

from __future__ import annotations

import contextlib
import datetime
import glob
import json
import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO, Any

from regard import __version__
from regard.core.errors import DataError
from regard.core.files import sync
from regard.data.catalogue import Corpus, Download, Piece, TextFile, readable_size
from regard.data.downloading import Patience, Progress, digests, download, mismatch, writing
from regard.data.unpacking import ENDINGS, convert, extract, is_archive, open_text

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

SOURCE = "SOURCE.json"
LICENCE = "LICENCE.txt"
MAX_TEXT_BYTES = 64 << 30
_MAX_SOURCE = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Fetched:
    """A corpus that is there."""

    folder: Path
    files: Mapping[str, Mapping[str, Any]]  # name -> bytes, sha256, and whether the checksum was known before (`known`)
    already: bool = False  # nothing had to be done


def already_there(corpus: Corpus, out: Path) -> Fetched | None:
    """The corpus, if it is whole in this folder already. A folder that must not be overwritten is a DataError."""
    out = _absolute(out)
    found = _look(corpus, out)
    return Fetched(folder=out, files=found.files, already=True) if found.complete else None


def fetch_corpus(
    corpus: Corpus,
    out: Path,
    *,
    local: Path | None = None,
    mirror: str = "",
    progress: Progress | None = None,
    patience: Patience | None = None,
) -> Fetched:
    """Makes the folder `out` with the corpus's files, from the network or (`local`) from a folder that holds a copy.

    Nothing that exists is overwritten. Until all is right it lies in a hidden folder beside `out`, where a download
    that was stopped goes on. A folder with the corpus's SOURCE.json that lacks files gets them back, if they are still
    those that it names.
    """
    out = _absolute(out)
    if (there := already_there(corpus, out)) is not None:
        return there
    if local is not None:
        local = Path(local).expanduser()
        if not local.is_dir():
            raise DataError(f"--from {local}", "there is no such folder", "Give the folder that holds the local copy")
    work = out.parent / f".{out.name}.partial"
    with _working_in(work, out):
        if (found := _look(corpus, out)).complete:  # another process was quicker
            return Fetched(folder=out, files=found.files, already=True)
        wanted = [file for file in corpus.files if not found.recorded or file.name in found.missing]
        origins = _Local(corpus, work, local) if local else _Remote(corpus, work, mirror, progress, patience)
        origins.gather(wanted)
        whole = work / "whole"
        with writing(whole):
            whole.mkdir()
            made = {file.name: origins.make(file, whole / file.name) for file in wanted}
            if found.recorded:
                _compare(found, made, out)
            else:
                _write_papers(corpus, whole, made, origins)
            _publish(whole, out, found.recorded)
            shutil.rmtree(work / "downloads", ignore_errors=True)
    return Fetched(folder=out, files={**found.files, **made})


def _absolute(path: Path) -> Path:
    return Path(os.path.abspath(Path(path).expanduser()))


@dataclass(frozen=True)
class _Found:
    """What is in the output folder already."""

    recorded: bool = False  # a SOURCE.json of this corpus
    missing: tuple[str, ...] = ()
    files: dict[str, dict[str, Any]] = field(default_factory=dict)
    when: str = ""

    @property
    def complete(self) -> bool:
        return self.recorded and not self.missing


def _look(corpus: Corpus, out: Path) -> _Found:
    """Looks at the output folder. Whatever must not be overwritten is a DataError."""
    if not os.path.lexists(out):
        return _Found()
    if not out.is_dir():
        raise DataError(out, "a file of this name is in the way", "Choose another folder with --out")
    present = {path.name for path in out.iterdir()}
    if not present and os.path.samefile(out, Path.cwd()):
        raise DataError(out, "it is the folder that the command runs in", "Name a new one with --out")
    if not present:
        return _Found()
    source = _read_source(out / SOURCE)
    if source.get("corpus") != corpus.name:
        what = f"it holds the corpus {source['corpus']!r}" if source else "the folder is not empty"
        raise DataError(out, f"{what} and is not overwritten", "Choose another folder with --out, or remove this one")
    files = {name: entry for name, entry in source["files"].items() if name in {file.name for file in corpus.files}}
    for file in corpus.files:
        if file.name in present and digests(out / file.name)["sha256"] != files.get(file.name, {}).get("sha256"):
            raise DataError(
                out / file.name,
                f"it is not what was fetched on {source['fetched']} and is not overwritten",
                "Remove this file and run the command again, or choose another folder with --out",
            )
    missing = tuple(file.name for file in corpus.files if file.name not in present)
    return _Found(recorded=True, missing=missing, files=files, when=source["fetched"])


class _Origins(ABC):
    """The pieces of a corpus, wherever they come from."""

    def __init__(self, corpus: Corpus, work: Path):
        self.corpus, self.work = corpus, work
        self.pieces: dict[Piece, list[Path]] = {}
        self.finished: dict[str, Path] = {}  # texts that need no pieces
        self.trusted: set[str] = set()  # downloads whose checksum was known and right
        self.record: dict[str, dict[str, Any]] = {}  # for SOURCE.json
        self.advice = "Try again; if it happens again, the source has changed"

    @abstractmethod
    def gather(self, wanted: Iterable[TextFile]) -> None:
        """Gets everything that the wanted texts are made from, and checks it."""

    def make(self, file: TextFile, target: Path) -> dict[str, Any]:
        """Writes a finished text and checks it."""
        if file.name in self.finished:
            where: object = self.finished[file.name]
            parts, conversion, known = [self.finished[file.name]], "copy", False
        else:
            where = f"{self.corpus.name}, {file.name}"
            parts = [path for piece in file.pieces for path in self.pieces[piece]]
            conversion, known = file.conversion, all(piece.download in self.trusted for piece in file.pieces)
        _join(parts, conversion, target, file.size, where)
        if problem := mismatch(target, file.size, file.checksum):
            raise DataError(where, problem, self.advice)
        return {
            "bytes": target.stat().st_size,
            "sha256": digests(target)["sha256"],
            "known": known or bool(file.checksum),
        }

    def _take(self, archive: Path, file: Download, members: Iterable[str]) -> None:
        """Takes members out of an archive."""
        found = extract(archive, sorted(set(members)), self.work / "members" / file.name)
        self.pieces |= {Piece(download=file.name, member=member): paths for member, paths in found.items()}

    def _note(self, file: Download, path: Path, origin: str) -> None:
        self.record[file.name] = {
            "from": origin,
            "bytes": path.stat().st_size,
            "sha256": digests(path)["sha256"],
            "known": bool(file.checksum),
        }
        if file.checksum:
            self.trusted.add(file.name)


class _Remote(_Origins):
    """Pieces that are downloaded."""

    def __init__(self, corpus: Corpus, work: Path, mirror: str, progress: Progress | None, patience: Patience | None):
        super().__init__(corpus, work)
        self.mirror, self.progress, self.patience = mirror, progress, patience

    def gather(self, wanted: Iterable[TextFile]) -> None:
        folder, members = self.work / "downloads", _members(wanted)
        files = [self.corpus.download(name) for name in members]
        with writing(folder):
            folder.mkdir(exist_ok=True)
            self._check_space(folder, files, wanted)
        paths = {}
        for file in files:
            paths[file] = download(file, folder, mirror=self.mirror, progress=self.progress, patience=self.patience)
            self._note(file, paths[file], f"{self.mirror.rstrip('/')}/{file.name}" if self.mirror else file.url)
        for file, path in paths.items():
            if members[file.name] == [""]:
                self.pieces[Piece(download=file.name)] = [path]
                continue
            if self.progress is not None:
                self.progress(f"unpacking {file.name}", 0, None)
            with writing(self.work):
                self._take(path, file, members[file.name])

    def _check_space(self, folder: Path, files: list[Download], wanted: Iterable[TextFile]) -> None:
        here = sum(path.stat().st_size for path in folder.iterdir())
        needed = sum(file.size or 0 for file in files) + sum(file.size or 0 for file in wanted) - here
        if needed > (free := shutil.disk_usage(folder).free):
            raise DataError(
                folder.parent.parent,
                f"the disk has {readable_size(free)} free and {readable_size(needed)} are needed",
                "Free some space, or choose another place with --out",
            )


class _Local(_Origins):
    """Pieces of a copy in a folder: finished texts, downloads, or what was unpacked from them."""

    def __init__(self, corpus: Corpus, work: Path, folder: Path):
        super().__init__(corpus, work)
        self.folder = folder
        self.advice = "Give a folder with the right file, or fetch it from its source without --from"

    def gather(self, wanted: Iterable[TextFile]) -> None:
        absent: list[TextFile] = []
        for file in wanted:
            if (place := self._find(file.name)) is not None and not is_archive(file.name):
                self.finished[file.name] = place
                self.record[file.name] = {"from": str(place), "bytes": place.stat().st_size}
            else:
                absent.append(file)
        for name, members in _members(absent).items():
            self._gather_download(self.corpus.download(name), members)
        lacking = [piece for file in absent for piece in file.pieces if piece not in self.pieces]
        if lacking:
            names = {PurePosixPath(piece.member or piece.download).name for piece in lacking}
            names |= {piece.download for piece in lacking}
            names |= {file.name for file in absent if set(file.pieces) & set(lacking)}
            shown = sorted(names)
            more = f" and {len(shown) - 6} more" if len(shown) > 6 else ""
            raise DataError(
                f"--from {self.folder}",
                f"it lacks parts of {self.corpus.name}: looked for {', '.join(shown[:6])}{more}, "
                f"also with the endings {', '.join(ENDINGS)}",
                f"Put the files there; the addresses are shown by: regard data get {self.corpus.name}",
            )

    def _gather_download(self, file: Download, members: list[str]) -> None:
        packed = self._find(file.name, compressed=not is_archive(file.name))
        if packed is not None:
            plain = packed
            if packed.name != file.name:  # compressed once more: what counts is the file inside
                with writing(self.work):
                    plain = self.work / f"plain-{file.name}"
                    _join([packed], "copy", plain, file.size, packed)
            if problem := mismatch(plain, file.size, file.checksum):
                raise DataError(packed, problem, self.advice)
            self._note(file, plain, str(packed))
            if members == [""]:
                self.pieces[Piece(download=file.name)] = [plain]
            else:
                with writing(self.work):
                    self._take(plain, file, members)
            return
        for member in filter(None, members):  # perhaps it is unpacked
            if places := self._find_member(member):
                self.pieces[Piece(download=file.name, member=member)] = places
                self.record |= {p.name: {"from": str(p), "bytes": p.stat().st_size} for p in places}

    def _find(self, name: str, compressed: bool = True) -> Path | None:
        for ending in ("", *ENDINGS) if compressed else ("",):
            if (place := self.folder / f"{name}{ending}").is_file():
                return place
        return None

    def _find_member(self, member: str) -> list[Path]:
        if glob.has_magic(member):
            for pattern in (member, PurePosixPath(member).name):
                if places := sorted(path for path in self.folder.glob(pattern) if path.is_file()):
                    return places
            return []
        place = self._find(member) or self._find(PurePosixPath(member).name)
        return [place] if place is not None else []


def _members(files: Iterable[TextFile]) -> dict[str, list[str]]:
    """The members that are needed of each download ("" is the download itself)."""
    needed: dict[str, list[str]] = {}
    for file in files:
        for piece in file.pieces:
            needed.setdefault(piece.download, []).append(piece.member)
    return {name: list(dict.fromkeys(members)) for name, members in needed.items()}


def _join(parts: list[Path], conversion: str, target: Path, known: int | None, where: object) -> None:
    """Writes texts one after the other. A text that ends in the middle of a line gets a line end before the next."""
    size, ended, limit = 0, True, MAX_TEXT_BYTES if known is None else known
    with open(target, "wb") as out:
        for part in parts:
            first = True
            with open_text(part) as stream:
                for block in convert(stream, conversion, part):
                    if first and not ended:
                        out.write(b"\n")
                    size += out.write(block)
                    first, ended = False, block.endswith(b"\n")
                    if size > limit:
                        raise DataError(
                            where, f"its text is longer than the {limit} bytes expected", "It is not the known file"
                        )
        out.flush()
        os.fsync(out.fileno())


def _compare(found: _Found, made: dict[str, dict[str, Any]], out: Path) -> None:
    """Files that come back must be those that were there."""
    for name, entry in made.items():
        before = found.files.get(name, {}).get("sha256", entry["sha256"])
        if entry["sha256"] != before:
            raise DataError(
                out / name,
                f"the source has another file now, with the SHA-256 {entry['sha256']}; on {found.when} it was {before}",
                "Fetch the new one whole into another folder with --out",
            )


def _write_papers(corpus: Corpus, folder: Path, made: dict[str, dict[str, Any]], origins: _Origins) -> None:
    """Writes where a corpus comes from, and its licence."""
    now = datetime.datetime.now(datetime.UTC).replace(microsecond=0).isoformat()
    source = {
        "format": 1,
        "corpus": corpus.name,
        "about": corpus.about,
        "home": corpus.home,
        "licence": corpus.licence,
        "attribution": corpus.attribution,
        "facts": corpus.facts,
        "fetched": now,
        "by": f"regard {__version__}",
        "sources": origins.record,
        "files": made,
    }
    (folder / SOURCE).write_text(json.dumps(source, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    lines = [
        f"{corpus.name}: {corpus.about}",
        f"Licence: {corpus.licence}",
        f"Attribution: {corpus.attribution}",
        f"Home: {corpus.home}",
        f"How this is known: {corpus.facts}",
        f"Fetched on {now} from:",
        *(f"  {entry['from']}" for entry in origins.record.values()),
        "regard gives no warranty for these statements: the licence that counts is the one of the source.",
    ]
    (folder / LICENCE).write_text("\n".join(lines) + "\n", encoding="utf-8")


def _read_source(path: Path) -> dict[str, Any]:
    """A SOURCE.json that a fetch has written; {} where there is none, or another file of this name."""
    try:
        with open(path, encoding="utf-8") as stream:
            value = json.loads(stream.read(_MAX_SOURCE))
        files = {name: entry for name, entry in value["files"].items() if isinstance(entry["sha256"], str)}
        return {"corpus": str(value["corpus"]), "fetched": str(value["fetched"]), "files": files}
    except (OSError, ValueError, RecursionError, LookupError, TypeError, AttributeError):
        return {}


def _publish(whole: Path, out: Path, beside: bool) -> None:
    """Gives the finished files their place, at once or (`beside` what is there) one by one."""
    for path in whole.iterdir():
        sync(path)
    sync(whole)
    if beside:
        for path in whole.iterdir():
            os.rename(path, out / path.name)
        sync(out)
        return
    if out.is_dir():
        out.rmdir()
    os.rename(whole, out)
    sync(out.parent)


@contextlib.contextmanager
def _working_in(work: Path, out: Path) -> Iterator[None]:
    """A hidden folder for one process at a time. Whole and partial downloads stay in it until they are used."""
    lock = _lock(work, out)
    try:
        _clear(work)
        yield
    finally:
        _clear(work)
        downloads = work / "downloads"
        if not downloads.is_dir() or not any(downloads.iterdir()):
            shutil.rmtree(work, ignore_errors=True)
        lock.close()
        if os.name == "nt" and not downloads.exists():  # there, an open file cannot be removed
            shutil.rmtree(work, ignore_errors=True)


def _clear(work: Path) -> None:
    for name in ("whole", "members"):
        shutil.rmtree(work / name, ignore_errors=True)
    for path in work.glob("plain-*"):
        path.unlink(missing_ok=True)


def _lock(work: Path, out: Path) -> IO[bytes]:
    """Holds the folder for this process, until the lock is closed or the process ends."""
    path = work / "lock"
    while True:
        with writing(work):
            work.mkdir(parents=True, exist_ok=True)
            stream = open(path, "ab")  # noqa: SIM115 (it is the lock)
        try:
            _take_lock(stream)
        except OSError:
            stream.close()
            raise DataError(out, "another process is fetching it", "Wait until it ends") from None
        with contextlib.suppress(OSError):
            if os.path.samestat(os.fstat(stream.fileno()), os.stat(path)):
                return stream
        stream.close()  # its holder has just ended and removed it


def _take_lock(stream: IO[bytes]) -> None:
    if fcntl is not None:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return
    import msvcrt

    msvcrt.locking(stream.fileno(), msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
