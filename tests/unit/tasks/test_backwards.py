"""Models that write from right to left: trained on turned targets, and asked and answered in plain text."""

from __future__ import annotations

import pytest

import regard
from regard.core.errors import ModelError
from regard.data.corpus import load_corpus
from regard.data.corpus_config import DataConfig
from regard.data.word_order import backwards
from regard.tasks.ensembles import ensemble
from regard.tasks.glossary import Glossary
from regard.tasks.reranking import Reranker
from regard.training.progress import Reporter

LINES = [
    (f"the {a} {b}", f"{b} {a} ist hier") for a in ("dog", "cat", "cow") for b in ("runs", "sleeps", "eats", "sits")
]
TINY = ["model.width=16", "model.layers=1", "model.heads=2", "tokenizer.kind=space", "tokenizer.min_count=1"]
TINY += ["train.steps=150", "train.batch_tokens=200", "train.lr=0.01", "train.warmup=20", "model.dropout=0"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("backwards")
    for name, column in (("src", 0), ("tgt", 1)):
        (folder / name).write_text("".join(pair[column] + "\n" for pair in LINES))
    found = {}
    for order in ("reversed", "forward"):
        out = folder / order
        files = [f"data.{part}{side}={folder / side}" for part in ("", "valid_", "test_") for side in ("src", "tgt")]
        more = [f"tokenizer.folder={found['reversed']}"] if found else []
        settings = [*TINY, *files, *more, f"data.target_order={order}", "data.check=false", "train.device=cpu"]
        regard.train(out=out, settings=settings, report=Reporter(quiet=True))
        found[order] = out
    return found


def test_words_are_turned_round():
    assert backwards("Wo ist  die Bank?") == "Bank? die ist Wo"
    assert backwards(backwards("a b c")) == "a b c"
    assert backwards("") == ""


def test_targets_are_read_backwards(tmp_path):
    (tmp_path / "a").write_text("x y\nz\n" * 40)
    (tmp_path / "b").write_text("1 2 3\n4\n" * 40)
    config = {"src": str(tmp_path / "a"), "tgt": str(tmp_path / "b"), "store": "memory", "split_by": "source"}
    plain, turned = (load_corpus(DataConfig(**config, target_order=order)) for order in ("forward", "reversed"))
    texts = [[t for chunk in corpus.train.chunks() for t in chunk.targets] for corpus in (plain, turned)]
    assert set(texts[0]) <= {"1 2 3", "4"}
    assert texts[1] == [backwards(text) for text in texts[0]]
    assert plain.fingerprint != turned.fingerprint


def test_it_is_asked_and_answers_in_plain_text(runs):
    model = regard.load(runs["reversed"], "cpu", engine="torch")
    sources, targets = zip(*LINES, strict=True)
    written = model.hypotheses(list(sources))
    right = sum(many[0].text == target for many, target in zip(written, targets, strict=True))
    assert right >= 10
    assert written[0][0].tokens == [
        f"▁{word}" for word in reversed(written[0][0].text.split())
    ]  # as the model wrote it
    scored = model.score(sources[:1], targets[:1])[0]
    assert scored.log_prob == pytest.approx(written[0][0].log_prob, abs=1e-4)
    assert model.score(sources[:1], [backwards(targets[0])])[0].log_prob < scored.log_prob - 1


def test_it_reranks_and_is_refused_where_it_cannot_be(runs):
    forward = regard.load(runs["forward"], "cpu", engine="torch")
    other = regard.load(runs["reversed"], "cpu", engine="torch")
    sources, targets = zip(*LINES, strict=True)
    both = forward.choosing(Reranker(other=other)).translate(list(sources))
    assert sum(one == two for one, two in zip(both, targets, strict=True)) >= 10
    with pytest.raises(ModelError, match="other direction"):
        ensemble([runs["forward"], runs["reversed"]], "cpu")
    with pytest.raises(ModelError, match="right to left"):
        other.hypotheses(["the dog runs"], prefixes=["runs"])
    with pytest.raises(ModelError, match="right to left"):
        other.with_glossary(Glossary.of([("dog", "cat")]))
    with pytest.raises(ModelError, match="right to left"):
        other.align(["the dog runs"], ["runs dog ist hier"])
