"""Forward passes of few kernels: the same losses and gradients as the models' own, and none for what they do not know."""

from __future__ import annotations

import contextlib
import dataclasses
from typing import Any

import numpy as np
import pytest
import torch

from regard.core.errors import ModelError, TrainingError
from regard.core.types import EOS, PAD, Padded, Unpadded, pad_rows
from regard.data.batching import Batch, collate
from regard.data.packing import collate_packed
from regard.data.store import TokenRows
from regard.layers.training import short_attention, sub_layers
from regard.models import fused_forward as module
from regard.models.base import build_model
from regard.models.fused_forward import fused_forward, longest_packed
from regard.models.gpt import GPTConfig
from regard.models.transformer import TransformerConfig
from regard.training.gradient import Gradients

SMALL: dict[str, Any] = {"width": 32, "heads": 2, "dropout": 0.0}
KNOWN = {
    "paper's parts": TransformerConfig(**SMALL, layers=2),
    "rms, gelu": TransformerConfig(**SMALL, layers=2, normalise="rms", activation="gelu", positions="learned"),
    "uneven": TransformerConfig(**SMALL, encoder_layers=3, decoder_layers=1, inner=40, activation="swish", tie="none"),
    "no positions": TransformerConfig(**SMALL, layers=1, positions="none"),
    "rotary": TransformerConfig(**SMALL, layers=2, positions="none", relative="rotary"),
    "rotary, halves": TransformerConfig(**SMALL, layers=1, relative="rotary", rotary_layout="halves"),
    "source without its end": TransformerConfig(**SMALL, layers=1, source_end=False),
    "gpt": GPTConfig(**SMALL, layers=2, context=32, attention_dropout=0.0),
    "gpt, no biases": GPTConfig(**SMALL, layers=2, context=32, attention_dropout=0.0, bias=False, activation="relu"),
    "gpt, rms": GPTConfig(**SMALL, layers=2, context=32, attention_dropout=0.0, normalise="rms", activation="gelu"),
}
UNKNOWN = {
    "post": TransformerConfig(**SMALL, norm="post"),
    "batch": TransformerConfig(**SMALL, normalise="batch"),
    "no residual": TransformerConfig(**SMALL, residual=False),
    "no scaling": TransformerConfig(**SMALL, scaling=False),
    "relative": TransformerConfig(**SMALL, relative="shaw"),
    "gated": TransformerConfig(**SMALL, activation="swiglu"),
    "inner dropout": TransformerConfig(**SMALL, activation_dropout=0.1),
    "fractions": TransformerConfig(**SMALL, positions="fraction"),
    "gpt, groups": GPTConfig(**SMALL, kv_heads=1),
    "gpt, normalised queries": GPTConfig(**SMALL, qk_norm=True),
    "gpt, rotary": GPTConfig(**SMALL, relative="rotary"),
    "gpt, post": GPTConfig(**SMALL, norm="post"),
}


def make(config: Any) -> Any:
    torch.manual_seed(2)
    model = build_model(config.name, config, source_vocabulary=19, target_vocabulary=19, shared=True).train()
    for parameter in model.parameters():  # biases and norms begin as 0 and 1, which would hide mistakes
        parameter.data += 0.1 * torch.randn_like(parameter)
    return model


def batch(padded: bool) -> Batch:
    generator = torch.Generator().manual_seed(4)
    lengths = (9, 5, 1) if padded else (9, 9, 9)
    rows = [[*torch.randint(4, 19, (n - 1,), generator=generator).tolist(), EOS] for n in lengths]
    target = torch.randint(4, 19, (3, 7), generator=generator)
    if padded:
        target[1, 4:] = PAD
    source = pad_rows(rows)
    kind = Padded if padded else Unpadded
    return Batch(kind(*source), target.roll(1, 1), target, [0, 1, 2])


def computed(model: Any, one: Batch, **how: Any) -> tuple[Any, dict[str, torch.Tensor]]:
    model.zero_grad()
    found = Gradients(model, contextlib.nullcontext, 0.1, **how)(one, 1 / 20)
    return found, {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("name", KNOWN)
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize(("short", "through_relu"), [(True, False), (True, True), (False, False)])
def test_the_same_loss_and_gradients(monkeypatch, name: str, padded: bool, short: bool, through_relu: bool) -> None:
    if not short:
        monkeypatch.setattr(short_attention, "usable", lambda *_: False)
    if through_relu:  # by the reference
        monkeypatch.setattr(sub_layers, "engine_copies", lambda *_: True)
    model, one = make(KNOWN[name]), batch(padded)
    assert fused_forward(model) is not None
    plain, expected = computed(model, one)
    fused, found = computed(model, one, fuse=True)
    torch.testing.assert_close(fused.loss, plain.loss, rtol=1e-5, atol=1e-6)
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        torch.testing.assert_close(
            found[name], gradient, rtol=1e-3, atol=2e-6, msg=lambda text, name=name: f"{name}: {text}"
        )


def pairs() -> tuple[TokenRows, TokenRows]:
    draw = np.random.default_rng(5)
    sides = [[draw.integers(4, 19, n).tolist() for n in lengths] for lengths in ((9, 3, 0, 6, 1), (5, 8, 2, 0, 1))]
    return TokenRows.from_lists(sides[0]), TokenRows.from_lists(sides[1])


@pytest.mark.parametrize("name", [name for name, config in KNOWN.items() if config.name == "transformer"])
@pytest.mark.parametrize("through_relu", [False, True])
def test_packed_batches_give_the_same_loss_and_gradients(monkeypatch, name: str, through_relu: bool) -> None:
    if through_relu:  # by the reference
        monkeypatch.setattr(sub_layers, "engine_copies", lambda *_: True)
    if KNOWN[name].positions == "learned":  # what lies in a table of 256 would be hidden in one of 16
        assert KNOWN[name].max_length > 16
    model, rows = make(KNOWN[name]), np.arange(5)
    plain, expected = computed(model, collate(*pairs(), rows))
    packed, found = computed(model, collate_packed(*pairs(), rows, 64), fuse=True)
    if not KNOWN[name].source_end:
        assert longest_packed(model, torch.device("cpu"), False, False) == 0
        return
    for one, other in zip(packed[:3], plain[:3], strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        torch.testing.assert_close(
            found[name], gradient, rtol=1e-3, atol=2e-6, msg=lambda text, name=name: f"{name}: {text}"
        )


def test_a_packed_batch_that_does_not_fit_is_padded_and_cut(monkeypatch) -> None:
    model, rows = make(KNOWN["rotary"]), np.arange(5)
    _, expected = computed(model, collate_packed(*pairs(), rows, 64), fuse=True)
    subject = Gradients(model, contextlib.nullcontext, 0.1, fuse=True)
    forward, sizes = subject.forward, []

    def small(source: Any, target: torch.Tensor) -> Any:
        sizes.append(len(target) if isinstance(source, Padded) else 0)
        if sizes[-1] in (0, 5, 3):
            raise torch.OutOfMemoryError
        return forward(source, target)

    subject.forward = small
    for seen in ([0, 5, 3, 2, 2, 1], [2, 2, 1]):  # the second time it is known
        model.zero_grad()
        sizes.clear()
        subject(collate_packed(*pairs(), rows, 64), 1 / 20)
        assert sizes == seen
        for name, parameter in model.named_parameters():
            torch.testing.assert_close(parameter.grad, expected[name], rtol=1e-3, atol=2e-6)
    assert subject.split == 2


def test_which_models_read_packed_batches_and_how_long_ones(monkeypatch) -> None:
    asked = []
    monkeypatch.setattr(module.trial, "packed_work", lambda *given: asked.append(given) or True)
    device = torch.device("cpu")
    assert longest_packed(make(KNOWN["rotary"]), device, True, False) == 128
    assert asked[0][0] == device
    assert asked[0][1].rotary == "interleaved"
    assert asked[0][2:] == (torch.float32, torch.bfloat16, (16, 32, 64))
    limited = TransformerConfig(**SMALL, layers=1, positions="learned", max_length=40)
    assert longest_packed(make(limited), device, True, False) == 40
    wide = TransformerConfig(width=128, heads=1, layers=1, dropout=0.0)
    assert longest_packed(make(wide), device, True, False) == 64
    assert longest_packed(make(wide), device, False, False) == 32  # of float32, fewer fit into registers
    others = (
        KNOWN["gpt"], UNKNOWN["post"], KNOWN["source without its end"],
        TransformerConfig(**SMALL, attention_dropout=0.1), TransformerConfig(width=24, heads=2),
    )  # fmt: skip
    for config in others:
        assert longest_packed(make(config), device, True, False) == 0
    monkeypatch.setattr(module.trial, "packed_work", lambda *_: False)
    assert longest_packed(make(KNOWN["rotary"]), device, True, False) == 0


def test_a_packed_batch_is_not_for_a_model_s_own_forward_pass() -> None:
    with pytest.raises(TrainingError, match=r"a packed batch.*Set train\.packed=false"):
        computed(make(KNOWN["rotary"]), collate_packed(*pairs(), np.arange(5), 64))


@pytest.mark.parametrize("name", UNKNOWN)
def test_models_with_other_parts_train_by_their_own_forward_pass(name: str) -> None:
    model = make(UNKNOWN[name])
    assert fused_forward(model) is None
    assert Gradients(model, contextlib.nullcontext, fuse=True).forward == model.forward
    subject = Gradients(model, contextlib.nullcontext, compile=True, fuse=True)
    assert (subject.fused, subject.compiled) == (False, True)


def test_a_model_that_somebody_looks_into_trains_by_its_own_forward_pass() -> None:
    model = make(KNOWN["gpt"])
    hook = model.decoder[0].attention.register_forward_hook(lambda *_: None)
    assert fused_forward(model) is None
    hook.remove()
    assert fused_forward(model) is not None


@pytest.mark.parametrize("name", ["paper's parts", "gpt"])
def test_dropout_is_drawn_from_the_seed(name: str) -> None:
    model = make(dataclasses.replace(KNOWN[name], dropout=0.3))
    one = batch(padded=False)
    losses = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        losses.append(float(computed(model, one, fuse=True)[0].loss))
    assert losses[0] == losses[1] != losses[2]
    model.eval()
    without = float(computed(model, one)[0].loss)
    many = [float(computed(model.train(), one, fuse=True)[0].loss) for _ in range(60)]
    plain = [float(computed(model, one)[0].loss) for _ in range(60)]
    spread = torch.tensor(plain).std() / 60**0.5 + torch.tensor(many).std() / 60**0.5
    assert abs(sum(many) - sum(plain)) / 60 < 3 * spread  # as much is dropped as the model's own way drops
    assert abs(sum(many) / 60 - without) > 1e-4


def test_what_is_too_wide_or_too_long_is_not_for_kernels(monkeypatch) -> None:
    model = make(KNOWN["gpt"])
    forward = fused_forward(model)
    subject = Gradients(model, contextlib.nullcontext, compile=True, fuse=True)
    assert (subject.fused, subject.compiled) == (True, False)
    assert forward is not None
    with pytest.raises(ModelError, match="33 tokens are more than the model's context, 32"):
        forward(batch(padded=False).source, torch.ones(1, 33, dtype=torch.long))
    monkeypatch.setattr(module, "MOST_WIDTH", 31)
    assert fused_forward(model) is None
