"""Checkpoints: what is kept, what is passed over, and that every crash while saving leaves a whole one."""

import contextlib
import errno
import itertools
import os
import random
import shutil

import pytest
import torch

from faults import Faults
from regard.core.errors import CheckpointError
from regard.training.checkpoint import Checkpoints

AVERAGE = {"w": torch.full((3,), 0.5)}


def save(checkpoints: Checkpoints, step: int, average: bool = True) -> None:
    weights = {"w": torch.full((50,), float(step)), "b": torch.arange(3) * step}
    checkpoints.save(
        step,
        weights=weights,
        optimizer={"w/exp_avg": torch.full((50,), -float(step))},
        average=AVERAGE if average else None,
        state={"progress": {"step": step, "loss": 0.1 + 0.2}},
    )


def flip(path, place: int | None = None) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2 if place is None else place] ^= 4
    path.write_bytes(content)


def refuse(message: str) -> None:
    raise AssertionError(message)


def test_what_was_saved_comes_back(tmp_path):
    checkpoints = Checkpoints(tmp_path / "c")
    assert checkpoints.newest(refuse) is None
    save(checkpoints, 7)
    weights, optimizer, average, carried, state = checkpoints.load(checkpoints.newest(refuse))
    assert carried is None
    assert weights["w"].tolist() == [7.0] * 50
    assert weights["b"].tolist() == [0, 7, 14]
    assert optimizer["w/exp_avg"].tolist() == [-7.0] * 50
    assert average is not None
    assert torch.equal(average["w"], AVERAGE["w"])
    assert state["progress"] == {"step": 7, "loss": 0.1 + 0.2}
    save(checkpoints, 8, average=False)
    assert checkpoints.load(8)[2] is None


def test_the_newest_two_are_kept_or_as_many_as_are_averaged(tmp_path):
    for keep, expected in ((0, [50, 40]), (2, [50, 40]), (4, [50, 40, 30, 20])):
        checkpoints = Checkpoints(tmp_path / str(keep), keep=keep, every=10)
        for step in (10, 20, 30, 40, 50):
            save(checkpoints, step)
        assert checkpoints.steps() == expected
        assert sorted(os.listdir(tmp_path / str(keep))) == sorted(f"step-{step:09d}" for step in expected)


def test_an_interruptions_checkpoint_does_not_push_out_a_regular_one(tmp_path):
    checkpoints = Checkpoints(tmp_path, keep=3, every=10)
    for step in (10, 20, 30, 33, 36):
        save(checkpoints, step)
    assert checkpoints.steps() == [36, 33, 30, 20, 10]
    save(checkpoints, 40)
    save(checkpoints, 44)
    assert checkpoints.regular(44)[:3] == [44, 40, 30]
    assert checkpoints.regular()[:3] == [40, 30, 20]
    assert checkpoints.steps() == [44, 40, 30, 20]


def test_damage_is_named_and_passed_over(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    save(checkpoints, 1)
    save(checkpoints, 2)
    flip(checkpoints.path(2) / "optimizer.safetensors")
    said: list[str] = []
    assert checkpoints.newest(said.append) == 1
    assert len(said) == 1
    assert "step 2" in said[0]
    assert "optimizer.safetensors" in said[0]
    flip(checkpoints.path(1) / "state.json")
    with pytest.raises(CheckpointError, match="every checkpoint of this run is damaged"):
        checkpoints.newest(said.append)
    assert checkpoints.steps() == [2, 1]


def test_a_damaged_checkpoint_never_pushes_out_a_whole_one(tmp_path):
    checkpoints = Checkpoints(tmp_path, every=10)
    for step in (10, 20, 23):
        save(checkpoints, step)
    assert checkpoints.steps() == [23, 20]
    flip(checkpoints.path(23) / "model.safetensors")
    again = Checkpoints(tmp_path, every=10)
    assert again.newest(lambda _: None) == 20
    save(again, 30)
    flip(again.path(30) / "model.safetensors")
    assert Checkpoints(tmp_path, every=10).newest(lambda _: None) == 20


def test_an_unlisted_or_missing_file_is_damage(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    save(checkpoints, 1)
    for name in os.listdir(checkpoints.path(1)):
        copy = tmp_path / "kept"
        shutil.move(checkpoints.path(1) / name, copy)
        with pytest.raises(CheckpointError):
            checkpoints.newest(lambda _: None)
        shutil.move(copy, checkpoints.path(1) / name)
    assert checkpoints.newest(refuse) == 1
    save(checkpoints, 2, average=False)
    shutil.copy(checkpoints.path(1) / "average.safetensors", checkpoints.path(2))
    assert checkpoints.newest(lambda _: None) == 1


def corrupt(path, random_: random.Random) -> str:
    content = bytearray(path.read_bytes())
    how = random_.choice(["flip", "truncate", "zero", "splice", "extend"])
    place = random_.randrange(len(content))
    if how == "flip":
        content[place] ^= 1 << random_.randrange(8)
    elif how == "truncate":
        del content[place:]
    elif how == "zero":
        content[place : place + 64] = bytes(len(content[place : place + 64]))
    elif how == "splice":
        other = random_.randrange(len(content))
        content[place : place + 32] = content[other : other + 32]
    else:
        content += content[place:]
    path.write_bytes(content)
    return f"{how} at {place} of {path.name}"


def test_no_corruption_loads_silently(tmp_path):
    random_ = random.Random(20)
    pristine = Checkpoints(tmp_path / "pristine")
    save(pristine, 5)
    before = {name: (pristine.path(5) / name).read_bytes() for name in sorted(os.listdir(pristine.path(5)))}
    tried = 0
    while tried < 80:
        shutil.rmtree(tmp_path / "c", ignore_errors=True)
        shutil.copytree(tmp_path / "pristine", tmp_path / "c")
        checkpoints = Checkpoints(tmp_path / "c")
        name = random_.choice(list(before))
        how = corrupt(checkpoints.path(5) / name, random_)
        if (checkpoints.path(5) / name).read_bytes() == before[name]:
            continue
        tried += 1
        with pytest.raises(CheckpointError):
            pytest.fail(f"{how}: loaded step {checkpoints.newest(lambda _: None)}")


@pytest.fixture
def prepared(tmp_path):
    checkpoints = Checkpoints(tmp_path / "prepared")
    save(checkpoints, 1)
    save(checkpoints, 2)
    checkpoints.save_best({"w": torch.full((2,), 2.0)}, {"step": 2})
    return checkpoints.folder


def save_all(checkpoints: Checkpoints) -> None:
    save(checkpoints, 3)  # and step 1 goes
    save(checkpoints, 3)  # replaces
    checkpoints.save_best({"w": torch.full((2,), 3.0)}, {"step": 3})  # replaces


def found(folder) -> tuple[int, float]:
    """What a new process finds: the newest checkpoint and the best weights, whole and without warnings."""
    checkpoints = Checkpoints(folder)
    newest = checkpoints.newest(refuse)
    assert newest is not None
    for step in checkpoints.steps():
        checkpoints.check(step)
    assert checkpoints.load(newest)[0]["w"].tolist() == [float(newest)] * 50
    assert not [name for name in os.listdir(folder) if name.startswith(".")]
    return newest, float(checkpoints.best()["w"][0])


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # the child touches no thread of ours
def test_the_end_of_the_process_before_any_file_operation_leaves_whole_checkpoints(prepared, tmp_path, monkeypatch):
    faults = Faults(monkeypatch, lambda: os._exit(77))
    results = []
    for at in itertools.count(1):
        shutil.copytree(prepared, tmp_path / str(at))
        child = os.fork()
        if not child:
            try:
                with faults.armed(at):
                    save_all(Checkpoints(tmp_path / str(at)))
                os._exit(0)
            finally:
                os._exit(1)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert code in (0, 77)
        results.append(found(tmp_path / str(at)))
        shutil.rmtree(tmp_path / str(at))
        if not code:
            break
    assert len(results) > 80
    assert set(results) == {(2, 2.0), (3, 2.0), (3, 3.0)}
    assert results == sorted(results)


def test_a_full_disk_in_any_file_operation_leaves_whole_checkpoints(prepared, tmp_path, monkeypatch):
    def fail() -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    faults = Faults(monkeypatch, fail)
    results = []
    for at in itertools.count(1):
        shutil.copytree(prepared, tmp_path / str(at))
        checkpoints = Checkpoints(tmp_path / str(at))
        with faults.armed(at), contextlib.suppress(OSError):
            save_all(checkpoints)
        results.append(found(tmp_path / str(at)))
        shutil.rmtree(tmp_path / str(at))
        if faults.count < at:
            break
    assert len(results) > 80
    assert set(results) == {(2, 2.0), (3, 2.0), (3, 3.0)}
