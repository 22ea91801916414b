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


def test_layers_of_another_depth_begin_as_the_other_runs(runs):
    """A student with the first and the last layers of its teacher; and that the teacher may go away."""
    teacher = runs.train("teacher", "model.layers=3", "train.steps=5")
    words = ("--from", str(teacher), "model.layers=3", "model.decoder_layers=2", "model.encoder_layers=4")
    still = runs.train("still", *words, "train.lr=0", "train.select=last", "train.steps=1")
    given, taken = load_tensors(teacher / "model.safetensors"), load_tensors(still / "model.safetensors")
    for stack, origins in {"encoder": [0, 0, 1, 2], "decoder": [0, 2]}.items():
        for layer, origin in enumerate(origins):
            name = f"{stack}.{layer}.feedforward.inner.weight"
            assert torch.equal(taken[name], given[name.replace(f".{layer}.", f".{origin}.", 1)])
    assert "decoder.2.feedforward.inner.weight" not in taken
    config = json.loads((still / "config.json").read_text())
    assert [config["model"][name] for name in ("layers", "encoder_layers", "decoder_layers")] == [3, 4, 2]

    straight = outcome(runs.train("straight", *words))
    run = runs.train("student", *words, signal_at=(1, signal.SIGTERM), expect=143)
    shutil.rmtree(teacher)
    for path in (run / "checkpoints").iterdir():
        shutil.rmtree(path)
    asked = json.loads((run / "run.json").read_text())["given"]
    (run / "config.json").write_text(json.dumps({"format": 1, "resolved": False, **asked}))
    (run / "manifest.json").unlink()  # as if it had been killed before its sizes were kept
    assert outcome(runs.resume("student")) == straight


def test_depths_are_kept_where_layers_differ_from_each_other(runs):
    base = runs.train("base", "model.name=gnmt", "train.steps=1")
    runs.train("tuned", "--from", str(base), "model.name=gnmt", "model.layers=3", expect=1)
    assert f"setting model.layers: a run that starts from {base} keeps its model" in runs.log()


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
