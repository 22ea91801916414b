"""Several processes train as one does: the same batches, the same losses, the same weights, for every kind of model."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

import pytest
from runs import Runs, flip_bit, outcome
from teams import Workers, check_same_curve, check_same_weights, train

from regard.core.files import read_json
from regard.training.distributed.gradient_sums import SHORTEST

COMMON = [
    "train.threads=1", "train.log_every=1", "train.warmup=3", "train.lr=0.005", "train.steps=8", "train.save_every=4",
]  # fmt: skip
PAIRS = [
    "tokenizer.kind=word",
    "train.batch_tokens=64",
    "data.valid_size=12",
    "data.test_size=3",
    "search.max_length=8",
]
SMALL = ["model.width=16", "model.dropout=0"]
LABELLED = [
    *SMALL,
    "model.classifier_dropout=0",
    "tokenizer.kind=word",
    "tokenizer.min_count=1",
    "train.batch_tokens=60",
]
TEXT = ["tokenizer.kind=space", "tokenizer.min_count=1", "train.window=8", "train.batch_tokens=64"]
FAMILIES = {
    "transformer": [
        *PAIRS, *SMALL, "model.layers=1", "model.heads=2", "train.ema=0.9", "train.accumulate=2",
        "train.valid_sentences=5", "search.beam=2",
    ],
    "universal": [*PAIRS, *SMALL, "model.heads=2", "model.steps=2", "model.halting=act", "model.ponder=0.1"],
    "rctm2": [*PAIRS, *SMALL],
    "bahdanau": [*PAIRS, *SMALL, "model.embedding=8", "train.optimizer=adadelta", "train.lr=1"],
    "gpt": [*TEXT, *SMALL, "model.attention_dropout=0", "model.layers=1", "model.heads=2", "model.context=8", "train.average=2"],
    "lstmlm": [*TEXT, *SMALL, "model.layers=1", "train.optimizer=sgd", "train.lr=0.5"],
    "bert": [*TEXT, *SMALL, "model.layers=1", "model.heads=2", "model.context=12", "model.attention_dropout=0"],
    "transformer-classifier": [  # batch normalisation does not see biases before it, of which Adam would make much
        *LABELLED, "model.layers=1", "model.heads=2", "model.normalise=batch", "train.optimizer=sgd", "train.lr=0.1",
        "train.weight_decay=0",
    ],
    "kim": ["tokenizer.kind=word", "tokenizer.min_count=1", "train.batch_tokens=60", "model.dropout=0"],
    "gpt-classifier": [
        *LABELLED, "model.layers=1", "model.heads=2", "model.auxiliary=0.5", "model.attention_dropout=0",
    ],
    "label-writer": [*SMALL, "tokenizer.kind=word", "tokenizer.min_count=1", "train.batch_tokens=60"],
    "recurrent-tagger": LABELLED,
}  # fmt: skip
WORDS = ["one", "two", "three", "four", "five", "six", "red", "green", "blue", "cat", "dog", "bird"]


def texts(folder: Path) -> dict[str, list[str]]:
    """Text of every kind, and how it is given."""
    draw = random.Random(3)
    lines = [[draw.choice(WORDS) for _ in range(draw.randint(2, 7))] for _ in range(90)]
    plain, labelled, tagged = (folder / name for name in ("plain.txt", "labelled.tsv", "tagged.conll"))
    plain.write_text("".join(" ".join(line) + "\n" for line in lines))
    labelled.write_text("".join(f"{'animal' if 'cat' in line else 'none'}\t{' '.join(line)}\n" for line in lines))
    tagged.write_text(
        "\n".join("".join(f"{word}\t{'N' if word in WORDS[9:] else 'X'}\n" for word in line) for line in lines)
    )
    held = ["data.valid_size=10", "data.test_size=5"]
    return {
        "pairs": ["--src", str(folder / "text.src"), "--tgt", str(folder / "text.tgt")],
        "text": ["--text", str(plain), "data.valid_part=0.1", "data.test_part=0.1"],
        "labelled": ["--labelled", str(labelled), *held],
        "tagged": ["--tagged", str(tagged), *held],
    }


def kind_of(name: str) -> str:
    if name in ("gpt", "lstmlm", "bert"):
        return "text"
    if name == "recurrent-tagger":
        return "tagged"
    return "labelled" if name in ("transformer-classifier", "kim", "gpt-classifier", "label-writer") else "pairs"


def command(runs: Runs, name: str, out: str, *more: str) -> list[str]:
    given = texts(runs.folder)[kind_of(name)]
    return ["train", *given, "--out", str(runs.folder / out), f"model.name={name}", *COMMON, *FAMILIES[name], *more]


SAMPLE = ("transformer", "universal", "lstmlm", "bert", "transformer-classifier")  # the others by `make soak`
rarely = pytest.mark.skipif(not os.environ.get("REGARD_SOAK"), reason="by `make soak`")


@pytest.mark.parametrize("name", [name if name in SAMPLE else pytest.param(name, marks=rarely) for name in FAMILIES])
def test_two_workers_train_as_one(runs: Runs, name):
    for count in (1, 2):
        train(runs, count, command(runs, name, f"run{count}"))
    check_same_curve(runs.folder / "run2", runs.folder / "run1")
    check_same_weights(runs.folder / "run2", runs.folder / "run1")
    assert read_json(runs.folder / "run2" / "run.json")["status"] == "finished"
    assert (runs.folder / "run2" / "scores.json").exists()


def test_gradients_that_travel_during_the_backward_pass_are_the_same(runs: Runs):
    """A model of several pieces: those above are sent as one."""
    wide = ["model.width=96", "model.layers=2", "train.accumulate=1"]
    for count in (1, 2):
        train(runs, count, command(runs, "transformer", f"run{count}", *wide))
    check_same_curve(runs.folder / "run2", runs.folder / "run1")
    check_same_weights(runs.folder / "run2", runs.folder / "run1")
    assert (runs.folder / "run1" / "model.safetensors").stat().st_size > 2 * SHORTEST


@pytest.mark.parametrize("name", ["transformer", pytest.param("lstmlm", marks=rarely)])
def test_a_run_goes_on_with_another_number_of_workers(runs: Runs, name):
    """2, then 1, then 4, stopped by a signal that only one worker gets. Some batches have fewer rows than 4."""
    few = ["train.batch_tokens=24"] if name == "transformer" else []
    train(runs, 1, command(runs, name, "straight", *few))
    train(runs, 2, command(runs, name, "moved", *few), expect=143, stop=(1, 2, signal.SIGTERM))
    resume = ["train", "--resume", str(runs.folder / "moved")]
    assert runs.wait(runs.start(resume, (5, signal.SIGTERM))) == 143, runs.log()
    train(runs, 4, resume)
    assert "Going on after step 5" in (runs.folder / "log0").read_text()
    check_same_curve(runs.folder / "moved", runs.folder / "straight")
    check_same_weights(runs.folder / "moved", runs.folder / "straight")
    state = max((runs.folder / "moved" / "checkpoints").glob("step-*")) / "state.json"
    assert read_json(state)["workers"] == 4
    train(runs, 2, resume)  # there is nothing left to do


def test_with_dropout_the_same_number_of_workers_resumes_exactly(runs: Runs):
    words = ("transformer", "straight", "model.dropout=0.2")
    train(runs, 2, command(runs, *words))
    stopped = ("transformer", "stopped", "model.dropout=0.2")
    train(runs, 2, command(runs, *stopped), expect=130, stop=(0, 3, signal.SIGINT))
    train(runs, 2, ["train", "--resume", str(runs.folder / "stopped")])
    assert outcome(runs.folder / "stopped") == outcome(runs.folder / "straight")


def test_a_dead_worker_ends_the_run_and_a_restart_picks_it_up(runs: Runs):
    long = ["train.steps=24", "train.save_every=4"]
    train(runs, 2, command(runs, "transformer", "straight", *long))
    began = time.monotonic()
    team = Workers(runs, 2, command(runs, "transformer", "killed", *long), stop=(1, 10, signal.SIGKILL))
    assert team.wait() == [1, -signal.SIGKILL], team.logs()
    assert time.monotonic() - began < 30
    assert "another worker is gone" in team.logs()
    assert "Traceback" not in team.logs()
    assert sorted(path.name for path in (runs.folder / "killed" / "checkpoints").glob("step-*"))[-1] == "step-000000008"
    # torchrun gives the same command again, and says so
    train(runs, 2, command(runs, "transformer", "killed", *long), attempt=1)
    assert outcome(runs.folder / "killed") == outcome(runs.folder / "straight")


def test_what_stops_the_first_worker_stops_all(runs: Runs):
    """A mistake in the command, a folder that is taken, a setting that several cannot have: no one waits."""
    team = Workers(runs, 2, command(runs, "transformer", "none", "train.lr=quick"))
    assert team.wait() == [1, 1]
    assert "Error: setting train.lr" in (runs.folder / "log0").read_text()
    assert not (runs.folder / "none").exists()
    words = ["--text", texts(runs.folder)["text"][1], "--out", str(runs.folder / "vectors"), "model.name=word2vec"]
    team = Workers(runs, 2, ["train", *words, "train.steps=4", "train.ema=0.9"])
    assert team.wait() == [1, 1]
    assert "workers have only some columns of the tables" in (runs.folder / "log0").read_text()
    assert not (runs.folder / "vectors").exists()
    assert "Traceback" not in team.logs()


@pytest.mark.parametrize("name", ["transformer", pytest.param("gpt", marks=rarely), pytest.param("bert", marks=rarely)])
def test_divided_weights_train_as_whole_ones(runs: Runs, name):
    """Half of every weight on each of 2 workers, then a quarter on each of 4, and all of it in one process at the end."""
    # only one worker has a batch to validate
    few = ["model.layers=2", "data.valid_size=3"] if name == "transformer" else []
    train(runs, 1, command(runs, name, "straight", *few))
    shard = [*few, "train.shard=true"]
    train(runs, 2, command(runs, name, "divided", *shard), expect=143, stop=(1, 2, signal.SIGTERM))
    resume = ["train", "--resume", str(runs.folder / "divided")]
    newest = max((runs.folder / "divided" / "checkpoints").glob("step-*"))
    assert sorted(path.name for path in newest.glob("shard*")) == [
        f"shard-0000{i}-of-00002.safetensors" for i in (0, 1)
    ]
    assert not (newest / "optimizer.safetensors").exists()
    train(runs, 4, resume, expect=130, stop=(3, 5, signal.SIGINT))
    assert len(list(max((runs.folder / "divided" / "checkpoints").glob("step-*")).glob("shard*"))) == 4
    train(runs, 1, resume)
    check_same_curve(runs.folder / "divided", runs.folder / "straight")
    check_same_weights(runs.folder / "divided", runs.folder / "straight")
    train(runs, 2, command(runs, name, "all", *shard))
    check_same_curve(runs.folder / "all", runs.folder / "straight")
    check_same_weights(runs.folder / "all", runs.folder / "straight")


def test_a_damaged_shard_is_passed_over_and_what_cannot_be_divided_is_refused(runs: Runs):
    words = ["transformer", "damaged", "train.shard=true"]
    train(runs, 2, command(runs, *words), expect=143, stop=(1, 6, signal.SIGTERM))
    flip_bit(max((runs.folder / "damaged" / "checkpoints").glob("step-*")) / "shard-00001-of-00002.safetensors")
    train(runs, 2, ["train", "--resume", str(runs.folder / "damaged")])
    assert "is damaged and is passed over" in (runs.folder / "log0").read_text()
    assert "Going on after step 4." in (runs.folder / "log0").read_text()
    team = Workers(runs, 2, command(runs, "transformer", "muon", "train.shard=true", "train.optimizer=muon"))
    assert team.wait() == [1, 1]
    assert "muon needs whole matrices" in (runs.folder / "log0").read_text()
