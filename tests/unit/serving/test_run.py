"""A server on real sockets: slow clients, clients that go away, too many of them, signals, and how it ends."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from models_to_serve import shelf_of, text_model

from regard.core.errors import ConfigError
from regard.serving.attending import Attending
from regard.serving.completions import Wishes
from regard.serving.continuous import Company, Wrote
from regard.serving.limits import Limits
from regard.serving.refusals import Refused
from regard.serving.run import Server, address_of, is_loopback, listen
from regard.serving.service import Service

TIMEOUT = 15


class App:
    """Answers with the number of bytes that it got; /wait only when `go` is set; /complete asks the service."""

    def __init__(self, service: Service):
        self.service, self.go = service, threading.Event()
        self.waiting = self.cancelled = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        size, more = 0, True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            size, more = size + len(message.get("body", b"")), message.get("more_body", False)
        status, body = 200, str(size).encode()
        try:
            if scope["path"] == "/wait":
                self.waiting += 1
                while not self.go.is_set():
                    await asyncio.sleep(0.005)
            if scope["path"] == "/complete":
                served = next(iter(self.service.shelf))
                done = await self.service.complete(served, "the", Wishes(max_tokens=300, seed=1))
                body = str(done.written_tokens).encode()
            if scope["path"] == "/large":
                body = b"x" * 30_000_000
        except Refused as error:
            status = error.status
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        await send(
            {"type": "http.response.start", "status": status, "headers": [(b"content-length", b"%d" % len(body))]}
        )
        await send({"type": "http.response.body", "body": body})


@contextlib.contextmanager
def running(log: bool = False, **limits: Any) -> Iterator[tuple[App, Server, int]]:
    service = Service(shelf_of(model=text_model("rnnlm")), Limits(**limits))
    app = App(service)
    server, listening = Server(app, service, log=log), listen("127.0.0.1", 0)
    thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
    thread.start()
    assert soon(lambda: server.started)
    try:
        yield app, server, listening.getsockname()[1]
    finally:
        app.go.set()
        server.should_exit = True
        thread.join(TIMEOUT)
        assert not thread.is_alive()


def soon(true: Any) -> bool:
    end = time.monotonic() + TIMEOUT
    while not true() and time.monotonic() < end:
        time.sleep(0.005)
    return true()


OPEN: list[Any] = []


@pytest.fixture(autouse=True)
def _all_closed() -> Iterator[None]:
    yield
    while OPEN:
        OPEN.pop().close()


def connected(port: int) -> socket.socket:
    OPEN.append(socket.create_connection(("127.0.0.1", port), TIMEOUT))
    return OPEN[-1]


def kept(port: int) -> http.client.HTTPConnection:
    OPEN.append(http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT))
    return OPEN[-1]


def all_of(one: socket.socket) -> bytes:
    """What comes until the other side closes."""
    found = b""
    with contextlib.suppress(ConnectionResetError):
        while more := one.recv(65536):
            found += more
    return found


def get(port: int, path: str = "/", body: bytes = b"") -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT)
    with contextlib.closing(connection):
        connection.request("POST", path, body)
        answer = connection.getresponse()
        return answer.status, answer.read()


HEAD = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n"


@pytest.mark.parametrize(
    ("sent", "status"),
    [(b"POST / HTTP/1.1\r\nHos", b"408"), (HEAD, b"408"), (HEAD + b"12345", b"408"), (b"", b"")],
    ids=["half a head", "no body", "half a body", "nothing"],
)
def test_requests_that_do_not_arrive_in_time_are_closed(sent, status):
    with running(receive_seconds=0.2, idle_seconds=0.2) as (_, server, port):
        one = connected(port)
        begin = time.monotonic()
        one.sendall(sent)
        answer = all_of(one)
        assert 0.15 < time.monotonic() - begin < 5
        assert answer[9:12] == status
        assert (b"did not arrive in time" in answer) == bool(status)
        assert server.service.metrics.slow.total() == bool(status)


def test_a_byte_now_and_then_does_not_move_the_deadline():
    with running(receive_seconds=0.4) as (_, _, port):
        one = connected(port)
        begin = time.monotonic()
        with contextlib.suppress(OSError):
            for byte in HEAD + b"0123456789":
                one.sendall(bytes([byte]))
                time.sleep(0.03)
                if time.monotonic() - begin > 3:
                    break
        assert time.monotonic() - begin < 2.5
        assert all_of(one)[9:12] in (b"408", b"")


def test_a_slow_request_on_a_kept_connection_is_closed_and_a_quick_one_is_not():
    with running(receive_seconds=0.3, idle_seconds=5) as (_, _, port):
        one = connected(port)
        for _ in range(3):
            one.sendall(HEAD + b"0123456789")
            answer = b""
            while not answer.endswith(b"\r\n\r\n10"):
                answer += one.recv(65536)
                assert answer.startswith(b"HTTP/1.1 200")
            time.sleep(0.15)
        one.sendall(HEAD + b"012")
        assert all_of(one)[9:12] == b"408"
        pair = connected(port)  # the second request begins with the first
        pair.sendall(HEAD + b"0123456789" + HEAD + b"1")
        answer = all_of(pair)
        assert (answer[9:12], answer.count(b"HTTP/1.1"), answer.count(b" 408 ")) == (b"200", 2, 1)


def test_an_answer_that_takes_long_is_no_slow_request():
    with running(receive_seconds=0.1, idle_seconds=0.1) as (app, _, port):
        one = connected(port)
        one.sendall(b"GET /wait HTTP/1.1\r\nHost: x\r\n\r\n")
        assert soon(lambda: app.waiting)
        time.sleep(0.4)
        app.go.set()
        assert one.recv(65536)[9:12] == b"200"


def test_who_does_not_read_the_answer_is_closed():
    with running(receive_seconds=0.2) as (_, server, port):
        one = connected(port)
        one.sendall(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n")
        assert soon(lambda: server.service.metrics.slow.total() == 1)
        assert len(all_of(one)) < 30_000_000


def test_slow_sockets_do_not_starve_an_honest_client():
    with running(receive_seconds=1.0, connections=150) as (_, server, port):
        slow = [connected(port) for _ in range(150)]
        for one in slow:
            one.sendall(b"POST / HTTP/1.1\r\nHos")
        for _ in range(5):
            begin = time.monotonic()
            assert get(port, body=b"honest") == (200, b"6")
            assert time.monotonic() - begin < 2
        assert soon(lambda: not server.server_state.connections)
        assert server.service.metrics.slow.total() >= 150


def test_beyond_the_cap_the_connection_that_was_quiet_for_longest_makes_room():
    with running(connections=3) as (app, server, port):
        quiet = [connected(port) for _ in range(3)]
        assert soon(lambda: len(server.server_state.connections) == 3)
        assert get(port, body=b"abc") == (200, b"3")
        assert all_of(quiet[0]) == b""
        for one in quiet[1:]:
            one.sendall(b"GET /wait HTTP/1.1\r\nHost: x\r\n\r\n")
        third = connected(port)
        third.sendall(b"GET /wait HTTP/1.1\r\nHost: x\r\n\r\n")
        assert soon(lambda: app.waiting == 3)
        answer = all_of(connected(port))
        assert answer[9:12] == b"503"
        assert b"Retry-After: 1\r\n" in answer
        app.go.set()
        assert [one.recv(65536)[9:12] for one in (*quiet[1:], third)] == [b"200"] * 3


@pytest.mark.parametrize(
    "nonsense",
    [
        b"\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03\r\n\r\n",
        b"GET / HTTP/x\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nA: " + b"b" * 100_000,
    ],
    ids=range(6),
)
def test_what_is_not_http_is_refused(nonsense):
    with running() as (_, _, port):
        one = connected(port)
        with contextlib.suppress(OSError):
            one.sendall(nonsense)
        answer = all_of(one)
        assert answer[9:12] == b"400" or (not answer and len(nonsense) > 65536)  # the rest of it was not read
        assert get(port) == (200, b"0")


def test_the_work_of_a_client_that_goes_is_given_up():
    with running() as (app, server, port):
        one = connected(port)
        one.sendall(b"GET /wait HTTP/1.1\r\nHost: x\r\n\r\n")
        assert soon(lambda: app.waiting)
        one.close()
        assert soon(lambda: app.cancelled == 1)
        assert soon(lambda: not server.server_state.tasks)
        assert get(port) == (200, b"0")


def test_a_cancellation_from_elsewhere_is_not_swallowed():
    async def wait(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await asyncio.sleep(60)

    async def use() -> None:
        ends = asyncio.Event()

        async def receive() -> dict[str, Any]:
            if ends.is_set():
                await asyncio.sleep(60)
            ends.set()
            return {"type": "http.request", "body": b""}

        async def send(_: Any) -> None: ...

        task = asyncio.create_task(Attending(wait)({"type": "http", "path": "/", "method": "GET"}, receive, send))  # type: ignore[arg-type]
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(use())


def test_the_access_log_shows_neither_queries_nor_names_of_files(caplog):
    with caplog.at_level(logging.INFO, "regard.access"), running(log=True) as (_, _, port):
        get(port, "/translate?api_key=secret-1&q=text")
        get(port, "/download_file/secret-2.txt")
        get(port, "/%1b%5bsecret")
        assert soon(lambda: len(caplog.messages) == 3)
    assert "secret-1" not in caplog.text
    assert "secret-2" not in caplog.text
    assert [message.rsplit(" ", 2)[0] for message in caplog.messages] == [
        "POST /translate 200",
        "POST /download_file/... 200",
        "POST /␛[secret 200",
    ]


def test_draining_answers_what_was_accepted_and_refuses_what_comes_on_kept_connections(monkeypatch):
    step, go = Company.step, threading.Event()
    go.set()

    def when_let(company: Company) -> list[Wrote]:
        go.wait(TIMEOUT)
        return step(company)

    monkeypatch.setattr(Company, "step", when_let)
    with running(drain_seconds=10) as (_, server, port):
        other = kept(port)
        other.request("POST", "/complete")
        assert int(other.getresponse().read()) > 0
        go.clear()  # what is accepted now is not written before one has looked
        accepted = connected(port)
        accepted.sendall(b"POST /complete HTTP/1.1\r\nHost: x\r\n\r\n")
        assert soon(lambda: server.service.admission.requests == 1)
        server._signalled(signal.SIGTERM, None)
        other.request("POST", "/complete")
        refused = other.getresponse()
        assert (refused.status, refused.read()) == (503, b"0")
        go.set()
        answer = all_of(accepted)
        assert answer[9:12] == b"200"
        assert soon(lambda: not server.server_state.connections)
        with pytest.raises(ConnectionRefusedError):
            connected(port)
    assert not server.failed


def test_addresses(tmp_path):
    one = listen("127.0.0.1", 0)
    port = one.getsockname()[1]
    assert address_of(one) == f"http://127.0.0.1:{port}"
    with pytest.raises(ConfigError, match=f"port {port} of 127.0.0.1 is in use. Give another one"):
        listen("127.0.0.1", port)
    one.close()
    for host, number, message in (("127.0.0.1", 70_000, "not a port"), ("203.0.113.9", 0, "cannot be listened on")):
        with pytest.raises(ConfigError, match=message):
            listen(host, number)
    with pytest.raises(ConfigError, match="no address"):
        listen("no such host", 0)
    assert [is_loopback(host) for host in ("127.0.0.1", "::1", "localhost", "0.0.0.0", "192.168.1.1", "example")] == [
        True,
        True,
        True,
        False,
        False,
        False,
    ]


# --- the command


@contextlib.contextmanager
def command(*words: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """`regard serve` as a process of its own, and its port."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "REGARD_KEYS": ""}
    started = subprocess.Popen(
        [sys.executable, "-m", "regard", "serve", "--port", "0", *words],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment,
    )  # fmt: skip
    assert started.stdout is not None
    try:
        line = ""
        while not line.startswith("Serving at"):
            line = started.stdout.readline()
            assert line, "it ended"
        yield started, int(line.split(":")[2].split()[0])
    finally:
        started.kill()
        started.communicate()


def count_accepted(port: int) -> int:
    connection = kept(port)
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    connection.close()
    return int(text.split("\nregard_requests_accepted ")[1].split()[0])


def test_a_signal_ends_the_command_with_0_after_the_answers(folders: dict[str, Path]):
    with command(f"writer={folders['writer']}", "--limit", "new_tokens=2000") as (process, port):

        def ask(tokens: int) -> socket.socket:
            body = b'{"model": "writer", "prompt": "the", "temperature": 0, "max_tokens": %d}' % tokens
            one = connected(port)
            head = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            one.sendall(head + b"Content-Length: %d\r\n\r\n" % len(body) + body)
            return one

        first = ask(1)
        assert first.recv(65536)[9:12] == b"200"
        accepted = [ask(1200), ask(1000)]
        assert soon(lambda: count_accepted(port) == 2)
        process.send_signal(signal.SIGTERM)
        assert [all_of(one)[9:12] for one in accepted] == [b"200"] * 2
        assert process.wait(TIMEOUT) == 0


def test_a_second_signal_ends_it_at_once(folders: dict[str, Path]):
    with command(f"writer={folders['writer']}", "--limit", "new_tokens=1000000") as (process, port):
        body = b'{"model": "writer", "prompt": "the", "max_tokens": 1000000, "temperature": 0}'
        one = connected(port)
        head = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        one.sendall(head + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        assert soon(lambda: count_accepted(port) == 1)
        process.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert process.wait(TIMEOUT) == 128 + signal.SIGTERM
