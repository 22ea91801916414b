"""Labels, tags, hidden words and vectors: what the models themselves say."""

from __future__ import annotations

import base64

import numpy as np
import pytest

import regard

TEXTS = ["The cat sat on the mat.", "A red car!"]


def ask(client, what, **fields):
    return client.post(f"/v1/{what}", json=fields)


def test_labels(client, folders):
    right = regard.load(folders["sorter"]).guesses(TEXTS)
    answer = ask(client, "classify", model="sorter", input=TEXTS).json()
    assert answer["model"] == "sorter"
    for number, (row, guesses) in enumerate(zip(answer["data"], right, strict=True)):
        assert row["index"] == number
        assert row["label"] == guesses[0].label
        assert [one["label"] for one in row["labels"]] == [guess.label for guess in guesses]
        assert [one["probability"] for one in row["labels"]] == pytest.approx([g.probability for g in guesses])
    alone = ask(client, "classify", input=TEXTS[0], top=1).json()["data"]
    assert len(alone) == 1
    assert len(alone[0]["labels"]) == 1


def test_tags(client, folders):
    right = regard.load(folders["tagger"]).tag(TEXTS)
    rows = ask(client, "tag", input=TEXTS).json()["data"]
    assert [[(w["word"], w["tag"]) for w in row["words"]] for row in rows] == [
        [(w.word, w.tag) for w in words] for words in right
    ]


def test_hidden_words(client, folders):
    text = "The <mask> sat on the [MASK]."
    right = regard.load(folders["reader"]).fill(text, 3)
    (row,) = ask(client, "fill", input=text, top=3).json()["data"]
    assert [[w["word"] for w in mask] for mask in row["masks"]] == [[w.word for w in words] for words in right]
    assert ask(client, "fill", input="No mask.").status_code == 400


@pytest.mark.parametrize("path", ["embed", "embeddings"])
def test_vectors_in_openais_shape(client, folders, path):
    right = regard.load(folders["reader"]).embed(TEXTS)
    answer = ask(client, path, model="reader", input=TEXTS).json()
    assert answer["object"] == "list"
    assert [one["object"] for one in answer["data"]] == ["embedding"] * 2
    assert np.allclose([one["embedding"] for one in answer["data"]], right, atol=1e-5)
    assert answer["usage"]["prompt_tokens"] == answer["usage"]["total_tokens"] > 4
    packed = ask(client, path, input=TEXTS[0], encoding_format="base64").json()["data"][0]["embedding"]
    assert np.allclose(np.frombuffer(base64.b64decode(packed), "<f4"), right[0], atol=1e-5)


@pytest.mark.parametrize(
    ("what", "fields", "status", "said"),
    [
        ("classify", {}, 400, "missing input"),
        ("classify", {"input": "a", "model": "reader"}, 400, "is for masked"),
        ("classify", {"input": "a", "second": "b"}, 400, "read one text at once"),
        ("classify", {"input": "a", "top": 101}, 400, "101"),
        ("classify", {"input": "a", "labels": 2}, 400, "no such field"),
        ("tag", {"input": " "}, 400, "nothing stands in it"),
        ("tag", {"input": "a", "model": "x"}, 404, "does not exist"),
        ("embed", {"input": "a", "dimensions": 3}, 400, "one size"),
        ("embed", {"input": [1, 2]}, 400, "not a text"),
        ("embed", {"input": "a", "encoding_format": "hex"}, 400, "hex is not supported"),
    ],
)
def test_what_is_wrong_is_said(client, what, fields, status, said):
    answer = ask(client, what, **fields)
    assert answer.status_code == status
    assert said in answer.json()["error"]["message"]
