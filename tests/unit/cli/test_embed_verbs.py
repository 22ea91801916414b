"""The verbs of vectors: embed, nearest, analogy, evaluate and export, on files, runs and a model that reads."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from regard.core.errors import DataError
from regard.core.files import save_tensors, write_json, write_manifest
from regard.data.tokenizers import TokenizerConfig, TokenizerPair
from regard.models.bert import Bert, BertConfig
from regard.tasks.folder import CONFIG, FORMAT, WEIGHTS, tokenizer_names, weights_of
from regard.tasks.masked import MaskedText
from regard.tasks.word_in_context import compare_uses
from regard.tasks.word_vectors import WordVectors

WORDS = ["bank", "river", "money", "water", "the"]
MATRIX = np.array([[1, 1, 0], [1, 0, 0], [0, 1, 0], [0.9, 0.1, 0], [0, 0, 2]], dtype=np.float32)


@pytest.fixture
def vectors(tmp_path):
    WordVectors(WORDS, MATRIX).save(tmp_path / "v.bin", binary=True)
    return tmp_path / "v.bin"


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    """The folder of a tiny untrained BERT."""
    folder = tmp_path_factory.mktemp("bert")
    texts = ["The bank of the river is wet.", "My bank has money, says the bank"] * 2
    tokenizers = TokenizerPair.train_on_text(texts, TokenizerConfig(kind="bpe", size=28, lowercase=True))
    size, sizes = tokenizers.target.size, {"width": 8, "layers": 2, "heads": 2, "context": 40}
    torch.manual_seed(0)
    model = Bert(BertConfig(**sizes), vocabulary=size)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    tokenizers.save(folder)
    save_tensors(folder / WEIGHTS, weights_of(model))
    vocabulary = {"source": size, "target": size, "shared": True}
    write_json(
        folder / CONFIG,
        {"format": FORMAT, "resolved": True, "model": {"name": "bert", **sizes}, "vocabulary": vocabulary},
    )
    write_manifest(folder, [WEIGHTS, CONFIG, *tokenizer_names(folder)])
    return folder


def test_each_text_is_a_line_of_numbers(command, vectors):
    found = command("embed", "--model", vectors, "bank", "The  river, the money")
    assert found.code == 0
    assert found.lines == ["bank\t1.0 1.0 0.0", "The river, the money\t0.25 0.25 1.0"]


def test_lines_of_standard_input_are_texts_and_unknown_words_are_said(command, vectors):
    found = command("embed", "--model", vectors, "--json", stdin=b"water\nmoney tree\n")
    rows = [json.loads(line) for line in found.lines]
    assert rows[0] == {"text": "water", "vector": [0.9, 0.1, 0.0]}
    assert rows[1]["vector"] == [0.0, 1.0, 0.0]
    assert "left out: tree" in found.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["embed", " "], "text 1: it is empty"),
        (["embed", "moneys"], "Perhaps you mean money"),
        (["embed", "x y"], "none of its words has a vector"),
        (["embed", "bank", "--in-context", "bank"], "the same in every sentence"),
        (["embed", "bank", "--vectors", "v.bin"], "goes with --in-context only"),
        (["nearest", "banks"], "Perhaps you mean bank"),
        (["nearest", "bank", "--top", "0"], "--top: it is 0"),
        (["analogy", "bank", "river", "monney"], "Perhaps you mean money"),
    ],
)
def test_what_is_wrong_is_said(command, vectors, arguments, message):
    found = command(*arguments, "--model", vectors)
    assert found.code == 1
    assert message in found.err
    assert "Traceback" not in found.err


def test_nearest_and_analogy_list_words_with_cosines(command, vectors):
    assert command("nearest", "river", "--model", vectors, "--top", 2).lines == ["water\t0.9939", "bank\t0.7071"]
    two = command("nearest", "river", "money", "--model", vectors, "--top", 1)
    assert two.lines == ["river:", "water\t0.9939", "money:", "bank\t0.7071"]
    plain = json.loads(command("nearest", "river", "--model", vectors, "--top", 1, "--json").out)
    assert (plain["word"], plain["nearest"][0]["word"]) == ("river", "water")
    plain = json.loads(command("analogy", "money", "bank", "the", "--model", vectors, "--top", 9, "--json").out)
    assert {one["word"] for one in plain["answers"]} == {"river", "water"}


def test_the_table_of_the_bundled_model_is_known_by_its_name(command):
    assert len(command("nearest", "house", "--model", "tatoeba-en-de", "--top", 3).lines) == 3
    found = command("embed", "house", "--model", "tatoeba-en-de")
    assert found.code == 0
    assert "vectors of transformer's table of words" in found.err
    in_context = command("embed", "the house", "a house", "--in-context", "house", "--model", "tatoeba-en-de")
    assert in_context.code == 1
    assert "of transformer only the table of words can be had" in in_context.err


def test_evaluate_shows_sections_and_correlations(command, vectors, tmp_path):
    (tmp_path / "questions.txt").write_text(": things\nbank river money water\nbank river money tree\n")
    (tmp_path / "alike.csv").write_text("word1,word2,score\nbank,river,5\nbank,the,0\nriver,water,9\nbank,tree,3\n")
    arguments = [
        "evaluate",
        "--model",
        vectors,
        "--analogies",
        tmp_path / "questions.txt",
        "--similarity",
        tmp_path / "alike.csv",
    ]
    plain = json.loads(command(*arguments, "--json").out)
    assert (plain["words"], plain["width"]) == (5, 3)
    first = {"section": "things", "right": 1, "asked": 1, "skipped": 1, "accuracy": 100.0}
    assert plain["analogies"]["rows"][0] == first
    assert plain["similarity"] == [{"name": "alike", "rho": 1.0, "known": 3, "pairs": 4}]
    assert plain["scores"]["alike"]["value"] == 100.0
    shown = command(*arguments).out
    assert "things" in shown
    assert "1.0000" in shown
    missing = command("evaluate", "--similarity", tmp_path / "alike.csv")
    assert "no word vectors come with regard" in missing.err


@pytest.mark.parametrize(("to", "binary"), [("word2vec", False), ("word2vec-binary", True)])
def test_the_table_of_any_run_can_be_exported(command, bert, tmp_path, to, binary):
    out = tmp_path / "out.vec"
    assert command("export", bert, "--out", out, "--to", to).code == 0
    exported, own = WordVectors.load(out), WordVectors.load(bert)
    assert exported.words == own.words
    assert (exported.matrix == own.matrix).all()
    head = out.read_bytes()[:200]
    assert (b"\0" in head or not head.isascii()) == binary
    assert "no such format" in command("export", bert, "--out", out, "--to", "gguf").err
    assert "its folder does not exist" in command("export", bert, "--out", tmp_path / "no" / "v", "--to", to).err


def test_a_model_that_reads_gives_vectors_of_texts(command, bert):
    found = command("embed", "--model", bert, "--json", "the bank", "my money", "--device", "cpu")
    rows = [json.loads(line) for line in found.lines]
    own = MaskedText.load(bert, "cpu").embed(["the bank", "my money"])
    assert np.allclose([row["vector"] for row in rows], own, atol=1e-6)


TWO = ("The bank of the river is wet.", "My Bank, it has money")


def test_a_word_in_two_texts_is_compared_layer_by_layer(bert, vectors):
    reader = MaskedText.load(bert, "cpu")
    found = compare_uses(reader, TWO, "bank", WordVectors.load(vectors))
    states = []
    for text in TWO:
        spans, layers = reader.layers(text)
        (span,) = [one for one in spans if one.word.lower() == "bank"]
        assert span.end - span.begin > 1
        states.append([layer[span.begin : span.end].mean(0) for layer in layers])
    cosines = [float(a @ b / np.linalg.norm(a) / np.linalg.norm(b)) for a, b in zip(*states, strict=True)]
    assert found.cosines == pytest.approx(cosines, abs=1e-5)
    assert len(found.cosines) == 3  # the embeddings and two layers
    assert [use.shown for use in found.uses] == ["The [bank] of the river is …", "My [Bank], it has money"]
    assert found.static is not None
    assert [one.word for one in found.static] == ["water", "river", "money", "the"]
    for near in found.near:
        assert {one.word for one in near} <= {"The", "the", "of", "river", "is", "wet", "My", "it", "has", "money"}
        assert [one.similarity for one in near] == sorted((one.similarity for one in near), reverse=True)


def test_a_word_twice_in_one_text_is_enough_and_more_are_counted(bert):
    reader = MaskedText.load(bert, "cpu")
    found = compare_uses(reader, ["My bank, says the BANK of the bank"], "Bank")
    assert [use.place for use in found.uses] == [1, 5]
    assert (found.left_out, found.static) == (1, None)


@pytest.mark.parametrize(
    ("texts", "word", "message"),
    [
        (["The bank of the river", "no money"], "bank", "text 2: the word 'bank' does not stand in it"),
        (["The banks of the river"], "bank", "text 1: the word 'bank' does not stand"),
        (["The bank of the river"], "bank", "only once"),
        (["a bank", "a bank", "a bank"], "bank", "3 texts are given"),
        (["a bank", "a bank"], "a bank", "it is no word"),
        (["a bank", "a bank"], "!", "it is no word"),
        ([], "bank", "0 texts are given"),
    ],
)
def test_a_word_that_is_not_there_twice_is_an_error(bert, texts, word, message):
    with pytest.raises(DataError, match=message):
        compare_uses(MaskedText.load(bert, "cpu"), texts, word)


def test_the_comparison_is_shown_beside_the_single_vector(command, bert, vectors):
    arguments = ["embed", "--model", bert, "--in-context", "bank", *TWO, "--device", "cpu"]
    shown = command(*arguments, "--vectors", vectors)
    assert shown.code == 0
    assert "use 2: My [Bank], it has money" in shown.out
    assert "0 (embeddings)" in shown.out
    assert "nearest to its single word vector: water" in shown.out
    plain = json.loads(command(*arguments, "--json").out)
    assert len(plain["cosines"]) == 3
    assert "vectors" not in plain
    with_vectors = json.loads(command(*arguments, "--json", "--vectors", vectors).out)
    assert with_vectors["vectors"]["cosine"] == 1.0
    unknown = command("embed", "--model", bert, "--in-context", "is", "it is", "he is", "--vectors", vectors)
    assert "The word vectors do not know 'is'" in unknown.out
