"""What is in the environment and in files of keys is in no log, no run folder and no answer."""

from __future__ import annotations

import json
import logging

import pytest
from fault_runs import files_of, settings_of, write_texts
from old_runs import home
from starlette.testclient import TestClient

from regard.serving import keys as keys_module
from regard.serving.app import make_app
from regard.serving.keys import Keys
from regard.serving.service import Service
from regard.serving.shelf import Shelf
from regard.training.progress import Reporter
from regard.training.run import train

SECRET = "hf_verysecretvalue0123456789"


def test_a_run_keeps_nothing_of_the_environment(tmp_path, monkeypatch, capfd):
    for name in ("HF_TOKEN", "REGARD_KEYS", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, SECRET)
    write_texts(tmp_path)
    settings = settings_of("kim", steps=2, save_every=1)
    train(out=tmp_path / "run", settings=settings, report=Reporter(), **files_of("kim", tmp_path))
    files = [path for path in (tmp_path / "run").rglob("*") if path.is_file()]
    assert len(files) > 10
    assert not [path for path in files if SECRET.encode() in path.read_bytes()]
    captured = capfd.readouterr()
    assert "kim with" in captured.err
    assert SECRET not in captured.out + captured.err


@pytest.fixture
def client():
    service = Service(Shelf.open([f"small={home(1, 'translation')}"]))
    with TestClient(make_app(service, keys=Keys([SECRET])), raise_server_exceptions=False) as found:
        yield found
    service.close()


@pytest.mark.parametrize("right", [True, False])
def test_keys_are_in_no_log_and_no_answer(client, caplog, right):
    key = SECRET if right else SECRET[::-1]
    caplog.set_level(logging.DEBUG)
    body = {"q": "ab cd", "source": "auto", "target": "de", "api_key": key}
    answers = [
        client.post("/translate", json=body),
        client.post("/translate", content=json.dumps(body)[:-3]),
        client.post(
            "/v2/translate",
            json={"text": ["ab"], "target_lang": "DE"},
            headers={"Authorization": f"DeepL-Auth-Key {key}"},
        ),
        client.get("/v1/models", headers={"Authorization": f"Bearer {key}"}),
        client.get("/metrics", headers={"Authorization": f"Bearer {key}"}),
        client.get(f"/languages?api_key={key}"),
        client.get(f"/{key}"),
    ]
    assert len({answer.status_code for answer in answers}) > 1
    texts = [answer.text + str(answer.headers) for answer in answers]
    assert not [text for text in texts if key in text]
    assert key not in "".join(record.getMessage() for record in caplog.records if record.name.startswith("regard"))
    assert key not in repr(Keys([key]))


def test_keys_are_compared_in_constant_time(monkeypatch):
    """Each of them, whichever is right, by the comparison that takes as long for a wrong one."""
    compared = []
    monkeypatch.setattr(keys_module.hmac, "compare_digest", lambda a, b: (compared.append(b), a == b)[1])
    keys = Keys([SECRET, SECRET + "2", SECRET + "3"])
    for asked, expected in ((SECRET, True), (SECRET + "3", True), ("x", False), (None, False)):
        compared.clear()
        assert keys.allow(asked) is expected
        assert len(compared) == 3
