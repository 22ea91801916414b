"""Runs on tagged text: they learn what a word's neighbours say, go on exactly where they stopped, and refuse what is wrong."""

from __future__ import annotations

import json
import random
import signal

import pytest
import torch
from runs import outcome

import regard
from regard.core.errors import ConfigError, DataError
from regard.core.files import load_tensors
from regard.tasks.tagging import TextTagger
from regard.training.progress import Reporter

OTHER = ("red", "cup", "tall", "tree", "soup", "hat")
STEPS = 16
SETTINGS = [
    "model.name=recurrent-tagger", "model.width=16", "model.layers=1", "model.cell=gru", "model.dropout=0.1",
    "tokenizer.kind=word", "train.threads=1", f"train.steps={STEPS}", "train.batch_tokens=128", "train.save_every=5",
    "train.log_every=1", "train.warmup=3", "train.lr=0.02", "train.schedule=linear", "data.valid_size=30",
    "data.test_size=30",
]  # fmt: skip


def sentence(draw: random.Random) -> list[tuple[str, str]]:
    """What stands between "open" and "shut" is a chunk: the same words are O elsewhere."""
    found, inside = [], False
    for _ in range(draw.randint(3, 8)):
        if not inside and draw.random() < 0.4:
            found.append(("open", "B-X"))
            inside = True
        elif inside and draw.random() < 0.4:
            found.append(("shut", "O"))
            inside = False
        else:
            found.append((draw.choice(OTHER), "I-X" if inside else "O"))
    return found


@pytest.fixture
def tagged(tmp_path):
    draw = random.Random(1)
    path = tmp_path / "tagged.conll"
    rows = ["".join(f"{word} {tag}\n" for word, tag in sentence(draw)) for _ in range(300)]
    path.write_text("\n".join(rows))
    return path


def train(out, **arguments):
    return regard.train(out=out, report=Reporter(quiet=True), **arguments)


def without(*starts: str) -> list[str]:
    return [word for word in SETTINGS if not word.startswith(starts)]


@pytest.mark.parametrize("kind", ["word", "bpe"])
def test_a_small_run_learns_its_tags_and_beats_the_most_frequent_ones(tagged, tmp_path, kind):
    settings = [
        *without("tokenizer"),
        f"tokenizer.kind={kind}",
        "tokenizer.size=60",
        "train.steps=100",
        "train.best_by=f1",
    ]
    result = train(tmp_path / "run", tagged=str(tagged), settings=[*settings, "train.save_every=50"])
    scores = result.scores
    assert scores["f1"].value >= 97
    assert scores["accuracy"].low <= scores["accuracy"].value <= scores["accuracy"].high
    assert scores["baseline_accuracy"].value < 85
    assert scores["baseline_f1"].value < 60
    tagger = regard.load(tmp_path / "run", "cpu")
    assert isinstance(tagger, TextTagger)
    assert [one.tag for one in tagger.tag("tall cup open red hat shut hat")] == [
        "O",
        "O",
        "B-X",
        "I-X",
        "I-X",
        "O",
        "O",
    ]
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert (config["model"]["name"], config["labels"]) == ("recurrent-tagger", ["B-X", "I-X", "O"])
    saved = json.loads((tmp_path / "run" / "scores.json").read_text())
    assert (saved["part"], saved["sentences"]) == ("test", 30)
    rows = [json.loads(row) for row in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert {"valid_nll", "valid_accuracy", "valid_f1"} <= rows[-1].keys()
    best = max((row for row in rows if "valid_f1" in row), key=lambda row: row["valid_f1"])
    assert result.summary["best_step"] == best["step"]


def test_stopping_anywhere_changes_nothing(runs, tagged):
    argv = ["train", "--tagged", str(tagged), *SETTINGS, "--out"]
    assert runs.wait(runs.start([*argv, str(runs.folder / "straight")])) == 0, runs.log()
    assert runs.wait(runs.start([*argv, str(runs.folder / "stopped")], (1, signal.SIGINT))) == 130, runs.log()
    for stop in [(5, signal.SIGTERM), (9, signal.SIGINT)]:
        runs.resume("stopped", signal_at=stop, expect=128 + stop[1])
    assert outcome(runs.resume("stopped")) == outcome(runs.folder / "straight")


def test_text_that_changed_is_refused_on_resume(runs, tagged):
    argv = ["train", "--out", str(runs.folder / "run"), f"data.tagged={tagged}", *SETTINGS]
    assert runs.wait(runs.start(argv, (6, signal.SIGINT))) == 130, runs.log()
    tagged.write_text(tagged.read_text().replace("hat I-X", "hat O", 1))
    with pytest.raises(DataError, match="not what this run was started with"):
        regard.resume(runs.folder / "run", Reporter(quiet=True))


def test_a_bert_is_tuned_to_tag(tagged, tmp_path):
    draw = random.Random(2)
    path = tmp_path / "plain.txt"
    path.write_text("".join(" ".join(word for word, _ in sentence(draw)) + "\n" for _ in range(100)))
    words = ["model.name=bert", "model.width=8", "model.layers=1", "model.heads=2", "model.context=24"]
    words += [
        "model.next_sentence=false",
        "tokenizer.kind=word",
        "train.steps=2",
        "train.threads=1",
        "train.batch_tokens=128",
    ]
    train(tmp_path / "bert", text=str(path), settings=words)
    settings = ["train.lr=0", "train.weight_decay=0", "train.steps=1", "train.threads=1"]
    train(tmp_path / "run", tagged=str(tagged), start_from=tmp_path / "bert", settings=settings)
    given, taken = (load_tensors(tmp_path / run / "model.safetensors") for run in ("bert", "run"))
    assert all(torch.equal(taken[f"body.{name}"], tensor) for name, tensor in given.items())
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["model"]["name"] == "bert-tagger"
    assert (tmp_path / "run" / "tokenizer.json").read_bytes() == (tmp_path / "bert" / "tokenizer.json").read_bytes()


def test_a_tagger_begins_with_a_tagger_of_the_same_tags(tagged, tmp_path):
    train(tmp_path / "first", tagged=str(tagged), settings=[*SETTINGS, "train.steps=2"])
    words = ["train.lr=0", "train.weight_decay=0", "train.steps=1", "train.threads=1"]
    train(tmp_path / "second", tagged=str(tagged), start_from=tmp_path / "first", settings=words)
    given, taken = (load_tensors(tmp_path / run / "model.safetensors") for run in ("first", "second"))
    assert all(torch.equal(taken[name], given[name]) for name in {*given, *taken})
    tagged.write_text(tagged.read_text().replace("-X", "-Y"))
    with pytest.raises(ConfigError, match="its labels"):
        train(tmp_path / "third", tagged=str(tagged), start_from=tmp_path / "first", settings=words)
    assert not (tmp_path / "third").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["model.name=gpt"], "tagged text|plain text"),
        (["train.best_by=bleu"], "no BLEU"),
        (["train.window=8"], "train.max_tokens"),
        (["train.patience=2", "data.valid_size=-1"], "early stopping needs validation text"),
        (["train.best_by=f1", "data.valid_size=-1"], "needs validation text"),
        (["data.tag_column=upos"], "column of CoNLL-U"),
        (["data.tag_column=3"], "no column of tags"),
    ],
)
def test_settings_that_mean_nothing_are_refused(tagged, tmp_path, words, message):
    keys = tuple(word.split("=")[0] for word in words)
    settings = without(*keys, *(["model"] if "model.name=gpt" in words else []))
    with pytest.raises(ConfigError, match=message):
        train(tmp_path / "run", tagged=str(tagged), settings=[*settings, *words])
    assert not (tmp_path / "run").exists()


def test_f1_is_that_of_chunks(tmp_path):
    path = tmp_path / "pos.conll"
    path.write_text("".join(f"w{i % 7} N\nis V\n\n" for i in range(60)))
    with pytest.raises(ConfigError, match="there is no f1 of these labels"):
        train(
            tmp_path / "run",
            tagged=str(path),
            settings=[*SETTINGS, "train.best_by=f1", "data.valid_size=2", "data.test_size=1"],
        )


def test_long_sentences_are_cut_in_training_with_a_message_and_never_in_scores(tagged, tmp_path, capsys):
    long = "".join(f"{OTHER[i % 6]} O\n" for i in range(40))
    tagged.write_text(tagged.read_text() + "\n" + long)
    (tmp_path / "test.conll").write_text(long)
    settings = [
        *without("data.test_size"),
        "train.steps=2",
        "train.max_tokens=12",
        f"data.test_tagged={tmp_path / 'test.conll'}",
    ]
    result = regard.train(out=tmp_path / "run", tagged=str(tagged), settings=settings)
    said = capsys.readouterr()
    assert "1 training sentences are cut: they are longer than 12 tokens (train.max_tokens)" in said.out + said.err
    assert result.scores["accuracy"].details["words"] == 40


def test_a_column_may_be_given_as_a_number(tmp_path):
    path = tmp_path / "three.conll"
    path.write_text("".join(f"w{i % 9} {'AB'[i % 2]} z\nv {'BA'[i % 2]} z\n\n" for i in range(40)))
    settings = [*without("data"), "data.tag_column=2", "data.valid_size=3", "data.test_size=2", "train.steps=1"]
    train(tmp_path / "run", tagged=str(path), settings=settings)
    assert json.loads((tmp_path / "run" / "config.json").read_text())["labels"] == ["A", "B"]


def test_the_verb_takes_a_run(tagged, tmp_path, command):
    train(tmp_path / "run", tagged=str(tagged), settings=[*SETTINGS, "train.steps=2"])
    said = command("tag", "--model", tmp_path / "run", stdin=b"tall cup, open\nred\n")
    assert said.code == 0, said.err
    assert [part.rpartition("/")[0] for part in said.lines[0].split()] == ["tall", "cup", ",", "open"]
    said = command("tag", "--model", tmp_path / "run", stdin=b"red\n\n")
    assert "text 2: nothing stands in it" in said.err
