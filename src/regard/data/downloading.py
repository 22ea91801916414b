"""Downloads a file over HTTP: only from https, resumed where it was cut, retried, bounded and never half under its name."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import http.client
import ipaddress
import json
import os
import re
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from regard import __version__
from regard.core.errors import DataError
from regard.data.catalogue import Download

MAX_DOWNLOAD_BYTES = 16 << 30
MAX_REDIRECTS = 5
MAX_WAIT = 60.0  # seconds, whatever a server asks for
MAX_CUTS = 100  # connections that broke after some progress
_BLOCK = 1 << 18
_TRANSIENT = {408, 425, 429, 500, 502, 503, 504}
_AGENT = f"Mozilla/5.0 (compatible; regard/{__version__})"  # some servers refuse Python's own
_SMALL = 1 << 16

Progress = Callable[[str, int, int | None], None]  # name, bytes so far, bytes in all where known


@dataclass(frozen=True, kw_only=True)
class Patience:
    """How long to wait for a server."""

    timeout: float = 30.0  # seconds without a single byte
    attempts: int = 5  # in a row, without progress
    wait: float = 1.0  # seconds before the second attempt; doubled for each further one


class _Cut(Exception):
    """A fault that may be gone at the next attempt."""

    def __init__(self, what: str, wait: float | None = None):
        super().__init__(what)
        self.wait = wait


class _Stale(_Cut):
    """The server has nothing that goes on from the bytes that are here."""


def download(
    file: Download,
    folder: Path,
    *,
    mirror: str = "",
    progress: Progress | None = None,
    patience: Patience | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> Path:
    """Puts a file into a folder and checks it; what an earlier call left there is used. Returns its path.

    While it comes, it is called NAME.part, with NAME.part.json beside it; it stays there when the connection fails.
    A file of the wrong size or checksum is removed.
    """
    url = f"{mirror.rstrip('/')}/{file.name}" if mirror else file.url
    _check_address(url, insecure=bool(mirror))
    target = folder / file.name
    if target.exists() and _is_ours(target, url, file):
        return target
    part = folder / f"{file.name}.part"
    again = True
    while True:
        resumed = _fetch(file, url, part, bool(mirror), progress, patience or Patience(), sleep)
        problem = mismatch(part, file.size, file.checksum)
        if not problem:
            break
        _remove(part)
        if not (resumed and again):
            raise DataError(
                url,
                f"{problem}; it was removed",
                "Try again; if it happens again, the file has changed at its source: give a local copy with --from FOLDER",
            )
        again = False  # the pieces of two connections do not fit together: once more, from the beginning
    _write_state(target, {"url": url, "sha256": digests(part)["sha256"]})
    os.replace(part, target)
    _state(part).unlink(missing_ok=True)
    return target


def digests(path: Path, kinds: Iterable[str] = ("sha256",)) -> dict[str, str]:
    """Checksums of a file, in one pass."""
    made = {kind: hashlib.new(kind, usedforsecurity=False) for kind in kinds}
    with open(path, "rb") as stream:
        while block := stream.read(1 << 20):
            for each in made.values():
                each.update(block)
    return {kind: each.hexdigest() for kind, each in made.items()}


def mismatch(path: Path, size: int | None, checksum: str) -> str:
    """What is wrong with a file of which the size or a checksum is known, or "" where nothing is."""
    actual = path.stat().st_size
    if size is not None and actual != size:
        return f"the file has {actual} bytes, not the {size} that are known for it"
    kind, _, expected = checksum.partition(":")
    if checksum and (got := digests(path, [kind])[kind]) != expected:
        return f"the file is damaged or another one: its {kind.upper()} is {got}, not {expected}"
    return ""


def _fetch(
    file: Download,
    url: str,
    part: Path,
    insecure: bool,
    progress: Progress | None,
    patience: Patience,
    sleep: Callable[[float], None],
) -> bool:
    """Fills the partial file. Returns whether it holds bytes of more than one connection."""
    failures = cuts = 0
    while True:
        before = _size(part)
        try:
            return _attempt(file, url, part, insecure, progress, patience.timeout)
        except _Cut as cut:
            if isinstance(cut, _Stale):
                _remove(part)
            failures = 0 if _size(part) > before else failures + 1
            cuts += 1
            if failures >= patience.attempts or cuts >= MAX_CUTS:
                times = "once" if cuts == 1 else f"{cuts} times"
                raise DataError(
                    url,
                    f"the download failed {times}, at last because {cut}",
                    "Run the same command again to go on where it stopped, or download the file by hand "
                    "and give its folder with --from FOLDER",
                ) from None
            wait = patience.wait * 2 ** min(max(0, failures - 1), 10) if cut.wait is None else cut.wait
            sleep(min(wait, MAX_WAIT))


def _attempt(file: Download, url: str, part: Path, insecure: bool, progress: Progress | None, timeout: float) -> bool:
    """One connection. Returns whether it went on with bytes that were there."""
    state, have = _read_state(part), _size(part)
    if have and not (state.get("url") == url and (state.get("validator") or file.checksum)):
        _remove(part)
        have = 0
    if have and have == state.get("total"):
        return True  # whole, and stopped before it got its name
    headers = {"User-Agent": _AGENT, "Accept-Encoding": "identity", "Accept": "*/*"}
    if have:
        headers["Range"] = f"bytes={have}-"
        if state.get("validator"):
            headers["If-Range"] = str(state["validator"])
    request = urllib.request.Request(url, headers=headers)
    with _translated(url), contextlib.closing(_opener(url, insecure).open(request, timeout=timeout)) as answer:
        _check_address(answer.geturl(), insecure)
        begin, total = _extent(answer, url, have, state)
        limit = file.size if file.size is not None else MAX_DOWNLOAD_BYTES
        if total is not None and (total > limit or (file.size is not None and total != file.size)):
            known = f"the {file.size} that are known for it" if file.size is not None else f"at most {limit}"
            raise DataError(
                url,
                f"the server announces {total} bytes, not {known}",
                "The file has changed at its source: give a local copy of the known one with --from FOLDER",
            )
        if total is None and not answer.chunked and not file.checksum and file.size is None:
            raise DataError(
                url,
                "the server does not say how long the file is, so that a cut cannot be seen",
                "Download it by hand and give its folder with --from FOLDER",
            )
        _write_state(part, {"url": url, "validator": _validator(answer), "total": total})
        done = _receive(answer, part, begin, limit, file.name, total, progress, url)
        if total is not None and done < total:
            raise _Cut(f"the connection was cut after {done} of {total} bytes")
    return begin > 0


def _receive(
    answer: http.client.HTTPResponse,
    part: Path,
    begin: int,
    limit: int,
    name: str,
    total: int | None,
    progress: Progress | None,
    url: str,
) -> int:
    done = begin
    with writing(part):
        # A server that sends everything has another file now, or cannot send a part.
        stream = open(part, "ab" if begin else "wb")  # noqa: SIM115 (closing it may fail too)
    try:
        while block := answer.read1(_BLOCK):
            done += len(block)
            if done > limit:
                raise DataError(
                    url,
                    f"the server sends more than the {limit} bytes expected",
                    "Try again later, or use --from FOLDER",
                )
            with writing(part):
                stream.write(block)
            if progress is not None:
                progress(name, done, total)
        with writing(part):
            stream.flush()
            os.fsync(stream.fileno())
    finally:
        with contextlib.suppress(OSError):  # what could not be written is fetched again
            stream.close()
    return done


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turns what fails while a file is written into an error for the user."""
    try:
        yield
    except OSError as error:
        raise disk_error(path, error) from None


def disk_error(path: Path, error: OSError) -> DataError:
    """What a failed write means for the user."""
    if error.errno in (errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC)):
        return DataError(
            path.parent,
            "the disk is full",
            "Free some space and run the same command again; what is downloaded already is not fetched twice",
        )
    return DataError(
        error.filename or path,
        f"the system says {error.strerror or str(error)!r}",
        "Check the folder and its permissions",
    )


def _extent(answer: http.client.HTTPResponse, url: str, have: int, state: dict[str, Any]) -> tuple[int, int | None]:
    """Where the bytes of an answer begin, and how many the whole file has."""
    if answer.headers.get("Content-Encoding", "identity").strip().lower() != "identity":
        raise DataError(
            url,
            "the server sends the file in another coding than asked for",
            "Download it by hand and use --from FOLDER",
        )
    length = answer.headers.get("Content-Length", "")
    size = int(length) if re.fullmatch(r"[0-9]{1,18}", length) and not answer.chunked else None
    if answer.status != 206:
        return 0, size
    match = re.fullmatch(r"bytes ([0-9]{1,18})-([0-9]{1,18})/([0-9]{1,18}|\*)", answer.headers.get("Content-Range", ""))
    total = None if match is None or match[3] == "*" else int(match[3])
    # A careless server sends a part of a file that has changed.
    other = any(before and now and before != now for before, now in _marks(answer, total, state))
    if match is None or int(match[1]) != have or other:
        raise _Stale("the server sent another part of the file than asked for", wait=0.0)
    return have, total


def _marks(answer: http.client.HTTPResponse, total: int | None, state: dict[str, Any]) -> list[tuple[Any, Any]]:
    """What tells one file from another, before and now."""
    return [(state.get("total"), total), (state.get("validator"), _validator(answer))]


def _validator(answer: http.client.HTTPResponse) -> str:
    """What says that a file on a server is still the same one. A weak entity tag does not."""
    tag = answer.headers.get("ETag", "").strip()
    if tag.startswith('"') and len(tag) < 1000:
        return tag
    return answer.headers.get("Last-Modified", "").strip()[:100]


@contextlib.contextmanager
def _translated(url: str) -> Iterator[None]:
    """Errors of the network as faults to retry, or as sentences."""
    try:
        yield
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == 416:
            raise _Stale("the server cannot go on where the file was cut", wait=0.0) from None
        if error.code in _TRANSIENT:
            raise _Cut(
                f"the server answers {error.code} ({_printable(error.reason)})",
                _seconds(error.headers.get("Retry-After", "")),
            ) from None
        raise DataError(
            url,
            f"the server answers {error.code} ({_printable(error.reason)})",
            "The file may have moved: see the corpus's page, or give a local copy with --from FOLDER",
        ) from None
    except urllib.error.URLError as error:
        raise _network_fault(url, error.reason) from None
    except (http.client.HTTPException, OSError) as error:
        raise _network_fault(url, error) from None


def _network_fault(url: str, reason: object) -> Exception:
    if isinstance(reason, TimeoutError | ConnectionResetError | ConnectionAbortedError | BrokenPipeError):
        return _Cut("the server does not answer" if isinstance(reason, TimeoutError) else "the connection was cut")
    if isinstance(reason, http.client.HTTPException):
        return _Cut(f"the connection was cut ({type(reason).__name__})")
    said = reason.strerror if isinstance(reason, OSError) and reason.strerror else reason
    if isinstance(reason, socket.gaierror):
        said = f"the name of its server is not found: {said}"
    return DataError(
        url,
        f"it cannot be reached ({said})",
        "Check the connection; without one, download this address by hand on another machine "
        "and give its folder with --from FOLDER",
    )


def _printable(said: object) -> str:
    """A server's words, fit for a terminal."""
    return re.sub(r"[^ -~]+", " ", str(said))[:200]


def _seconds(text: str) -> float | None:
    return float(text) if re.fullmatch(r"[0-9]{1,6}", text.strip()) else None


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows a few redirects, each to an address that is allowed."""

    max_redirections = max_repeats = MAX_REDIRECTS

    def __init__(self, insecure: bool):
        self.insecure = insecure

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        _check_address(newurl, self.insecure, came_from=req.full_url)
        return super().redirect_request(req, fp, code, msg, headers, newurl)

    def http_error_302(self, req: Any, fp: Any, code: int, msg: str, headers: Any) -> Any:
        target = headers.get("location") or headers.get("uri") or ""
        if urlsplit(target).scheme not in ("http", "https", ""):
            _check_address(target, self.insecure, came_from=req.full_url)
        return super().http_error_302(req, fp, code, msg, headers)

    http_error_301 = http_error_303 = http_error_307 = http_error_308 = http_error_302


def _opener(url: str, insecure: bool) -> urllib.request.OpenerDirector:
    """Opens http and https, and nothing else (no files, no FTP)."""
    opener = urllib.request.OpenerDirector()
    handlers: list[urllib.request.BaseHandler] = [
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPErrorProcessor(),
        _Redirects(insecure),
    ]
    if not _is_loopback(urlsplit(url).hostname):
        handlers.append(urllib.request.ProxyHandler())
    for handler in handlers:
        opener.add_handler(handler)
    return opener


def _check_address(url: str, insecure: bool = False, came_from: str = "") -> None:
    """Raises a DataError unless the address is https, or http on this machine or on a mirror that the user named."""
    try:
        address = urlsplit(url)
        host = address.hostname
    except ValueError:
        address, host = None, None
    scheme = address.scheme if address is not None else ""
    if (
        host
        and re.fullmatch(r"[\x21-\x7e]+", url)
        and (scheme == "https" or (scheme == "http" and (insecure or _is_loopback(host))))
    ):
        return
    if came_from:
        raise DataError(
            came_from,
            f"the server redirects to {url[:200]!r}, which is not an https address",
            "Give a local copy with --from FOLDER",
        )
    raise DataError(url[:200], "it is not an https address", "Give one that begins with https://")


def _is_loopback(host: str | None) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host or "").is_loopback
    except ValueError:
        return False


def _state(path: Path) -> Path:
    return path.with_name(f"{path.name}.json")


def _write_state(path: Path, value: dict[str, Any]) -> None:
    with writing(path):
        _state(path).write_text(json.dumps(value), encoding="utf-8")


def _read_state(path: Path) -> dict[str, Any]:
    try:
        with open(_state(path), encoding="utf-8") as stream:
            value = json.loads(stream.read(_SMALL))
    except (OSError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _is_ours(path: Path, url: str, file: Download) -> bool:
    """Whether a whole file of an earlier call is there; if not, what is there is removed."""
    right = (
        path.is_file()
        and (state := _read_state(path)).get("url") == url
        and state.get("sha256") == digests(path)["sha256"]
        and not mismatch(path, file.size, file.checksum)
    )
    if not right:
        _remove(path)
    return right


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _remove(path: Path) -> None:
    path.unlink(missing_ok=True)
    _state(path).unlink(missing_ok=True)
