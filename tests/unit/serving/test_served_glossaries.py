"""Glossaries of a server: terms are written, the same alone and in company; DeepL's client finds and uses them."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import deepl
import pytest
from served_folders import listening, open_service, small_folder
from starlette.testclient import TestClient

import regard
from regard.core.errors import ConfigError, DataError
from regard.serving.app import make_app
from regard.serving.glossaries import Glossaries
from regard.serving.languages import Languages
from regard.serving.service import Service
from regard.serving.shelf import Shelf
from regard.tasks.glossary import Glossary
from regard.tasks.guarding import Guard

TEXT = "Where is the nearest bank?"
TEXTS = [TEXT, "The weather is nice today.", "The dog sleeps.", "My dog likes the bank."]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("glossary") / "terms.tsv"
    place.write_text("# terms\nbank\tUfer\ndog\tKater|Kätzchen\nTom\t=\n", encoding="utf-8")
    return place


@pytest.fixture(scope="module")
def right(file: Path) -> list[str]:
    """What the model alone writes with the glossary, one text at a time."""
    model = regard.load(device="cpu").with_glossary(Glossary.load(file)).guarded(Guard())
    return [model.translate(text) for text in TEXTS]


@pytest.fixture(scope="module")
def client(service: Service, file: Path):
    with TestClient(make_app(service, glossaries=[f"animals={file}"])) as found:
        yield found


def test_terms_are_written_where_they_are_asked_for(client, right):
    assert "Ufer" in right[0]
    fields = {"q": TEXTS, "source": "en", "target": "de"}
    plain = client.post("/translate", json=fields).json()["translatedText"]
    assert "Ufer" not in plain[0]
    assert client.post("/translate", json={**fields, "glossary": "animals"}).json()["translatedText"] == right
    asked = {"text": [TEXT], "source_lang": "EN", "target_lang": "DE", "glossary_id": "animals"}
    assert client.post("/v2/translate", json=asked).json()["translations"][0]["text"] == right[0]
    tags = {"q": "Where is the nearest <b>bank</b>?", "source": "en", "target": "de", "format": "html"}
    assert "<b>Ufer" in client.post("/translate", json={**tags, "glossary": "animals"}).json()["translatedText"]


def test_requests_with_and_without_terms_at_the_same_time(service, file, right):
    (served,) = service.shelf.of("translation")
    (terms,) = Glossaries.read([f"x={file}"], Languages(service.shelf))
    plain = [served.load().translate(text) for text in TEXTS]

    async def use() -> list[str]:
        asked = [service.translate(served, [text], terms=one) for text in TEXTS for one in (terms, None)]
        return [best for ((best,),) in await asyncio.gather(*asked)]

    found = asyncio.run(use())
    assert (found[::2], found[1::2]) == (right, plain)


@pytest.mark.parametrize(
    ("path", "fields", "said"),
    [
        ("/translate", {"q": "a", "source": "en", "target": "de", "glossary": "nix"}, "nix is not supported"),
        ("/translate", {"q": "a", "source": "auto", "target": "de", "glossary": "animals"}, "is for en to de"),
        ("/v2/translate", {"text": ["a"], "target_lang": "DE", "glossary_id": "animals"}, "is for en to de"),
        ("/v2/translate", {"text": ["a"], "source_lang": "EN", "target_lang": "DE", "glossary_id": 3}, "glossary_id"),
    ],
)
def test_what_is_wrong_is_said(client, path, fields, said):
    answer = client.post(path, json=fields)
    assert answer.status_code == 400
    assert said in answer.text


def test_deepls_client_finds_and_uses_them(file, right):
    with (
        listening(open_service({}), glossaries=[f"animals={file}"]) as address,
        contextlib.closing(deepl.Translator("any-key", server_url=address)) as client,
    ):
        (found,) = client.list_glossaries()
        assert (found.glossary_id, found.source_lang, found.target_lang) == ("animals", "EN", "DE")
        assert (found.ready, found.entry_count) == (True, 3)
        assert client.get_glossary("animals").name == "animals"
        assert client.get_glossary_entries("animals") == {"bank": "Ufer", "dog": "Kater", "tom": "tom"}
        (pair,) = client.get_glossary_languages()
        assert (pair.source_lang, pair.target_lang) == ("en", "de")
        assert client.translate_text(TEXT, source_lang="EN", target_lang="DE", glossary=found).text == right[0]
        with pytest.raises(deepl.GlossaryNotFoundException):
            client.get_glossary("nobody")
        with pytest.raises(deepl.DeepLException):  # they are made by whoever runs the server
            client.create_glossary("mine", "EN", "DE", {"a": "b"})


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["animals"], "is not NAME=FILE"),
        (["a b=FILE"], "is not NAME=FILE"),
        (["a=FILE", "a=FILE"], "two glossaries are called"),
        (["a:de-en=FILE"], "no model translates de-en"),
        (["a=FILE"] * 65, "65 are given"),
    ],
)
def test_wrong_ones_are_errors_at_the_start(service, file, given, said):
    with pytest.raises(ConfigError, match=said):
        Glossaries.read([text.replace("FILE", str(file)) for text in given], Languages(service.shelf))
    with pytest.raises(DataError, match="cannot be read"):
        Glossaries.read(["a=/nowhere/at.all"], Languages(service.shelf))


def test_of_several_pairs_one_is_named(tmp_path, file):
    folders = [small_folder("cho", tmp_path / code, languages=("en", code)) for code in ("de", "fr")]
    languages = Languages(Shelf.open(folders))
    with pytest.raises(ConfigError, match="does not say for which languages"):
        Glossaries.read([f"a={file}"], languages)
    (terms,) = Glossaries.read([f"a:en-fr={file}"], languages)
    assert (terms.source, terms.target) == ("en", "fr")
