"""LibreTranslate's interface: shapes, codes, files and keys."""

from __future__ import annotations

import pytest
from served_folders import open_service
from starlette.testclient import TestClient

import regard
from regard.serving.app import make_app
from regard.serving.kept_files import KEPT_SECONDS, KeptFiles
from regard.serving.keys import Keys
from regard.serving.limits import Limits

TEXT = "Good morning, my friend."


@pytest.fixture(scope="module")
def right() -> str:
    return regard.load(engine="auto").translate(TEXT)


def ask(client, **fields):
    return client.post("/translate", json={"source": "en", "target": "de", **fields})


def test_a_text_is_translated_as_the_model_does(client, right):
    answer = ask(client, q=TEXT)
    assert answer.status_code == 200
    assert answer.json() == {"translatedText": right}


def test_json_form_multipart_and_query_are_the_same(client, right):
    fields = {"q": TEXT, "source": "en", "target": "de"}
    answers = [
        client.post("/translate", json=fields),
        client.post("/translate", data=fields),
        client.post("/translate", files={name: (None, value) for name, value in fields.items()}),
        client.post("/translate", params=fields),
    ]
    assert [answer.json() for answer in answers] == [{"translatedText": right}] * 4


def test_a_list_gives_a_list_in_its_order(client, right):
    answer = ask(client, q=["", TEXT, "Good night."], alternatives=2, source="auto").json()
    assert answer["translatedText"][:2] == ["", right]
    assert len(answer["translatedText"]) == 3
    assert [len(some) for some in answer["alternatives"]] == [0, 2, 2]
    assert answer["detectedLanguage"] == [{"confidence": 0.0, "language": "en"}] * 3


def test_alternatives_are_given_only_where_they_are_asked_for(client, right):
    answer = ask(client, q=TEXT, alternatives=3).json()
    assert answer["translatedText"] == right
    assert len(set(answer["alternatives"])) == 3
    assert right not in answer["alternatives"]
    assert "alternatives" not in ask(client, q=TEXT, alternatives=0).json()


def test_paragraphs_are_split_and_joined(client):
    answer = ask(client, q="Good morning.\n\nGood night.").json()["translatedText"]
    assert answer.count("\n\n") == 1
    parts = [ask(client, q=q).json()["translatedText"] for q in ("Good morning.", "Good night.")]
    assert answer == "\n\n".join(parts)


def test_html_keeps_its_tags(client):
    answer = ask(client, q="<p>Good <b>morning</b>, <i>my friend</i>.</p>", format="html").json()["translatedText"]
    assert answer.startswith("<p>")
    assert answer.endswith("</p>")
    assert "<b>Morgen</b>" in answer
    assert "<i>mein Freund</i>" in answer


@pytest.mark.parametrize(
    ("fields", "status", "said"),
    [
        ({}, 400, "missing q"),
        ({"q": ""}, 400, "`q`: it is empty"),
        ({"q": "a", "source": "xx"}, 400, "xx is not supported"),
        ({"q": "a", "target": "en"}, 400, "en is not supported"),
        ({"q": "a", "format": "pdf"}, 400, "pdf is not supported"),
        ({"q": "a", "alternatives": 9}, 400, "`alternatives`: 9 is not from 0 to 8"),
        ({"q": "a" * 20_001}, 400, "20,001 characters"),
        ({"q": ["a"] * 51}, 400, "51 entries"),
        ({"q": ["a" * 19_000] * 6}, 413, "114,000 characters together"),
        ({"q": "a", "model": "other"}, 404, "`other` does not exist"),
        ({"q": "a", "model": "writer"}, 400, "is for language"),
    ],
)
def test_what_is_wrong_is_said_in_its_shape(client, fields, status, said):
    answer = ask(client, **fields)
    assert answer.status_code == status
    assert list(answer.json()) == ["error"]
    assert said in answer.json()["error"]


def test_languages_health_and_settings(client):
    languages = client.get("/languages").json()
    assert languages[0] == {"code": "en", "name": "English", "targets": ["de"]}
    assert client.get("/health").json() == {"status": "ok"}
    settings = client.get("/frontend/settings").json()
    assert settings["keyRequired"] is False
    assert settings["charLimit"] == 20_000
    assert settings["language"]["target"] == {"code": "de", "name": "German"}
    assert settings["supportedFilesFormat"] == [".txt", ".html", ".htm"]


def test_detection_without_a_detector_is_a_clear_error(client):
    answer = client.post("/detect", json={"q": "hello"})
    assert answer.status_code == 400
    assert "no detector is configured" in answer.json()["error"]


def test_a_detector_says_the_language(service):
    detector = service.shelf.get("sorter")
    with TestClient(make_app(service, detector=detector)) as client:
        found = client.post("/detect", data={"q": "hello"}).json()
        assert sorted(one["language"] for one in found) == ["de", "en"]
        assert found[0]["confidence"] >= found[-1]["confidence"] > 0
        assert sum(one["confidence"] for one in found) == pytest.approx(100, abs=0.2)
        answer = client.post("/translate", json={"q": "Hello.", "source": "auto", "target": "de"}).json()
        guess = next(one for one in found if one["language"] == "en")
        assert answer["detectedLanguage"]["language"] == "en"
        assert 0 < answer["detectedLanguage"]["confidence"] < 100
        assert guess["confidence"] > 0


def test_suggestions_are_disabled_in_their_shape(client):
    answer = client.post("/suggest", json={"q": "a", "s": "b", "source": "en", "target": "de"})
    assert answer.status_code == 403
    assert "disabled" in answer.json()["error"]


# --- files


def send(client, name, content, **fields):
    fields = {"source": "en", "target": "de", **fields}
    return client.post("/translate_file", data=fields, files={"file": (name, content)})


def test_a_text_file_keeps_its_lines(client):
    answer = send(client, "letter.txt", b"Good morning.\r\n\nGood night.\n")
    address = answer.json()["translatedFileUrl"]
    assert address.startswith("http://testserver/download_file/")
    found = client.get(address)
    assert found.headers["content-type"].startswith("text/plain")
    assert found.headers["content-disposition"].startswith("attachment")
    lines = [ask(client, q=q).json()["translatedText"] for q in ("Good morning.", "Good night.")]
    assert found.text == f"{lines[0]}\r\n\n{lines[1]}\n"


def test_an_html_file_keeps_its_tags(client):
    answer = send(client, "page.HTML", b"<html><body><p>Good <b>morning</b>.</p><script>a < b</script></body></html>")
    found = client.get(answer.json()["translatedFileUrl"]).text
    assert found.startswith("<html><body><p>")
    assert found.endswith("</p><script>a < b</script></body></html>")


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.pdf", b"x", "format is not supported"),
        ("a.txt", b"\xff\xfe", "not UTF-8"),
        ("a.txt", b"a\0b", "NUL"),
        ("a.txt", b"a" * 20_001, "a line has more than"),
    ],
)
def test_files_that_are_no_text_are_refused(client, name, content, said):
    answer = send(client, name, content)
    assert answer.status_code == 400
    assert said in answer.json()["error"]


def test_a_file_that_is_too_large_is_refused_before_it_is_read(client):
    assert send(client, "a.txt", b"a\n" * (1 << 20)).status_code == 413
    assert client.get("/download_file/guess.txt").status_code == 404


def test_the_address_of_a_file_is_the_proxys_where_it_is_named():
    told = {"X-Forwarded-Proto": "https", "X-Forwarded-Host": "translate.example"}
    hostile = {"X-Forwarded-Proto": "javascript", "X-Forwarded-Host": "a/../b"}
    service = open_service({})
    for proxies, headers, expected in (
        ((), told, "http://testserver/"),
        (("10.0.0.1",), told, "https://translate.example/"),
        (("10.0.0.1",), hostile, "http://testserver/"),
    ):
        with TestClient(make_app(service, proxies=proxies), client=("10.0.0.1", 1)) as client:
            fields, files = {"source": "en", "target": "de"}, {"file": ("a.txt", b"Good morning.")}
            answer = client.post("/translate_file", data=fields, files=files, headers=headers)
            assert answer.json()["translatedFileUrl"].startswith(expected + "download_file/")
    service.close()


def test_the_beam_can_be_chosen_within_its_bounds():
    model = regard.load(engine="auto")
    service = open_service({}, Limits(beam=3))
    fields = {"q": "Good morning, my friend.", "source": "en", "target": "de"}
    with TestClient(make_app(service)) as client:
        for beam in (1, 3):
            answer = client.post("/translate", json={**fields, "beam": beam}).json()
            assert answer["translatedText"] == model.translate(fields["q"], beam=beam)
        assert len(client.post("/translate", json={**fields, "alternatives": 2}).json()["alternatives"]) == 2
        for more in ({"beam": 4}, {"beam": 0}, {"beam": "x"}, {"alternatives": 3}):
            assert client.post("/translate", json={**fields, **more}).status_code == 400
    service.close()


def test_kept_files_are_few_and_forgotten():
    now = [0.0]
    files = KeptFiles(2, clock=lambda: now[0])
    names = [files.keep(bytes([i]), ".txt", "text/plain") for i in range(3)]
    assert len(set(names)) == 3
    assert min(map(len, names)) > 30
    assert [files.get(name) is not None for name in names] == [False, True, True]
    now[0] = KEPT_SECONDS
    assert [files.get(name) for name in names] == [None] * 3


# --- keys


@pytest.fixture(scope="module")
def keyed(folders):
    service = open_service({})
    with TestClient(make_app(service, keys=Keys(["right-key-1", "right-key-2"]))) as client:
        yield client
    service.close()


@pytest.mark.parametrize("way", ["json", "form", "query", "header"])
def test_a_key_is_needed_and_may_come_in_every_way(keyed, way):
    def call(key):
        fields = {"q": "Hello.", "source": "en", "target": "de"}
        if way == "header":
            return keyed.post("/translate", json=fields, headers={"Authorization": f"Bearer {key}"} if key else {})
        own = {"api_key": key} if key else {}
        if way == "query":
            return keyed.post("/translate", params={**fields, **own})
        return keyed.post("/translate", **{"json" if way == "json" else "data": {**fields, **own}})

    assert call("right-key-2").status_code == 200
    assert call(None).status_code == 400
    assert "key is required" in call(None).json()["error"]
    assert call("wrong").status_code == 403
    assert "key is invalid" in call("wrong").json()["error"]


def test_a_key_that_is_no_text_is_no_key(keyed):
    for key in (1, None, ["right-key-1"], {"a": 1}):
        answer = keyed.post("/translate", json={"q": "a", "source": "en", "target": "de", "api_key": key})
        assert answer.status_code == 400


def test_without_a_key_only_health_and_the_page_answer(keyed):
    assert keyed.get("/health").status_code == 200
    assert keyed.get("/").status_code == 200
    assert keyed.get("/page.js").status_code == 200
    for path in ("/languages", "/frontend/settings", "/metrics", "/spec", "/docs", "/download_file/x"):
        assert keyed.get(path).status_code == 400, path
        assert keyed.get(path, params={"api_key": "wrong"}).status_code == 403, path
        known = keyed.get(path, params={"api_key": "right-key-1"}).status_code
        assert known == (404 if path.startswith("/download") else 200), path
    for path in ("/v1/models", "/v1/models/x"):
        assert keyed.get(path).status_code == 401, path
    assert keyed.post("/v1/completions", json={}).status_code == 401
    for path in ("/v2/usage", "/v2/languages"):
        assert keyed.get(path).status_code == 403, path
    assert keyed.get("/frontend/settings", params={"api_key": "right-key-1"}).json()["keyRequired"] is True


def test_files_can_be_switched_off():
    service = open_service({}, Limits(kept_files=0))
    with TestClient(make_app(service)) as client:
        answer = send(client, "a.txt", b"a")
        assert answer.status_code == 403
        assert "disabled" in answer.json()["error"]
        assert client.get("/frontend/settings").json()["filesTranslation"] is False
    service.close()


def test_too_many_requests_are_slowed_down():
    service = open_service({}, Limits(requests_per_minute=3))
    with TestClient(make_app(service)) as client:
        answers = [client.get("/languages") for _ in range(4)]
        assert [answer.status_code for answer in answers] == [200, 200, 200, 429]
        assert answers[-1].json()["error"].startswith("Slowdown: ")
        assert int(answers[-1].headers["retry-after"]) >= 1
        assert client.get("/v1/models").json()["error"]["type"] == "rate_limit_error"
        assert client.get("/health").status_code == 200
    service.close()


def test_rates_are_those_of_keys_and_wrong_keys_are_slowed_down_too():
    service = open_service({}, Limits(requests_per_minute=2))
    with TestClient(make_app(service, keys=Keys(["right-key-1", "right-key-2"]))) as client:
        for key in ("right-key-1", "right-key-2"):
            found = [client.get("/languages", params={"api_key": key}).status_code for _ in range(3)]
            assert found == [200, 200, 429]
        assert [client.get("/languages", params={"api_key": f"wrong{i}"}).status_code for i in range(3)] == [
            403,
            403,
            429,
        ]
        assert client.get("/v1/models", headers={"Authorization": "Bearer wrong"}).status_code == 429
    service.close()
