"""Recorded steps, by a stand-in for CUDA graphs that repeats each operation on the tensors it had the first time."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from graph_standin import Replayed

from regard.core.config import build
from regard.core.types import Padded
from regard.data.batching import Batch, Drawn, Place
from regard.data.packing import PackedBatch
from regard.models.base import MODELS, Writer, build_model
from regard.training.config import TrainConfig
from regard.training.gradient import Gradients
from regard.training.loop import Trainer
from regard.training.lowered import Lowered
from regard.training.optim import Optimizer
from regard.training.progress import Reporter
from regard.training.recording import Recorded

V, CPU = 20, torch.device("cpu")


def make(name: str = "transformer", **choices) -> Writer:
    torch.manual_seed(0)
    small = {"width": 16, "layers": 2, "heads": 2, "inner": 24} if name == "transformer" else {}
    config = build(MODELS.get(name).Config, {"name": name, "dropout": 0.0, **small, **choices}, "model")
    return build_model(name, config, source_vocabulary=V, target_vocabulary=V, shared=True).train()


def batches(count: int, rows: int = 4) -> list[Batch]:
    """Of one shape, without padding on the target side: on a CPU, the output layer asks for it."""
    generator = torch.Generator().manual_seed(2)
    found = []
    for number in range(count):
        source, target = (torch.randint(4, V, (rows, 6), generator=generator) for _ in range(2))
        keep = torch.ones_like(source, dtype=torch.bool)
        if number % 3 == 2:  # padding: another kind of shape
            keep[0, 3:] = False
            source[0, 3:] = 0
        found.append(Batch(Padded(source, keep), target, target.roll(-1, 1), list(range(rows))))
    return found


def train(
    model: Writer,
    record: bool,
    steps: int,
    lowered: bool = False,
    device: str = "cpu",
    fuse: bool = False,
    given: Sequence[Batch | PackedBatch] = (),
    **settings,
) -> tuple[list[float], Gradients]:
    config = TrainConfig(lr=1e-2, clip=0.5, eps=1e-3, **settings)  # biases of keys have no gradient but noise
    optimizer = Optimizer(model.to(device), config, torch.device(device), record)
    low = Lowered(model, torch.float32) if lowered else None

    def finish(loss: torch.Tensor) -> torch.Tensor:
        norm = optimizer.apply(loss)
        if low is not None:
            low.refresh()
        return norm

    subject = Gradients(
        model,
        contextlib.nullcontext,
        0.1,
        record=record,
        fuse=fuse,
        lowered=low,
        finish=finish if optimizer.recordable else None,
        recorder=Replayed if device == "cpu" else Recorded,
    )
    losses = []
    for step, batch in enumerate(given or batches(steps), start=1):
        torch.manual_seed(step)
        optimizer.prepare(1 / step, step)
        computed = subject(batch, 1 / (step + 20))
        if computed.norm is None:
            finish(computed.loss)
        losses.append(float(computed.loss))
    assert int(optimizer.skipped) == 0
    assert all(p.grad is None for p in model.parameters())
    return losses, subject


@pytest.mark.parametrize("optimizer", ["adamw", "adam", "muon", "sgd"])
def test_recorded_steps_learn_what_plain_ones_do(optimizer):
    """The rate, the scale of the loss and the batch change from step to step. Adam's and Muon's steps are recorded as a whole."""
    plain, recorded = make(), make()
    expected, _ = train(plain, False, 9, optimizer=optimizer, weight_decay=0.1)
    losses, subject = train(recorded, True, 9, optimizer=optimizer, weight_decay=0.1)
    assert len(subject.recordings) == 2
    assert (subject.finish is not None) == (optimizer != "sgd")
    assert losses == pytest.approx(expected, rel=1e-5)
    for a, b in zip(recorded.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
@pytest.mark.parametrize("lowered", [False, True])
def test_whole_steps_recorded_on_a_gpu_learn_what_plain_ones_do(lowered, optimizer):
    plain, recorded = make(), make()
    expected, _ = train(plain, False, 12, device="cuda", optimizer=optimizer)
    losses, subject = train(recorded, True, 12, lowered, device="cuda", optimizer=optimizer)
    assert len(subject.recordings) == 2
    assert losses == pytest.approx(expected, rel=1e-4)
    for a, b in zip(recorded.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("kind", ["adamw", "muon"])
def test_a_recorded_step_skips_what_is_not_finite(kind):
    model = make()
    optimizer = Optimizer(model, TrainConfig(lr=1e-2, optimizer=kind, weight_decay=0.1), CPU, record=True)
    subject = Gradients(model, contextlib.nullcontext, record=True, finish=optimizer.apply, recorder=Replayed)
    work = [batches(1)[0]] * 4
    before = None
    for step, batch in enumerate(work, start=1):
        optimizer.prepare(1.0, step)
        bad = step == 3
        before = [p.detach().clone() for p in model.parameters()]
        kept = {name: tensor.clone() for name, tensor in optimizer.tensors().items() if "/" in name}
        computed = subject(batch, float("nan") if bad else 0.05)
        if computed.norm is None:
            optimizer.apply(computed.loss)
        changed = any(not torch.equal(p, q) for p, q in zip(model.parameters(), before, strict=True))
        assert changed != bad
        if bad:
            assert all(torch.equal(tensor, optimizer.tensors()[name]) for name, tensor in kept.items())
    assert (int(optimizer.skipped), int(optimizer.in_a_row), int(optimizer.last_bad)) == (1, 0, 3)


@pytest.mark.parametrize("record", [False, True])
def test_a_copy_does_the_work_and_the_model_learns(record):
    plain, beside = make().double(), make().double()
    expected, _ = train(plain, False, 6)
    losses, subject = train(beside, record, 6, lowered=True)
    assert losses == pytest.approx(expected, rel=1e-5)
    assert subject.lowered is not None
    for a, b, low in zip(beside.parameters(), plain.parameters(), subject.lowered.model.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-5)
        assert torch.equal(low, a.float()), "the copy is fresh"
        assert a.dtype == torch.float64


def test_micro_batches_add_up_in_the_precision_of_the_model():
    plain, beside = make().double(), make().double()
    low = Lowered(beside, torch.float32)
    subjects = [Gradients(plain, contextlib.nullcontext), Gradients(beside, contextlib.nullcontext, lowered=low)]
    for batch in batches(3):
        for subject in subjects:
            subject(batch, 0.1)
    for a, b in zip(beside.parameters(), plain.parameters(), strict=True):
        assert a.grad is not None
        assert a.grad.dtype == torch.float64
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-4, atol=1e-5)
    assert all(p.grad is None for p in low.model.parameters())


def test_models_with_running_averages_get_no_copy():
    with pytest.raises(Exception, match=r"train\.weights.*running averages"):
        Lowered(make(normalise="batch"), torch.float32)


def test_no_room_for_a_recording_means_no_recording():
    class Full(Replayed):
        def __init__(self, work, pool=None):
            work()  # as far as it gets
            raise torch.OutOfMemoryError("no room")

    plain, recorded = make(), make()
    expected = gradients_of(plain, Gradients(plain, contextlib.nullcontext))
    subject = Gradients(recorded, contextlib.nullcontext, record=True, recorder=Full)
    for _ in range(3):
        found = gradients_of(recorded, subject)
        assert not subject.recordings
        assert subject.split == 0
        for a, b in zip(found, expected, strict=True):
            torch.testing.assert_close(a, b)


def test_recordings_go_with_the_state_that_they_carry_on():
    """They read and write it where it is: once it is dropped, they would spoil whatever came there."""
    torch.manual_seed(0)
    config = build(MODELS.get("lstmlm").Config, {"name": "lstmlm", "width": 8, "dropout": 0.0}, "model")
    model = build_model("lstmlm", config, source_vocabulary=V, target_vocabulary=V, shared=True).train()
    subject = Gradients(model, contextlib.nullcontext, record=True, recorder=Replayed)
    first = []
    for _ in range(2):
        for p in model.parameters():
            p.grad = None
        subject.forget()
        assert not subject.recordings
        first.append(float(subject(batches(1)[0], 0.1).loss))
        assert float(subject(batches(1)[0], 0.1).loss) != first[0], "the state has gone on"
        assert len(subject.recordings) == 1
    assert first[0] == first[1]


def gradients_of(model: Writer, subject: Gradients) -> list[torch.Tensor]:
    subject(batches(1)[0], 0.1)
    found = [p.grad.clone() for p in model.parameters()]  # type: ignore[union-attr]
    for p in model.parameters():
        p.grad = None
    return found


def test_batches_without_padding_need_no_mask():
    """Attention is asked without one, and gives the same."""
    model = make()
    seen = []
    layer = model.encoder[0].attention  # type: ignore[union-attr]
    hook = layer.register_forward_pre_hook(lambda module, args: seen.append(args[1]))
    subject = Gradients(model, contextlib.nullcontext)
    full, padded = batches(1)[0], batches(3)[2]
    subject(full, 0.1)
    subject(padded, 0.1)
    hook.remove()
    assert seen[0] is None
    assert seen[1] is not None
    with torch.no_grad():
        plain = model(full.source, full.target_in).hidden
    subject.forward = lambda source, target: kept.append(model(source, target)) or kept[-1]  # type: ignore[assignment]
    kept = []
    subject(full, 0.1)
    torch.testing.assert_close(kept[0].hidden.detach(), plain, rtol=1e-5, atol=1e-5)


def test_the_trainer_tells_once_of_batches_that_are_cut(tmp_path: Path):
    class Text:
        def multiple(self, model, on_cuda):
            return 1

        def open(self, config, place, multiple, on_cuda, part):
            drawn = (Drawn(batch, 0, Place(0, i + 1)) for i, batch in enumerate(batches(40)))
            return _Stream(drawn)

    class Told(Reporter):
        def __init__(self):
            super().__init__(quiet=True)
            self.warnings = []

        def warn(self, text):
            self.warnings.append(text)

    model = make()
    forward = model.forward

    def limited(source, target, record=None):
        if len(target) > 2:
            raise torch.OutOfMemoryError("too many rows")
        return forward(source, target, record)

    model.forward = limited  # type: ignore[method-assign]
    config = TrainConfig(steps=4, log_every=2, save_every=4, device="cpu")
    report = Told()
    trainer = Trainer(model, Text(), None, config, tmp_path, CPU, report)
    trainer.run()
    assert len(report.warnings) == 1
    assert "cut into pieces" in report.warnings[0]
    assert '"split_batches": 4' in (tmp_path / "metrics.jsonl").read_text()


class _Stream:
    def __init__(self, drawn):
        self.drawn = drawn

    def __next__(self):
        return next(self.drawn)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        pass
