"""Stopped after any step and gone on with, a run ends as the straight one, bit for bit: every model, in one process.

`make soak` goes on from each of the 59 steps of a run of 60, with every registered model. Here it is a seeded sample.
"""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest
from fault_runs import SOAK, files_of, plain_metrics, settings_of, write_texts

from regard.core.files import sha256_of
from regard.models.base import MODELS
from regard.training import log
from regard.training.background_saves import BackgroundSaves
from regard.training.loop import Trainer
from regard.training.progress import Reporter
from regard.training.run import resume, train

STEPS = 60 if SOAK else 9
NAMES = MODELS.names()
if not SOAK:  # one that carries its state from batch to batch, and two others
    NAMES = ["lstmlm", *sorted(random.Random(17).sample([name for name in NAMES if name != "lstmlm"], 2))]
CHOSEN = list(range(1, STEPS)) if SOAK else [1, 5]


def ending(run: Path) -> dict[str, object]:
    """Weights, the last checkpoint with its optimizer, the best weights, and the log without times."""
    paths = [run / "model.safetensors", *run.glob(f"checkpoints/step-{STEPS:09d}/*.safetensors")]
    paths += run.glob("checkpoints/best/*.safetensors")
    assert len(paths) >= 3
    return {**{str(path.relative_to(run)): sha256_of(path) for path in paths}, "metrics": plain_metrics(run)}


def train_with_copies(place: Path, model: str) -> None:
    """Trains into `straight`, and keeps a copy of the folder as it is after each chosen step, with a checkpoint of it."""
    trainers: list[Trainer] = []
    with pytest.MonkeyPatch.context() as patch:
        run, check = Trainer.run, BackgroundSaves.check

        def remembered(trainer: Trainer) -> int | None:
            trainers.append(trainer)
            return run(trainer)

        def copied(saves: BackgroundSaves) -> None:
            check(saves)
            step = trainers[-1].progress.step
            if step in CHOSEN:
                trainers[-1]._save(log.NoLog())
                saves.settle()
                ignored = shutil.ignore_patterns(".lock", *(f"step-{other:09d}" for other in range(step)))
                shutil.copytree(place / "straight", place / f"after-{step}", ignore=ignored)

        patch.setattr(Trainer, "run", remembered)
        patch.setattr(BackgroundSaves, "check", copied)
        settings = settings_of(model, steps=STEPS, save_every=STEPS // 2, log_every=4)  # sums go on over a stop
        train(out=place / "straight", settings=settings, report=Reporter(quiet=True), **files_of(model, place))


@pytest.mark.parametrize("model", NAMES)
def test_going_on_after_any_step(tmp_path, model, monkeypatch):
    monkeypatch.setattr(log, "_tensorboard", lambda *_: None)
    write_texts(tmp_path)
    train_with_copies(tmp_path, model)
    straight = ending(tmp_path / "straight")
    for step in CHOSEN:
        run = tmp_path / f"after-{step}"
        assert [path.name for path in run.glob("checkpoints/step-*")] == [f"step-{step:09d}"]
        assert not (run / "model.safetensors").exists()
        resume(run, Reporter(quiet=True))
        assert ending(run) == straight, step
        shutil.rmtree(run)
    print(f"\n{model}: gone on after {len(CHOSEN)} steps of {STEPS}")
