"""Malformed requests: each is answered with a 4xx in its facade's shape, whatever its bytes are."""

from __future__ import annotations

import importlib.util
import json
import random
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from served_folders import listening, open_service
from starlette.testclient import TestClient

from regard.serving.app import make_app
from regard.serving.keys import Keys
from regard.serving.limits import Limits
from regard.serving.parsing import MOST_DEPTH, media_type, read_json, read_multipart, read_urlencoded
from regard.serving.refusals import Refused

PLACE = Path(__file__).parents[3] / "benchmarks" / "serve_malformed.py"
spec = importlib.util.spec_from_file_location("serve_malformed", PLACE)
assert spec is not None
assert spec.loader is not None
benchmark = importlib.util.module_from_spec(spec)
sys.modules["serve_malformed"] = benchmark
spec.loader.exec_module(benchmark)


def post(client, path, body, kind="application/json"):
    return client.post(path, content=body, headers={"Content-Type": kind} if kind else {})


@pytest.mark.parametrize("name", benchmark.BODIES)
def test_the_25_bodies(client, name):
    answer = post(client, "/translate", benchmark.BODIES[name])
    assert 400 <= answer.status_code < 500
    assert benchmark.right_shape("libretranslate", answer.content)


def test_there_are_25_of_them():
    assert len(benchmark.BODIES) == 25


@pytest.mark.parametrize("way", [benchmark.broken_fields, benchmark.damaged, benchmark.noise])
def test_random_bodies(client, way):
    random_ = random.Random(3)
    for _ in range(60):
        path, body = way(random_)
        answer = post(client, path, body)
        assert 400 <= answer.status_code < 500, (path, body, answer.text)
        assert benchmark.right_shape(benchmark.PATHS[path][1], answer.content)


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(list(benchmark.PATHS)),
    st.binary(max_size=200),
    st.sampled_from(
        ["application/json", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "a/b", ""]
    ),
)
def test_any_bytes_are_answered(client, path, body, kind):
    answer = post(client, path, body, kind)
    assert 400 <= answer.status_code < 500, (path, body, kind, answer.text)
    assert benchmark.right_shape(benchmark.PATHS[path][1], answer.content)


@pytest.fixture(scope="module")
def address(folders):
    service = open_service(folders)
    with listening(service) as found:
        yield found


def test_raw_sockets(address):
    client = benchmark.Client(address)
    count = benchmark.raw_sockets(client, 60, seed=1)
    assert count.wrong == []
    assert client.ask("GET", "/health", b"", {})[0] == 200
    client.close()


def test_what_hypothesis_thinks_of(address):
    client = benchmark.Client(address)
    count = benchmark.with_hypothesis(client, 100, seed=2)
    client.close()
    assert count.wrong == []
    assert count.malformed > 50


def test_wrong_answers_of_a_server_are_counted():
    count = benchmark.Count("x")
    for status, good in ((200, True), (400, True), (500, False)):
        count.add("what", status, good)
    assert (count.malformed, len(count.wrong)) == (2, 1)


@pytest.mark.parametrize(
    ("path", "facade"),
    [("/nix", "libretranslate"), ("/translate/", "libretranslate"), ("/v2/nix", "deepl"), ("/v1/nix", "openai"),
     ("/v1/chat/completions", "openai")],
)  # fmt: skip
def test_unknown_places_and_methods_answer_in_shape(client, path, facade):
    answer = client.get(path)
    assert answer.status_code == 404
    assert benchmark.right_shape(facade, answer.content)
    known = {"libretranslate": "/translate", "deepl": "/v2/translate", "openai": "/v1/completions"}[facade]
    for method in ("GET", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "FOO"):
        answer = client.request(method, known)
        assert answer.status_code == 405
        assert answer.headers["allow"] == "POST"
        assert benchmark.right_shape(facade, answer.content)


def test_other_types_are_415(client):
    for kind in ("text/plain", "application/xml", "application/json; charset=latin-1", ""):
        assert post(client, "/translate", b"{}", kind).status_code == 415, kind
    assert post(client, "/v1/completions", b"a=b", "application/x-www-form-urlencoded").status_code == 415
    assert post(client, "/v1/completions", b'{"model":"writer"}', "application/json; charset=UTF-8").status_code == 200


def test_bodies_are_bounded(client):
    big = b'{"q":"' + b"a" * (1 << 20) + b'"}'
    answer = post(client, "/translate", big)
    assert answer.status_code == 413
    assert "1,048,576 bytes" in answer.json()["error"]

    def lying():
        yield from (b"a" * 65_536 for _ in range(20))

    answer = client.post("/v2/translate", content=lying(), headers={"Content-Type": "application/json"})
    assert answer.status_code == 413
    assert "bytes" in answer.json()["message"]


def test_where_there_is_no_place_nothing_is_read(service):
    """A 503, not what is wrong with the body; GET requests are answered."""
    with TestClient(make_app(service)) as client:
        service.admission.requests = service.limits.queue
        for path in ("/translate", "/v2/translate", "/v1/completions"):
            answer = post(client, path, b"{")
            assert answer.status_code == 503
            assert int(answer.headers["retry-after"]) >= 1
        assert service.metrics.refusals.values[("busy",)] == 3
        assert client.get("/languages").status_code == 200
        service.admission.requests = 0
        assert post(client, "/translate", b"{").status_code == 400


def test_what_fails_inside_is_500_in_shape_and_says_nothing(service, monkeypatch, caplog):
    async def fails(*_, **__):
        raise ZeroDivisionError("a secret")

    monkeypatch.setattr(type(service), "translations", fails)
    with TestClient(make_app(service), raise_server_exceptions=False) as client:
        answer = client.post("/translate", json={"q": "a", "source": "en", "target": "de"})
        assert answer.status_code == 500
        assert list(answer.json()) == ["error"]
        assert "secret" not in answer.text
    assert "libretranslate_post_translate failed" in caplog.text


# --- the readers by themselves


@pytest.mark.parametrize(
    "body",
    [b"[" * (MOST_DEPTH + 1), b'{"a":' * 50 + b"1" + b"}" * 50, b"NaN", b"[Infinity]", b'{"a":1,"a":2}', b'{"\\ud800":1}',
     b"\xef\xbb\xbf{}", b"{}{}", b"\xff", b"", b"[{]}" * 9, b'"' * 3, b'{"a":"\\', b"'a'", b"{a:1}", b"[1,]"],
)  # fmt: skip
def test_wrong_json_is_refused(body):
    with pytest.raises(Refused) as caught:
        read_json(body)
    assert caught.value.status == 400


def test_brackets_in_texts_are_no_depth():
    value = ["[" * 1000, '"]{' * 50, "\\", {"a": ["b"]}]
    assert read_json(json.dumps(value).encode()) == value


def test_numbers_beyond_all_bounds_cost_nothing():
    began = time.thread_time()
    assert read_json(b"1" * 1_000_000) == float("inf")
    assert read_json(b"-" + b"1" * 1000) == float("-inf")
    assert time.thread_time() - began < 0.5


@pytest.mark.parametrize("unit", [b'"', b"\\", b"[", b"[]", b'"[', b'"\\"', b"{}"])
def test_looking_for_depth_is_linear(unit):
    body = (unit * 1_000_000)[: 1 << 20]
    began = time.thread_time()
    with pytest.raises(Refused):
        read_json(body)
    assert time.thread_time() - began < 3


def test_forms_are_read_strictly():
    assert read_urlencoded(b"q=a+b%20c&q=&x=%C3%A4&&") == {"q": ["a b c", ""], "x": ["ä"]}
    for body in (b"q=%zz", b"q=%", b"q=%ff", b"\xff=1", b"&".join([b"a=1"] * 1100), b"a" * 300 + b"=1"):
        with pytest.raises(Refused):
            read_urlencoded(body)


def multipart(*parts: bytes) -> bytes:
    return b"".join(b"--x\r\n" + part + b"\r\n" for part in parts) + b"--x--\r\n"


def test_multipart_is_read_strictly():
    name = b'Content-Disposition: form-data; name="q"'
    kind = "multipart/form-data; boundary=x"
    form = read_multipart(
        multipart(
            name + b"\r\n\r\nA\r\nB", name + b'; filename="\xc3\xa4.txt"\r\nContent-Type: text/plain\r\n\r\n\x00\xff'
        ),
        kind,
    )
    assert form.fields == {"q": ["A\r\nB"]}
    assert form.files["q"].name == "ä.txt"
    assert form.files["q"].content == b"\x00\xff"
    file = name + b'; filename="a"\r\n\r\nx'
    for body in (
        multipart(b"X: y\r\n\r\nA"),
        multipart(name + b"\r\n\r\n\xff"),
        multipart(file, file),
        multipart(name + b"\r\n\r\nA")[:-6],
        multipart(*[name + b"\r\n\r\nA"] * 1100),
        multipart(name + b"\r\nX: " + b"a" * 10_000 + b"\r\n\r\nA"),
        b"--y--",
        b"",
    ):
        with pytest.raises(Refused):
            read_multipart(body, kind)
    for wrong in (
        "multipart/form-data",
        "multipart/form-data; boundary=",
        "multipart/form-data; boundary=" + "x" * 100,
    ):
        with pytest.raises(Refused):
            read_multipart(multipart(name + b"\r\n\r\nA"), wrong)


def test_media_types():
    assert media_type(None) == ""
    assert media_type("Application/JSON; charset=UTF-8") == "application/json"
    with pytest.raises(Refused) as caught:
        media_type("application/json; charset=latin-1")
    assert caught.value.status == 415


# --- who may ask


def test_other_pages_may_not_ask(client):
    fields = {"q": "Hello.", "source": "en", "target": "de"}
    assert client.post("/translate", json=fields, headers={"Origin": "http://testserver"}).status_code == 200
    for origin in ("http://evil.example", "null", "http://testserver.evil.example"):
        answer = client.post("/translate", data=fields, headers={"Origin": origin})
        assert answer.status_code == 403
        assert "another page" in answer.json()["error"]
        assert "access-control-allow-origin" not in answer.headers
    answer = client.get("/v1/models", headers={"Origin": "http://evil.example"})
    assert answer.json()["error"]["type"] == "permission_error"


def test_a_named_page_may_ask():
    service = open_service({})
    with TestClient(make_app(service, origins=["https://good.example/"])) as client:
        headers = {"Origin": "https://good.example", "Access-Control-Request-Method": "POST"}
        before = client.options("/translate", headers=headers)
        assert before.status_code == 204
        assert before.headers["access-control-allow-origin"] == "https://good.example"
        assert "Content-Type" in before.headers["access-control-allow-headers"]
        answer = client.get("/languages", headers={"Origin": "https://good.example"})
        assert answer.headers["access-control-allow-origin"] == "https://good.example"
        assert answer.headers["vary"] == "Origin"
        assert client.get("/languages", headers={"Origin": "https://bad.example"}).status_code == 403
    service.close()


def test_forwarded_addresses_count_only_from_a_proxy():
    limits = Limits(requests_per_minute=1)
    for proxies, statuses in (((), [200, 429]), (("10.0.0.1",), [200, 200])):
        service = open_service({}, limits)
        with TestClient(make_app(service, proxies=proxies), client=("10.0.0.1", 1)) as client:
            found = [client.get("/languages", headers={"X-Forwarded-For": f"1.2.3.{i}"}).status_code for i in range(2)]
            assert found == statuses
            if proxies:  # what the client says itself does not count: only what the proxy adds at the end
                last = client.get("/languages", headers={"X-Forwarded-For": "9.9.9.9, 1.2.3.1"})
                assert last.status_code == 429
        service.close()


def test_keys_are_in_no_answer_and_no_metric(caplog):
    service = open_service({})
    key = "a-secret-key"
    with TestClient(make_app(service, keys=Keys([key]))) as client:
        texts = [
            client.get("/languages", params={"api_key": key}).text,
            client.get("/languages", params={"api_key": key + "x"}).text,
            client.post("/v1/completions", json={}, headers={"Authorization": f"Bearer {key}x"}).text,
            client.get("/metrics", headers={"Authorization": f"Bearer {key}"}).text,
            client.get("/spec", headers={"Authorization": f"Bearer {key}"}).text,
        ]
    service.close()
    assert key not in "".join(texts) + caplog.text
