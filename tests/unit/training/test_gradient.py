"""Gradients of a micro-batch: plain, read twice for consistency, and recorded on a GPU."""

from __future__ import annotations

import contextlib

import pytest
import torch

from regard.core.config import build
from regard.core.types import BOS, EOS, PAD, Padded
from regard.data.batching import Batch, collate
from regard.data.store import TokenRows
from regard.models.base import MODELS, Writer, build_model
from regard.training.gradient import Gradients

V = 30
SMALL = {"transformer": {"width": 16, "layers": 2, "heads": 2, "inner": 24}}  # others: their defaults
TRANSLATORS = [name for name in MODELS.names() if "translates" in MODELS.get(name).capabilities]
LANGUAGE_MODELS = [name for name in MODELS.names() if "continues" in MODELS.get(name).capabilities]


def make(dropout: float = 0.0, device: str = "cpu", name: str = "transformer", **choices) -> Writer:
    torch.manual_seed(0)
    values = {"name": name, "dropout": dropout, **SMALL.get(name, {}), **choices}
    config = build(MODELS.get(name).Config, values, "model")
    return build_model(name, config, source_vocabulary=V, target_vocabulary=V, shared=True).to(device).train()


def batches(count: int, fill: int = 0) -> list[Batch]:
    generator = torch.Generator().manual_seed(1)
    rows = [
        torch.randint(4, V, (int(n),), generator=generator).tolist()
        for n in torch.randint(2, 14, (8 * count,), generator=generator)
    ]
    store = TokenRows.from_lists(rows)
    return [collate(store, store, range(8 * i, 8 * i + 8), multiple=8, fill=fill) for i in range(count)]


def gradients(model: Writer, **options) -> Gradients:
    settings = {"smoothing": 0.1, "consistency": 0.0, "record": False, **options}
    return Gradients(model, contextlib.nullcontext, **settings)


def taken(model: Writer) -> list[torch.Tensor]:
    found = [p.grad.clone() for p in model.parameters()]  # type: ignore[union-attr]
    for p in model.parameters():
        p.grad = None
    return found


@pytest.mark.parametrize(
    ("name", "choices"), [*((name, {}) for name in TRANSLATORS), ("universal", {"halting": "act"})]
)
def test_rows_that_fill_a_batch_up_change_nothing(name, choices):
    """Nor do the extra losses of models that have some count them."""
    model = make(name=name, **choices)
    compute = gradients(model)
    plain, filled = batches(1)[0], batches(1, fill=400)[0]
    assert len(filled.target_in) > len(plain.target_in)
    assert (filled.source.keep.sum(1) > 0).all(), "no row is without a key to look at"
    assert filled.source.tokens[-1, 0] == EOS
    assert (filled.target_in[-1] == PAD).all()
    assert (filled.target_out[-1] == PAD).all()
    tokens = int((plain.target_out != PAD).sum())
    first = compute(plain, 1 / tokens)
    expected = taken(model)
    second = compute(filled, 1 / tokens)
    torch.testing.assert_close(first.loss, second.loss)
    for a, b in zip(taken(model), expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)


def test_without_dropout_two_readings_agree_and_cost_nothing():
    model = make()
    batch = batches(1)[0]
    plain = gradients(model)(batch, 0.1)
    expected = taken(model)
    twice = gradients(model, consistency=5.0)(batch, 0.1)
    for a, b in zip(twice, plain, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
    for a, b in zip(taken(model), expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def test_with_dropout_disagreement_is_added_to_the_loss():
    model = make(dropout=0.4)
    batch = batches(1)[0]
    losses = []
    for consistency in (1e-9, 5.0):
        torch.manual_seed(3)
        losses.append(gradients(model, consistency=consistency)(batch, 0.1))
    assert losses[1].loss > losses[0].loss + 0.01
    torch.testing.assert_close(losses[1].nll, losses[0].nll)


def windows(count: int) -> list[Batch]:
    """Rows of one long text, as language models read it."""
    text = torch.randint(4, V, (6, 9 * count + 1), generator=torch.Generator().manual_seed(2))
    text[:, 0] = BOS
    ends = torch.full((6, 1), EOS)
    source = Padded(ends, ends == EOS)
    cuts = range(0, 9 * count, 9)
    return [Batch(source, text[:, i : i + 9], text[:, i + 1 : i + 10], list(range(6))) for i in cuts]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("consistency", [0.0, 5.0])
@pytest.mark.parametrize("name", TRANSLATORS)
def test_recorded_steps_equal_plain_ones(name, consistency):
    """Each shape is computed, then recorded, then replayed: with dropout, and the same seeds, to the same gradients."""
    check_recording(name, batches(6, fill=256) * 3, consistency)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("name", LANGUAGE_MODELS)
def test_recorded_steps_of_language_models_carry_the_same_state(name):
    check_recording(name, windows(12), 0.0)


def check_recording(name: str, work: list[Batch], consistency: float) -> None:
    model = make(dropout=0.3, device="cuda", name=name)
    outcomes = []
    for record in (False, True):
        compute = gradients(model, consistency=consistency, record=record)
        found = []
        for step, batch in enumerate(work):
            torch.manual_seed(step)
            computed = compute(batch, 0.01)
            found.append((computed.loss.clone(), computed.nll.clone(), taken(model)))
        outcomes.append(found)
        assert bool(compute.recordings) == record
    for plain, recorded in zip(*outcomes, strict=True):
        torch.testing.assert_close(recorded[0], plain[0], rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(recorded[1], plain[1], rtol=1e-4, atol=1e-4)
        for a, b in zip(recorded[2], plain[2], strict=True):
            torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-5)
