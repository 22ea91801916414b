"""The training step: accumulation, what is not finite, and early giving up."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from regard.core.errors import TrainingError
from regard.data.batching import BatchPlan, Drawn, Place, collate
from regard.data.store import TokenRows, TokenStore
from regard.models.base import build_model
from regard.models.transformer import TransformerConfig
from regard.training import log_window, loop
from regard.training.background_saves import BackgroundSaves
from regard.training.config import TrainConfig
from regard.training.log import read_metrics
from regard.training.loop import Trainer
from regard.training.progress import Reporter
from regard.training.texts import PairText


def store(rows: int = 24) -> TokenStore:
    draw = np.random.default_rng(0)
    texts = [[draw.integers(4, 20, draw.integers(1, 9)).tolist() for _ in range(rows)] for _ in range(2)]
    return TokenStore(TokenRows.from_lists(texts[0]), TokenRows.from_lists(texts[1]), np.arange(rows))


def trainer(folder, **settings) -> Trainer:
    torch.manual_seed(0)
    config = TransformerConfig(width=16, layers=1, heads=2, dropout=0.0)
    model = build_model("transformer", config, source_vocabulary=20, target_vocabulary=20, shared=True)
    train = TrainConfig(**{"threads": 1, "workers": 0, "batch_tokens": 40, "warmup": 2, **settings})
    return Trainer(model, PairText(store()), None, train, folder, torch.device("cpu"), Reporter(quiet=True))


def gradients(folder, groups: list[list[int]], monkeypatch) -> dict[str, torch.Tensor]:
    """The gradients of one step over micro-batches of the given rows."""
    subject = trainer(folder)
    drawn = [Drawn(collate(store().source, store().target, rows), 0, Place(0, 1)) for rows in groups]
    seen: dict[str, torch.Tensor] = {}
    monkeypatch.setattr(
        subject.optimizer,
        "step",
        lambda *_: seen.update({name: p.grad.clone() for name, p in subject.model.named_parameters()}),
    )
    subject._step(drawn)
    return seen


def test_micro_batches_give_the_gradients_of_one_batch_whatever_their_token_counts(tmp_path, monkeypatch):
    rows = list(range(12))
    whole = gradients(tmp_path / "whole", [rows], monkeypatch)
    for number, cuts in enumerate(([rows[:6], rows[6:]], [rows[:1], rows[1:]], [rows[:5], rows[5:6], rows[6:]])):
        parts = gradients(tmp_path / str(number), cuts, monkeypatch)
        for name, gradient in whole.items():
            assert torch.allclose(gradient, parts[name], atol=1e-6), name
    assert max(float(gradient.abs().max()) for gradient in whole.values()) > 1e-2


def test_a_step_that_is_not_finite_is_skipped_counted_and_remembered(tmp_path, monkeypatch):
    original = Trainer._step

    def poisoned(self, *given):
        weight = self.model.output.bias
        if self.progress.step + 1 in (3, 4):
            handle = weight.register_hook(lambda g: g * float("nan"))
            before = {name: p.detach().clone() for name, p in self.model.named_parameters()}
            original(self, *given)
            handle.remove()
            assert all(torch.equal(p, before[name]) for name, p in self.model.named_parameters())
        else:
            original(self, *given)

    monkeypatch.setattr(Trainer, "_step", poisoned)
    subject = trainer(tmp_path, steps=6, save_every=4, log_every=2)
    assert subject.run() is None
    rows = read_metrics(tmp_path / "metrics.jsonl")
    skips = [(row["step"], row["skipped"], row.get("last_skipped_step")) for row in rows]
    assert skips == [(2, 0, None), (4, 2, 4), (6, 2, 4)]
    assert all(bool(p.isfinite().all()) for p in subject.model.parameters())
    again = trainer(tmp_path, steps=6, save_every=4, log_every=2)
    assert int(again.optimizer.skipped) == 2


def test_a_run_that_never_recovers_gives_up_and_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(loop, "MOST_BAD_STEPS", 5)
    subject = trainer(tmp_path, steps=50, save_every=10, log_every=1)
    with torch.no_grad():
        subject.model.output.bias[7] = float("nan")
    with pytest.raises(TrainingError, match="not finite for 5 steps in a row"):
        subject.run()
    assert subject.progress.step == 5


def test_random_numbers_depend_on_seed_and_step_alone(tmp_path, monkeypatch):
    def seeds(name: str, **settings) -> list[int]:
        seen = []
        subject = trainer(tmp_path / name, **settings)
        monkeypatch.setattr(subject.optimizer, "step", lambda *_: seen.append(torch.initial_seed()) or torch.zeros(()))
        torch.manual_seed(hash(name))
        subject.run()
        return seen

    first = seeds("a", steps=5)
    assert len(set(first)) == 5
    assert seeds("b", steps=3) == first[:3]
    assert not {*seeds("c", steps=5, seed=2)} & {*first}


def test_an_accumulated_run_takes_as_many_batches_as_it_says(tmp_path):
    one, three = trainer(tmp_path / "1", steps=4), trainer(tmp_path / "3", steps=4, accumulate=3)
    one.run(), three.run()
    batches = len(BatchPlan.of(store(), 40, 1).epoch(0))

    def taken(subject: Trainer) -> int:
        return subject.progress.epoch * batches + subject.progress.position

    assert (taken(one), taken(three)) == (4, 12)


def test_tokens_per_second_leave_validation_and_saving_out(tmp_path, monkeypatch):
    """On a clock of our own: a step takes a second, and what saving costs changes nothing in the speed that is logged."""
    now = [0.0]
    monkeypatch.setattr(log_window, "time", SimpleNamespace(monotonic=lambda: now[0]))
    step, save = Trainer._step, BackgroundSaves.save

    def slow_step(self, *given):
        now[0] += 1.0
        step(self, *given)

    def slow_save(self, *arguments, **names):
        now[0] += 100.0
        save(self, *arguments, **names)

    monkeypatch.setattr(Trainer, "_step", slow_step)
    monkeypatch.setattr(BackgroundSaves, "save", slow_save)
    speeds = []
    for save_every in (1000, 3):  # never within what is logged, and often
        made = trainer(tmp_path / str(save_every), steps=20, log_every=10, save_every=save_every)
        made.run()
        rows = read_metrics(made.folder / "metrics.jsonl")
        speeds.append([row["tokens_per_second"] for row in rows if "tokens_per_second" in row])
    assert len(speeds[0]) == 2
    assert speeds[0] == speeds[1]
