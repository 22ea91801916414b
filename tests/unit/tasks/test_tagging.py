"""A tagger of text: tags with their probabilities, long texts in windows, and what it refuses."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from torch import nn

from regard.cli.reading_verbs import tag
from regard.cli.tag import run_evaluate_tagged, run_tag
from regard.core.errors import CheckpointError, ConfigError, DataError, ModelError
from regard.core.files import read_json, save_tensors, write_json, write_manifest
from regard.core.types import PAD, Padded
from regard.data.tokenizers import TokenizerConfig, TokenizerPair
from regard.evaluation.tagging import evaluate_tagger
from regard.layers.output import SoftmaxOutput
from regard.models.base import Limits
from regard.models.reader import Tagger
from regard.models.recurrent_tagger import RecurrentTagger, RecurrentTaggerConfig
from regard.tasks import row_batches
from regard.tasks.folder import CONFIG, FORMAT, WEIGHTS, tokenizer_names, weights_of
from regard.tasks.tagging import TextTagger

WORDS = "the cat sleeps in a box and it runs . ,".split()  # noqa: SIM905
LABELS = ["ADJ", "NOUN", "VERB"]


@pytest.fixture(scope="module")
def tokenizers() -> TokenizerPair:
    return TokenizerPair.train_on_text([" ".join(WORDS)] * 3, TokenizerConfig(kind="word"))


class Nearby(Tagger):
    """The label of a token depends on it and on one token on each side."""

    def __init__(self, vocabulary: int, labels: int, limit: int | None):
        super().__init__()
        torch.manual_seed(0)
        self.table = nn.Embedding(vocabulary, 8)
        self.output = SoftmaxOutput(8, labels, never=(PAD,))
        self.limit = limit
        self.calls: list[tuple[int, int]] = []

    @property
    def limits(self) -> Limits:
        return Limits(source=self.limit)

    def states(self, source: Padded, record=None):
        self.calls.append(tuple(source.tokens.shape))
        assert self.limit is None or source.tokens.shape[1] <= self.limit
        x = self.table(source.tokens) * source.keep[..., None]
        before, after = nn.functional.pad(x, (0, 0, 1, 0))[:, :-1], nn.functional.pad(x, (0, 0, 0, 1))[:, 1:]
        return x + 0.7 * before - 0.5 * after


def make(tokenizers: TokenizerPair, limit: int | None = None, most: int = 0) -> TextTagger:
    return TextTagger(Nearby(tokenizers.source.size, 4, limit), tokenizers, LABELS, most=most)


def test_every_word_gets_its_likeliest_tag(tokenizers):
    tagger = make(tokenizers)
    found = tagger.tag(["the cat sleeps.", "it runs"])
    assert [[one.word for one in words] for words in found] == [["the", "cat", "sleeps", "."], ["it", "runs"]]
    pieces = tagger.pieces([["it", "runs"]])
    source = torch.tensor([[ids[0] for ids in pieces[0]]])
    with torch.no_grad():
        states = tagger.model.states(Padded(source, torch.ones_like(source, dtype=torch.bool)))
        scores = tagger.model.output.scores(states)[0, :, 1:].exp()
    assert [one.tag for one in found[1]] == [LABELS[i] for i in scores.argmax(-1)]
    assert [one.probability for one in found[1]] == pytest.approx(scores.max(-1).values.tolist(), abs=1e-6)


def test_a_text_may_be_words_already(tokenizers):
    tagger = make(tokenizers)
    assert [one.word for one in tagger.tag("cat, box.")] == ["cat", ",", "box", "."]
    assert [one.word for one in tagger.tag("cat, box.", split=False)] == ["cat,", "box."]
    assert tagger.tag([["cat", ",", "box", "."]])[0] == tagger.tag("cat, box.")


def test_batches_change_no_tag(tokenizers, monkeypatch):
    tagger = make(tokenizers)
    draw = np.random.default_rng(1)
    texts = [list(draw.choice(WORDS, draw.integers(1, 12))) for _ in range(30)]
    together = tagger.tag(texts)
    monkeypatch.setitem(row_batches.BATCH_TOKENS, "cpu", 7)
    tagger.model.calls.clear()
    alone = tagger.tag(texts)
    assert all(rows * width <= 7 or rows == 1 for rows, width in tagger.model.calls)
    for first, second in zip(together, alone, strict=True):
        assert [one[:2] for one in first] == [one[:2] for one in second]
        assert [one.probability for one in first] == pytest.approx([one.probability for one in second], abs=1e-6)


@pytest.mark.parametrize(("limit", "most"), [(12, 0), (None, 12), (12, 30)])
def test_a_long_text_is_read_in_windows_and_every_word_gets_the_tag_that_it_has_in_the_whole(tokenizers, limit, most):
    draw = np.random.default_rng(2)
    words = list(draw.choice(WORDS, 200))
    whole = make(tokenizers).tag([words])[0]
    tagger = make(tokenizers, limit, most)
    found = tagger.tag([words, ["cat"]])
    assert max(width for _, width in tagger.model.calls) <= 12
    assert [one[:2] for one in found[0]] == [one[:2] for one in whole]
    assert [one.probability for one in found[0]] == pytest.approx([one.probability for one in whole], abs=1e-6)
    right = [list(draw.integers(0, 3, 200))]
    first, second = (one.find(one.pieces([words]), right)[0].right for one in (tagger, make(tokenizers)))
    assert first == pytest.approx(second, abs=1e-6)


def test_a_single_word_beyond_the_limit_gets_a_tag(tokenizers):
    letters = TokenizerPair.train_on_text(["a b c d"], TokenizerConfig(kind="char", size=100))
    tagger = TextTagger(Nearby(letters.source.size, 4, 5), letters, LABELS)
    assert len(tagger.tag([["a", "abcdabcdabcd", "b"]])[0]) == 3


def test_unknown_words_and_odd_ones_are_tagged(tokenizers):
    assert len(make(tokenizers).tag([["zebra", "\u2028x", "</s>", "▁"]])[0]) == 4


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["cat", "  "], "text 2: nothing stands in it"),
        ([[]], "text 1: nothing stands in it"),
        ([["cat", " "]], "text 1: one of its words is empty"),
        ([["cat", 5]], "neither a text nor a list of words"),
        (["x" * 1_000_001], "1,000,001 characters"),
    ],
)
def test_what_is_no_text_is_refused(tokenizers, texts, message):
    with pytest.raises(DataError, match=message):
        make(tokenizers).tag(texts)


def test_labels_must_be_the_models(tokenizers):
    model = Nearby(tokenizers.source.size, 4, None)
    with pytest.raises(ModelError, match="3 labels, and 2 names"):
        TextTagger(model, tokenizers, LABELS[:2])


@pytest.fixture
def folder(tokenizers, tmp_path):
    """A run's folder, as training writes it."""
    torch.manual_seed(0)
    section = {"name": "recurrent-tagger", "width": 8, "layers": 1}
    size = tokenizers.source.size
    model = RecurrentTagger(RecurrentTaggerConfig(width=8, layers=1), vocabulary=size, labels=4)
    tokenizers.save(tmp_path)
    save_tensors(tmp_path / WEIGHTS, weights_of(model))
    config = {
        "format": FORMAT,
        "resolved": True,
        "model": section,
        "train": {"max_tokens": 6},
        "data": {"tag_column": "2"},
        "vocabulary": {"source": size, "target": size, "shared": True},
        "labels": LABELS,
    }
    write_json(tmp_path / CONFIG, config)
    write_manifest(tmp_path, [WEIGHTS, CONFIG, *tokenizer_names(tmp_path)])
    return tmp_path


def test_the_verb_writes_words_with_their_tags(folder, capsys):
    found = TextTagger.load(folder, "cpu")
    assert found.most == 6
    expected = found.tag("the cat.")
    run_tag(["the cat.\nit"], folder, False, "cpu")
    assert capsys.readouterr().out.splitlines()[0] == " ".join(f"{one.word}/{one.tag}" for one in expected)
    run_tag(["the cat."], folder, False, "cpu", split=False)
    assert [part.rpartition("/")[0] for part in capsys.readouterr().out.split()] == ["the", "cat."]
    tag(folder, ["the cat."], columns=True, device="cpu")
    assert capsys.readouterr().out.splitlines() == [*(f"{one.word}\t{one.tag}" for one in expected), ""]
    run_tag(["the cat."], folder, True, "cpu")
    plain = json.loads(capsys.readouterr().out)
    assert plain["text"] == "the cat."
    assert [tuple(word.values()) for word in plain["words"]] == [tuple(one) for one in expected]


def test_the_verb_writes_columns_or_json(folder):
    with pytest.raises(ConfigError, match="does not go with --json"):
        tag(folder, ["the cat."], columns=True, as_json=True)


def test_a_folder_that_lies_about_its_training_is_refused(folder):
    write_json(folder / CONFIG, {**read_json(folder / CONFIG), "train": [1]})
    write_manifest(folder, [WEIGHTS, CONFIG, *tokenizer_names(folder)])
    with pytest.raises(CheckpointError, match="not a configuration that regard wrote"):
        TextTagger.load(folder, "cpu")


def test_evaluation_reads_the_column_that_was_trained_on(folder, tmp_path, capsys):
    path = tmp_path / "held.conll"
    path.write_text("the ADJ x\ncat NOUN y\n\nit NOUN x\n")
    tagger = TextTagger.load(folder, "cpu")
    report = evaluate_tagger(tagger, path)
    gold = ["ADJ", "NOUN", "NOUN"]
    given = [one.tag for words in tagger.tag([["the", "cat"], ["it"]]) for one in words]
    assert report.value("accuracy") == pytest.approx(100 * sum(a == b for a, b in zip(gold, given, strict=True)) / 3)
    run_evaluate_tagged(path, folder, True, "cpu")
    plain = json.loads(capsys.readouterr().out)
    assert plain["scores"]["accuracy"]["value"] == pytest.approx(report.value("accuracy"))
    run_evaluate_tagged(path, folder, False, "cpu")
    shown = capsys.readouterr().out
    assert "2 sentences, 3 words" in shown
    assert "NOUN" in shown


def test_evaluation_refuses_a_tag_that_the_model_does_not_have(folder, tmp_path):
    path = tmp_path / "held.conll"
    path.write_text("the ADJ x\ncat PRON y\n")
    with pytest.raises(DataError, match=r"line 2: the model does not have the tag 'PRON'"):
        evaluate_tagger(TextTagger.load(folder, "cpu"), path)
    with pytest.raises(ConfigError, match="no tagger comes with regard"):
        run_evaluate_tagged(path, None, False, "cpu")
