"""Fetching known corpora from a real server on this machine and from local copies: cuts, lies, bombs, full disks."""

from __future__ import annotations

import bz2
import errno
import gzip
import hashlib
import http.server
import io
import json
import lzma
import shutil
import socket
import tarfile
import threading
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from regard.cli import get as cli
from regard.core.errors import ConfigError, DataError
from regard.data import downloading, fetch, unpacking
from regard.data.catalogue import Corpus, Download, Piece, TextFile
from regard.data.downloading import Patience, download
from regard.data.fetch import fetch_corpus
from regard.data.unpacking import convert, extract, open_text

QUICK = Patience(timeout=5, attempts=2, wait=0.01)
ENGLISH = "".join(f"The kettle number {i} is warm.\n" for i in range(3000)).encode()
GERMAN = "".join(f"Der Kessel Nummer {i} ist warm.\n" for i in range(3000)).encode()
NOTES = b"Eine Notiz ohne Zeilenende"


def sha256(content: bytes) -> str:
    return "sha256:" + hashlib.sha256(content).hexdigest()


def zipped(members: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in members.items():
            file.writestr(zipfile.ZipInfo(name, (2020, 1, 1, 0, 0, 0)), content, zipfile.ZIP_DEFLATED)
    return out.getvalue()


def tarred(members: Mapping[str, bytes | str], mode: Any = "w:gz") -> bytes:
    """A tar; a member of type str is a symbolic link to that place."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode) as file:
        for name, content in members.items():
            entry = tarfile.TarInfo(name)
            if isinstance(content, str):
                entry.type, entry.linkname = tarfile.SYMTYPE, content
                file.addfile(entry)
            else:
                entry.size = len(content)
                file.addfile(entry, io.BytesIO(content))
    return out.getvalue()


ARCHIVE = zipped({"in/a.en": ENGLISH, "in/a.de": GERMAN, "in/else": b"not wanted"})
PACKED = gzip.compress(NOTES, mtime=0)


def corpus(**changes: object) -> Corpus:
    """A corpus of two downloads and four texts."""
    fields: dict[str, object] = {
        "name": "toy",
        "about": "kettles",
        "task": "translation",
        "languages": ("en", "de"),
        "amount": "3,000 pairs",
        "licence": "CC0",
        "attribution": "the tests",
        "home": "https://example.org/",
        "facts": "SHA-256: computed here",
        "downloads": (
            Download(name="toy.zip", url="https://example.org/toy.zip", size=len(ARCHIVE), checksum=sha256(ARCHIVE)),
            Download(name="notes.txt.gz", url="https://example.org/notes.txt.gz"),
        ),
        "files": (
            TextFile(
                name="train.en",
                pieces=(Piece(download="toy.zip", member="in/a.en"),),
                size=len(ENGLISH),
                checksum=sha256(ENGLISH),
            ),
            TextFile(name="train.de", pieces=(Piece(download="toy.zip", member="in/a.de"),)),
            TextFile(name="notes.txt", pieces=(Piece(download="notes.txt.gz"),)),
            TextFile(
                name="joined",
                pieces=(Piece(download="notes.txt.gz"), Piece(download="toy.zip", member="in/a.de")),
            ),
        ),
        "next": ("regard data check {out}/train.en {out}/train.de",),
    }
    return Corpus(**{**fields, **changes})  # type: ignore[arg-type]


def plain(content: bytes, checksum: str | None = None, size: int | None = None) -> Corpus:
    """A corpus of one plain file."""
    file = Download(name="a.txt", url="https://example.org/a.txt", size=size, checksum=checksum or "")
    return corpus(downloads=(file,), files=(TextFile(name="a.txt", pieces=(Piece(download="a.txt"),)),))


class Server:
    """Answers each request for a path by the next of the answers given for it; the last one stays."""

    def __init__(self) -> None:
        self.answers: dict[str, list[Callable[[http.server.BaseHTTPRequestHandler], None]]] = {}
        self.requests: list[tuple[str, str | None, str | None]] = []  # path, Range, If-Range
        self.stopped = threading.Event()
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                outer.requests.append((self.path, self.headers["Range"], self.headers["If-Range"]))
                answers = outer.answers.get(self.path, [status(404)])
                answer = answers.pop(0) if len(answers) > 1 else answers[0]
                try:
                    answer(self)
                except (BrokenPipeError, ConnectionResetError):
                    self.close_connection = True

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.http.server_port}"
        self.thread = threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.01})
        self.thread.start()

    def close(self) -> None:
        self.stopped.set()
        self.http.shutdown()
        self.http.server_close()
        self.thread.join()


def whole(
    content: bytes,
    etag: str | None = '"one"',
    ranges: bool = True,
    modified: str | None = None,
    careless: bool = False,
):
    """A well-behaved server; a careless one sends a part although the file has changed."""

    def answer(handler: http.server.BaseHTTPRequestHandler) -> None:
        asked, condition = handler.headers["Range"], handler.headers["If-Range"]
        begin = 0
        if asked and ranges and (careless or condition in (None, etag, modified)):
            begin = int(asked.removeprefix("bytes=").removesuffix("-"))
            if begin >= len(content):
                return status(416)(handler)
        handler.send_response(206 if begin else 200)
        if begin:
            handler.send_header("Content-Range", f"bytes {begin}-{len(content) - 1}/{len(content)}")
        if etag:
            handler.send_header("ETag", etag)
        if modified:
            handler.send_header("Last-Modified", modified)
        handler.send_header("Content-Length", str(len(content) - begin))
        handler.end_headers()
        handler.wfile.write(content[begin:])

    return answer


def cut(content: bytes, after: int, etag: str | None = '"one"'):
    """Announces everything, sends a part and hangs up."""

    def answer(handler: http.server.BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        if etag:
            handler.send_header("ETag", etag)
        handler.send_header("Content-Length", str(len(content)))
        handler.end_headers()
        handler.wfile.write(content[:after])
        handler.wfile.flush()
        handler.close_connection = True

    return answer


def status(code: int, **headers: str):
    def answer(handler: http.server.BaseHTTPRequestHandler) -> None:
        handler.send_response(code)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    return answer


def raw(content: bytes, **headers: str):
    """These headers and no others; then it hangs up."""

    def answer(handler: http.server.BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()
        handler.wfile.write(content)
        handler.close_connection = True

    return answer


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    made.answers = {"/toy.zip": [whole(ARCHIVE)], "/notes.txt.gz": [whole(PACKED)]}
    yield made
    made.close()


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "data" / "toy"


def leftovers(out: Path) -> list[str]:
    """What lies beside the output folder."""
    return sorted(path.name for path in out.parent.iterdir() if path != out) if out.parent.exists() else []


def test_a_corpus_is_downloaded_whole(server, out):
    seen: list[tuple[str, int, int | None]] = []
    fetched = fetch_corpus(corpus(), out, mirror=server.url + "/", progress=lambda *now: seen.append(now))
    assert (out / "train.en").read_bytes() == ENGLISH
    assert (out / "train.de").read_bytes() == GERMAN
    assert (out / "notes.txt").read_bytes() == NOTES
    assert (out / "joined").read_bytes() == NOTES + b"\n" + GERMAN  # no two lines run into each other
    assert sorted(path.name for path in out.iterdir()) == [
        "LICENCE.txt", "SOURCE.json", "joined", "notes.txt", "train.de", "train.en",
    ]  # fmt: skip
    assert leftovers(out) == []
    assert not fetched.already
    assert ("unpacking toy.zip", 0, None) in seen
    assert ("toy.zip", len(ARCHIVE), len(ARCHIVE)) in seen

    source = json.loads((out / "SOURCE.json").read_text(encoding="utf-8"))
    assert source["corpus"] == "toy"
    assert source["licence"] == "CC0"
    assert source["sources"]["toy.zip"] == {
        "from": f"{server.url}/toy.zip", "bytes": len(ARCHIVE), "sha256": sha256(ARCHIVE)[7:], "known": True,
    }  # fmt: skip
    assert source["files"]["train.de"] == {"bytes": len(GERMAN), "sha256": sha256(GERMAN)[7:], "known": True}
    assert not source["files"]["notes.txt"]["known"]
    assert not source["files"]["joined"]["known"]
    licence = (out / "LICENCE.txt").read_text(encoding="utf-8")
    for part in ("CC0", "the tests", f"{server.url}/toy.zip", source["fetched"]):
        assert part in licence


class TestDownloads:
    """One file from a server that is not always kind."""

    def get(self, server: Server, folder: Path, content: bytes, *, known: bool = False, **options) -> bytes:
        file = Download(name="a.txt", url=f"{server.url}/a.txt", checksum=sha256(content) if known else "")
        folder.mkdir(exist_ok=True)
        return download(file, folder, **{"patience": QUICK, **options}).read_bytes()

    def test_a_cut_connection_is_resumed(self, server, tmp_path):
        server.answers["/a.txt"] = [cut(ENGLISH, 20_000), whole(ENGLISH)]
        assert self.get(server, tmp_path, ENGLISH) == ENGLISH
        assert server.requests == [("/a.txt", None, None), ("/a.txt", "bytes=20000-", '"one"')]
        assert sorted(path.name for path in tmp_path.iterdir()) == ["a.txt", "a.txt.json"]

    def test_it_goes_on_in_another_process(self, server, tmp_path):
        server.answers["/a.txt"] = [cut(ENGLISH, 20_000)]
        with pytest.raises(DataError, match=r"failed once.*cut after 20000 of .*go on where it stopped.*--from FOLDER"):
            self.get(server, tmp_path, ENGLISH, patience=Patience(attempts=0))
        assert (tmp_path / "a.txt.part").read_bytes() == ENGLISH[:20_000]
        assert not (tmp_path / "a.txt").exists()
        server.answers["/a.txt"] = [whole(ENGLISH)]
        assert self.get(server, tmp_path, ENGLISH) == ENGLISH
        assert server.requests[-1] == ("/a.txt", "bytes=20000-", '"one"')
        assert self.get(server, tmp_path, ENGLISH) == ENGLISH  # nothing more is asked for
        assert len(server.requests) == 2

    def test_whole_but_killed_before_it_got_its_name(self, server, tmp_path):
        server.answers["/a.txt"] = [whole(ENGLISH)]
        self.get(server, tmp_path, ENGLISH)
        (tmp_path / "a.txt").rename(tmp_path / "a.txt.part")
        state = {"url": f"{server.url}/a.txt", "validator": '"one"', "total": len(ENGLISH)}
        (tmp_path / "a.txt.part.json").write_text(json.dumps(state))
        assert self.get(server, tmp_path, ENGLISH) == ENGLISH
        assert len(server.requests) == 1

    def test_a_file_that_changed_is_fetched_from_the_beginning(self, server, tmp_path):
        server.answers["/a.txt"] = [cut(ENGLISH, 20_000), whole(GERMAN, etag='"two"')]
        assert self.get(server, tmp_path, GERMAN) == GERMAN

    def test_a_server_that_sends_no_parts(self, server, tmp_path):
        server.answers["/a.txt"] = [cut(ENGLISH, 20_000), whole(ENGLISH, ranges=False)]
        assert self.get(server, tmp_path, ENGLISH) == ENGLISH

    def test_a_date_is_a_validator_too_and_a_weak_tag_is_not(self, server, tmp_path):
        date = "Sun, 15 Nov 2015 08:12:31 GMT"
        first = raw(ENGLISH[:9000], ETag='W/"weak"', Last_Modified=date, Content_Length=str(len(ENGLISH)))
        server.answers["/a.txt"] = [first, whole(ENGLISH, etag='W/"weak"', modified=date)]
        assert self.get(server, tmp_path, ENGLISH) == ENGLISH
        assert server.requests[-1] == ("/a.txt", "bytes=9000-", date)

    def test_without_a_validator_and_a_checksum_nothing_is_resumed(self, server, tmp_path):
        server.answers["/a.txt"] = [cut(ENGLISH, 20_000, etag=None), whole(ENGLISH, etag=None)]
        assert self.get(server, tmp_path, ENGLISH) == ENGLISH
        assert server.requests[-1] == ("/a.txt", None, None)

    def test_parts_that_do_not_fit_together_are_fetched_again(self, server, tmp_path):
        """Without a validator, only the checksum shows that the file has changed between two connections."""
        server.answers["/a.txt"] = [cut(ENGLISH.upper(), 20_000, etag=None), whole(ENGLISH, etag=None)]
        assert self.get(server, tmp_path, ENGLISH, known=True) == ENGLISH
        assert [asked for _, asked, _ in server.requests] == [None, "bytes=20000-", None]

    def test_but_not_without_end(self, server, tmp_path):
        wrong = ENGLISH.upper()
        server.answers["/a.txt"] = [*[cut(wrong, 20_000), whole(wrong)] * 2, status(404)]
        with pytest.raises(DataError, match="damaged or another one"):
            self.get(server, tmp_path, ENGLISH, known=True)
        assert len(server.requests) == 4

    @pytest.mark.parametrize("now", [whole(GERMAN, careless=True), whole(ENGLISH.upper(), '"two"', careless=True)])
    def test_a_careless_server_does_not_mix_two_files(self, server, tmp_path, now):
        server.answers["/a.txt"] = [cut(ENGLISH, 20_000), now]
        assert self.get(server, tmp_path, ENGLISH) in (GERMAN, ENGLISH.upper())

    def test_a_part_that_was_not_asked_for(self, server, tmp_path):
        def wrong_part(handler):
            handler.send_response(206)
            handler.send_header("Content-Range", f"bytes 10-{len(ENGLISH) - 1}/{len(ENGLISH)}")
            handler.send_header("Content-Length", str(len(ENGLISH) - 10))
            handler.end_headers()
            handler.wfile.write(ENGLISH[10:])

        server.answers["/a.txt"] = [cut(ENGLISH, 20_000), wrong_part, whole(ENGLISH)]
        assert self.get(server, tmp_path, ENGLISH) == ENGLISH

    def test_a_file_that_shrank(self, server, tmp_path):
        server.answers["/a.txt"] = [cut(ENGLISH, 20_000), whole(ENGLISH[:100])]
        assert self.get(server, tmp_path, ENGLISH[:100]) == ENGLISH[:100]  # the server answers 416 in between

    def test_a_wrong_checksum_is_refused_and_the_file_removed(self, server, tmp_path):
        server.answers["/a.txt"] = [whole(GERMAN)]
        with pytest.raises(DataError) as error:
            self.get(server, tmp_path, ENGLISH, known=True)
        assert str(error.value) == (
            f"{server.url}/a.txt: the file is damaged or another one: its SHA256 is {sha256(GERMAN)[7:]}, "
            f"not {sha256(ENGLISH)[7:]}; it was removed. Try again; if it happens again, the file has changed at its "
            "source: give a local copy with --from FOLDER."
        )
        assert list(tmp_path.iterdir()) == []
        assert len(server.requests) == 1

    @pytest.mark.parametrize("size", [len(ENGLISH) - 1, len(ENGLISH) + 1])
    def test_a_wrong_length_is_refused_before_a_byte_is_read(self, server, tmp_path, size):
        server.answers["/a.txt"] = [whole(ENGLISH)]
        file = Download(name="a.txt", url=f"{server.url}/a.txt", size=size)
        with pytest.raises(DataError, match=f"announces {len(ENGLISH)} bytes, not the {size} that are known"):
            download(file, tmp_path, patience=QUICK)
        assert not (tmp_path / "a.txt").exists()

    def test_a_length_that_lies(self, server, tmp_path):
        """More is announced than ever comes: no attempt helps, and nothing gets the final name."""
        server.answers["/a.txt"] = [raw(ENGLISH, Content_Length=str(len(ENGLISH) + 5))]
        with pytest.raises(DataError, match=rf"cut after {len(ENGLISH)} of {len(ENGLISH) + 5} bytes"):
            self.get(server, tmp_path, ENGLISH)
        assert not (tmp_path / "a.txt").exists()

    def test_more_than_known_without_a_length(self, server, tmp_path):
        server.answers["/a.txt"] = [raw(ENGLISH)]
        file = Download(name="a.txt", url=f"{server.url}/a.txt", size=1000)
        with pytest.raises(DataError, match="sends more than the 1000 bytes expected"):
            download(file, tmp_path, patience=QUICK)

    def test_no_length_and_no_checksum_would_hide_a_cut(self, server, tmp_path):
        server.answers["/a.txt"] = [raw(ENGLISH[:500])]
        with pytest.raises(DataError, match="does not say how long the file is"):
            self.get(server, tmp_path, ENGLISH)
        server.answers["/a.txt"] = [raw(ENGLISH)]
        assert self.get(server, tmp_path, ENGLISH, known=True) == ENGLISH

    def test_chunks_have_an_end_of_their_own(self, server, tmp_path):
        content = b"".join(b"%x\r\n%s\r\n" % (len(p), p) for p in (ENGLISH[:700], ENGLISH[700:])) + b"0\r\n\r\n"
        server.answers["/a.txt"] = [raw(content, Transfer_Encoding="chunked")]
        assert self.get(server, tmp_path, ENGLISH) == ENGLISH
        (tmp_path / "a.txt").unlink()
        server.answers["/a.txt"] = [raw(content[:1500], Transfer_Encoding="chunked")]
        with pytest.raises(DataError, match=r"the connection was cut \(IncompleteRead\)"):
            self.get(server, tmp_path, ENGLISH)

    def test_another_coding_is_refused(self, server, tmp_path):
        server.answers["/a.txt"] = [raw(PACKED, Content_Encoding="gzip", Content_Length=str(len(PACKED)))]
        with pytest.raises(DataError, match="another coding"):
            self.get(server, tmp_path, NOTES)

    def test_not_found(self, server, tmp_path):
        with pytest.raises(DataError) as error:
            self.get(server, tmp_path, ENGLISH)
        assert str(error.value) == (
            f"{server.url}/a.txt: the server answers 404 (Not Found). "
            "The file may have moved: see the corpus's page, or give a local copy with --from FOLDER."
        )
        assert len(server.requests) == 1

    def test_a_passing_fault_is_retried_with_growing_waits(self, server, tmp_path):
        server.answers["/a.txt"] = [status(500), status(503), status(502), whole(ENGLISH)]
        waits: list[float] = []
        patience = Patience(attempts=5, wait=0.5)
        assert self.get(server, tmp_path, ENGLISH, patience=patience, sleep=waits.append) == ENGLISH
        assert waits == [0.5, 1.0, 2.0]

    def test_a_server_may_ask_for_a_wait_but_not_for_an_hour(self, server, tmp_path):
        server.answers["/a.txt"] = [status(429, Retry_After="7"), status(503, Retry_After="3600"), whole(ENGLISH)]
        waits: list[float] = []
        patience = Patience(attempts=5)
        assert self.get(server, tmp_path, ENGLISH, patience=patience, sleep=waits.append) == ENGLISH
        assert waits == [7.0, 60.0]

    def test_a_lasting_fault(self, server, tmp_path):
        server.answers["/a.txt"] = [status(500)]
        with pytest.raises(DataError, match=r"failed 2 times, at last because the server answers 500 \(Internal"):
            self.get(server, tmp_path, ENGLISH)

    def test_a_silent_server(self, server, tmp_path):
        server.answers["/a.txt"] = [lambda handler: server.stopped.wait(3)]
        began = time.monotonic()
        with pytest.raises(DataError, match="the server does not answer"):
            self.get(server, tmp_path, ENGLISH, patience=Patience(timeout=0.15, attempts=2, wait=0.01))
        assert time.monotonic() - began < 2

    def test_silence_in_the_middle(self, server, tmp_path):
        def stall(handler):
            cut(ENGLISH, 5000)(handler)
            server.stopped.wait(3)

        server.answers["/a.txt"] = [stall, whole(ENGLISH)]
        patience = Patience(timeout=0.2, attempts=2, wait=0.01)
        assert self.get(server, tmp_path, ENGLISH, patience=patience) == ENGLISH
        assert server.requests[-1][1] == "bytes=5000-"

    def test_redirects_are_followed(self, server, tmp_path):
        server.answers["/a.txt"] = [status(302, Location="/b.txt")]
        server.answers["/b.txt"] = [status(308, Location=f"{server.url}/c.txt")]
        server.answers["/c.txt"] = [whole(ENGLISH)]
        assert self.get(server, tmp_path, ENGLISH) == ENGLISH

    @pytest.mark.parametrize("target", ["file:///etc/hostname", "ftp://127.0.0.1/a", "http://192.0.2.1/a", "data:,x"])
    @pytest.mark.parametrize("code", [301, 307])
    def test_redirects_to_something_else_are_refused(self, server, tmp_path, target, code):
        server.answers["/a.txt"] = [status(code, Location=target)]
        with pytest.raises(DataError, match=f"redirects to '{target}', which is not an https address"):
            self.get(server, tmp_path, ENGLISH)
        assert len(server.requests) == 1

    def test_redirects_in_a_circle(self, server, tmp_path):
        server.answers["/a.txt"] = [status(302, Location="/a.txt")]
        with pytest.raises(DataError, match="the server answers 302"):
            self.get(server, tmp_path, ENGLISH)
        assert len(server.requests) <= downloading.MAX_REDIRECTS + 1

    def test_offline(self, tmp_path):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            url = f"http://127.0.0.1:{free.getsockname()[1]}/a.txt"
        with pytest.raises(DataError) as error:
            download(Download(name="a.txt", url=url), tmp_path, patience=QUICK)
        assert str(error.value) == (
            f"{url}: it cannot be reached (Connection refused). Check the connection; without one, download this "
            "address by hand on another machine and give its folder with --from FOLDER."
        )

    def test_a_server_that_is_not_found(self, tmp_path, monkeypatch):
        def fail(*_: object, **__: object) -> None:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

        monkeypatch.setattr(socket, "getaddrinfo", fail)
        monkeypatch.setenv("no_proxy", "*")
        with pytest.raises(DataError, match=r"the name of its server is not found.*--from FOLDER"):
            download(Download(name="a.txt", url="https://example.org/a.txt"), tmp_path, patience=QUICK)

    @pytest.mark.parametrize("url", ["http://example.org/a", "file:///etc/passwd", "https://", "https://a/\nb", "x"])
    def test_only_https(self, tmp_path, url):
        with pytest.raises(DataError, match=r"it is not an https address\. Give one that begins with https://"):
            download(Download(name="a.txt", url=url), tmp_path)

    def test_words_of_a_server_do_no_harm(self, server, tmp_path):
        server.answers["/a.txt"] = [lambda handler: handler.wfile.write(b"HTTP/1.1 403 \x1b[31mNo\r\n\r\n")]
        with pytest.raises(DataError) as error:
            self.get(server, tmp_path, ENGLISH)
        assert "\x1b" not in str(error.value)
        assert "403" in str(error.value)


class _Full(io.FileIO):
    """A file on a full disk."""

    def write(self, _: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")


def fill_disk(monkeypatch, module, allowed: int = 0) -> None:
    """After so many files that are opened for writing, the disk is full."""
    opened = [0]

    def opening(path, mode="r", *rest, **named):
        if "w" in mode or "a" in mode:
            opened[0] += 1
            if opened[0] > allowed:
                return _Full(path, mode.replace("b", ""))
        return open(path, mode, *rest, **named)

    monkeypatch.setattr(module, "open", opening, raising=False)


def test_a_full_disk_while_downloading(server, out, monkeypatch):
    with monkeypatch.context() as patch:
        fill_disk(patch, downloading)
        with pytest.raises(DataError, match=r"the disk is full\. Free some space and run the same command again"):
            fetch_corpus(corpus(), out, mirror=server.url, patience=QUICK)
    assert not out.exists()
    fetch_corpus(corpus(), out, mirror=server.url, patience=QUICK)
    assert (out / "train.en").read_bytes() == ENGLISH
    assert leftovers(out) == []


@pytest.mark.parametrize(("module", "allowed"), [(unpacking, 0), (fetch, 1), (fetch, 2)])
def test_a_full_disk_while_unpacking(server, out, monkeypatch, module, allowed):
    with monkeypatch.context() as patch:
        fill_disk(patch, module, allowed)
        with pytest.raises(DataError, match="the disk is full"):
            fetch_corpus(corpus(), out, mirror=server.url, patience=QUICK)
    assert not out.exists()
    before = len(server.requests)
    fetch_corpus(corpus(), out, mirror=server.url, patience=QUICK)
    assert len(server.requests) == before  # what was downloaded is not fetched twice
    assert leftovers(out) == []


def test_too_little_space_is_said_before_anything_is_fetched(server, out, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10, 5, 5000))
    with pytest.raises(DataError, match=r"the disk has 5 kB free and .* are needed"):
        fetch_corpus(corpus(), out, mirror=server.url)
    assert server.requests == []
    assert leftovers(out) == []


def test_an_interruption_leaves_nothing_under_the_final_name(server, out):
    server.answers["/toy.zip"] = [cut(ARCHIVE, 5000), whole(ARCHIVE)]

    def stop(name: str, done: int, _: int | None) -> None:
        if done >= 5000:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch_corpus(corpus(), out, mirror=server.url, progress=stop, patience=QUICK)
    assert not out.exists()
    assert leftovers(out) == [".toy.partial"]
    fetch_corpus(corpus(), out, mirror=server.url, patience=QUICK)
    assert ("/toy.zip", "bytes=5000-", '"one"') in server.requests
    assert (out / "train.de").read_bytes() == GERMAN
    assert leftovers(out) == []


def test_an_interruption_while_writing(server, out, monkeypatch):
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(fetch, "_write_papers", stop)
        with pytest.raises(KeyboardInterrupt):
            fetch_corpus(corpus(), out, mirror=server.url)
    assert not out.exists()
    assert sorted(path.name for path in (out.parent / ".toy.partial").iterdir()) == ["downloads", "lock"]


def test_one_process_at_a_time(server, out):
    out.parent.mkdir()
    with fetch._working_in(out.parent / ".toy.partial", out), pytest.raises(DataError, match="another process"):
        fetch_corpus(corpus(), out, mirror=server.url)
    fetch_corpus(corpus(), out, mirror=server.url)
    assert leftovers(out) == []


class TestWhatIsThereAlready:
    @pytest.fixture
    def there(self, server, out) -> Path:
        fetch_corpus(corpus(), out, mirror=server.url)
        server.requests.clear()
        return out

    def test_a_whole_corpus_is_left_alone(self, server, there):
        before = (there / "SOURCE.json").read_bytes()
        fetched = fetch_corpus(corpus(), there, mirror=server.url)
        assert fetched.already
        assert set(fetched.files) == {"train.en", "train.de", "notes.txt", "joined"}
        assert server.requests == []
        assert (there / "SOURCE.json").read_bytes() == before

    def test_a_changed_file_is_not_overwritten(self, server, there):
        (there / "train.de").write_bytes(GERMAN[:-1] + b"!")
        with pytest.raises(DataError, match=r"train\.de: it is not what was fetched on 20.* and is not overwritten"):
            fetch_corpus(corpus(), there, mirror=server.url)
        assert (there / "train.de").read_bytes().endswith(b"!")

    def test_a_missing_file_comes_back_if_it_is_still_the_same(self, server, there):
        (there / "notes.txt").unlink()
        (there / "mine").write_text("stays")
        assert not fetch_corpus(corpus(), there, mirror=server.url).already
        assert (there / "notes.txt").read_bytes() == NOTES
        assert [path for path, _, _ in server.requests] == ["/notes.txt.gz"]
        assert (there / "mine").exists()
        (there / "notes.txt").unlink()
        server.answers["/notes.txt.gz"] = [whole(gzip.compress(b"another text"))]
        with pytest.raises(DataError, match=r"the source has another file now, with the SHA-256 .* on 20.* it was "):
            fetch_corpus(corpus(), there, mirror=server.url)
        assert not (there / "notes.txt").exists()

    def test_other_folders_are_not_touched(self, server, there, tmp_path, monkeypatch):
        with pytest.raises(DataError, match="it holds the corpus 'toy' and is not overwritten"):
            fetch_corpus(corpus(name="other"), there, mirror=server.url)
        (tmp_path / "full").mkdir()
        (tmp_path / "full" / "thesis.txt").write_text("years of work")
        with pytest.raises(DataError, match=r"the folder is not empty and is not overwritten\. Choose another folder"):
            fetch_corpus(corpus(), tmp_path / "full", mirror=server.url)
        with pytest.raises(DataError, match="a file of this name is in the way"):
            fetch_corpus(corpus(), there / "train.en", mirror=server.url)
        (tmp_path / "here").mkdir()
        monkeypatch.chdir(tmp_path / "here")
        with pytest.raises(DataError, match="the folder that the command runs in"):
            fetch_corpus(corpus(), Path(), mirror=server.url)
        assert server.requests == []

    def test_an_empty_folder_is_taken(self, server, tmp_path):
        (tmp_path / "empty").mkdir()
        fetch_corpus(corpus(), tmp_path / "empty", mirror=server.url)
        assert (tmp_path / "empty" / "train.en").exists()

    @pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"corpus": "toy", "fetched": 1, "files": {"a": 3}}'])
    def test_a_damaged_record(self, server, there, content):
        (there / "SOURCE.json").write_text(content)
        with pytest.raises(DataError, match="the folder is not empty"):
            fetch_corpus(corpus(), there, mirror=server.url)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda content: content[: len(content) // 2], "the archive is (truncated|corrupt)"),
        (lambda content: b"no archive at all" * 100, "the archive is corrupt"),
        (lambda content: zipped({"in/a.en": ENGLISH}), r"the archive does not hold in/a\.de"),
        (lambda content: zipped({"in/a.en": GERMAN, "in/a.de": GERMAN}), r"not the 8\d+ that|longer than|SHA256"),
    ],
)
def test_archives_that_are_not_the_known_one(server, out, change, message):
    server.answers["/toy.zip"] = [whole(change(ARCHIVE))]
    unknown = (Download(name="toy.zip", url="https://example.org/toy.zip"), corpus().downloads[1])
    with pytest.raises(DataError, match=message):
        fetch_corpus(corpus(downloads=unknown), out, mirror=server.url)
    assert not out.exists()


class TestArchives:
    def take(self, tmp_path: Path, name: str, content: bytes, *patterns: str) -> dict[str, list[bytes]]:
        (tmp_path / name).write_bytes(content)
        found = extract(tmp_path / name, patterns or ("a.txt",), tmp_path / "taken")
        return {pattern: [path.read_bytes() for path in paths] for pattern, paths in found.items()}

    @pytest.mark.parametrize("name", ["../a.txt", "/a.txt", "x/../../a.txt", "C:\\a.txt", "C:/a.txt"])
    @pytest.mark.parametrize("kind", ["zip", "tgz"])
    def test_paths_that_lead_out(self, tmp_path, name, kind):
        content = (zipped if kind == "zip" else tarred)({"a.txt": b"fine", name: b"not fine"})
        with pytest.raises(DataError, match=r"the archive is not safe, it holds a member called .*Do not unpack it"):
            self.take(tmp_path, f"x.{kind}", content)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["taken", f"x.{kind}"]

    def test_links(self, tmp_path):
        with pytest.raises(DataError, match=r"its member 'a\.txt' is a link or a device"):
            self.take(tmp_path, "x.tgz", tarred({"a.txt": "/etc/hostname"}))
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w") as file:
            link = zipfile.ZipInfo("a.txt")
            link.external_attr = 0o120777 << 16
            file.writestr(link, "/etc/hostname")
        with pytest.raises(DataError, match="is a link or a device"):
            self.take(tmp_path, "x.zip", out.getvalue())

    def test_links_that_nobody_asked_for_are_left_out(self, tmp_path):
        assert self.take(tmp_path, "x.tgz", tarred({"b": "a.txt", "a.txt": b"text"})) == {"a.txt": [b"text"]}

    def test_a_member_that_is_there_twice(self, tmp_path):
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w") as file:
            file.writestr("a.txt", "one")
            with pytest.warns(UserWarning, match="Duplicate"):
                file.writestr("a.txt", "two")
        with pytest.raises(DataError, match="is in it twice"):
            self.take(tmp_path, "x.zip", out.getvalue())

    @pytest.mark.parametrize("kind", ["zip", "tgz", "tar.xz"])
    def test_bombs(self, tmp_path, kind):
        bomb = b"\0" * (8 << 20)
        modes = {"tgz": "w:gz", "tar.xz": "w:xz"}
        content = zipped({"a.txt": bomb}) if kind == "zip" else tarred({"a.txt": bomb}, modes[kind])
        assert len(content) < 20_000
        with pytest.raises(DataError, match="unpacks to more than 100 times its size, which no text does"):
            self.take(tmp_path, f"x.{kind}", content)

    def test_a_header_that_claims_gigabytes(self, tmp_path):
        entry = tarfile.TarInfo("a.txt")
        entry.size = 5 << 30
        header = entry.tobuf(tarfile.GNU_FORMAT) + b"\0" * 1024
        with pytest.raises(DataError, match=r"truncated|corrupt|100 times"):
            self.take(tmp_path, "x.tgz", gzip.compress(header))

    @pytest.mark.parametrize("kind", ["zip", "tgz"])
    def test_too_many_members(self, tmp_path, monkeypatch, kind):
        monkeypatch.setattr(unpacking, "MAX_MEMBERS", 50)
        content = (zipped if kind == "zip" else tarred)({f"{i}": b"" for i in range(51)} | {"a.txt": b"x"})
        with pytest.raises(DataError, match="more than 50 members"):
            self.take(tmp_path, f"x.{kind}", content)

    def test_patterns_join_in_order(self, tmp_path):
        members = {"b/c2": b"two", "b/c1": b"one", "b/readme": b"no", "./b/c3": b"three"}
        for name, content in (("x.zip", zipped(members)), ("x.tar", tarred(members, "w"))):
            assert self.take(tmp_path, name, content, "b/c[0-9]") == {"b/c[0-9]": [b"one", b"two", b"three"]}

    @pytest.mark.parametrize("ending", [".gz", ".xz", ".bz2", ".zst"])
    def test_packed_texts(self, tmp_path, ending):
        zstandard = pytest.importorskip("zstandard") if ending == ".zst" else None
        packers = {".gz": gzip.compress, ".xz": lzma.compress, ".bz2": bz2.compress}
        pack = packers.get(ending) or zstandard.ZstdCompressor().compress
        path = tmp_path / f"a{ending}"

        def read() -> bytes:
            with open_text(path) as stream:
                return b"".join(convert(stream, "copy", path))

        path.write_bytes(pack(ENGLISH))
        assert read() == ENGLISH
        path.write_bytes(pack(ENGLISH) + pack(GERMAN))  # two frames are one text
        assert read() == ENGLISH + GERMAN
        path.write_bytes(pack(ENGLISH)[:-30])
        with pytest.raises(DataError, match="truncated"):
            read()
        path.write_bytes(b"nothing that was ever packed")
        with pytest.raises(DataError, match="corrupt"):
            read()
        path.write_bytes(pack(b"\0" * (8 << 20)))
        with pytest.raises(DataError, match="100 times"):
            read()

    def test_zstd_without_its_package(self, tmp_path, monkeypatch):
        monkeypatch.setitem(__import__("sys").modules, "zstandard", None)
        (tmp_path / "a.zst").write_bytes(b"x")
        with pytest.raises(DataError, match=r'pip install "regard\[data\]"'), open_text(tmp_path / "a.zst"):
            pass


class TestConversions:
    def run(self, conversion: str, content: bytes) -> bytes:
        return b"".join(convert(io.BytesIO(content), conversion, "here"))

    def test_segments_of_a_test_set(self):
        content = b'<doc>\n<p>\n<seg id="1"> Ein Satz &amp; mehr. </seg>\n</p>\r\n<SEG id="2">Zwei</SEG>\r\n</doc>'
        assert self.run("segments", content) == b"Ein Satz &amp; mehr.\nZwei\n"

    def test_talks(self):
        content = (
            b"<url>http://x</url>\n<talkid>3</talkid>\n<title>Der Topf</title>\n Ein Topf < zwei.\n<doc a>\n\nEnde"
        )
        assert self.run("tagged", content) == b"Der Topf\nEin Topf < zwei.\n\nEnde\n"

    def test_latin_1_becomes_utf_8(self):
        assert self.run("utf8", "gr\u00fcn\n".encode() + b"gr\xfcn\r\n") == "gr\u00fcn\ngr\u00fcn\n".encode()

    def test_pronunciations(self):
        assert self.run("pronunciations", b"CAT 1 K AE1 T\n\nA 2 EY1\n") == b"C A T\tK AE1 T\nA\tEY1\n"

    def test_a_line_without_end(self, monkeypatch):
        monkeypatch.setattr(unpacking, "MAX_LINE_BYTES", 1 << 20)
        with pytest.raises(DataError, match="a line of more than 1 MiB"):
            self.run("utf8", b"a" * (1 << 21))


class TestLocalCopies:
    def folder(self, tmp_path: Path, **files: bytes) -> Path:
        folder = tmp_path / "copy"
        for name, content in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        return folder

    @pytest.mark.parametrize("kind", ["plain", "packed"])
    def test_finished_texts(self, tmp_path, out, kind):
        zstandard = pytest.importorskip("zstandard")
        files = {"train.en": ENGLISH, "train.de": GERMAN, "notes.txt": NOTES, "joined": NOTES}
        if kind == "packed":
            files = {
                "train.en.xz": lzma.compress(ENGLISH),
                "train.de.gz": gzip.compress(GERMAN),
                "notes.txt.bz2": bz2.compress(NOTES),
                "joined.zst": zstandard.ZstdCompressor().compress(NOTES),
            }
        folder = self.folder(tmp_path, **files)
        fetched = fetch_corpus(corpus(), out, local=folder)
        assert (out / "train.en").read_bytes() == ENGLISH
        assert (out / "joined").read_bytes() == NOTES
        assert fetched.files["train.en"]["known"]
        assert not fetched.files["train.de"]["known"]
        source = json.loads((out / "SOURCE.json").read_text(encoding="utf-8"))
        assert source["sources"]["train.de"]["from"] == str(
            folder / ("train.de.gz" if kind == "packed" else "train.de")
        )
        assert leftovers(out) == []

    def test_downloads(self, tmp_path, out):
        folder = self.folder(tmp_path, **{"toy.zip": ARCHIVE, "notes.txt.gz": PACKED})
        fetched = fetch_corpus(corpus(), out, local=folder)
        assert (out / "joined").read_bytes() == NOTES + b"\n" + GERMAN
        assert fetched.files["train.de"]["known"]
        assert sorted(path.name for path in folder.iterdir()) == ["notes.txt.gz", "toy.zip"]

    def test_what_was_unpacked(self, tmp_path, out):
        folder = self.folder(tmp_path, **{"in/a.en": ENGLISH, "a.de.xz": lzma.compress(GERMAN), "notes.txt": NOTES})
        only = tuple(file for file in corpus().files if file.name != "joined")
        fetched = fetch_corpus(corpus(files=only), out, local=folder)
        assert (out / "train.en").read_bytes() == ENGLISH
        assert (out / "train.de").read_bytes() == GERMAN
        assert not fetched.files["train.de"]["known"]

    def test_unpacked_patterns(self, tmp_path, out):
        folder = self.folder(tmp_path, **{"b/c2": b"two\n", "b/c1": b"one", "b/readme": b"no"})
        file = TextFile(name="all", pieces=(Piece(download="toy.zip", member="b/c[0-9]"),))
        fetch_corpus(corpus(files=(file,)), out, local=folder)
        assert (out / "all").read_bytes() == b"one\ntwo\n"

    def test_a_download_that_was_packed_once_more(self, tmp_path, out):
        folder = self.folder(tmp_path, **{"a.txt.xz": lzma.compress(ENGLISH)})
        renamed = TextFile(name="b.txt", pieces=(Piece(download="a.txt"),))
        known = Download(name="a.txt", url="https://example.org/a.txt", checksum=sha256(ENGLISH))
        assert fetch_corpus(corpus(downloads=(known,), files=(renamed,)), out, local=folder).files["b.txt"]["known"]
        wrong = Download(name="a.txt", url="https://example.org/a.txt", checksum=sha256(GERMAN))
        with pytest.raises(DataError, match=r"a\.txt\.xz: the file is damaged or another one"):
            fetch_corpus(corpus(downloads=(wrong,), files=(renamed,)), tmp_path / "other", local=folder)

    @pytest.mark.parametrize(
        ("name", "content", "message"),
        [
            ("train.en", GERMAN[: len(ENGLISH)], r"copy/train\.en: the file is damaged or another one: its SHA256"),
            ("train.en", ENGLISH[:-5], r"the file has \d+ bytes, not the \d+ that are known"),
            ("train.en", ENGLISH + b"x", "longer than the"),
            ("train.en.gz", gzip.compress(ENGLISH)[:-9], "the archive is truncated"),
            ("toy.zip", ARCHIVE[:-1] + b"x", r"copy/toy\.zip: the file is damaged or another one"),
        ],
    )
    def test_a_wrong_copy_is_refused_and_left_where_it_is(self, tmp_path, out, name, content, message):
        folder = self.folder(tmp_path, **{"toy.zip": ARCHIVE, "notes.txt.gz": PACKED, name: content})
        with pytest.raises(DataError, match=message) as error:
            fetch_corpus(corpus(), out, local=folder)
        assert "removed" not in str(error.value)
        assert (folder / name).read_bytes() == content
        assert not out.exists()
        assert leftovers(out) == []

    def test_what_is_lacking_is_named(self, tmp_path, out):
        folder = self.folder(tmp_path, **{"notes.txt": NOTES})
        with pytest.raises(DataError) as error:
            fetch_corpus(corpus(), out, local=folder)
        assert str(error.value) == (
            f"--from {folder}: it lacks parts of toy: looked for a.de, a.en, joined, notes.txt.gz, toy.zip, train.de and "
            "1 more, also with the endings .gz, .xz, .zst, .bz2. Put the files there; the addresses are shown by: "
            "regard data get toy."
        )
        with pytest.raises(DataError, match="there is no such folder"):
            fetch_corpus(corpus(), out, local=tmp_path / "nowhere")
        assert leftovers(out) == []


class TestCommand:
    @pytest.fixture(autouse=True)
    def _known(self, monkeypatch):
        monkeypatch.setattr(cli, "find_corpus", lambda _: corpus())

    def test_everything_is_shown_before_anything_is_fetched(self, server, out, capsys):
        with pytest.raises(ConfigError, match=r"nobody can be asked.*add --yes"):
            cli.run_get("toy", out, mirror=server.url)
        shown = capsys.readouterr().out
        for part in ("CC0", "the tests", sha256(ARCHIVE), f"{server.url}/toy.zip", "size not known, checksum not known",
                     "train.en", "joined", "SOURCE.json", f"regard data check {out}/train.en {out}/train.de"):  # fmt: skip
            assert part in shown
        assert server.requests == []
        assert not out.exists()

    def test_a_no_is_respected(self, server, out, monkeypatch):
        import typer

        monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
        monkeypatch.setattr(typer, "confirm", lambda _: False)
        with pytest.raises(typer.Exit):
            cli.run_get("toy", out, mirror=server.url)
        assert server.requests == []

    def test_fetching_and_fetching_again(self, server, out, capsys):
        cli.run_get("toy", out, mirror=server.url, yes=True)
        said = capsys.readouterr()
        assert f"sha256:{sha256(NOTES)[7:]}  (no checksum was known before; this one is recorded)" in said.out
        assert f"Go on with:\n  regard data check {out}/train.en {out}/train.de" in said.out
        assert "toy.zip: " in said.err
        cli.run_get("toy", out)  # no network, no question
        assert "toy is there already" in capsys.readouterr().out

    def test_a_local_copy_needs_no_yes(self, tmp_path, out):
        copy = tmp_path / "copy"
        copy.mkdir()
        (copy / "toy.zip").write_bytes(ARCHIVE)
        (copy / "notes.txt.gz").write_bytes(PACKED)
        cli.run_get("toy", out, local=copy)
        assert (out / "train.de").read_bytes() == GERMAN
        with pytest.raises(ConfigError, match="both are given"):
            cli.run_get("toy", out, local=copy, mirror="https://example.org")

    def test_ctrl_c_says_how_to_go_on(self, out, monkeypatch, capsys):
        def stop(*_: object, **__: object) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(cli, "fetch_corpus", stop)
        with pytest.raises(KeyboardInterrupt):
            cli.run_get("toy", out, yes=True)
        assert "The same command goes on where it stopped." in capsys.readouterr().err

    def test_the_list(self, capsys):
        cli.run_get()
        rows = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
        assert rows[0] == ["corpus", "languages", "holds", "to download", "licence", "from"]
        assert ["ud-ewt", "en", "12,544 / 2,001 / 2,077 sentences", "17.8 MB", "CC BY-SA 4.0"] in [r[:5] for r in rows]

    def test_its_options(self):
        import typer
        from typer.testing import CliRunner

        app = typer.Typer()
        cli.register(app)
        app.command("other")(lambda: None)
        result = CliRunner().invoke(app, ["get", "--list"])
        assert result.exit_code == 0
        assert "multi30k" in result.output
