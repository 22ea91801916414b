"""The power goes at any moment: what was acknowledged is there when it comes back, and the run ends as it would have."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

import pytest
from fault_runs import SOAK, files_of, plain_metrics, settings_of, write_texts
from power_cut import Operation, Recorder, play_back, survivors

import regard
from regard.core.files import sha256_of
from regard.training.checkpoint import Checkpoints
from regard.training.progress import Reporter
from regard.training.run import resume, train

CUTS = 3000 if SOAK else 90
RESUMED = 120 if SOAK else 2
MODEL, EVERY = "transformer", 2


class Recorded:
    """A run, and all that it did to the disk. `weights` are the checksums of each checkpoint's."""

    def __init__(self, place: Path):
        self.place, self.weights = place, {}
        write_texts(place)
        (place / "disk").mkdir()
        with pytest.MonkeyPatch.context() as patch:
            recorder = Recorder(patch, place / "disk")
            save = Checkpoints.save

            def acknowledged(checkpoints: Checkpoints, step: int, **content) -> None:
                save(checkpoints, step, **content)
                recorder.acknowledge(step)
                self.weights[step] = sha256_of(checkpoints.path(step) / "model.safetensors")

            patch.setattr(Checkpoints, "save", acknowledged)
            settings = settings_of(MODEL, steps=7, save_every=EVERY, average=3)
            files = files_of(MODEL, place)
            train(out=place / "disk" / "deep" / "run", settings=settings, report=Reporter(quiet=True), **files)
            recorder.acknowledge("finished")
        self.log: list[Operation] = recorder.log
        self.folders = recorder.folders
        self.run = place / "disk" / "deep" / "run"

    def cut(self, at: int, draw: random.Random | None, part: float, target: Path) -> tuple[Path, int, bool]:
        """The folder after a power cut, the last acknowledged step (0: none), and whether the run was finished."""
        shutil.rmtree(target, ignore_errors=True)
        play_back(survivors(self.log[:at], draw, part), self.folders, target)
        notes = [operation.note for operation in self.log[:at] if operation.kind == "acknowledged"]
        return target / "deep" / "run", max((n for n in notes if n != "finished"), default=0), "finished" in notes


@pytest.fixture(scope="module")
def recorded(tmp_path_factory) -> Recorded:
    return Recorded(tmp_path_factory.mktemp("power"))


def test_what_was_acknowledged_is_there_after_any_cut(recorded, tmp_path):
    draw = random.Random(3)
    moments = range(1, len(recorded.log) + 1)
    assert len(moments) > 200
    assert sum(operation.kind == "sync" for operation in recorded.log) > 50
    for number in range(CUTS):
        at = draw.choice(moments)
        part = (None, 0.5, 0.9, 1.0)[number % 4]
        run, acknowledged, finished = recorded.cut(at, draw if part else None, part or 0.0, tmp_path / "disk")
        if not acknowledged:
            continue
        checkpoints = Checkpoints(run / "checkpoints")
        newest = checkpoints.newest(pytest.fail)
        assert newest is not None, at
        assert newest >= acknowledged, at
        best = checkpoints.load(newest).state["progress"]["best_step"]
        assert bool(best) == (newest >= EVERY)  # it was validated
        if best:
            checkpoints.best()  # which is that of this step or of a later one
        assert sha256_of(checkpoints.path(newest) / "model.safetensors") == recorded.weights[newest]
        if finished:
            regard.load(run, "cpu", engine="torch")
            assert sha256_of(run / "model.safetensors") == sha256_of(recorded.run / "model.safetensors")


def test_the_run_goes_on_and_ends_as_if_nothing_had_been(recorded, tmp_path):
    draw = random.Random(4)
    began = next(i for i, operation in enumerate(recorded.log) if operation.note == 2)
    for number in range(RESUMED):
        at = draw.randrange(began, len(recorded.log))
        part = (0.5, None, 0.9, 1.0)[number % 4]
        run, _, _ = recorded.cut(at, draw if part else None, part or 0.0, tmp_path / "disk")
        resume(run, Reporter(quiet=True))
        assert sha256_of(run / "model.safetensors") == sha256_of(recorded.run / "model.safetensors"), at
        assert plain_metrics(run) == plain_metrics(recorded.run), at


def test_the_simulated_disk_loses_what_was_not_synced(tmp_path):
    """So that the tests above could fail."""
    (tmp_path / "disk").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        recorder = Recorder(patch, tmp_path / "disk")
        for name, synced in (("kept", True), ("lost", False)):
            with open(tmp_path / "disk" / name, "wb") as file:
                file.write(b"text")
                file.flush()
                if synced:
                    os.fsync(file.fileno())
        folder = os.open(tmp_path / "disk", os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)
        os.rename(tmp_path / "disk" / "kept", tmp_path / "disk" / "renamed")
    play_back(survivors(recorder.log, None, 0.0), recorder.folders, tmp_path / "after")
    found = {path.name: path.read_bytes() for path in (tmp_path / "after").iterdir()}
    assert found == {"kept": b"text", "lost": b""}
