"""State that goes on from batch to batch: what is computed with it, that errors stop at its edge, and that it is kept."""

import contextlib

import pytest
import torch

from regard.core.errors import CheckpointError
from regard.core.types import BOS, EOS, pad_rows
from regard.data.batching import Batch
from regard.models.base import MODELS, build_model
from regard.training.gradient import Gradients

V, ROWS, WINDOW = 17, 3, 5
SMALL = {
    "lstmlm": {"width": 8, "initialise_range": 0.8},
    "rnnlm": {"width": 8},
    "nplm": {"embedding": 6, "width": 8, "order": 4, "direct": True},
}


def make(name: str, **settings) -> Gradients:
    torch.manual_seed(0)
    config = MODELS.get(name).Config(**SMALL[name], **settings)
    model = build_model(name, config, source_vocabulary=V, target_vocabulary=V, shared=True)
    return Gradients(model.double(), contextlib.nullcontext)


def windows(count: int) -> list[Batch]:
    """Lanes through a text, cut into windows."""
    text = torch.randint(4, V, (ROWS, count * WINDOW + 1), generator=torch.Generator().manual_seed(1))
    text[:, 0] = BOS
    source = pad_rows([[EOS]] * ROWS)
    cuts = range(0, count * WINDOW, WINDOW)
    return [Batch(source, text[:, i : i + WINDOW], text[:, i + 1 : i + WINDOW + 1], list(range(ROWS))) for i in cuts]


@pytest.mark.parametrize("name", SMALL)
def test_windows_read_one_after_the_other_are_one_text(name):
    subject = make(name)
    parts = windows(3)
    apart = sum(float(subject(batch, 1.0).nll) for batch in parts)
    whole = torch.cat([batch.target_in for batch in parts], 1), torch.cat([batch.target_out for batch in parts], 1)
    hidden = subject.model(parts[0].source, whole[0]).hidden
    expected = float(subject.model.output.loss(hidden, whole[1]).nll)
    assert apart == pytest.approx(expected, rel=1e-6)
    subject.carried.forget()
    again = sum(float(subject(batch, 1.0).nll) for batch in parts)
    assert again == pytest.approx(expected, rel=1e-6)
    not_forgotten = sum(float(subject(batch, 1.0).nll) for batch in parts)
    assert not_forgotten != pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("name", ["lstmlm", "rnnlm"])
def test_errors_do_not_flow_into_the_window_before(name):
    """The second window's gradient is that of reading it from a fixed state."""
    subject = make(name)
    first, second = windows(2)
    subject(first, 1.0)
    state = subject.carried.at_hand(ROWS).clone()
    subject.model.zero_grad()
    subject(second, 1.0)
    found = {n: p.grad.clone() for n, p in subject.model.named_parameters()}
    subject.model.zero_grad()
    memory, _ = subject.model.start(second.source)
    hidden, _ = subject.model.advance(second.target_in[:, None], memory, state)
    subject.model.output.loss(hidden[:, 0], second.target_out).loss.backward()
    for n, p in subject.model.named_parameters():
        torch.testing.assert_close(found[n], p.grad, msg=n)


@pytest.mark.parametrize("name", SMALL)
def test_the_state_is_kept_and_comes_back(name):
    one, other = make(name), make(name)
    first, second = windows(2)
    one(first, 1.0)
    kept = {key: tensor.clone() for key, tensor in one.carried.tensors().items()}
    other.carried.load(kept, "here")
    assert float(one(second, 1.0).nll) == float(other(second, 1.0).nll)
    with pytest.raises(CheckpointError, match="carried state"):
        make(name).carried.load({"0": torch.zeros(ROWS, 1, 99)}, "here")


def test_models_that_do_not_carry_have_nothing_to_keep():
    config = MODELS.get("gpt").Config(width=8, layers=1, heads=2, context=WINDOW)
    model = build_model("gpt", config, source_vocabulary=V, target_vocabulary=V, shared=True)
    subject = Gradients(model, contextlib.nullcontext)
    subject(windows(1)[0], 1.0)
    subject.carried.forget()
    assert subject.carried.tensors() is None


def test_a_state_that_is_not_finite_does_not_spoil_the_rest_of_the_text():
    subject = make("lstmlm")
    first, second = windows(2)
    subject(first, 1.0)
    state = subject.carried.at_hand(ROWS)
    subject.carried.put(state.map(lambda tensor: tensor.clone().fill_(float("nan"))))
    assert torch.isfinite(subject(second, 1.0).nll)
