"""Word vectors in use: neighbours, analogies, errors, and where they come from."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from regard.core.errors import CheckpointError, DataError, ModelError
from regard.core.files import save_tensors, write_json, write_manifest
from regard.data.tokenizers import TokenizerConfig, TokenizerPair
from regard.models.base import MODELS, build_model
from regard.tasks.folder import CONFIG, FORMAT, WEIGHTS, load_model, tokenizer_names, weights_of
from regard.tasks.word_vectors import Neighbour, WordVectors

SQUARE = WordVectors(
    ["king", "queen", "man", "woman", "Paris", "apple"],
    np.array([[2, 2, 0], [2, -2, 0], [0, 3, 1], [0, -3, 1], [-1, 0, 5], [-4, 0, 0.5]], dtype=np.float32),
)


def test_the_nearest_words_come_first_with_their_cosines_and_without_the_word():
    found = SQUARE.nearest("king", 2)
    assert [one.word for one in found] == ["man", "queen"]
    assert found[0].similarity == pytest.approx(6 / (8**0.5 * 10**0.5), abs=1e-6)
    assert SQUARE.similarity("king", "man") == pytest.approx(found[0].similarity, abs=1e-6)


def test_a_vector_has_neighbours_too_its_own_word_among_them():
    assert SQUARE.nearest(10 * SQUARE.vector("queen"), 1)[0] == Neighbour("queen", pytest.approx(1, abs=1e-6))


def test_asking_for_more_than_there_is_gives_all_but_the_word():
    assert len(SQUARE.nearest("king", 100)) == 5
    assert len(SQUARE.analogy("man", "king", "woman", 100)) == 3


def test_an_analogy_is_of_unit_vectors_and_leaves_its_three_words_out():
    assert SQUARE.analogy("man", "king", "woman", 1)[0].word == "queen"
    names = [one.word for one in SQUARE.analogy("man", "king", "woman")]
    assert not {"man", "king", "woman"} & {*names}
    # With lengths as they are, c would be longer than b and a: the answer is another one.
    long = WordVectors(["a", "b", "c", "x", "y"], np.array([[0, 1], [1, 0], [0.0, 50], [1, 0.1], [0.1, 1]], np.float32))
    assert long.analogy("a", "b", "c", 1)[0].word == "x"


def test_neighbours_are_those_of_a_plain_loop():
    draw = np.random.default_rng(1)
    vectors = WordVectors([f"w{i}" for i in range(500)], draw.normal(size=(500, 8)))
    a, b, c = (vectors.matrix[i].astype(float) / np.linalg.norm(vectors.matrix[i].astype(float)) for i in (3, 4, 5))
    asked = b - a + c
    cosines = {
        f"w{i}": float(row @ asked / np.linalg.norm(row) / np.linalg.norm(asked))
        for i, row in enumerate(vectors.matrix.astype(float))
        if i not in (3, 4, 5)
    }
    best = sorted(cosines, key=lambda word: -cosines[word])[:7]
    found = vectors.analogy("w3", "w4", "w5", 7)
    assert [one.word for one in found] == best
    assert [one.similarity for one in found] == pytest.approx([cosines[word] for word in best], abs=1e-5)


def test_words_are_known_as_they_were_trained():
    assert "Paris" in SQUARE
    assert "paris" not in SQUARE
    assert len(SQUARE) == 6
    with pytest.raises(DataError, match="word 'paris': it is none of the 6 words that have vectors"):
        SQUARE.vector("paris")
    with pytest.raises(DataError, match="Perhaps you mean Paris"):
        SQUARE.vector("paris")
    with pytest.raises(DataError, match="Perhaps you mean woman"):
        SQUARE.nearest("womann")
    with pytest.raises(DataError, match="Ask for a word of the text"):
        SQUARE.similarity("king", "zzz")


@pytest.mark.parametrize(
    ("vector", "message"),
    [(np.zeros(3), "no direction"), (np.ones(2), "Give 3 numbers"), (np.full(3, np.nan), "finite")],
)
def test_vectors_without_a_direction_are_refused(vector, message):
    with pytest.raises(DataError, match=message):
        SQUARE.nearest(vector)


@pytest.mark.parametrize(
    ("words", "matrix", "counts", "message"),
    [
        (["a"], np.ones((2, 2)), None, "do not fit together"),
        ([], np.ones((0, 2)), None, "do not fit together"),
        (["a", "a"], np.ones((2, 2)), None, "stands there twice"),
        (["a"], np.full((1, 2), np.nan), None, "no finite number"),
        (["a"], np.ones((1, 2)), np.ones(2, dtype=np.int64), "2 counts for 1 words"),
    ],
)
def test_words_and_vectors_must_fit(words, matrix, counts, message):
    with pytest.raises(DataError, match=message):
        WordVectors(words, matrix, counts)


def test_a_text_is_the_mean_of_its_words():
    vector, unknown = SQUARE.mean("The King, the queen!")
    assert np.allclose(vector, SQUARE.matrix[:2].mean(0))
    assert unknown == ["The", "the"]
    assert SQUARE.mean("Paris")[0].tolist() == SQUARE.vector("Paris").tolist()
    with pytest.raises(DataError, match="none of its words"):
        SQUARE.mean("no such words")
    with pytest.raises(DataError, match="Perhaps you mean apple"):
        SQUARE.mean("appel")


@pytest.mark.parametrize("binary", [False, True])
def test_files_come_back(tmp_path, binary):
    SQUARE.save(tmp_path / "v", binary=binary)
    again = WordVectors.load(tmp_path / "v")
    assert again.words == SQUARE.words
    assert (again.matrix == SQUARE.matrix).all()


def test_the_table_of_any_run_is_word_vectors(tiny_run):
    vectors = WordVectors.load(tiny_run)
    model, tokenizers, _ = load_model(tiny_run)
    tokenizer = tokenizers.source
    assert not {"<pad>", "</s>", ""} & {*vectors.words}
    table = model.get_submodule("source_embedding").weight.detach()
    places = {tokenizer.pieces([i])[0]: i for i in range(tokenizer.size)}
    words = [word for word in vectors.words if word.isalpha()]
    assert len(words) > 20
    for word in words:
        assert torch.equal(torch.from_numpy(vectors.vector(word)), table[places[f"▁{word}"]])


def test_of_two_tokens_that_are_the_same_word_the_first_counts(tmp_path):
    """A comma after a word and one after a space are two tokens."""
    texts = ["a, b, c, a , b", "c, a"] * 2
    tokenizers = TokenizerPair.train_on_text(texts, TokenizerConfig(kind="word"))
    size = tokenizers.source.size
    sizes = {"source_vocabulary": size, "target_vocabulary": size, "shared": True}
    model = build_model("nplm", MODELS.get("nplm").Config(embedding=3, width=4), **sizes)
    tokenizers.save(tmp_path)
    save_tensors(tmp_path / WEIGHTS, weights_of(model))
    vocabulary = {"source": size, "target": size, "shared": True}
    section = {"name": "nplm", "embedding": 3, "width": 4}
    write_json(tmp_path / CONFIG, {"format": FORMAT, "resolved": True, "model": section, "vocabulary": vocabulary})
    write_manifest(tmp_path, [WEIGHTS, CONFIG, *tokenizer_names(tmp_path)])
    commas = [i for i in range(size) if tokenizers.source.pieces([i])[0] in (",", "▁,")]
    assert len(commas) == 2
    vectors = WordVectors.load(tmp_path)
    assert sorted(vectors.words) == [",", "a", "b", "c"]
    assert torch.equal(torch.from_numpy(vectors.vector(",")), model.embedding.weight[min(commas)].detach())


def test_a_run_without_weights_or_of_letters_only_is_refused(tiny_copy, tmp_path):
    (tiny_copy / "model.safetensors").unlink()
    with pytest.raises(CheckpointError):
        WordVectors.load(tiny_copy)
    with pytest.raises(DataError, match="no such file"):
        WordVectors.load(tmp_path / "nothing")


def test_a_model_without_a_table_of_words_is_refused(tiny_run, monkeypatch):
    monkeypatch.setattr("regard.tasks.word_vectors.word_tables", lambda *_: {})
    with pytest.raises(ModelError, match="no table of words"):
        WordVectors.load(tiny_run)
