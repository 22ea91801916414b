"""A run that was stopped and resumed ends as one that was not, bit for bit."""

import json
import os
import shutil
import signal
import subprocess
import sys

import pytest
import torch
from runs import SETTINGS, STEPS, await_file, await_step, digest, flip_bit, outcome

import regard
from regard.core.files import load_tensors
from regard.models.base import build_model
from regard.models.transformer import TransformerConfig

CASES = {
    "plain": [],
    "ema": ["train.ema=0.9", "train.validate_every=3", "train.log_every=3"],
    "muon": ["train.optimizer=muon", "train.accumulate=2"],
    "average": ["train.average=3", "tokenizer.joint=false"],
    "recurrent": ["model.name=bahdanau", "model.embedding=12"],
    "augmented": ["augment.bpe_dropout=0.3", "augment.typos=0.2", "augment.upper=0.1", "tokenizer.kind=bpe"],
}


@pytest.mark.parametrize("case", CASES)
def test_stopping_anywhere_changes_nothing(runs, case):
    straight = outcome(runs.train("straight", *CASES[case]))
    assert len(straight["metrics"]) > STEPS // 3
    runs.train("stopped", *CASES[case], signal_at=(1, signal.SIGINT), expect=130)
    stops = [(4, signal.SIGTERM), (5, signal.SIGINT), (6, signal.SIGTERM), (27, signal.SIGINT), (29, signal.SIGTERM)]
    for stop in stops:
        runs.resume("stopped", signal_at=stop, expect=128 + stop[1])
        assert f"Stopped and saved at step {stop[0]}." in runs.log()
        assert (runs.folder / f"stopped/checkpoints/step-{stop[0]:09d}/manifest.json").exists()
        assert f"regard train --resume {runs.folder / 'stopped'}" in runs.log()
    assert outcome(runs.resume("stopped")) == straight
    runs.resume("stopped")
    assert "finished" in runs.log()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_from_outside_to_the_real_command(runs, number):
    argv = runs.argv("run", "train.steps=100000", "train.save_every=5")
    command = [sys.executable, "-m", "regard", *argv]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        await_step(runs.folder / "run", 5, 60)
        process.send_signal(number)
        _, said = process.communicate(timeout=20)
    assert process.returncode == 128 + number
    assert f"Go on with: regard train --resume {runs.folder / 'run'}" in said
    assert "Traceback" not in said
    state = json.loads((runs.folder / "run" / "run.json").read_text())
    assert state["status"] == "interrupted"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_before_training_says_how_to_go_on(runs, number):
    pid = runs.start(runs.argv("run"))
    await_file(runs.folder / "run" / "config.json")
    os.kill(pid, number)
    assert runs.wait(pid) == 128 + number, runs.log()
    assert f"regard train --resume {runs.folder / 'run'}" in runs.log()
    assert "Traceback" not in runs.log()
    assert outcome(runs.resume("run")) == outcome(runs.train("straight"))


def test_damage_to_the_newest_checkpoint_is_said_and_the_previous_one_used(runs):
    straight = outcome(runs.train("straight"))
    run = runs.train("run", signal_at=(17, signal.SIGTERM), expect=143)
    flip_bit(run / "checkpoints" / "step-000000017" / "model.safetensors")
    runs.resume("run", signal_at=(21, signal.SIGTERM), expect=143)
    assert "Warning: Checkpoint of step 17 is damaged and is passed over." in runs.log()
    assert "Going on after step 15." in runs.log()
    assert outcome(runs.resume("run")) == straight


def test_when_every_checkpoint_is_damaged_nothing_is_deleted(runs):
    run = runs.train("run", signal_at=(12, signal.SIGTERM), expect=143)
    for folder in (run / "checkpoints").glob("step-*"):
        flip_bit(folder / "optimizer.safetensors")
    before = {path: digest(path) for path in (run / "checkpoints").rglob("*") if path.is_file()}
    runs.resume("run", expect=1)
    assert "Error: " in runs.log()
    assert "every checkpoint of this run is damaged. Restore one from a copy" in runs.log()
    assert "Traceback" not in runs.log()
    assert {path: digest(path) for path in (run / "checkpoints").rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "data.json"])
def test_damage_to_the_runs_own_files_is_not_trained_with(runs, name):
    run = runs.train("run", signal_at=(7, signal.SIGTERM), expect=143)
    flip_bit(run / name)
    runs.resume("run", expect=1)
    assert f"{name}: the file is corrupted" in runs.log()


def test_the_number_of_workers_does_not_matter(runs):
    results = [outcome(runs.train(str(workers), f"train.workers={workers}")) for workers in (0, 1, 2)]
    assert results[0] == results[1] == results[2]


def test_another_seed_does_matter(runs):
    """So that the comparisons above could fail."""
    one, two = outcome(runs.train("1")), outcome(runs.train("2", "train.seed=2"))
    assert one["model.safetensors"] != two["model.safetensors"]
    assert one["metrics"] != two["metrics"]


@pytest.mark.parametrize("shared", [True, False])
def test_the_same_seed_gives_the_same_first_weights(shared):
    """Wherever in memory the model's parts happen to lie."""
    config = TransformerConfig(width=8, layers=1, heads=1)
    models = []
    for _ in range(16):  # all kept, so that no two lie in the same place
        torch.manual_seed(1)
        models.append(build_model("transformer", config, source_vocabulary=9, target_vocabulary=9, shared=shared))
    first = models[0].state_dict()
    for model in models:
        assert all(torch.equal(tensor, first[name]) for name, tensor in model.state_dict().items())


def test_other_text_is_refused_on_resume(runs):
    run = runs.train("run", signal_at=(7, signal.SIGTERM), expect=143)
    runs.write_corpus(2)
    runs.resume("run", expect=1)
    assert f"Error: {run}: the text is not what this run was started with." in runs.log()
    runs.write_corpus(1)
    runs.resume("run")


def test_a_second_process_in_the_folder_is_refused(runs):
    first = runs.start(runs.argv("run", "train.steps=100000"))
    await_step(runs.folder / "run", 5)
    runs.resume("run", expect=1)
    assert "another process is training in this folder" in runs.log()
    runs.train("run", expect=1)
    assert "the folder already holds a run" in runs.log()
    os.kill(first, signal.SIGKILL)
    assert runs.wait(first) == -signal.SIGKILL


def test_patience_stops_early_and_the_best_weights_are_the_final_ones(runs):
    words = ("train.steps=200", "train.lr=0.5", "train.warmup=0", "train.patience=2", "train.save_every=2")
    run = runs.train("run", *words)
    rows = [row for row in outcome(run)["metrics"] if "valid_nll" in row]
    values = [row["valid_nll"] for row in rows]
    assert rows[-1]["step"] < 200
    assert len(rows) - 1 - values.index(min(values)) == 2  # two validations without improvement
    assert rows[values.index(min(values))]["step"] == rows[-1]["best_step"]
    final, best = (load_tensors(run / place) for place in ("model.safetensors", "checkpoints/best/model.safetensors"))
    newest = load_tensors(max((run / "checkpoints").glob("step-*")) / "model.safetensors")
    assert all(torch.equal(final[name], best[name]) for name in final)
    assert any(not torch.equal(final[name], newest[name]) for name in final)
    stopped = runs.train("stopped", *words, signal_at=(rows[-1]["step"] - 1, signal.SIGTERM), expect=143)
    assert outcome(runs.resume("stopped")) == outcome(run)
    assert stopped.exists()


def test_select_last_ends_with_the_last_weights(runs):
    run = runs.train("run", "train.select=last")
    newest = load_tensors(run / f"checkpoints/step-{STEPS:09d}/model.safetensors")
    final = load_tensors(run / "model.safetensors")
    assert all(torch.equal(final[name], newest[name]) for name in final)


def test_average_is_the_mean_of_the_last_checkpoints(runs):
    run = runs.train("run", "train.average=3", "train.steps=28")
    parts = [load_tensors(run / f"checkpoints/step-{step:09d}/model.safetensors") for step in (28, 25, 20)]
    for name, tensor in load_tensors(run / "model.safetensors").items():
        mean = (parts[0][name].double() + parts[1][name].double() + parts[2][name].double()) / 3
        assert torch.allclose(tensor.double(), mean, rtol=1e-6, atol=1e-9), name


def test_an_interrupted_run_can_be_used(runs):
    run = runs.train("run", signal_at=(12, signal.SIGTERM), expect=143)

    def same(folder) -> bool:
        translator = regard.load(run, device="cpu")
        assert isinstance(translator.translate(["ab cd"], beam=1)[0], str)
        own, stored = dict(translator.model.named_parameters()), load_tensors(folder / "model.safetensors")
        return all(torch.equal(tensor, own[name]) for name, tensor in stored.items())

    best, newest = run / "checkpoints/best", run / "checkpoints/step-000000012"
    assert same(best)
    assert not same(newest)
    flip_bit(best / "model.safetensors")
    with pytest.warns(UserWarning, match="damaged checkpoint is passed over"):
        assert same(newest)
    shutil.rmtree(best)
    assert same(newest)


def test_damaged_best_weights_are_said_and_the_last_ones_used(runs):
    words = ("train.steps=40", "train.lr=0.5", "train.warmup=0", "train.patience=3", "train.save_every=1")
    straight = outcome(runs.train("straight", *words))
    last = straight["metrics"][-1]["step"]
    assert straight["metrics"][-1]["best_step"] == last - 3  # the last three validations were worse
    run = runs.train("run", *words, signal_at=(last - 1, signal.SIGTERM), expect=143)
    flip_bit(run / "checkpoints/best/model.safetensors")
    runs.resume("run")
    assert "Warning: The best weights are damaged, the run ends with its last ones." in runs.log()
    assert digest(run / "model.safetensors") == digest(max(run.glob("checkpoints/step-*")) / "model.safetensors")


def test_a_run_can_be_resumed_from_another_folder(runs):
    (runs.folder / "r.toml").write_text('[data]\nsrc = "text.src"\ntgt = "text.tgt"\n')
    argv = ["train", "r.toml", "--out", "run", *SETTINGS]
    assert runs.wait(runs.start(argv, signal_at=(3, signal.SIGTERM))) == 143, runs.log()
    command = [sys.executable, "-m", "regard", "train", "--resume", str(runs.folder / "run")]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0
