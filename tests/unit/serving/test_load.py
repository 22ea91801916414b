"""The benchmarks of serving in short: many clients of all facades, too many of them, and slow sockets, over real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from regard.serving.app import make_app
from regard.serving.limits import Limits
from regard.serving.run import Server, listen
from regard.serving.service import Service
from regard.serving.shelf import Shelf

PLACE = Path(__file__).parents[3] / "benchmarks"


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.syspath_prepend(str(PLACE))
    import serve_load

    yield serve_load
    for name in ("serve_load", "serve_client"):
        sys.modules.pop(name, None)


@pytest.fixture
def small(folders: dict[str, Path]) -> list[str]:
    return [f"{name}={folder}" for name, folder in folders.items()]


@contextlib.contextmanager
def running(small: list[str], **limits: Any) -> Iterator[tuple[Service, Any]]:
    """A server in a thread, and what the benchmarks take for a process."""
    service = Service(Shelf.open(["tatoeba-en-de", *small], device="cpu"), Limits(**limits))
    listening = listen("127.0.0.1", 0)
    server = Server(make_app(service), service)
    thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.005)
    memory = {
        "memory": lambda: 1.0,
        "files": lambda: len(os.listdir("/proc/self/fd")),
        "processor_seconds": time.process_time,
    }
    try:
        yield service, SimpleNamespace(port=listening.getsockname()[1], **memory)
    finally:
        server.should_exit = True
        thread.join(30)
        assert not thread.is_alive()
        assert not server.failed


def test_many_clients_of_all_facades_get_right_answers(bench, small, monkeypatch):
    monkeypatch.setattr(bench, "TEXTS", bench.TEXTS[:3])
    with running(small) as (service, process):
        found = asyncio.run(bench.run_load(process, 16, 1.0))
        assert found["statuses"] == {"200": found["answers"]}
        assert found["wrong"] == 0, found["examples"]
        assert found["answers"] > 16
        assert service.admission.requests == 0
        batched = [line for line in service.metrics.text().splitlines() if line.startswith("regard_batch_texts_count")]
        assert len(batched) == 5


def test_far_too_many_clients_are_refused_and_the_server_recovers(bench, small):
    with running(small, queue=4, connections=200) as (service, process):
        found = asyncio.run(bench.run_overload(process, 40, 1.0, steady_clients=4, steady_seconds=0.5))
        assert set(found["statuses"]) == {"200", "503"}
        assert (found["wrong"], found["503_without_retry_after"]) == (0, 0)
        assert found["recovered_seconds"] < 5
        assert service.metrics.refusals.values[("busy",)] == found["statuses"]["503"]


def test_slow_sockets_are_closed_and_do_not_disturb(bench, small):
    with running(small, receive_seconds=1.2) as (service, process):
        found = asyncio.run(bench.run_slow(process, 100, 1.2))
        assert found["honest_failed"] == 0
        assert 1.0 < found["closed_after_s"][0] <= found["closed_after_s"][1] < 4
        assert service.metrics.slow.total() == 100


def test_nothing_is_left_of_clients_that_went_away(bench, small):
    with running(small) as (service, process):
        found = asyncio.run(bench.run_gone(process, 40))
        assert (found["wrong"], found["files"][1]) == (0, found["files"][0])
        assert found["idle_after_s"] < 10
        assert service.metrics.given_up.total() > 20  # some translations are quicker than their clients go
        assert service.admission.requests == 0


def test_wrong_answers_are_seen(bench):
    right = {"text": "a", "vector": [0.5, 1.0], "n": 1}
    assert bench.difference(right, {"text": "a", "vector": [0.500005, 1], "n": 1}) is None
    for wrong in ({**right, "text": "b"}, {**right, "vector": [0.5001, 1.0]}, {**right, "n": 2}, {"text": "a"}):
        assert bench.difference(right, wrong)
