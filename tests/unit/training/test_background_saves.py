"""Checkpoints in the background: what is written is what was there when it was asked for, one after the other."""

import os
import subprocess
import sys
import threading
import time

import pytest
import torch

from regard.core.files import sha256_of
from regard.training.background_saves import BackgroundSaves
from regard.training.checkpoint import Checkpoints


def content(weights, progress) -> dict:
    return {
        "weights": weights,
        "optimizer": {"w/exp_avg": weights["w"] * 2},
        "average": weights,
        "carried": weights,
        "state": {"progress": progress},
    }


@pytest.fixture
def held(tmp_path, monkeypatch):
    """Saves that wait for a gate before they write anything."""
    gate, began = threading.Event(), []
    save = Checkpoints.save

    def slow(checkpoints, step, **given):
        began.append(step)
        assert gate.wait(20)
        save(checkpoints, step, **given)

    monkeypatch.setattr(Checkpoints, "save", slow)
    saves = BackgroundSaves(Checkpoints(tmp_path / "c"))
    yield saves, gate, began
    gate.set()
    saves.close()


THREADS = """
import os, pathlib, sys, torch
from regard.training.background_saves import BackgroundSaves
from regard.training.checkpoint import Checkpoints

def threads():
    return len(os.listdir("/proc/self/task"))

torch.set_num_threads(2)
table = torch.randn(1000, 1000)
parts = torch.stack([table, table + 1])
(table @ table).abs_()
before = threads()
saves = BackgroundSaves(Checkpoints(pathlib.Path(sys.argv[1])))
tensors = {"w": table, "turned": table.T, "part": parts[1], "same": table}
saves.save(1, weights=tensors, optimizer={"a": parts[0]}, average=tensors, state={})
saves.save_best(tensors, {})
saves.settle()
print(threads() - before)
"""


@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="needs Linux's list of threads")
def test_the_thread_that_writes_gets_no_threads_from_openmp(tmp_path):
    """With more of these than processors, they no longer wait for work awake, and each operation of torch takes longer."""
    called = [sys.executable, "-c", THREADS, str(tmp_path / "c")]
    done = subprocess.run(called, capture_output=True, text=True, timeout=120, check=True,
                          env={**os.environ, "OMP_NUM_THREADS": "2", "MKL_NUM_THREADS": "2"})  # fmt: skip
    assert done.stdout.split() == ["1"], done.stdout  # the one that writes
    found = Checkpoints(tmp_path / "c").load(1)
    assert torch.equal(found.weights["turned"], found.weights["w"].T)
    assert torch.equal(found.weights["part"], found.weights["same"] + 1)


def test_what_is_written_is_what_was_there_while_training_changes_it(held, tmp_path):
    saves, gate, _ = held
    weights, progress = {"w": torch.arange(1000.0), "t": torch.arange(12.0).reshape(3, 4).T}, {"step": 7, "loss": [0.5]}
    saves.save(7, **content(weights, progress))
    for tensor in weights.values():  # as the next steps do, in place
        tensor.mul_(-3)
    progress["step"] = 8
    progress["loss"].append(1.0)
    gate.set()
    saves.settle()
    loaded = Checkpoints(tmp_path / "c").load(7)
    for found in (loaded.weights, loaded.average, loaded.carried):
        assert found is not None
        assert torch.equal(found["w"], torch.arange(1000.0))
        assert torch.equal(found["t"], torch.arange(12.0).reshape(3, 4).T)
    assert torch.equal(loaded.optimizer["w/exp_avg"], torch.arange(1000.0) * 2)
    assert loaded.state["progress"] == {"step": 7, "loss": [0.5]}


def test_files_are_those_of_a_save_that_waits(tmp_path):
    weights = {"w": torch.randn(33)}
    Checkpoints(tmp_path / "plain").save(3, **content(weights, {"step": 3}))
    saves = BackgroundSaves(Checkpoints(tmp_path / "c"))
    saves.save(3, **content(weights, {"step": 3}))
    saves.save_best(weights, {"step": 3})
    saves.settle()
    saves.close()
    for path in (tmp_path / "plain" / "step-000000003").iterdir():
        assert sha256_of(path) == sha256_of(tmp_path / "c" / "step-000000003" / path.name)
    assert torch.equal(Checkpoints(tmp_path / "c").best()["w"], weights["w"])


def test_the_next_copy_is_taken_when_the_last_is_on_the_disk(held):
    saves, gate, began = held
    weights = {"w": torch.zeros(3)}
    saves.save(1, **content(weights, {}))
    second = threading.Thread(target=lambda: saves.save(2, **content(weights, {})))
    second.start()
    second.join(0.2)
    assert second.is_alive()  # it waits, and holds no copy
    assert began == [1]
    gate.set()
    second.join(20)
    saves.settle()
    assert began == [1, 2]
    assert saves.checkpoints.steps() == [2, 1]


def test_closing_waits_and_says_nothing(held, monkeypatch):
    saves, gate, _ = held
    monkeypatch.setattr(Checkpoints, "save_best", lambda *_: 1 / 0)
    saves.save(1, **content({"w": torch.zeros(3)}, {}))
    saves.save_best({"w": torch.zeros(3)}, {})
    gate.set()
    saves.close()  # of a run that already ends with an error of its own
    assert saves.checkpoints.steps() == [1]
    saves.check()


def test_an_error_is_raised_once_at_the_next_look(tmp_path, monkeypatch):
    saves = BackgroundSaves(Checkpoints(tmp_path))
    monkeypatch.setattr(Checkpoints, "save_best", lambda *_: 1 / 0)
    saves.save_best({"w": torch.zeros(3)}, {})
    with pytest.raises(ZeroDivisionError):
        saves.settle()
    saves.settle()
    saves.close()


def test_a_step_that_would_be_more_than_an_interval_ahead_of_the_disk_waits(held):
    saves, gate, _ = held
    saves.checkpoints.every = 4
    assert [step for step in range(1, 10) if saves.due(step)] == [2, 4, 6, 8]
    saves.save(2, **content({"w": torch.zeros(3)}, {}))
    for step in (3, 4):
        saves.allow(step)  # killed in it, the run begins anew: four steps
    fifth = threading.Thread(target=lambda: saves.allow(5))
    fifth.start()
    fifth.join(0.2)
    assert fifth.is_alive()
    gate.set()
    fifth.join(20)
    assert saves.on_disk == 2
    saves.allow(6)


@pytest.mark.parametrize("every", [1, 2, 3, 4, 7])
def test_however_slow_the_disk_a_run_never_gets_further_ahead_than_an_interval(tmp_path, monkeypatch, every):
    save, ahead = Checkpoints.save, []

    def slow(checkpoints, step, **given):
        time.sleep(0.01)
        save(checkpoints, step, **given)

    monkeypatch.setattr(Checkpoints, "save", slow)
    saves = BackgroundSaves(Checkpoints(tmp_path, every=every))
    for step in range(1, 24):
        saves.allow(step)
        ahead.append(step - max(saves.checkpoints.steps(), default=0))
        if saves.due(step):
            saves.save(step, **content({"w": torch.zeros(3)}, {}))
    saves.close()
    assert max(ahead) == every
