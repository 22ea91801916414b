"""DeepL's interface: shapes, codes of languages, tags, quota and keys."""

from __future__ import annotations

import pytest
from served_folders import open_service
from starlette.testclient import TestClient

import regard
from regard.serving.app import make_app
from regard.serving.keys import Keys
from regard.serving.languages import Languages
from regard.serving.shelf import Served, Shelf


def ask(client, **fields):
    return client.post("/v2/translate", json={"target_lang": "DE", **fields})


def test_texts_are_translated(client):
    texts = ["Good morning.", "Good night."]
    right = regard.load(engine="auto").translate(texts)
    expected = {
        "translations": [
            {"detected_source_language": "EN", "text": one, "billed_characters": len(text)}
            for text, one in zip(texts, right, strict=True)
        ]
    }
    assert ask(client, text=texts).json() == expected
    assert ask(client, text=texts, source_lang="en", target_lang="de").json() == expected
    form = [("text", texts[0]), ("text", texts[1]), ("target_lang", "DE"), ("show_billed_characters", "1")]
    body = "&".join(f"{name}={value.replace(' ', '+')}" for name, value in form)
    kind = {"content-type": "application/x-www-form-urlencoded"}
    assert client.post("/v2/translate", content=body, headers=kind).json() == expected


def test_tags_stay(client):
    text = "Good <b>morning</b>, <x/>my friend."
    for kind in ("html", "xml"):
        found = ask(client, text=[text], tag_handling=kind).json()["translations"][0]
        assert "<b>Morgen</b>" in found["text"]
        assert found["text"].count("<x/>") == 1
        assert found["billed_characters"] == len(text)
    plain = ask(client, text=["<name>my friend</name>"], tag_handling="xml", ignore_tags="name")
    assert plain.json()["translations"][0]["text"] == "<name>my friend</name>"


def test_newlines_split_unless_they_are_not_to(client):
    text = "My friend\nis tired."
    apart = ask(client, text=[text]).json()["translations"][0]
    assert "\n" in apart["text"]
    joined = ask(client, text=[text], split_sentences="nonewlines").json()["translations"][0]
    assert "\n" not in joined["text"]
    assert joined["billed_characters"] == len(text)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({}, "missing text"),
        ({"text": []}, "empty list"),
        ({"text": ["a"], "target_lang": "XX"}, "XX is not supported"),
        ({"text": ["a"], "source_lang": "FR"}, "FR is not supported"),
        ({"text": ["a"], "formality": "more"}, "more is not supported"),
        ({"text": ["a"], "glossary_id": "x"}, "`glossary_id`: there are no glossaries here"),
        ({"text": ["a"], "custom_instructions": ["x"]}, "`custom_instructions`: it is not supported"),
        ({"text": ["a"], "tag_handling": "md"}, "md is not supported"),
        ({"text": ["a"], "split_sentences": 1}, "`split_sentences`: it is not one of"),
    ],
)
def test_what_is_wrong_is_said_in_its_shape(client, fields, said):
    answer = ask(client, **fields)
    assert answer.status_code == 400
    assert list(answer.json()) == ["message"]
    assert said in answer.json()["message"]


def test_prefer_formality_is_taken(client):
    assert ask(client, text=["Hello."], formality="prefer_less").status_code == 200


def test_languages_have_their_variants():
    shelf = Shelf(lambda folder: None)
    for name, source, target in (("a", "de", "en"), ("b", "en", "pt"), ("c", "de", "fr")):
        config = {"data": {"source_language": source, "target_language": target}}
        shelf.models[name] = Served(name, None, "translation", config, shelf)  # type: ignore[arg-type]
    languages = Languages(shelf)
    assert [one["language"] for one in languages.deepl_list("target")] == ["EN-GB", "EN-US", "PT-PT", "PT-BR", "FR"]
    assert [one["language"] for one in languages.deepl_list("source")] == ["DE", "EN"]
    targets = languages.deepl_targets()
    assert targets["EN-US"] == targets["EN"] == "en"
    assert targets["PT-BR"] == "pt"
    assert languages.choose("de", "en").name == "a"
    assert languages.only_source("fr") == "de"


def test_languages_and_usage(client):
    assert client.get("/v2/languages", params={"type": "source"}).json() == [{"language": "EN", "name": "English"}]
    (target,) = client.get("/v2/languages?type=target").json()
    assert target == {"language": "DE", "name": "German", "supports_formality": False}
    assert client.get("/v2/languages?type=both").status_code == 400
    before = client.get("/v2/usage").json()
    ask(client, text=["Hello."])
    ask(client, text=["Hello."], target_lang="XX")
    after = client.get("/v2/usage").json()
    assert after["character_count"] - before["character_count"] == 6
    assert after["character_limit"] == 10**12


def test_a_quota_is_used_up_and_keys_are_checked():
    service = open_service({})
    with TestClient(make_app(service, quota=10, keys=Keys(["right-key"]))) as client:
        assert ask(client, text=["Hello."]).status_code == 403
        for scheme in ("DeepL-Auth-Key wrong-key", "Basic right-key", "right-key"):
            client.headers["Authorization"] = scheme
            assert ask(client, text=["Hello."]).status_code == 403
            assert "key" in ask(client, text=["Hello."]).json()["message"]
        client.headers["Authorization"] = "DeepL-Auth-Key right-key"
        assert ask(client, text=["Hello."]).status_code == 200
        over = ask(client, text=["Hello."])
        assert over.status_code == 456
        assert "quota of 10" in over.json()["message"]
        assert client.get("/v2/usage").json() == {"character_count": 6, "character_limit": 10}
        assert ask(client, text=["Bye."]).status_code == 200
    service.close()
