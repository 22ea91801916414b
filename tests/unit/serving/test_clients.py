"""The clients that people have, as they come from the registry, against a real server on loopback."""

from __future__ import annotations

import contextlib
import json
import time
import urllib.error
import urllib.request

import deepl
import numpy as np
import openai
import pytest
from libretranslatepy import LibreTranslateAPI
from served_folders import listening, open_service

import regard
from regard.serving.keys import Keys

KEY = "a-key-for-tests"


@pytest.fixture(scope="module")
def right():
    return regard.load(engine="auto")


@pytest.fixture(scope="module")
def served(folders):
    return open_service(folders)


@pytest.fixture(scope="module")
def address(served):
    with listening(served, keys=Keys([KEY]), quota=1000, detector=served.shelf.get("sorter")) as found:
        yield found


# --- LibreTranslate


def test_libretranslatepy(address, right):
    client = LibreTranslateAPI(address, api_key=KEY)
    assert client.translate("Good morning.", "en", "de") == right.translate("Good morning.")
    assert client.languages()[0]["code"] == "en"
    guesses = client.detect("Good morning.")
    assert {guess["language"] for guess in guesses} == {"de", "en"}


@pytest.mark.parametrize(("key", "target", "status"), [(None, "de", 400), ("wrong", "de", 403), (KEY, "xx", 400)])
def test_libretranslatepy_sees_errors(address, key, target, status):
    client = LibreTranslateAPI(address, api_key=key)
    with pytest.raises(urllib.error.HTTPError) as caught:
        client.translate("Good morning.", "en", target)
    with caught.value as answer:
        assert answer.code == status
        assert isinstance(json.loads(answer.read())["error"], str)


# --- DeepL


@pytest.fixture
def deepl_client(address, monkeypatch):
    monkeypatch.setattr(deepl.http_client, "max_network_retries", 0)
    with contextlib.closing(deepl.Translator(KEY, server_url=address)) as client:
        yield client


def test_deepl(deepl_client, right):
    found = deepl_client.translate_text(["Good morning.", "Good night."], target_lang="DE", formality="prefer_less")
    assert [one.text for one in found] == right.translate(["Good morning.", "Good night."])
    assert [one.detected_source_lang for one in found] == ["EN", "EN"]
    assert [one.billed_characters for one in found] == [13, 11]
    one = deepl_client.translate_text("Good <b>morning</b>.", source_lang="EN", target_lang="DE", tag_handling="html")
    assert "<b>Morgen</b>" in one.text
    assert [str(language) for language in deepl_client.get_source_languages()] == ["EN"]
    assert [str(language) for language in deepl_client.get_target_languages()] == ["DE"]
    usage = deepl_client.get_usage()
    assert usage.character.count == 13 + 11 + 20
    assert usage.character.limit == 1000


def test_deepl_sees_errors(deepl_client, address):
    with pytest.raises(deepl.DeepLException, match="XX is not supported"):
        deepl_client.translate_text("Good morning.", target_lang="XX")
    with pytest.raises(deepl.DeepLException, match="glossary_id"):
        deepl_client.translate_text("Good morning.", source_lang="EN", target_lang="DE", glossary="x")
    with pytest.raises(deepl.QuotaExceededException, match="quota"):
        deepl_client.translate_text("a" * 999, target_lang="DE")
    with (
        contextlib.closing(deepl.Translator("wrong", server_url=address)) as stranger,
        pytest.raises(deepl.AuthorizationException),
    ):
        stranger.get_usage()


# --- OpenAI


@pytest.fixture
def openai_client(address):
    with openai.OpenAI(base_url=f"{address}/v1", api_key=KEY, max_retries=0) as client:
        yield client


def test_openai_completes(openai_client, folders):
    model = regard.load(folders["writer"])
    text = model.generate("The cat", method="greedy", max_tokens=10)
    found = openai_client.completions.create(model="writer", prompt="The cat", temperature=0, max_tokens=10, logprobs=1)
    assert found.choices[0].text == text
    assert found.choices[0].finish_reason in ("length", "stop")
    assert len(found.choices[0].logprobs.token_logprobs) == len(found.choices[0].logprobs.tokens)
    assert found.usage.total_tokens == found.usage.prompt_tokens + found.usage.completion_tokens
    assert "writer" in [one.id for one in openai_client.models.list()]
    assert openai_client.models.retrieve("reader").id == "reader"


def test_openai_streams(openai_client):
    settings = {"model": "writer", "prompt": ["The cat", "A dog"], "seed": 5, "max_tokens": 12, "n": 2}
    whole = openai_client.completions.create(**settings)
    texts = [""] * 4
    used = None
    for part in openai_client.completions.create(**settings, stream=True, stream_options={"include_usage": True}):
        used = part.usage or used
        for choice in part.choices:
            texts[choice.index] += choice.text
    assert texts == [choice.text for choice in whole.choices]
    assert used == whole.usage


def test_openai_embeds(openai_client, folders):
    right = regard.load(folders["reader"]).embed(["The cat.", "A dog."])
    for kind in ("float", "base64", openai.NOT_GIVEN):
        found = openai_client.embeddings.create(model="reader", input=["The cat.", "A dog."], encoding_format=kind)
        if kind != "base64":
            assert np.allclose([one.embedding for one in found.data], right, atol=1e-5)


def test_openai_sees_errors(openai_client, address):
    with pytest.raises(openai.NotFoundError) as caught:
        openai_client.completions.create(model="nobody", prompt="a")
    assert caught.value.code == "model_not_found"
    assert caught.value.param == "model"
    with pytest.raises(openai.BadRequestError, match="is for translation"):
        openai_client.completions.create(model="tatoeba-en-de", prompt="a")
    with pytest.raises(openai.BadRequestError, match="no such penalty"):
        openai_client.completions.create(model="writer", prompt="a", presence_penalty=1)
    with pytest.raises(openai.BadRequestError, match="best_of"):
        openai_client.completions.create(model="writer", prompt="a", best_of=2, stream=True)
    with openai.OpenAI(base_url=f"{address}/v1", api_key="wrong", max_retries=0) as stranger:
        with pytest.raises(openai.AuthenticationError) as refused:
            stranger.models.list()
        assert refused.value.code == "invalid_api_key"


def test_a_client_that_leaves_a_stream_gives_the_work_up(openai_client, served):
    stream = openai_client.completions.create(model="writer", prompt="The cat", max_tokens=1000, seed=1, stream=True)
    next(iter(stream))
    stream.close()
    until = time.monotonic() + 5
    while served.admission.requests and time.monotonic() < until:
        time.sleep(0.02)
    assert served.admission.requests == 0


def test_an_error_in_the_middle_of_a_stream_is_seen(openai_client, served, monkeypatch):
    from regard.serving.completions import Piece
    from regard.serving.refusals import Refused

    async def breaks(self, *_, **__):
        yield Piece(0, "one")
        raise Refused(503, "the answer was not ready in time", "Try again", kind="deadline")

    monkeypatch.setattr(type(served), "_stream", breaks)
    stream = openai_client.completions.create(model="writer", prompt="The cat", stream=True)
    assert next(iter(stream)).choices[0].text == "one"
    with pytest.raises(openai.APIError, match="not ready in time"):
        list(stream)


def test_a_busy_server_is_tried_again(address, served, monkeypatch):
    """503 with Retry-After: openai's client waits and asks once more."""
    from regard.serving.refusals import Refused

    calls, own = [], type(served).complete

    async def busy_first(self, *given, **named):
        calls.append(1)
        if len(calls) == 1:
            raise Refused(
                503, "256 requests are being worked on already", "Try again later", kind="busy", retry_after=1
            )
        return await own(self, *given, **named)

    monkeypatch.setattr(type(served), "complete", busy_first)
    with openai.OpenAI(base_url=f"{address}/v1", api_key=KEY, max_retries=1) as client:
        began = time.monotonic()
        assert client.completions.create(model="writer", prompt="The cat", max_tokens=2).choices[0].text is not None
        assert time.monotonic() - began > 0.9
    assert len(calls) == 2


def test_the_page_and_a_file_over_a_real_socket(address):
    with urllib.request.urlopen(f"{address}/") as answer:
        assert b"<title>regard</title>" in answer.read()
        assert "default-src 'none'" in answer.headers["content-security-policy"]
