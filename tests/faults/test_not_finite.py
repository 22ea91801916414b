"""NaN and infinity in loss, gradients or data: weights stay, the batch is named, skips are counted, and a run gives up."""

from __future__ import annotations

import contextlib
import math
import re
import shutil
import signal

import pytest
import torch
from fault_runs import FAMILIES, SOAK, files_of, plain_metrics, settings_of, write_texts

from regard.core.errors import DataError, RegardError, TrainingError
from regard.core.files import load_tensors, sha256_of
from regard.models.base import MODELS
from regard.tasks.folder import weights_of
from regard.training import loop
from regard.training.gradient import Gradients
from regard.training.loop import Trainer
from regard.training.optim import Optimizer
from regard.training.progress import Reporter
from regard.training.run import resume, train

POISONS = {"nan loss": ("loss", math.nan), "infinite loss": ("loss", math.inf), "nan gradient": ("gradient", math.nan),
           "infinite gradient": ("gradient", -math.inf)}  # fmt: skip
SKIPPING = [name for name in MODELS.names() if "embeds" not in MODELS.get(name).capabilities]
CASES = [(model, poison) for model in SKIPPING for poison in POISONS]
if not SOAK:
    CASES = [
        ("transformer", "nan loss"),
        ("lstmlm", "infinite gradient"),
        ("kim", "nan gradient"),
        ("bert", "infinite loss"),
    ]


class Heard(Reporter):
    def __init__(self) -> None:
        super().__init__(quiet=True)
        self.warned: list[str] = []

    def warn(self, text: str) -> None:
        self.warned.append(text)


class Poisoned:
    """Makes chosen steps of any trainer go wrong, and looks that nothing changes in them."""

    def __init__(self, monkeypatch, what: str, value: float, steps: set[int], stop_after: int = 0):
        self.places: dict[int, tuple[int, int, list[int]]] = {}
        self.unchanged: list[int] = []
        step, call = Trainer._step, Gradients.__call__
        poison = [False]

        def poisoned_call(gradients, *given, **named):
            computed = call(gradients, *given, **named)
            if poison[0] and what == "loss":
                return computed._replace(loss=computed.loss * 0 + value)
            if poison[0]:
                next(p for p in gradients.trained if p.grad is not None).grad.view(-1)[0] = value
            return computed

        def poisoned_step(trainer, drawn, *more):
            number = trainer.progress.step + 1
            poison[0] = number in steps
            if poison[0]:
                place = (trainer.progress.epoch, trainer.progress.position)
                self.places[number] = (*place, [row for one in drawn for row in one.batch.rows])
            before = self._state(trainer)
            step(trainer, drawn, *more)
            if poison[0] and all(torch.equal(new, old) for new, old in zip(self._state(trainer), before, strict=True)):
                self.unchanged.append(number)
            if number == stop_after:
                signal.raise_signal(signal.SIGTERM)

        monkeypatch.setattr(Gradients, "__call__", poisoned_call)
        monkeypatch.setattr(Trainer, "_step", poisoned_step)

    def _state(self, trainer) -> list[torch.Tensor]:
        """Weights and what the optimizer remembers of them."""
        states = [t for name, t in sorted(trainer.optimizer.tensors().items()) if "/" in name]
        return [t.detach().clone() for t in (*trainer.model.parameters(), *states)]


def begin(folder, model, report, name="run", **more):
    files = files_of(model, folder)
    return train(out=folder / name, settings=settings_of(model, steps=8, **more), report=report, **files)


@pytest.mark.parametrize(("model", "poison"), CASES)
def test_weights_stay_the_batch_is_named_and_skips_are_counted(tmp_path, monkeypatch, model, poison):
    write_texts(tmp_path)
    poisoned = Poisoned(monkeypatch, *POISONS[poison], {4, 5})
    report = Heard()
    begin(tmp_path, model, report, log_every=3, save_every=4)
    assert poisoned.unchanged == [4, 5]
    rows = [row for row in plain_metrics(tmp_path / "run") if "skipped" in row]
    assert [(row["step"], row["skipped"], row.get("last_skipped_step")) for row in rows] == [
        (3, 0, None),
        (6, 2, 5),
        (8, 2, 5),
    ]
    said = " ".join(report.warned)
    for step, (epoch, position, numbers) in poisoned.places.items():
        assert f"step {step}: epoch {epoch}, batch {position}" in said
        if numbers:
            assert re.search(rf"batch {position} \(rows {numbers[0]}\b", said)
    assert all(
        bool(tensor.isfinite().all()) for tensor in load_tensors(tmp_path / "run" / "model.safetensors").values()
    )


def test_skips_are_counted_across_a_resume(tmp_path, monkeypatch):
    write_texts(tmp_path)
    Poisoned(monkeypatch, "loss", math.nan, {2, 3, 6})
    begin(tmp_path, "transformer", Heard(), name="straight")
    monkeypatch.undo()
    Poisoned(monkeypatch, "loss", math.nan, {2, 3, 6}, stop_after=4)
    assert begin(tmp_path, "transformer", Heard()).interrupted == signal.SIGTERM
    monkeypatch.undo()
    Poisoned(monkeypatch, "loss", math.nan, {2, 3, 6})
    resume(tmp_path / "run", Heard())
    assert plain_metrics(tmp_path / "run") == plain_metrics(tmp_path / "straight")
    assert plain_metrics(tmp_path / "run")[-2]["skipped"] == 3
    assert sha256_of(tmp_path / "run" / "model.safetensors") == sha256_of(tmp_path / "straight" / "model.safetensors")


def test_a_run_gives_up_after_so_many_and_its_checkpoint_is_whole(tmp_path, monkeypatch):
    monkeypatch.setattr(loop, "MOST_BAD_STEPS", 3)
    write_texts(tmp_path)
    Poisoned(monkeypatch, "gradient", math.nan, {4, 5, 6, 7, 8})
    with pytest.raises(TrainingError, match="not finite for 3 steps in a row"):
        begin(tmp_path, "transformer", Heard(), save_every=2)
    monkeypatch.undo()
    assert resume(tmp_path / "run", Heard()).interrupted is None


def test_what_two_runs_with_the_same_bad_steps_end_in_does_not_depend_on_what_was_bad(tmp_path, monkeypatch):
    """A skipped step leaves no trace but its count."""
    write_texts(tmp_path)
    hashes = set()
    for number, (what, value) in enumerate(POISONS.values()):
        with pytest.MonkeyPatch.context() as patch:
            Poisoned(patch, what, value, {3})
            begin(tmp_path, "transformer", Heard(), name=str(number))
        hashes.add(sha256_of(tmp_path / str(number) / "model.safetensors"))
    assert len(hashes) == 1


@pytest.mark.parametrize("value", ["nan", "inf", "1e999"])
def test_vectors_that_are_not_finite_are_refused(tmp_path, value):
    write_texts(tmp_path)
    (tmp_path / "vectors.txt").write_text(f"2 8\nab {' '.join(['0.1'] * 8)}\ncd {' '.join(['0.2'] * 7)} {value}\n")
    with pytest.raises(DataError, match=r"finite|number"):
        begin(tmp_path, "recurrent-classifier", Heard(), vectors=str(tmp_path / "vectors.txt"))
    assert not (tmp_path / "run").exists()


def test_word_vectors_that_diverge_end_the_run_with_a_whole_checkpoint(tmp_path):
    """word2vec changes its tables in place: a step cannot be taken back, so the run ends, and goes on from what was saved."""
    write_texts(tmp_path)
    with pytest.raises(TrainingError, match="they diverge"):
        begin(tmp_path, FAMILIES["embedding"], Heard(), lr=1e6, save_every=1)
    for folder in (tmp_path / "run" / "checkpoints").glob("step-*"):
        weights = load_tensors(folder / "model.safetensors")
        assert all(bool(t.isfinite().all()) for t in weights.values() if t.is_floating_point())
    shutil.rmtree(tmp_path / "run")


def test_the_poison_works(tmp_path, monkeypatch):
    """So that the tests above could fail: without the optimizer's guard, the weights would be gone."""

    def unguarded(optimizer, loss, *_):
        for part, _ in optimizer.parts:
            part.step()
        return loss

    write_texts(tmp_path)
    monkeypatch.setattr(Optimizer, "apply", unguarded)
    poisoned = Poisoned(monkeypatch, "gradient", math.nan, {2})
    kept = []
    run = Trainer.run
    monkeypatch.setattr(Trainer, "run", lambda trainer: (kept.append(trainer), run(trainer))[1])
    with contextlib.suppress(RegardError):  # such weights cannot be scored
        begin(tmp_path, "transformer", Heard(), save_every=8)
    assert not poisoned.unchanged
    assert not all(bool(t.isfinite().all()) for t in weights_of(kept[0].model).values())
