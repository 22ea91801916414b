"""A full disk, a refused permission or a broken sector at any write: a clear sentence, and the last good checkpoint stays."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import random
import shutil

import pytest
import torch
from disk_errors import DiskErrors
from fault_runs import FAMILIES, SOAK, files_of, settings_of, write_texts

from regard.core.errors import CheckpointError, ConfigError
from regard.core.files import sha256_of
from regard.training.background_saves import BackgroundSaves
from regard.training.checkpoint import Checkpoints
from regard.training.progress import Reporter
from regard.training.run import resume, train

ERRORS = {"full": errno.ENOSPC, "refused": errno.EACCES, "broken": errno.EIO}
MOMENTS = 60 if SOAK else 2  # of a run, for each kind of error and family
TRIED = list(FAMILIES) if SOAK else ["translation", "embedding"]


def save(checkpoints: Checkpoints | BackgroundSaves, step: int) -> None:
    checkpoints.save(
        step,
        weights={"w": torch.full((50,), float(step))},
        optimizer={"w/exp_avg": torch.full((50,), -float(step))},
        average=None,
        carried={"0": torch.zeros(3)},
        state={"progress": {"step": step}},
    )


@pytest.mark.parametrize("once", [False, True])
@pytest.mark.parametrize("error", ERRORS)
def test_an_error_at_each_operation_of_a_save_leaves_the_last_checkpoint(tmp_path, monkeypatch, error, once):
    prepared = Checkpoints(tmp_path / "prepared")
    save(prepared, 1)
    save(prepared, 2)
    faults = DiskErrors(monkeypatch, ERRORS[error], once)
    step = 1 if SOAK or (error, once) == ("full", False) else 4
    found = set()
    for at in itertools.count(1, step):
        folder = tmp_path / str(at)
        shutil.copytree(prepared.folder, folder)
        checkpoints, acknowledged = Checkpoints(folder), 2
        with faults.armed(at), contextlib.suppress(OSError):
            save(checkpoints, 3)
            acknowledged = 3
        again = Checkpoints(folder)
        newest = again.newest(pytest.fail)
        assert newest is not None
        assert newest >= acknowledged
        assert again.load(newest).weights["w"].tolist() == [float(newest)] * 50
        assert not list(folder.glob(".*"))
        found.add(newest)
        shutil.rmtree(folder)
        if faults.count < at:
            break
    assert found == {2, 3}
    assert at > 25


def test_an_error_in_the_background_is_raised_at_the_next_step(tmp_path, monkeypatch):
    saves = BackgroundSaves(Checkpoints(tmp_path))
    save(saves, 1)
    saves.settle()
    faults = DiskErrors(monkeypatch, errno.ENOSPC)
    with faults.armed(9):
        save(saves, 2)
        saves._waiting["step"].exception()  # until it is through
        with pytest.raises(OSError, match="No space left"):
            saves.check()
    saves.check()  # once
    save(saves, 3)
    saves.settle()
    saves.close()
    assert Checkpoints(tmp_path).steps() == [3, 1]


def test_an_error_of_the_last_checkpoint_is_not_lost(tmp_path, monkeypatch):
    write_texts(tmp_path)
    save = Checkpoints.save

    def failing(checkpoints: Checkpoints, step: int, **content) -> None:
        if step == 4:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        save(checkpoints, step, **content)

    settings, files = settings_of("kim", steps=4, save_every=2), files_of("kim", tmp_path)
    monkeypatch.setattr(Checkpoints, "save", failing)
    with pytest.raises(CheckpointError, match="Input/output error"):
        train(out=tmp_path / "run", settings=settings, report=Reporter(quiet=True), **files)
    assert not (tmp_path / "run" / "model.safetensors").exists()
    monkeypatch.undo()
    assert resume(tmp_path / "run", Reporter(quiet=True)).interrupted is None


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # TensorBoard's own thread
@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("family", TRIED)
def test_an_error_at_any_moment_of_a_run_is_one_sentence_and_loses_nothing(tmp_path, monkeypatch, family, error):
    write_texts(tmp_path)
    model = FAMILIES[family]
    settings, files = settings_of(model, steps=4, save_every=2), files_of(model, tmp_path)
    faults = DiskErrors(monkeypatch, ERRORS[error])

    def start(name: str):
        return train(out=tmp_path / name, settings=settings, report=Reporter(quiet=True), **files)

    with faults.armed(1 << 30):
        start("straight")
    total, expected = faults.count, sha256_of(tmp_path / "straight" / "model.safetensors")
    assert total > 80
    draw, failed = random.Random(f"{family} {error}"), 0
    for at in sorted(draw.sample(range(1, total + 1), MOMENTS)):
        run, told = tmp_path / f"run{at}", ""
        with faults.armed(at):
            try:
                result = start(run.name)
            except (CheckpointError, ConfigError) as refusal:
                told = str(refusal)
        # threads do not always do as much: then nothing has failed, or only the removal of what is old
        if told:
            assert os.strerror(ERRORS[error]) in told
            result = resume(run, Reporter(quiet=True)) if (run / "run.json").exists() else start(run.name)
        failed += bool(told)
        assert result.interrupted is None
        assert sha256_of(run / "model.safetensors") == expected, at
        shutil.rmtree(run)
    assert failed >= MOMENTS * 0.8
    print(f"\n{family}, {error}: {failed} of {MOMENTS} runs failed by it, and went on to the same end")
