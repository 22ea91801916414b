"""Starting from another run's weights: what is taken over, what is refused, and that the other run may go away."""

import json
import shutil
import signal

import pytest
import torch
from runs import digest, flip_bit, outcome

from regard.core.files import load_tensors


@pytest.fixture
def base(runs):
    return runs.train("base", "train.steps=5")


def test_weights_and_tokenizer_are_the_other_runs(runs, base):
    runs.write_corpus(2)
    words = ("--from", str(base), "train.lr=0", "train.select=last", "train.steps=1")
    words = [word for word in runs.argv("tuned", *words) if not word.startswith(("model.", "tokenizer."))]
    assert runs.wait(runs.start(words)) == 0, runs.log()
    tuned = runs.folder / "tuned"
    assert digest(tuned / "tokenizer.json") == digest(base / "tokenizer.json")
    given, taken = load_tensors(base / "model.safetensors"), load_tensors(tuned / "model.safetensors")
    assert all(torch.equal(given[name], taken[name]) for name in given)  # with a learning rate of 0, nothing moves
    config, other = (json.loads((run / "config.json").read_text()) for run in (tuned, base))
    assert config["model"] == other["model"]
    assert not (tuned / "initial").exists()
    assert json.loads((tuned / "run.json").read_text())["start_from"] == str(base)


@pytest.mark.parametrize(("word", "section"), [("model.width=32", "model"), ("tokenizer.size=500", "tokenizer")])
def test_settings_that_conflict_are_refused(runs, base, word, section):
    runs.train("tuned", "--from", str(base), word, expect=1)
    assert f"setting {word.split('=')[0]}: a run that starts from {base} keeps its {section}" in runs.log()
    assert not (runs.folder / "tuned").exists()


def test_the_other_run_may_go_away(runs, base):
    straight = outcome(runs.train("straight", "--from", str(base)))
    assert straight != outcome(runs.train("fresh"))
    copy = runs.folder / "copy"
    shutil.copytree(base, copy)
    run = runs.train("tuned", "--from", str(copy), signal_at=(1, signal.SIGTERM), expect=143)
    shutil.rmtree(copy)
    for path in (run / "checkpoints").iterdir():
        shutil.rmtree(path)  # as if it had been killed before its first checkpoint
    runs.resume("tuned", signal_at=(29, signal.SIGTERM), expect=143)
    flip_bit(run / "initial" / "model.safetensors")  # no longer needed
    assert outcome(runs.resume("tuned")) == straight


def test_damaged_first_weights_are_not_trained_with(runs, base):
    run = runs.train("tuned", "--from", str(base), signal_at=(1, signal.SIGTERM), expect=143)
    for path in (run / "checkpoints").iterdir():
        shutil.rmtree(path)
    flip_bit(run / "initial" / "model.safetensors")
    runs.resume("tuned", expect=1)
    assert "initial/model.safetensors: the file is corrupted" in runs.log()


def test_a_run_that_was_killed_at_its_very_end_needs_the_other_no_more(runs, base):
    run = runs.train("tuned", "--from", str(base))
    before = outcome(run)
    state = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**state, "status": "started"}))
    shutil.rmtree(base)
    assert outcome(runs.resume("tuned")) == before
