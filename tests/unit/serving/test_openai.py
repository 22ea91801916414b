"""OpenAI's interface: completions, whole and streamed, their log-probabilities, models and errors."""

from __future__ import annotations

import json

import pytest

import regard
from regard.serving.app import make_app
from regard.serving.service import Service
from regard.serving.shelf import Shelf

PROMPT = "The cat sat"


@pytest.fixture(scope="module")
def model(folders):
    return regard.load(folders["writer"])


def ask(client, **fields):
    return client.post("/v1/completions", json={"model": "writer", "prompt": PROMPT, **fields})


def events(answer) -> list[dict]:
    assert answer.headers["content-type"].startswith("text/event-stream")
    parts = answer.text.split("\n\n")
    assert parts[-2:] == ["data: [DONE]", ""]
    return [json.loads(part.removeprefix("data: ")) for part in parts[:-2]]


def test_a_completion_is_what_the_model_writes(client, model):
    right = model.generate(PROMPT, method="greedy", max_tokens=12)
    answer = ask(client, temperature=0, max_tokens=12).json()
    assert answer["object"] == "text_completion"
    assert answer["id"].startswith("cmpl-")
    assert answer["model"] == "writer"
    (choice,) = answer["choices"]
    assert choice["text"] == right
    assert choice["finish_reason"] in ("length", "stop")
    assert choice["logprobs"] is None
    read = len(model.tokenizer.encode([PROMPT])[0])
    assert answer["usage"]["prompt_tokens"] == read
    assert answer["usage"]["total_tokens"] == read + answer["usage"]["completion_tokens"]


def test_no_chance_at_all_is_the_likeliest_text(client):
    first = ask(client, top_p=0).json()["choices"][0]["text"]
    assert first == ask(client, temperature=0).json()["choices"][0]["text"]


def test_a_seed_gives_the_same_text(client, model):
    texts = [ask(client, seed=7, max_tokens=20).json()["choices"][0]["text"] for _ in range(2)]
    assert texts[0] == texts[1] == model.generate(PROMPT, seed=7, max_tokens=20)
    assert ask(client, seed=-7, max_tokens=20).status_code == 200
    assert len({ask(client, max_tokens=20).json()["choices"][0]["text"] for _ in range(4)}) > 1


def test_prompts_are_texts_or_tokens(client, model):
    tokens = model.tokenizer.encode([PROMPT])[0]
    settings = {"temperature": 0, "max_tokens": 6}
    one = ask(client, **settings).json()["choices"][0]["text"]
    assert ask(client, prompt=tokens, **settings).json()["choices"][0]["text"] == one
    several = ask(client, prompt=[PROMPT, "A red car"], n=1, **settings).json()
    assert [choice["index"] for choice in several["choices"]] == [0, 1]
    assert several["choices"][0]["text"] == one
    of_tokens = ask(client, prompt=[tokens, tokens], **settings).json()
    assert [choice["text"] for choice in of_tokens["choices"]] == [one, one]
    assert client.post("/v1/completions", json={"model": "writer"}).status_code == 200


def test_n_best_of_stop_and_echo(client):
    many = ask(client, n=3, seed=1, max_tokens=8).json()
    assert [choice["index"] for choice in many["choices"]] == [0, 1, 2]
    best = ask(client, n=1, best_of=4, seed=1, max_tokens=8).json()
    assert len(best["choices"]) == 1
    assert best["usage"]["completion_tokens"] > many["usage"]["completion_tokens"] / 3
    whole = ask(client, temperature=0, max_tokens=20).json()["choices"][0]["text"]
    stop = whole[5:7]
    cut = ask(client, temperature=0, max_tokens=20, stop=stop).json()["choices"][0]
    assert cut["text"] == whole[: whole.index(stop)]
    assert cut["finish_reason"] == "stop"
    assert ask(client, temperature=0, max_tokens=20, stop=[stop]).json()["choices"][0]["text"] == cut["text"]
    assert ask(client, temperature=0, max_tokens=20, echo=True).json()["choices"][0]["text"] == PROMPT + whole


def test_log_probabilities_have_their_shape(client, model):
    found = ask(client, temperature=0, max_tokens=5, logprobs=2).json()["choices"][0]
    logprobs = found["logprobs"]
    sizes = {len(logprobs[name]) for name in ("tokens", "token_logprobs", "top_logprobs", "text_offset")}
    assert len(sizes) == 1
    assert "".join(logprobs["tokens"]) == found["text"]
    config = model.settings(method="greedy", max_tokens=5)
    right = model.generations(PROMPT, search=config)[0].token_log_probs
    assert logprobs["token_logprobs"][:5] == pytest.approx(right[:5], abs=1e-4)
    for own, top in zip(logprobs["token_logprobs"], logprobs["top_logprobs"], strict=True):
        assert len(top) == 2
        assert max(top.values()) == pytest.approx(own)
    echoed = ask(client, temperature=0, max_tokens=0, logprobs=0, echo=True).json()["choices"][0]
    assert echoed["text"] == PROMPT
    assert echoed["logprobs"]["token_logprobs"][0] is None or echoed["logprobs"]["token_logprobs"][0] <= 0
    assert echoed["logprobs"]["text_offset"][0] == 0


def test_a_stream_is_the_same_text_in_pieces(client):
    settings = {"seed": 3, "n": 2, "max_tokens": 15}
    whole = ask(client, **settings).json()
    found = events(ask(client, stream=True, **settings))
    assert len({one["id"] for one in found}) == 1
    texts = {0: "", 1: ""}
    for one in found:
        assert "usage" not in one
        for choice in one["choices"]:
            texts[choice["index"]] += choice["text"]
    assert list(texts.values()) == [choice["text"] for choice in whole["choices"]]
    finished = [choice["finish_reason"] for one in found for choice in one["choices"] if choice["finish_reason"]]
    assert sorted(finished) == sorted(choice["finish_reason"] for choice in whole["choices"])


def test_a_stream_of_several_prompts_says_what_was_used(client):
    settings = {"prompt": [PROMPT, "A red car"], "temperature": 0, "max_tokens": 6}
    whole = ask(client, **settings).json()
    found = events(ask(client, stream=True, stream_options={"include_usage": True}, **settings))
    assert [one["usage"] for one in found[:-1]] == [None] * (len(found) - 1)
    assert found[-1]["choices"] == []
    assert found[-1]["usage"] == whole["usage"]
    for index, choice in enumerate(whole["choices"]):
        pieces = [c["text"] for one in found for c in one["choices"] if c["index"] == index]
        assert "".join(pieces) == choice["text"]


@pytest.mark.parametrize(
    ("fields", "status", "param", "said"),
    [
        ({"model": "nobody"}, 404, "model", "does not exist"),
        ({"model": "sorter"}, 400, "model", "is for classification"),
        ({"model": 1}, 400, "model", "not a text"),
        ({"suffix": "x"}, 400, "suffix", "not written here"),
        ({"presence_penalty": 1}, 400, "presence_penalty", "no such penalty"),
        ({"frequency_penalty": 0.5}, 400, "frequency_penalty", "no such penalty"),
        ({"logit_bias": {"1": 2}}, 400, "logit_bias", "not supported"),
        ({"n": 2, "best_of": 1}, 400, "best_of", "less than n"),
        ({"best_of": 2, "stream": True}, 400, "best_of", "only at the end"),
        ({"n": 9}, 400, "n", "9 is not from 1 to 8"),
        ({"n": True}, 400, "n", "not a whole number"),
        ({"max_tokens": 1025}, 400, "max_tokens", "1024"),
        ({"temperature": 2.1}, 400, "temperature", "from 0 to 2"),
        ({"stop": ["a"] * 5}, 400, "stop", "5 entries"),
        ({"logprobs": 6}, 400, "logprobs", "6 is not from 0 to 5"),
        ({"prompt": [10**6]}, 400, "prompt", "1000000 is not from 0"),
        ({"prompt": [1, "a"]}, 400, "prompt[1]", "not a whole number"),
        ({"prompt": []}, 400, "prompt", "empty list"),
        ({"prompt": {}}, 400, "prompt", "not a text"),
        ({"messages": []}, 400, "messages", "no such field"),
    ],
)
def test_what_is_wrong_is_said_in_its_shape(client, fields, status, param, said):
    answer = ask(client, **fields)
    assert answer.status_code == status
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["type"] == "invalid_request_error"
    assert error["param"] == param
    assert said in error["message"]
    assert error["code"] == ("model_not_found" if status == 404 else None)


def test_penalties_of_0_are_none(client):
    assert ask(client, presence_penalty=0, frequency_penalty=0.0, suffix=None, user="me").status_code == 200


def test_models_are_listed(client):
    found = client.get("/v1/models").json()
    assert found["object"] == "list"
    assert {one["id"]: one["task"] for one in found["data"]}["writer"] == "language"
    assert client.get("/v1/models/writer").json()["id"] == "writer"
    assert client.get("/v1/models/nobody").json()["error"]["code"] == "model_not_found"


def test_a_translator_writes_no_completions(client):
    answer = ask(client, model="tatoeba-en-de")
    assert answer.status_code == 400
    assert "is for translation" in answer.json()["error"]["message"]


def test_a_model_that_cannot_be_read_is_not_the_clients_fault(folders, tmp_path):
    import shutil

    from starlette.testclient import TestClient

    broken = tmp_path / "broken"
    shutil.copytree(folders["writer"], broken)
    content = bytearray((broken / "model.safetensors").read_bytes())
    content[-1] ^= 1
    (broken / "model.safetensors").write_bytes(content)
    service = Service(Shelf.open([broken]))
    with TestClient(make_app(service)) as client:
        answer = client.post("/v1/completions", json={"model": "broken", "prompt": "a"})
        assert answer.status_code == 503
        assert answer.json()["error"]["type"] == "server_error"
        assert str(tmp_path) not in answer.text
    service.close()
