"""`regard evaluate --text --trigram`: a run mixed with a trigram of its own training text."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import regard
from regard.core.errors import DataError
from regard.data.corpus_config import DataConfig
from regard.data.documents import load_text
from regard.data.token_stream import TokenStream
from regard.evaluation.run_trigram import trigram_of
from regard.evaluation.trigram import Trigram
from regard.search.text_scores import mix
from regard.tasks.text_scoring import token_scores
from regard.training.progress import Reporter

WORDS = ["one", "two", "three", "four", "five", "six", "seven", "once", "i", "caught", "a", "fish", "alive"]
TEST = ["one two three", "a fish alive", "seven one"]
SETTINGS = [
    "model.name=nplm", "model.embedding=8", "model.width=8", "tokenizer.kind=space", "tokenizer.min_count=1",
    "train.threads=1", "train.window=8", "train.batch_tokens=64", "train.steps=2",
]  # fmt: skip


def trained(folder: Path, *settings: str) -> Path:
    text = folder / "rhymes.txt"
    text.write_text("".join(" ".join(WORDS[i % 13 : i % 13 + 3 + i % 5]) + "\n" for i in range(150)))
    regard.train(out=folder / "run", text=str(text), settings=[*SETTINGS, *settings], report=Reporter(quiet=True))
    return folder / "run"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("trigram"))


def test_it_is_counted_on_the_training_text_and_fitted_to_the_validation_text(run):
    model = regard.load(run, device="cpu")
    corpus = load_text(DataConfig(text=str(run.parent / "rhymes.txt")))
    train, valid = (TokenStream.from_documents(part, model.tokenizer).tokens for part in (corpus.train, corpus.valid))
    expected = Trigram.count(train, model.tokenizer.size)
    plain = expected.weights.copy()
    expected.fit(valid)
    found = trigram_of(model)
    np.testing.assert_array_equal(found.weights, expected.weights)
    assert not np.array_equal(found.weights, plain)
    np.testing.assert_array_equal(found.log_probs(valid), expected.log_probs(valid))


def test_the_weight_is_the_share_of_the_trigram(command: Callable, run, tmp_path):
    test = tmp_path / "test.txt"
    test.write_text("".join(line + "\n" for line in TEST))
    model = regard.load(run, device="cpu")
    tokens = TokenStream.from_documents(TEST, model.tokenizer).tokens
    own = np.concatenate(list(token_scores(model, tokens, 0, 0)))
    other = trigram_of(model).log_probs(tokens)
    found = {}
    for share in (None, 0, 0.25, 0.5, 1):
        options = [] if share is None else ["--trigram", str(share)]
        done = command("evaluate", "--model", run, "--text", test, "--json", "--device", "cpu", *options)
        assert done.code == 0, done.err
        found[share] = json.loads(done.out)["score"]["nll"]
        assert found[share] == pytest.approx(-mix(own, other, 1 - (share or 0)).sum(), rel=1e-6)
    assert found[None] == found[0] == pytest.approx(-own.sum(), rel=1e-6)
    assert found[1] == pytest.approx(-other.sum(), rel=1e-6)
    assert not math.isclose(found[0], found[1], rel_tol=0.05)
    done = command("evaluate", "--model", run, "--text", test, "--device", "cpu", "--trigram", "0.25")
    assert "mixed with a trigram of its training text, whose share is 0.25" in done.out


def test_text_that_is_not_there_any_more_is_said(tmp_path):
    run = trained(tmp_path, "data.valid_part=0")
    with pytest.raises(DataError, match="no validation text, from which a trigram learns its weights"):
        trigram_of(regard.load(run, device="cpu"))
    with (tmp_path / "rhymes.txt").open("a") as file:
        file.write("another line\n")
    with pytest.raises(DataError, match="the text is not what this run was trained on"):
        trigram_of(regard.load(run, device="cpu"))
