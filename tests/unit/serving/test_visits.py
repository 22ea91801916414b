"""Requests that ask the engine several times (HTML, files, detection): one deadline, places that are kept, and drained whole."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from models_to_serve import shelf_of, text_model
from served_folders import listening, open_service
from starlette.testclient import TestClient

from regard.serving.admission import Admission
from regard.serving.app import make_app
from regard.serving.completions import Wishes
from regard.serving.limits import Limits
from regard.serving.refusals import Refused
from regard.serving.service import Service


def test_a_visit_keeps_its_places_until_it_ends():
    async def use() -> None:
        admission = Admission(Limits(queue=2))
        with admission.visit(60):
            assert admission.requests == 0
            for _ in range(3):
                with admission.admitted(5):
                    assert (admission.requests, admission.tokens) == (1, 5)
                assert (admission.requests, admission.tokens) == (1, 0)
            with admission.admitted(5), admission.admitted(5):
                assert (admission.requests, admission.tokens) == (2, 10)
            assert admission.requests == 2
            with (
                admission.admitted(1),
                admission.admitted(1),
                pytest.raises(Refused, match="2 requests"),
                admission.admitted(1),
            ):
                pass
        assert (admission.requests, admission.tokens) == (0, 0)
        await asyncio.wait_for(admission.idle(), 1)

    asyncio.run(use())


def test_others_are_refused_while_a_visit_keeps_the_last_place():
    async def use() -> None:
        admission = Admission(Limits(queue=1))

        async def other() -> None:
            with admission.visit(60), admission.admitted(1):
                pass

        with admission.visit(60):
            with admission.admitted(1):
                pass
            with pytest.raises(Refused):  # a task of its own, and a visit of its own
                await asyncio.create_task(other())
            with admission.admitted(1):
                pass
        await other()

    asyncio.run(use())


def test_what_was_admitted_once_is_finished_while_the_server_stops():
    async def use() -> None:
        admission = Admission(Limits())
        with admission.visit(60):
            with admission.admitted(1):
                pass
            admission.closed = True
            with admission.admitted(1):
                pass
            waits = asyncio.create_task(admission.idle())
            await asyncio.sleep(0)
            assert not waits.done()
        await asyncio.wait_for(waits, 1)
        with admission.visit(60), pytest.raises(Refused, match="being stopped"), admission.admitted(1):
            pass

    asyncio.run(use())


def test_work_that_outlives_its_visit_keeps_its_place():
    async def use() -> None:
        admission = Admission(Limits())
        with admission.visit(60):
            call = admission.admitted(1)
            call.__enter__()
        assert admission.requests == 1
        call.__exit__(None, None, None)
        assert (admission.requests, admission.tokens) == (0, 0)

    asyncio.run(use())


def test_all_steps_of_a_visit_have_one_deadline():
    async def use(service: Service) -> None:
        (served,) = service.shelf
        wishes = Wishes(max_tokens=2, seed=1)
        with service.visit():
            await service.complete(served, "the", wishes)
            await asyncio.sleep(0.35)
            with pytest.raises(Refused, match="not ready in time"):
                await service.complete(served, "the", wishes)
        await service.complete(served, "the", wishes)

    service = Service(shelf_of(model=text_model("rnnlm")), Limits(answer_seconds=0.3))
    (served,) = service.shelf
    asyncio.run(service.complete(served, "the", Wishes(max_tokens=1), deadline=1e12))  # loaded
    asyncio.run(use(service))
    service.close()


def test_a_marked_up_text_is_drained_whole(service: Service, monkeypatch):
    """The server is stopped when the sentences are translated: their words are aligned nevertheless."""
    closing, align = [], Service.align

    async def stopped(self, *given, **how):
        self.admission.closed = True
        closing.append(self.admission.requests)
        return await align(self, *given, **how)

    monkeypatch.setattr(Service, "align", stopped)
    with TestClient(make_app(service)) as client:
        fields = {"q": "Good <b>morning</b>.", "source": "en", "target": "de", "format": "html"}
        answer = client.post("/translate", json=fields)
        again = client.post("/translate", json=fields)
    service.admission.closed = False
    assert (answer.status_code, again.status_code) == (200, 503)
    assert "<b>" in answer.json()["translatedText"]
    assert closing == [1]
    assert service.admission.requests == 0


def test_tags_are_aligned_by_the_models_thread_within_its_bounds(service: Service):
    (served,) = service.shelf.of("translation")
    model = served.load()
    pairs = [("Good morning.", model.translate("Good morning.")), ("He sleeps.", model.translate("He sleeps."))]

    async def use() -> list[list[list[int | None]]]:
        return await asyncio.gather(service.align(served, pairs), *(service.align(served, [one]) for one in pairs))

    together, *alone = asyncio.run(use())
    assert together == [one for (one,) in alone]
    assert [len(one) for one in together] == [3, 3]
    assert together[0][1] == 1


def test_a_slow_alignment_is_given_up_when_its_client_goes(folders: dict[str, Path], monkeypatch):
    import socket

    from regard.serving.aligning import Aligning

    def slow(self, model, key, units):
        time.sleep(0.5)
        return [[0] for _ in units]

    monkeypatch.setattr(Aligning, "compute", slow)
    service = open_service({})
    with listening(service) as address:
        body = b'{"q":"Good <b>morning</b>.","source":"en","target":"de","format":"html"}'
        head = b"POST /translate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        host, port = address.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port))) as one:
            one.sendall(head + b"Content-Length: %d\r\n\r\n" % len(body) + body)
            end = time.monotonic() + 20
            while "regard-tatoeba" not in str(service._workers) and not service._workers and time.monotonic() < end:
                time.sleep(0.01)
            while service.metrics.batches.sums.get("tatoeba-en-de", 0) < 2 and time.monotonic() < end:
                time.sleep(0.01)
        while service.admission.requests and time.monotonic() < end:
            time.sleep(0.005)
        assert service.metrics.given_up.total() == 1
        assert service.admission.requests == 0
