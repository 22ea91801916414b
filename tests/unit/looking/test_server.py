"""The viewer's server: answers for the page, bounds on what comes from outside, and nothing for other pages."""

from __future__ import annotations

import json

import numpy as np
import pytest
from starlette.testclient import TestClient

from regard.cli.look import hosts_of
from regard.core.errors import ConfigError
from regard.looking.frames import unframed
from regard.looking.positions import position_tables
from regard.looking.requests import MOST_BODY, MOST_CHARACTERS
from regard.looking.server import make_app
from regard.looking.session import MOST_TRACES, SENTENCE, Session
from regard.looking.views import VIEWS
from regard.models.base import MODELS, build_model


@pytest.fixture(scope="module")
def session():
    return Session([None], device="cpu")


@pytest.fixture(scope="module")
def client(session):
    with TestClient(make_app(session)) as client:
        yield client


@pytest.fixture(scope="module")
def trace(client):
    answer = client.post("/api/traces", json={"model": "0", "text": SENTENCE})
    assert answer.status_code == 200
    return answer.json()


def test_models_say_which_views_they_have(client):
    (model,) = client.get("/api/models").json()["models"]
    assert (model["name"], model["architecture"], model["does"]) == ("tatoeba-en-de", "transformer", "translates")
    assert set(model["views"]) == set(VIEWS)
    assert model["views"]["heads"] is True
    assert model["views"]["ponder"] == "not applicable to transformer: it takes as many steps for every word"


def test_a_trace_has_texts_parts_and_statistics(trace):
    assert trace["source"]["tokens"][-1] == "</s>"
    assert [part["name"] for part in trace["parts"]] == ["encoder.self", "decoder.self", "decoder.cross"]
    for part in trace["parts"]:
        assert part["shape"] == [len(trace[part["rows"]]["tokens"]), len(trace[part["columns"]]["tokens"])]
        assert len(trace["statistics"][part["name"]]) == part["layers"]


def test_weights_come_exactly_and_as_pictures(client, session, trace):
    where = f"/api/traces/{trace['id']}/weights?part=decoder.cross&layer=1&head=2"
    about, exact = unframed(client.get(where).content)
    assert about["type"] == "f32"
    np.testing.assert_array_equal(exact, session.trace(trace["id"]).parts["decoder.cross"].weights[1, 2])
    np.testing.assert_allclose(exact.sum(-1), 1, atol=1e-5)
    _, picture = unframed(client.get(f"{where}&type=u8").content)
    np.testing.assert_allclose(picture / 255, exact, atol=0.5 / 255 + 1e-6)
    about, small = unframed(client.get(f"/api/traces/{trace['id']}/overview?part=encoder.self&size=4").content)
    assert small.shape == (5, 4, 4, 4)
    assert about["type"] == "u8"


def test_alignment_by_tokens_and_by_words(client, trace):
    about, tokens = unframed(client.get(f"/api/traces/{trace['id']}/alignment").content)
    assert about["columns"] == trace["source"]["tokens"]
    assert tokens.shape == (len(about["rows"]), len(about["columns"]))
    about, words = unframed(client.get(f"/api/traces/{trace['id']}/alignment?merge=words").content)
    assert "animal" in about["columns"]
    np.testing.assert_allclose(words.sum(-1), 1, atol=1e-4)


@pytest.mark.parametrize(
    ("where", "says"),
    [
        ("weights?part=x", "no part 'x'"),
        ("weights?part=encoder.self&layer=99", "no layer 99"),
        ("weights?part=encoder.self&layer=-1", "not a number"),
        ("weights?part=encoder.self&layer=²", "not a number"),
        ("weights?part=encoder.self&type=f64", "not f32 or u8"),
        ("overview?part=encoder.self&size=100000", "is more than 256"),
        ("alignment?merge=letters", "not tokens or words"),
    ],
)
def test_what_is_impossible_is_said(client, trace, where, says):
    answer = client.get(f"/api/traces/{trace['id']}/{where}")
    assert 400 <= answer.status_code < 500
    assert says in answer.json()["error"]["what"]


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        (b"", 400, "not JSON"),
        (b"[1]", 400, "not a JSON object"),
        (b"[" * 100_000, 400, "not JSON"),
        (b'{"text": 3}', 400, "not a text"),
        (b'{"text": "\\ud800"}', 400, "half a character"),
        (b'{"text": " "}', 422, "it is empty"),
        (b'{"text": "a", "model": "7"}', 422, "no model '7'"),
        (b'{"text": "a", "beam": 0}', 400, "from 1 to 64"),
        (b'{"text": "a", "beam": true}', 400, "from 1 to 64"),
        (json.dumps({"text": "a" * (MOST_CHARACTERS + 1)}).encode(), 400, "characters"),
        (b'"' + b"a" * (MOST_BODY + 1), 413, "bytes"),
    ],
)
def test_bad_requests_are_refused_with_a_reason(client, body, status, says):
    answer = client.post("/api/traces", content=body)
    assert answer.status_code == status
    assert says in answer.json()["error"]["what"]


def test_long_sentences_and_hostile_tokens_do_no_harm(client):
    long = client.post("/api/traces", json={"text": "tired " * 3000})
    assert long.status_code == 422
    assert "can be looked at" in long.json()["error"]["what"]
    hostile = client.post("/api/traces", json={"text": "<img src=x onerror=alert(1)> عربي 🙂"})
    assert hostile.status_code == 200
    assert hostile.headers["content-type"] == "application/json"


def test_only_the_last_traces_are_kept():
    with TestClient(make_app(Session([None], device="cpu"))) as client:
        names = [
            client.post("/api/traces", json={"text": "Hello.", "target": "Hallo."}).json()["id"]
            for _ in range(MOST_TRACES + 1)
        ]
        answer = client.get(f"/api/traces/{names[0]}/alignment")
        assert answer.status_code == 422
        assert "no longer kept" in answer.json()["error"]["what"]
        assert client.get(f"/api/traces/{names[1]}/alignment").status_code == 200


def test_every_answer_forbids_other_origins(client):
    for path in ("/api/models", "/api/nothing", "/api/traces/none/weights"):
        answer = client.get(path)
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"


def test_other_names_of_this_machine_are_refused(session):
    """A page elsewhere could let its own name point to this machine, and read what is here."""
    for given, host, status in (
        ("127.0.0.1", "127.0.0.1:8000", 200),
        ("127.0.0.1", "localhost", 200),
        ("127.0.0.1", "[::1]:8000", 200),
        ("127.0.0.1", "evil.example", 403),
        ("127.0.0.1", "127.0.0.1.evil.example", 403),
        ("127.0.0.1", "192.168.1.7:8000", 403),
        ("127.0.0.1", "", 403),
        ("0.0.0.0", "192.168.1.7:8000", 200),  # an address is no name that others could point here
        ("0.0.0.0", "[fe80::1]", 200),
        ("0.0.0.0", "evil.example", 403),
        ("0.0.0.0", "box.lan:8000", 200),
        ("0.0.0.0", "BOX.lan.:8000", 200),
        ("0.0.0.0", "other.lan:8000", 403),
        ("127.0.0.1", "box.lan", 200),  # behind a proxy of one's own
        ("my-box", "my-box:8000", 200),
    ):
        with TestClient(make_app(session, hosts_of(given, ["box.lan"]))) as client:
            assert client.get("/api/models", headers={"host": host}).status_code == status, (given, host)
    for name in ("a b", "box.lan:80", "http://box", "", "x" * 300):
        with pytest.raises(ConfigError, match="no name of a machine"):
            hosts_of("0.0.0.0", [name])


def test_other_pages_cannot_make_it_work(session):
    with TestClient(make_app(session), base_url="http://127.0.0.1:8000") as client:
        for origin, status in (
            ("http://127.0.0.1:8000", 422),
            ("http://evil.example", 403),
            ("null", 403),
            ("http://[", 403),
        ):
            answer = client.post("/api/traces", json={"text": " "}, headers={"origin": origin})
            assert answer.status_code == status


def test_curves_are_the_rows_of_the_log(tmp_path, session):
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "loss": 2.5}\n{"step": 2, "lo')
    mine = Session([None], device="cpu")
    mine.models[0].folder = tmp_path
    with TestClient(make_app(mine)) as client:
        assert client.get("/api/models/0/curves").json() == {"rows": [{"step": 1, "loss": 2.5}], "finished": True}
        (tmp_path / "resumed.jsonl").write_text('{"step": 1, "event": "resumed"}\n')
        assert client.get("/api/models/0/curves").json()["rows"][-1] == {"step": 1, "event": "resumed"}


def test_models_of_the_same_name_are_told_apart(tmp_path):
    places = [tmp_path / "a" / "run", tmp_path / "b" / "run", tmp_path / "c", None]
    names = [model.name for model in Session(places, device="cpu").models]
    assert names == ["a/run", "b/run", "c", "tatoeba-en-de"]


def test_a_live_curve_ends_with_the_server(tmp_path):
    session = Session([None], device="cpu")
    session.ended = True
    with TestClient(make_app(session)) as client:
        assert client.get("/api/models/0/curves/live").text == ""


def test_a_folder_that_vanished_is_said(tmp_path):
    gone = Session([tmp_path / "gone"], device="cpu")
    with TestClient(make_app(gone)) as client:
        (model,) = client.get("/api/models").json()["models"]
        assert model["name"] == "gone"
        for answer in (client.post("/api/traces", json={"text": "a"}), client.get("/api/models/0/curves")):
            assert answer.status_code == 422
            assert "not there any more" in answer.json()["error"]["what"]


def test_position_tables_are_the_models_own(client):
    tables = client.get("/api/models/0/positions").json()["tables"]
    names = [table["name"] for table in tables]
    assert names == ["source", "source.dots", "target", "target.dots"]
    _, table = unframed(client.get("/api/models/0/positions/source").content)
    np.testing.assert_allclose(table[3, :2], [np.sin(3), np.cos(3)], atol=1e-6)
    _, dots = unframed(client.get("/api/models/0/positions/source.dots").content)
    np.testing.assert_allclose(dots[5, 9], dots[20, 24], atol=1e-3)  # by distance alone
    assert client.get("/api/models/0/positions/none").status_code == 422


def test_words_have_neighbours_analogies_and_a_place(client):
    near = client.post("/api/words/near", json={"word": "house", "top": 3}).json()["near"]
    assert len(near) == 3
    assert len(client.post("/api/words/near", json={"word": "house", "top": None}).json()["near"]) == 10
    answers = client.post("/api/words/analogy", json={"a": "he", "b": "his", "c": "she"}).json()["near"]
    assert not {"he", "his", "she"} & {one["word"] for one in answers}
    found = client.get("/api/words/map?words=house+street+he+she").json()
    assert [point["word"] for point in found["points"]] == ["house", "street", "he", "she"]
    assert 0 < found["share"] <= 1
    again = client.get("/api/words/map?words=house+street+he+she").json()
    assert again == found
    assert client.get("/api/words/map?words=house").status_code == 400
    assert "Perhaps" in client.post("/api/words/near", json={"word": "housse"}).json()["error"]["todo"]


def test_a_translation_goes_on_from_a_prefix(client):
    body = {"model": "0", "text": "I am tired.", "prefix": ["▁Wir"]}
    found = client.post("/api/translations", json=body).json()["hypotheses"]
    assert len(found) > 1
    assert all(one["text"].startswith("Wir") for one in found)
    for text, says in (("tired " * 3000, "can be looked at"), (" ", "it is empty")):
        answer = client.post("/api/translations", json={**body, "text": text})
        assert answer.status_code == 422
        assert says in answer.json()["error"]["what"]
    for prefix, says in (("Wir", "not a list"), (["▁Wi", 3], "not a list"), (["qqq"], "no token")):
        answer = client.post("/api/translations", json={**body, "prefix": prefix})
        assert answer.status_code in (400, 422)
        assert says in answer.json()["error"]["what"]


def test_steps_come_in_one_frame(client, trace):
    where = f"/api/traces/{trace['id']}/steps?part=decoder.cross&layer=1&head=0&row=2"
    header, numbers = unframed(client.get(where).content)
    assert header["key_labels"] == trace["source"]["tokens"]
    names = [step["name"] for step in header["steps"]]
    assert names[:6] == ["project", "score", "scale", "softmax", "multiply", "sum"]
    assert names[-1] == "vocabulary"
    weights = next(one for step in header["steps"] for one in step["tensors"] if one["name"] == "weights")
    row = numbers[weights["offset"] : weights["offset"] + len(header["key_labels"])]
    _, exact = unframed(client.get(f"/api/traces/{trace['id']}/weights?part=decoder.cross&layer=1&head=0").content)
    np.testing.assert_allclose(row, exact[2], atol=1e-6)
    assert client.get(f"/api/traces/{trace['id']}/ponder").status_code == 422


def test_a_run_is_evaluated_on_its_own_test_text(client, session, monkeypatch):
    monkeypatch.setattr("regard.looking.evaluation.MOST_SENTENCES", 12)
    found = client.get("/api/models/0/evaluation").json()
    count = len(found["sentences"])
    assert 6 <= count <= 12 < found["of"]
    words = [len(one["source"].split()) for one in found["sentences"]]
    assert max(words) > 2 * min(words)  # from all over the text, which is sorted by length
    assert found["sentences"][0]["chrf"] <= found["sentences"][-1]["chrf"]
    assert sum(one["sentences"] for one in found["lengths"]) == count
    assert session.models[0].evaluation == found


def test_a_translator_continues_and_fills_nothing(client):
    for path in ("/api/next", "/api/fill"):
        answer = client.post(path, json={"text": "I am"})
        assert answer.status_code == 422
        assert "Choose a" in answer.json()["error"]["todo"]


def test_relative_positions_are_shown_by_what_they_do():
    def model(kind: str, name: str = "transformer", **more):
        config = MODELS.get(name).Config(
            name=name, width=16, layers=1, heads=2, relative=kind, positions="none", **more
        )
        return build_model(name, config, source_vocabulary=9, target_vocabulary=9, shared=True)

    tables = position_tables(model("alibi"))
    distances = np.abs(np.arange(-32, 33))[:, None]
    np.testing.assert_allclose(tables["encoder_relative.added"], -distances * [2**-4, 2**-8])
    np.testing.assert_allclose(tables["decoder_relative.added"], -distances[:33] * [2**-4, 2**-8])
    turned = position_tables(model("rotary"))["encoder_relative.turned"]
    angles = np.arange(128)[:, None] * 10000.0 ** (-np.arange(0, 8, 2) / 8)
    np.testing.assert_allclose(turned[:, 0::2], np.cos(angles) - np.sin(angles), atol=1e-4)
    np.testing.assert_allclose(turned[:, 1::2], np.sin(angles) + np.cos(angles), atol=1e-4)
    t5 = model("t5")
    added, table = position_tables(t5)["encoder_relative.added"], t5.encoder_relative.schemes[0].table.weight
    np.testing.assert_allclose(added[[32, 31, 33]], table[[0, 1, 17]].detach().numpy())
    assert list(position_tables(model("shaw"))) != []
    assert position_tables(model("none")) == {}
