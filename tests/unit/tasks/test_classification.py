"""A classifier of text: labels with their probabilities, and what it refuses."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from regard.cli.classify import run_classify
from regard.core.errors import CheckpointError, ConfigError, DataError, ModelError, TokenizerError
from regard.core.files import save_tensors, write_json, write_manifest
from regard.core.types import EOS, pad_rows
from regard.data.tokenizers import TokenizerConfig, TokenizerPair
from regard.evaluation.classification import evaluate_classifier
from regard.models.gpt import GPT, GPTConfig
from regard.models.gpt_classifier import GPTClassifier, GPTClassifierConfig
from regard.tasks import row_batches
from regard.tasks.classification import TextClassifier
from regard.tasks.folder import CONFIG, FORMAT, WEIGHTS, tokenizer_names, weights_of

TEXTS = ["a fine film", "dull", "it was a very long and dull film", "it was fine", "a film"]
LABELS = ["bad", "good", "so so"]


@pytest.fixture(scope="module")
def tokenizers() -> TokenizerPair:
    return TokenizerPair.train_on_text(TEXTS * 2, TokenizerConfig(kind="word"))


def make(tokenizers: TokenizerPair, seed: int = 0, context: int = 14) -> GPTClassifier:
    torch.manual_seed(seed)
    config = GPTClassifierConfig(width=8, layers=1, heads=2, context=context)
    model = GPTClassifier(config, vocabulary=tokenizers.source.size, labels=4)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return model


@pytest.fixture
def classifier(tokenizers) -> TextClassifier:
    return TextClassifier(make(tokenizers), tokenizers, LABELS)


@pytest.fixture
def folder(tokenizers, tmp_path):
    """A run's folder, as training writes it."""
    model = make(tokenizers)
    size = tokenizers.source.size
    tokenizers.save(tmp_path)
    save_tensors(tmp_path / WEIGHTS, weights_of(model))
    config = {
        "format": FORMAT,
        "resolved": True,
        "model": {"name": "gpt-classifier", "width": 8, "layers": 1, "heads": 2, "context": 14},
        "train": {"max_tokens": 6},
        "vocabulary": {"source": size, "target": size, "shared": True},
        "labels": LABELS,
        "two_texts": False,
    }

    def put(**changes):
        write_json(tmp_path / CONFIG, {**config, **changes})
        write_manifest(tmp_path, [WEIGHTS, CONFIG, *tokenizer_names(tmp_path)])
        return tmp_path

    return put


@torch.no_grad()
def test_probabilities_are_those_of_the_model(classifier, tokenizers):
    found = classifier.probabilities(TEXTS)
    assert found.shape == (5, 3)
    np.testing.assert_allclose(found.sum(1), 1, atol=1e-6)
    for text, row in zip(TEXTS, found, strict=True):
        hidden = classifier.model(
            pad_rows(tokenizers.source.encode([text])), torch.zeros(1, 1, dtype=torch.long)
        ).hidden
        expected = (classifier.model.output.weight @ hidden[0, 0] + classifier.model.output.bias)[1:].softmax(0)
        np.testing.assert_allclose(row, expected, atol=1e-5)


def test_batches_change_nothing(classifier, monkeypatch):
    together = classifier.probabilities(TEXTS)
    monkeypatch.setitem(row_batches.BATCH_TOKENS, "cpu", 3)
    np.testing.assert_allclose(classifier.probabilities(TEXTS), together, atol=1e-6)
    np.testing.assert_allclose(classifier.probabilities(TEXTS[::-1]), together[::-1], atol=1e-6)


def test_the_likeliest_label_comes_with_its_probability(classifier):
    found = classifier.probabilities(TEXTS)
    guesses = classifier.classify(TEXTS)
    assert [guess.label for guess in guesses] == [LABELS[i] for i in found.argmax(1)]
    assert [guess.probability for guess in guesses] == pytest.approx(found.max(1).tolist())
    label, probability = classifier.classify(TEXTS[0])
    assert (label, probability) == (guesses[0].label, pytest.approx(guesses[0].probability, abs=1e-6))


def test_all_labels_come_likeliest_first(classifier):
    for many in classifier.guesses(TEXTS):
        assert {guess.label for guess in many} == set(LABELS)
        probabilities = [guess.probability for guess in many]
        assert probabilities == sorted(probabilities, reverse=True)
    assert [len(many) for many in classifier.guesses(TEXTS, top=2)] == [2] * 5


def test_nothing_to_classify_gives_nothing(classifier):
    assert classifier.classify([]) == []


def test_accuracy_is_counted_of_100(classifier):
    right = [guess.label for guess in classifier.classify(TEXTS)]
    assert classifier.accuracy(TEXTS, right) == 100
    wrong = [next(label for label in LABELS if label != right[0]), *right[1:]]
    assert classifier.accuracy(TEXTS, wrong) == pytest.approx(80)


def test_long_texts_are_read_from_their_beginning_with_a_warning(tokenizers):
    short = TextClassifier(make(tokenizers), tokenizers, LABELS, most=3)
    with pytest.warns(UserWarning, match="1 of 2 texts are longer than 3 tokens"):
        found = short.probabilities([TEXTS[2], "dull"])
    np.testing.assert_allclose(found[0], short.probabilities(["it was a"])[0], atol=1e-6)
    assert TextClassifier(make(tokenizers), tokenizers, LABELS, most=100).most == 12  # the model's own limit


def test_a_text_of_unknown_words_gives_a_warning(classifier):
    with pytest.warns(UserWarning, match="no word that the model has ever seen"):
        classifier.classify("xyzzy")


def test_two_texts_are_read_with_a_delimiter_between_them(tokenizers):
    pair = TextClassifier(make(tokenizers), tokenizers, LABELS, two_texts=True)
    found = pair.probabilities(["a film"], ["dull"])
    ids = tokenizers.source.encode(["a film", "dull"])
    np.testing.assert_allclose(found, np.exp(pair.log_probs([[*ids[0], EOS, *ids[1]]])), atol=1e-6)
    assert pair.classify("a film", "dull").probability == pytest.approx(found.max(), abs=1e-6)
    with pytest.raises(DataError, match="one is given"):
        pair.classify(["a film"])
    with pytest.raises(DataError, match="2 second texts for 1"):
        pair.classify(["a film"], ["dull", "fine"])


@pytest.mark.parametrize(
    ("texts", "second", "message"),
    [
        (["a film", " "], None, "text 2: nothing stands in it"),
        (["a film", 3], None, "not all texts"),
        (["x" * 1_000_001], None, "1,000,001 characters"),
        (["a film"], ["dull"], "a second is given"),
    ],
)
def test_what_cannot_be_classified_is_refused(classifier, texts, second, message):
    with pytest.raises(DataError, match=message):
        classifier.classify(texts, second)


def test_labels_that_the_model_does_not_know_are_refused(classifier):
    with pytest.raises(DataError, match=r"label 2.*'great'"):
        classifier.accuracy(TEXTS[:2], ["bad", "great"])
    with pytest.raises(DataError, match="1 labels for 2 texts"):
        classifier.accuracy(TEXTS[:2], ["bad"])


def test_a_model_of_another_kind_is_refused(tokenizers):
    model = GPT(GPTConfig(width=8, layers=1, heads=2), vocabulary=tokenizers.source.size)
    with pytest.raises(ModelError, match="no classifier"):
        TextClassifier(model, tokenizers, LABELS)


def test_a_model_with_other_labels_is_refused(tokenizers):
    with pytest.raises(ModelError, match="3 labels, and 2 names"):
        TextClassifier(make(tokenizers), tokenizers, LABELS[:2])


def test_a_run_is_loaded_with_its_labels(folder, classifier):
    loaded = TextClassifier.load(folder(), "cpu")
    assert loaded.labels == tuple(LABELS)
    assert loaded.most == 6
    # up to rounding: a CPU may multiply otherwise in models that are loaded (layers/cpu_products.py)
    np.testing.assert_allclose(loaded.probabilities(TEXTS[:2]), classifier.probabilities(TEXTS[:2]), rtol=1e-6)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"labels": None}, CheckpointError, "labels"),
        ({"labels": ["a", "a", "b"]}, CheckpointError, "labels"),
        ({"labels": ["a", "b", 3]}, CheckpointError, "labels"),
        ({"labels": ["a", "b"]}, CheckpointError, "output.weight"),
        ({"vocabulary": {"source": 9, "target": 9, "shared": True}}, TokenizerError, "built for 9"),
        ({"model": {"name": "gpt-classifier", "width": 1 << 14, "heads": 2}}, CheckpointError, "weights do not fit"),
        ({"model": {"name": "gpt"}}, CheckpointError, "weights do not fit"),
    ],
)
def test_a_folder_that_lies_is_refused(folder, changes, error, message):
    with pytest.raises(error, match=message):
        TextClassifier.load(folder(**changes), "cpu")


def test_damaged_weights_are_refused(folder):
    path = folder() / WEIGHTS
    path.write_bytes(path.read_bytes()[:-8] + b"\1" * 8)
    with pytest.raises(CheckpointError, match=r"damaged|changed|differs|SHA"):
        TextClassifier.load(path.parent, "cpu")


def test_a_file_is_evaluated(classifier, tmp_path):
    right = [guess.label for guess in classifier.classify(TEXTS)]
    path = tmp_path / "test.tsv"
    path.write_text("".join(f"{label}\t{text}\n" for label, text in zip(right, TEXTS, strict=True)))
    assert evaluate_classifier(classifier, path).accuracy == 100
    path.write_text(f"{right[0]}\t{TEXTS[0]}\n\ngreat\tdull\n")
    with pytest.raises(DataError, match=r"line 3.*'great'"):
        evaluate_classifier(classifier, path)


def test_the_verb_writes_a_line_for_each_text(folder, classifier, capsys):
    run_classify(["a fine\nit", "was fine"], folder(), 2, False, "cpu")
    lines = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    expected = classifier.guesses(["a fine", "it was fine"], top=2)
    assert [line[::2] for line in lines] == [[guess.label for guess in many] for many in expected]
    assert [float(p) for p in lines[0][1::2]] == pytest.approx([guess.probability for guess in expected[0]], abs=1e-4)


def test_the_verb_writes_json(folder, capsys):
    run_classify(["a fine film"], folder(), 3, True, "cpu")
    row = json.loads(capsys.readouterr().out)
    assert row["text"] == "a fine film"
    assert sorted(one["label"] for one in row["labels"]) == LABELS
    assert sum(one["probability"] for one in row["labels"]) == pytest.approx(1, abs=1e-6)


def test_the_verb_splits_two_texts_at_a_tab(folder, capsys):
    run_classify(["a film\tdull"], folder(two_texts=True), 1, False, "cpu")
    assert len(capsys.readouterr().out.splitlines()) == 1
    with pytest.raises(DataError, match="text 2: the model reads two texts at once, and 1 are given"):
        run_classify(["a film\tdull\nfine"], folder(two_texts=True), 1, False, "cpu")
    with pytest.raises(ConfigError, match="--top"):
        run_classify(["a film"], folder(), 0, False, "cpu")
