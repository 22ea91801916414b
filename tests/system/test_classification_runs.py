"""Runs on labelled text: they learn, go on exactly where they stopped, begin with a language model, and refuse what is wrong."""

from __future__ import annotations

import json
import random
import shutil
import signal

import pytest
import torch
from runs import outcome

import regard
from regard.core.errors import CheckpointError, ConfigError, DataError
from regard.core.files import load_tensors
from regard.tasks.classification import TextClassifier
from regard.training.progress import Reporter
from regard.training.request import gather

GOOD, BAD, OTHER = ("fine", "great"), ("bad", "dull"), ("a", "the", "film", "it", "was", "very", "plot", "and")
SMALL = ["model.width=16", "model.layers=1", "model.heads=2", "tokenizer.kind=word", "train.threads=1"]
STEPS = 24
SETTINGS = [
    *SMALL, "model.context=24", f"train.steps={STEPS}", "train.batch_tokens=128", "train.save_every=5", "train.log_every=1",
    "train.warmup=3", "train.lr=0.01", "train.schedule=linear", "data.valid_size=20", "data.test_size=20",
]  # fmt: skip


def line(draw: random.Random) -> tuple[str, str]:
    good = draw.random() < 0.5
    words = [draw.choice(OTHER) for _ in range(draw.randint(1, 6))]
    words.insert(draw.randint(0, len(words)), draw.choice(GOOD if good else BAD))
    return "pos" if good else "neg", " ".join(words)


@pytest.fixture
def labelled(tmp_path):
    draw = random.Random(1)
    path = tmp_path / "labelled.tsv"
    path.write_text("".join("\t".join(line(draw)) + "\n" for _ in range(300)))
    return path


@pytest.fixture
def language_model(tmp_path):
    """A finished run on plain text in the same words."""
    draw = random.Random(2)
    path = tmp_path / "plain.txt"
    path.write_text("".join(line(draw)[1] + "\n" for _ in range(200)))
    settings = [*SMALL, "model.context=24", "train.steps=5", "train.batch_tokens=96", "train.window=24"]
    train(tmp_path / "lm", text=str(path), settings=settings)
    return tmp_path / "lm"


def train(out, **arguments):
    return regard.train(out=out, report=Reporter(quiet=True), **arguments)


def test_a_small_run_learns_its_labels(labelled, tmp_path):
    result = train(
        tmp_path / "run", settings=[*SETTINGS, f"data.labelled={labelled}", "train.steps=120", "train.save_every=40"]
    )
    assert result.scores["accuracy"].value >= 95
    assert result.scores["macro_f1"].low <= result.scores["macro_f1"].value <= result.scores["macro_f1"].high
    classifier = TextClassifier.load(tmp_path / "run", "cpu")
    assert classifier.labels == ("neg", "pos")
    assert [guess.label for guess in classifier.classify(["it was a great plot", "a very dull film"])] == ["pos", "neg"]
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert (config["model"]["name"], config["labels"], config["two_texts"]) == ("gpt-classifier", ["neg", "pos"], False)
    scores = json.loads((tmp_path / "run" / "scores.json").read_text())
    assert (scores["part"], scores["texts"]) == ("test", 20)
    rows = [json.loads(row) for row in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert {"valid_nll", "valid_accuracy"} <= rows[-1].keys()


def test_of_two_texts_it_is_known_which_is_which(tmp_path):
    """The label is that of the second text; the first says one or the other at random."""
    draw = random.Random(3)
    rows = []
    for _ in range(800):
        (_, first), (label, second) = line(draw), line(draw)
        rows.append(f"{label}\t{first}\t{second}\n")
    (tmp_path / "pairs.tsv").write_text("".join(rows))
    settings = [
        *SETTINGS,
        f"data.labelled={tmp_path / 'pairs.tsv'}",
        "train.steps=160",
        "model.dropout=0",
        "train.save_every=80",
    ]
    result = train(tmp_path / "run", settings=settings)
    assert result.scores["accuracy"].value >= 90
    classifier = TextClassifier.load(tmp_path / "run", "cpu")
    assert classifier.two_texts
    guesses = classifier.classify(["it was fine", "it was dull"], ["a very bad film", "a very great film"])
    assert [guess.label for guess in guesses] == ["neg", "pos"]


@pytest.mark.parametrize("fine_tuned", [False, True])
def test_stopping_anywhere_changes_nothing(runs, labelled, language_model, fine_tuned):
    given = [f"data.labelled={labelled}", *SETTINGS]
    if fine_tuned:
        given = [
            "--from",
            str(language_model),
            *(word for word in given if not word.startswith(("model", "tokenizer"))),
        ]

    def start(name, stop=None):
        return runs.wait(runs.start(["train", "--out", str(runs.folder / name), *given], stop))

    assert start("straight") == 0, runs.log()
    assert start("stopped", (1, signal.SIGINT)) == 130, runs.log()
    if fine_tuned:
        shutil.rmtree(language_model)  # the run has a copy of what it needs
    for stop in [(4, signal.SIGTERM), (5, signal.SIGINT), (17, signal.SIGTERM)]:
        runs.resume("stopped", signal_at=stop, expect=128 + stop[1])
    straight = outcome(runs.folder / "straight")
    assert len(straight["metrics"]) > STEPS
    assert outcome(runs.resume("stopped")) == straight


def test_a_run_that_was_killed_before_its_first_checkpoint_begins_with_the_same_weights(runs, labelled, language_model):
    given = [f"data.labelled={labelled}", *(w for w in SETTINGS if not w.startswith(("model", "tokenizer")))]
    argv = ["train", "--from", str(language_model), *given, "--out"]
    assert runs.wait(runs.start([*argv, str(runs.folder / "straight")])) == 0, runs.log()
    runs.wait(runs.start([*argv, str(runs.folder / "killed")], (2, signal.SIGKILL)))
    assert not list((runs.folder / "killed").glob("checkpoints/step-*"))
    shutil.rmtree(language_model)
    assert outcome(runs.resume("killed")) == outcome(runs.folder / "straight")


def test_the_seed_says_it_all(labelled, tmp_path):
    weights = []
    for i, seed in enumerate((1, 1, 2)):
        torch.manual_seed(100 + i)  # whatever happened before in this process
        settings = [*SETTINGS, f"data.labelled={labelled}", "train.steps=2", f"train.seed={seed}"]
        train(tmp_path / str(i), settings=settings)
        weights.append((tmp_path / str(i) / "model.safetensors").read_bytes())
    assert weights[0] == weights[1]
    assert weights[0] != weights[2]


def test_a_classifier_begins_with_a_language_model(labelled, language_model, tmp_path):
    settings = [f"data.labelled={labelled}", "train.lr=0", "train.weight_decay=0", "train.steps=1", "train.threads=1"]
    train(
        tmp_path / "run", start_from=language_model, settings=[*settings, "model.auxiliary=0.25", "model.dropout=0.3"]
    )
    given, taken = (load_tensors(run / "model.safetensors") for run in (language_model, tmp_path / "run"))
    assert all(torch.equal(taken[f"body.{name}"], tensor) for name, tensor in given.items())
    assert set(taken) == {*(f"body.{name}" for name in given), "new.weight", "output.weight", "output.bias"}
    config, other = (json.loads((run / "config.json").read_text()) for run in (tmp_path / "run", language_model))
    changed = {"name": "gpt-classifier", "auxiliary": 0.25, "classifier_dropout": 0.1, "dropout": 0.3}
    assert config["model"] == {**other["model"], **changed}
    assert config["train"]["schedule"] == "linear"  # as in 2018, where nothing else is asked for
    assert config["tokenizer"] == other["tokenizer"]
    assert (tmp_path / "run" / "tokenizer.json").read_bytes() == (language_model / "tokenizer.json").read_bytes()
    assert not (tmp_path / "run" / "initial").exists()


def test_other_sizes_than_the_language_models_are_refused(labelled, language_model, tmp_path):
    for word, message in [("model.width=64", "keeps its model"), ("tokenizer.size=77", "keeps its tokenizer")]:
        with pytest.raises(ConfigError, match=message):
            train(tmp_path / "run", start_from=language_model, settings=[f"data.labelled={labelled}", word])
    assert not (tmp_path / "run").exists()


def test_a_language_model_that_no_classifier_begins_with_is_refused(labelled, tmp_path):
    path = tmp_path / "plain.txt"
    path.write_text("".join(f"a b c {i}\n" for i in range(60)))
    settings = ["model.name=nplm", "model.width=4", "model.embedding=4", "tokenizer.kind=word", "train.steps=1"]
    train(tmp_path / "lm", text=str(path), settings=[*settings, "train.batch_tokens=32", "train.window=8"])
    with pytest.raises(ConfigError, match="no model for labelled text can begin with nplm"):
        train(tmp_path / "run", start_from=tmp_path / "lm", settings=[f"data.labelled={labelled}"])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["model.name=gpt"],
            "gpt learns from plain text. Set model.name=gpt-classifier, or give --text",
        ),
        (
            ["model.name=transformer"],
            "transformer translates: it needs pairs. Set model.name=gpt-classifier, or give --src",
        ),
        (["train.best_by=bleu"], "no BLEU"),
        (["train.valid_sentences=5"], "it does nothing for labelled text"),
        (["train.best_by=accuracy", "data.valid_size=-1"], "needs validation text"),
        (["train.window=8"], "train.max_tokens"),
        (["augment.typos=0.1"], "augment"),
        (["train.patience=2", "data.valid_size=-1"], "early stopping needs validation text"),
        (["data.text=x.txt"], "plain text"),
        (["model.context=2"], "leave no room"),
    ],
)
def test_settings_that_mean_nothing_are_refused(labelled, tmp_path, words, message):
    keys = {word.split("=")[0] for word in words}
    settings = [word for word in SETTINGS if word.split("=")[0] not in keys]
    if "model.name=transformer" in words:
        settings.remove("model.context=24")
    with pytest.raises(ConfigError, match=message):
        train(tmp_path / "run", settings=[*settings, f"data.labelled={labelled}", *words])
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("by", ["loss", "accuracy"])
def test_the_best_weights_are_those_with_the_best(labelled, tmp_path, by):
    """Once all labels are right, the accuracy grows no more, and the loss still falls."""
    words = ["train.steps=60", "train.lr=0.02", f"train.best_by={by}"]
    result = train(tmp_path / "run", settings=[*SETTINGS, f"data.labelled={labelled}", *words])
    rows = [json.loads(row) for row in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    rows = [row for row in rows if "valid_nll" in row]
    best = {
        "loss": min(rows, key=lambda row: row["valid_nll"])["step"],
        "accuracy": max(rows, key=lambda row: row["valid_accuracy"])["step"],
    }
    assert best["loss"] != best["accuracy"]
    assert result.summary["best_step"] == best[by]


def test_a_classifier_begins_with_a_classifier_of_the_same_labels(labelled, tmp_path):
    settings = [*SETTINGS, f"data.labelled={labelled}", "train.steps=2"]
    train(tmp_path / "first", settings=settings)
    words = [f"data.labelled={labelled}", "train.lr=0", "train.weight_decay=0", "train.steps=1", "train.threads=1"]
    train(tmp_path / "second", start_from=tmp_path / "first", settings=[*words, "model.auxiliary=0.1"])
    given, taken = (load_tensors(tmp_path / run / "model.safetensors") for run in ("first", "second"))
    assert given.keys() == taken.keys()
    assert all(torch.equal(taken[name], given[name]) for name in given)
    labelled.write_text(labelled.read_text().replace("pos\t", "good\t"))
    with pytest.raises(ConfigError, match="its labels"):
        train(tmp_path / "third", start_from=tmp_path / "first", settings=words)
    assert not (tmp_path / "third").exists()


def test_the_verb_and_load_take_a_run(labelled, tmp_path, command):
    train(tmp_path / "run", settings=[*SETTINGS, f"data.labelled={labelled}", "train.steps=2"])
    loaded = regard.load(tmp_path / "run", "cpu")
    assert isinstance(loaded, TextClassifier)
    said = command("classify", "--model", tmp_path / "run", "--top", 2, stdin=b"a fine film\nit was bad\n")
    assert said.code == 0, said.err
    expected = loaded.guesses(["a fine film", "it was bad"])
    assert [row.split("\t")[::2] for row in said.lines] == [[guess.label for guess in many] for many in expected]
    said = command("classify", "--model", tmp_path / "run", stdin=b"a fine film\n\n")
    assert "text 2: nothing stands in it" in said.err


def test_a_classifier_without_labelled_text_is_refused(tmp_path):
    with pytest.raises(
        ConfigError,
        match=r"gpt-classifier learns from labelled text. Give --labelled, or set data.labelled",
    ):
        gather(None, {"src": "a", "tgt": "b"}, ["model.name=gpt-classifier"], None)
    with pytest.raises(ConfigError, match="has no accuracy"):
        gather(None, {"src": "a", "tgt": "b"}, ["train.best_by=accuracy"], None)
    with pytest.raises(ConfigError, match="only one of them"):
        gather(None, {"labelled": "a", "pairs": "b"}, [], None)


def test_files_are_found_from_anywhere(labelled, monkeypatch):
    monkeypatch.chdir(labelled.parent)
    values = gather(None, {}, [f"data.labelled={labelled.name}"], None)
    assert values["data"]["folder"] == str(labelled.parent)
    assert values["model"]["name"] == "gpt-classifier"
    assert gather(None, {"labelled": labelled.name}, [], None)["data"]["labelled"] == str(labelled)


def test_text_that_changed_is_refused_on_resume(runs, labelled):
    argv = ["train", "--out", str(runs.folder / "run"), f"data.labelled={labelled}", *SETTINGS]
    assert runs.wait(runs.start(argv, (6, signal.SIGINT))) == 130, runs.log()
    labelled.write_text(labelled.read_text().replace("pos\t", "neg\t", 1))
    with pytest.raises(DataError, match="not what this run was started with"):
        regard.resume(runs.folder / "run", Reporter(quiet=True))


def test_a_damaged_language_model_is_refused(labelled, language_model, tmp_path):
    weights = language_model / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-20] ^= 4
    weights.write_bytes(content)
    with pytest.raises(CheckpointError):
        train(tmp_path / "run", start_from=language_model, settings=[f"data.labelled={labelled}"])
    assert not (tmp_path / "run").exists()


def test_long_texts_are_cut_and_it_is_said(labelled, tmp_path, capsys):
    labelled.write_text(labelled.read_text() + f"pos\tgreat {'film ' * 40}\n")
    (tmp_path / "test.tsv").write_text(f"pos\tgreat {'plot ' * 40}\nneg\tdull\n")
    settings = [*SETTINGS, f"data.labelled={labelled}", "train.steps=2", "data.valid_size=5"]
    settings.append(f"data.test_labelled={tmp_path / 'test.tsv'}")
    regard.train(out=tmp_path / "run", settings=settings)
    said = capsys.readouterr()
    for name in ("training", "test"):
        assert f"1 {name} texts are cut: they are longer than 22 tokens (the model's limit)" in said.out + said.err
