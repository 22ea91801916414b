"""Training by few kernels, in all the ways that gradients are asked for. On a CPU, the kernels' references do the work."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import weakref
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from test_fused_forward import KNOWN, SMALL, batch, computed, make
from test_loop import store
from test_recorded_steps import make as make_small
from test_recorded_steps import train
from torch.utils._python_dispatch import TorchDispatchMode

from regard.core.types import Packed, Padded
from regard.data.batching import Batch
from regard.data.packing import PackedBatch, collate_packed
from regard.data.store import TokenRows, TokenStore
from regard.layers.attention import multihead
from regard.layers.training import dropped, library_attention, short_attention, trial
from regard.models import fused_forward as module
from regard.models.base import build_model
from regard.models.gpt import GPTConfig
from regard.models.transformer import TransformerConfig
from regard.training import loop
from regard.training.config import TrainConfig
from regard.training.gradient import Gradients
from regard.training.loop import Trainer
from regard.training.lowered import Lowered
from regard.training.packed_text import PackedText, in_batches, longest_to_pack
from regard.training.progress import Reporter
from regard.training.run_progress import Progress
from regard.training.texts import PairText

NEEDS_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
CPU = torch.device("cpu")
BOTH = ["paper's parts", "gpt"]
FROZEN = ["embedding", "norm", "weight", "bias", "encoder", "attention", "decoder.1", "decoder"]


def same(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor], rtol: float = 1e-3) -> None:
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        torch.testing.assert_close(
            found[name], gradient, rtol=rtol, atol=3e-6, msg=lambda text, name=name: f"{name}: {text}"
        )


class Products(TorchDispatchMode):
    """Counts operations."""

    def __init__(self):
        super().__init__()
        self.count: Counter[str] = Counter()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.count[function.overloadpacket.__name__] += 1
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("name", [*BOTH, "rms, gelu"])
@pytest.mark.parametrize("frozen", FROZEN)
def test_what_is_frozen_gets_no_gradient_and_costs_none(name: str, frozen: str) -> None:
    model, one = make(KNOWN[name]), batch(padded=True)
    with Products() as whole:
        computed(model, one, fuse=True)
    chosen = [(key, p) for key, p in model.named_parameters() if frozen in key]
    if not chosen:
        pytest.skip("it has none")
    for _, parameter in chosen:
        parameter.requires_grad_(False)
    with Products() as less:
        fused, found = computed(model, one, fuse=True)
    plain, expected = computed(model, one)
    torch.testing.assert_close(fused.loss, plain.loss, rtol=1e-5, atol=1e-6)
    assert not {key for key, _ in chosen} & found.keys()
    same(found, expected)
    spared = sum(p.dim() == 2 and "embedding" not in key and "table" not in key for key, p in chosen)
    assert whole.count["mm"] - less.count["mm"] >= spared
    if any("embedding" in key for key, _ in chosen):
        assert less.count["embedding_dense_backward"] == 0 < whole.count["embedding_dense_backward"]


@pytest.mark.parametrize("name", BOTH)
def test_two_readings_are_two_dropouts_and_agree_without(name: str) -> None:
    model, one = make(KNOWN[name]), batch(padded=True)
    plain, expected = computed(model, one, consistency=5.0)
    fused, found = computed(model, one, consistency=5.0, fuse=True)
    torch.testing.assert_close(fused.loss, plain.loss, rtol=1e-4, atol=1e-5)
    same(found, expected, 2e-3)
    losses = []
    model = make(dataclasses.replace(KNOWN[name], dropout=0.3))
    for consistency in (1e-9, 5.0):
        torch.manual_seed(3)
        losses.append(computed(model, one, consistency=consistency, fuse=True)[0])
    assert losses[1].loss > losses[0].loss + 0.01
    torch.testing.assert_close(losses[1].nll, losses[0].nll)


@pytest.mark.parametrize("name", BOTH)
@pytest.mark.parametrize("lowered", [False, True])
def test_micro_batches_add_up(name: str, lowered: bool) -> None:
    outcomes = []
    for fuse in (False, True):
        model = make(KNOWN[name])
        low = Lowered(model, torch.float64) if lowered else None
        subject = Gradients(model, contextlib.nullcontext, 0.1, fuse=fuse, lowered=low)
        for one in (batch(padded=True), batch(padded=False), batch(padded=True)):
            subject(one, 1 / 50)
        outcomes.append({key: p.grad for key, p in model.named_parameters() if p.grad is not None})
        if low is not None:
            assert all(p.grad is None for p in low.model.parameters())
            assert next(low.model.parameters()).dtype == torch.float64
    same(outcomes[1], outcomes[0])


@pytest.mark.parametrize("name", BOTH)
@pytest.mark.parametrize("late", [False, True])
def test_batches_that_do_not_fit_are_cut(name: str, late: bool) -> None:
    model, one = make(KNOWN[name]), batch(padded=True)
    plain, expected = computed(model, one)
    model.zero_grad()
    subject = Gradients(model, contextlib.nullcontext, 0.1, fuse=True)
    forward, asked = subject.forward, []

    def refuse(gradient: torch.Tensor) -> None:
        if len(gradient) > 2:
            raise torch.OutOfMemoryError("late")

    def limited(source, target):
        asked.append(len(target))
        if len(target) > 2 and not late:
            raise torch.OutOfMemoryError("too many rows")
        forced = forward(source, target)
        if late:
            forced.hidden.register_hook(refuse)
        return forced

    subject.forward = limited
    fused = subject(one, 1 / 20)
    assert (asked, subject.split) == ([3, 2, 1], 1)
    torch.testing.assert_close(fused.loss, plain.loss, rtol=1e-5, atol=1e-6)
    same({key: p.grad for key, p in model.named_parameters() if p.grad is not None}, expected)


@pytest.mark.parametrize("lowered", [False, True])
def test_recorded_steps_draw_anew_and_learn_what_others_do(lowered: bool) -> None:
    plain, recorded = make_small(dropout=0.3), make_small(dropout=0.3)
    expected, _ = train(plain, False, 9, lowered, fuse=True)
    losses, subject = train(recorded, True, 9, lowered, fuse=True)
    assert subject.fused
    assert len(subject.recordings) == 2
    assert losses == pytest.approx(expected, rel=1e-5)
    for a, b in zip(recorded.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def full(lengths: Sequence[int], others: Sequence[int], draw: np.random.Generator) -> PackedBatch:
    """A packed batch that its sentences fill: on a CPU, the output layer asks for padding."""
    sides = ([draw.integers(4, 12, n - 1).tolist() for n in side] for side in (lengths, others))
    source, target = (TokenRows.from_lists(side) for side in sides)
    found = collate_packed(source, target, np.arange(len(lengths)), 24)
    assert not found.target_out.eq(0).any()
    return found


@pytest.mark.parametrize("lowered", [False, True])
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=NEEDS_GPU)])
def test_packed_steps_are_recorded_whatever_lies_where(lowered: bool, device: str) -> None:
    draw = np.random.default_rng(1)
    sizes = ([8, 2, 6, 3, 5], [5, 6, 8, 1, 4], [3] * 8, [8, 8, 8], [7, 8, 1, 8], [1, 1, 8, 8, 5, 1])
    given = [full(a, b, draw) for a in sizes for b in sizes if len(a) == len(b)]
    plain, recorded = make_small(dropout=0.3, positions="learned"), make_small(dropout=0.3, positions="learned")
    expected, _ = train(plain, False, 0, lowered, device, fuse=True, given=given)
    losses, subject = train(recorded, True, 0, lowered, device, fuse=True, given=given)
    assert len(subject.recordings) == 1
    near = 1e-5 if device == "cpu" else 1e-4
    assert losses == pytest.approx(expected, rel=near)
    for a, b in zip(recorded.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=10 * near, atol=near)


@pytest.mark.parametrize(
    ("lengths", "asked"),
    [([6], ["packed", (1, 6)]), ([6, 4, 3], ["packed", (3, 6)]), ([8, 8, 1, 1, 1, 1], ["packed", (3, 8), (3, 8)])],
)
def test_packed_batches_that_do_not_fit_are_padded_and_cut(lengths: list[int], asked: list) -> None:
    """Those that take less room padded are tried whole; and later ones of the kind are padded at once."""
    rows = TokenRows.from_lists([[5] * (n - 1) for n in lengths])
    one, model, tried = collate_packed(rows, rows, np.arange(len(lengths)), 24), make(KNOWN["rotary"]), []
    _, expected = computed(model, one, fuse=True)
    model.zero_grad()
    subject = Gradients(model, contextlib.nullcontext, 0.1, fuse=True)
    forward = subject.forward

    def limited(source, target):
        tried.append("packed" if isinstance(source, Packed) else tuple(target.shape))
        if tried[-1] == "packed" or target.numel() > 24:
            raise torch.OutOfMemoryError("too many")
        return forward(source, target)

    subject.forward = limited
    for _ in range(2):
        for p in model.parameters():
            p.grad = None
        subject(one, 1 / 20)
        same({name: p.grad for name, p in model.named_parameters() if p.grad is not None}, expected)
    assert tried == [*asked, *asked[1:]]
    assert subject.split >= 1, "so that it is told"


def test_replays_of_a_batch_depend_on_the_seed() -> None:
    from graph_standin import Replayed

    model = make(dataclasses.replace(KNOWN["paper's parts"], dropout=0.3))
    subject = Gradients(model, contextlib.nullcontext, fuse=True, record=True, recorder=Replayed)
    losses = []
    for seed in (0, 0, 1, 2, 1):  # computed, recorded, and replayed
        torch.manual_seed(seed)
        losses.append(float(subject(batch(padded=False), 1 / 20).loss))
    assert len(subject.recordings) == 1
    assert losses[0] == losses[1]
    assert losses[2] == losses[4]
    assert len(set(losses)) == 3


@pytest.mark.parametrize("fuse", [False, True])
@pytest.mark.parametrize(("positions", "long"), [("none", False), ("sinusoidal", False), ("sinusoidal", True)])
def test_a_copy_of_lower_precision_reads_any_positions(fuse: bool, positions: Any, long: bool) -> None:
    """States keep its type, also beyond the positions that are tabled."""
    one = batch(padded=True)
    if long:
        target = torch.randint(4, 19, (2, 1030), generator=torch.Generator().manual_seed(1))
        one = Batch(Padded(*(t[:2] for t in one.source)), target.roll(1, 1), target, [0, 1])
    losses = []
    for low in (False, True):
        model = make(TransformerConfig(**SMALL, layers=1, positions=positions))
        lowered = Lowered(model, torch.float16) if low else None
        subject = Gradients(model, contextlib.nullcontext, 0.1, fuse=fuse, lowered=lowered)
        losses.append(subject(one, 1e-3).loss)
        assert all(p.grad is None or (p.grad.isfinite().all() and p.grad.any()) for p in model.parameters())
    torch.testing.assert_close(losses[1].float(), losses[0], rtol=2e-3, atol=1e-4)


@pytest.mark.parametrize("name", BOTH)
@pytest.mark.parametrize("padded", [False, True])
def test_what_the_librarys_attention_is_asked_for(monkeypatch, name: str, padded: bool) -> None:
    """Dropout of weights as the model says, and no mask where nothing is hidden."""
    asked: list[tuple] = []

    def attention(q, k, v, attn_mask=None, dropout_p=0.0, is_causal=False):
        asked.append((attn_mask is not None, dropout_p, is_causal))
        return right(q, k, v, attn_mask=attn_mask, dropout_p=dropout_p, is_causal=is_causal)

    right = F.scaled_dot_product_attention
    monkeypatch.setattr(library_attention.F, "scaled_dot_product_attention", attention)
    monkeypatch.setattr(multihead, "is_short", lambda *_: False)  # on a CPU, the model takes batched products
    model, one = make(dataclasses.replace(KNOWN[name], attention_dropout=0.25)), batch(padded)
    computed(model, one)
    expected = asked.copy()
    asked.clear()
    computed(model, one, fuse=True)
    assert asked
    assert Counter(asked) == Counter(expected)
    assert {part for _, part, _ in asked} == {0.25}


@pytest.mark.parametrize("name", BOTH)
def test_every_dropout_is_drawn_by_itself(monkeypatch, name: str) -> None:
    drawn: list[tuple[float, int]] = []

    def noted(part: float, seed: torch.Tensor) -> Any:
        drawn.append((part, int(seed)))
        return right(part, seed)

    def embedded(*given: Any) -> torch.Tensor:
        drawn.append((given[4], int(given[5])))
        return embed(*given)

    right, embed = module.Dropout, module.embedded
    monkeypatch.setattr(module, "Dropout", noted)
    monkeypatch.setattr(module, "embedded", embedded)
    computed(make(dataclasses.replace(KNOWN[name], dropout=0.3)), batch(padded=True), fuse=True)
    assert {part for part, _ in drawn} == {0.3}
    assert len({seed for _, seed in drawn}) == len(drawn) == (12 if name == "paper's parts" else 5)


def test_parts_near_one_and_none_are_numbers() -> None:
    seed = torch.tensor(5)
    assert dropped.least(1 - 1e-15) == (1 << 32) - 1
    assert dropped.kept((50, 50), 0.0, seed).all()
    assert not dropped.kept((50, 50), 1 - 1e-12, seed).any()
    for part in (0.999, 1 - 1e-12):
        model = make(dataclasses.replace(KNOWN["paper's parts"], dropout=part))
        fused, found = computed(model, batch(padded=True), fuse=True)
        assert fused.loss.isfinite()
        assert all(gradient.isfinite().all() for gradient in found.values())


def test_nothing_is_kept_alive_after_a_step(monkeypatch) -> None:
    """Without the collector: what a backward pass is given does not hold on to itself."""
    held: list[weakref.ref] = []

    def noted(*given: Any) -> Any:
        found = right(*given)
        held.extend(weakref.ref(matrix.low_weight) for matrix in found.values())
        return found

    right = module.matrices
    monkeypatch.setattr(module, "matrices", noted)
    gc.collect()
    gc.disable()
    try:
        computed(make(KNOWN["paper's parts"]), batch(padded=True), fuse=True)
        assert len(held) == 22
        assert all(one() is None for one in held)
    finally:
        gc.enable()


@pytest.mark.parametrize("name", BOTH)
def test_each_gradient_is_told_of_once(name: str) -> None:
    """As workers that send them while others are computed rely on."""
    model, told = make(KNOWN[name]), Counter()
    for key, parameter in model.named_parameters():
        parameter.register_post_accumulate_grad_hook(lambda _, key=key: told.update([key]))
    _, found = computed(model, batch(padded=True), fuse=True)
    assert told == Counter(found.keys())


def test_what_is_tried_is_what_the_model_has(monkeypatch) -> None:
    tried: list[tuple] = []
    monkeypatch.setattr(trial, "kernels_work", lambda *given: bool(tried.append(given)) or True)
    for low, lowered in ((False, False), (True, False), (True, True)):
        assert module.kernels_work(make(KNOWN["rms, gelu"]), CPU, low, lowered)
    kind = trial.Kind(32, 2, "gelu", 3, inner=128, drops=False)
    single, half = torch.float32, torch.bfloat16
    assert tried == [(CPU, kind, *types, trial.TILES) for types in ((single, single), (single, half), (half, half))]
    assert module.kernels_work(make(KNOWN["gpt, no biases"]), CPU, False, False)
    assert tried[-1][1] == trial.Kind(32, 2, "relu", 1, biased=False, source=False, inner=128, drops=False)
    for lengths, tiles in (((9, 16, 17, 100, 129), (16, 32, 128)), ((1024,), ())):
        assert module.kernels_work(make(KNOWN["rms, gelu"]), CPU, False, False, lengths)
        assert tried[-1][-1] == tiles
    assert not module.kernels_work(make(GPTConfig(**SMALL, norm="post")), CPU, False, False)
    monkeypatch.undo()
    assert not module.kernels_work(make(KNOWN["gpt"]), CPU, False, False), "there are no kernels for a CPU"


def trained(folder: Path, dropout: float, **settings: Any) -> Trainer:
    torch.manual_seed(0)
    config = TransformerConfig(width=32, layers=1, heads=2, dropout=dropout)
    model = build_model("transformer", config, source_vocabulary=20, target_vocabulary=20, shared=True)
    given = {"threads": 1, "workers": 0, "batch_tokens": 40, "warmup": 2, "save_every": 3, "log_every": 3, **settings}
    subject = Trainer(model, PairText(store()), None, TrainConfig(**given), folder, CPU, Reporter(quiet=True))
    subject.run()
    return subject


@pytest.fixture
def forced(monkeypatch) -> None:
    """As if there were kernels for a CPU."""
    monkeypatch.setattr(loop, "kernels_work", lambda model, *_: module.fused_forward(model) is not None)
    monkeypatch.setattr(trial, "packed_work", lambda *_: True)


@pytest.mark.usefixtures("forced")
def test_a_run_learns_the_same(tmp_path: Path) -> None:
    given: dict[str, Any] = {"steps": 6, "packed": False, "eps": 1e-3}
    plain, fused = (trained(tmp_path / str(fuse), 0.0, fused=fuse, **given) for fuse in (False, True))
    assert (plain.gradients.fused, fused.gradients.fused) == (False, True)
    for (name, a), b in zip(fused.model.named_parameters(), plain.model.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-5, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.usefixtures("forced")
@pytest.mark.parametrize("settings", [{}, {"accumulate": 2}, {"consistency": 1.0}, {"packed": False}])
def test_a_run_goes_on_bit_for_bit(tmp_path: Path, settings: dict[str, Any]) -> None:
    whole = trained(tmp_path / "whole", 0.3, steps=6, **settings)
    trained(tmp_path / "parts", 0.3, steps=3, **settings)
    again = trained(tmp_path / "parts", 0.3, steps=6, **settings)
    assert again.gradients.fused
    assert again.progress.step == 6
    for a, b in zip(again.model.parameters(), whole.model.parameters(), strict=True):
        assert torch.equal(a, b)


@pytest.mark.usefixtures("forced")
def test_a_packed_run_learns_what_it_does_with_the_same_pairs_padded(monkeypatch, tmp_path: Path) -> None:
    """And goes on with the same pairs where there are no kernels."""
    seen: list[str] = []
    right = Gradients.__call__
    monkeypatch.setattr(
        Gradients, "__call__", lambda self, one, *given: seen.append(type(one).__name__) or right(self, one, *given)
    )
    given: dict[str, Any] = {"eps": 1e-3}
    packed = trained(tmp_path / "packed", 0.0, steps=6, **given)
    assert packed.progress.packed == 32
    assert set(seen) == {"PackedBatch"}
    trained(tmp_path / "both", 0.0, steps=3, **given)
    seen.clear()
    monkeypatch.setattr(loop, "kernels_work", lambda *_: False)
    padded = trained(tmp_path / "both", 0.0, steps=6, **given)
    assert seen == ["Batch"] * 3
    for (name, a), b in zip(packed.model.named_parameters(), padded.model.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-5, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.usefixtures("forced")
@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"mixed_lengths": True}, "only sentence pairs"),
        ({"consistency": 1.0}, "R-Drop"),
        ({"fused": False}, "needs a GPU"),
        ({"batch_tokens": 7}, "no room"),
    ],
)
def test_a_run_that_cannot_pack_says_why_and_pads(capsys, tmp_path: Path, settings: dict[str, Any], why: str) -> None:
    for asked, said in ((True, why), ("auto", ""), (False, "")):
        subject = trained(tmp_path / str(asked), 0.0, steps=2, packed=asked, **settings)
        assert subject.progress.packed == 0
        shown = " ".join(capsys.readouterr().err.split())
        assert said in shown
        assert bool(shown) == bool(said)


@pytest.mark.usefixtures("forced")
def test_kernels_of_packed_batches_are_tried_where_they_would_be_used(monkeypatch, tmp_path: Path) -> None:
    tried: list[object] = []
    monkeypatch.setattr(trial, "packed_work", lambda *_: not tried.append(1))
    for settings in ({"packed": False}, {"consistency": 1.0}, {"mixed_lengths": True}, {"fused": False}):
        trained(tmp_path / next(iter(settings)), 0.0, steps=3, **settings)
        trained(tmp_path / next(iter(settings)), 0.0, steps=6, **{**settings, "packed": "auto"})
    assert not tried
    for steps in (3, 6):
        trained(tmp_path / "auto", 0.0, steps=steps)
        assert len(tried) == steps / 3


@pytest.mark.parametrize(("times", "packed"), [(1.0, True), (1.2, True), (1.5, False), (4.0, False)])
@pytest.mark.parametrize("turned", [False, True])
def test_sides_of_unlike_lengths_are_packed_for_those_who_ask(times: float, packed: bool, turned: bool) -> None:
    """A packed batch has as many places on either side."""
    sides = [TokenRows.from_lists([[5] * int(10 * n) for _ in range(30)]) for n in (1.0, times)]
    source, target = reversed(sides) if turned else sides
    text = PairText(TokenStore(source, target, kept=np.arange(30)))
    for asked, expected in (("auto", packed), (True, True), (False, False)):
        found, why = longest_to_pack(TrainConfig(packed=asked), text, False, 128)
        assert (bool(found), why) == (expected, "")


@pytest.mark.parametrize("asked", [True, "auto"])
def test_a_run_of_before_there_were_packed_batches_goes_on_padded(capsys, asked: Any) -> None:
    text, config = PairText(store()), TrainConfig(packed=asked)
    old, new = Progress(step=3, multiple=8), Progress()
    assert in_batches(text, config, old, False, 128, Reporter(quiet=True)) is text
    assert bool(capsys.readouterr().err) == (asked is True)
    packed = in_batches(text, config, new, False, 128, Reporter(quiet=True))
    assert isinstance(packed, PackedText)
    assert (old.packed, new.packed, packed.longest, packed.flat) == (0, 128, 128, True)


@pytest.mark.parametrize(
    ("several", "longest", "here", "said"),
    [
        (False, 64, (64, True), ""),
        (False, 32, (64, False), "three times as many"),
        (True, 128, (64, False), "three times as many"),
    ],
)
def test_a_packed_run_that_goes_on_elsewhere_says_what_that_takes(
    capsys, several: bool, longest: int, here: tuple[int, bool], said: str
) -> None:
    begun, text = Progress(step=3, multiple=8, packed=64), PairText(store())
    found = in_batches(text, TrainConfig(), begun, several, longest, Reporter(quiet=True))
    assert isinstance(found, PackedText)
    assert (found.longest, found.flat) == here
    shown = " ".join(capsys.readouterr().err.split())
    assert said in shown
    assert bool(shown) == bool(said)


@pytest.mark.usefixtures("forced")
def test_a_run_that_began_padded_goes_on_so(tmp_path: Path) -> None:
    trained(tmp_path / "one", 0.0, steps=3, packed=False)
    subject = trained(tmp_path / "one", 0.0, steps=6, packed=True)
    whole = trained(tmp_path / "two", 0.0, steps=6, packed=False)
    assert subject.progress.packed == 0
    for a, b in zip(subject.model.parameters(), whole.model.parameters(), strict=True):
        assert torch.equal(a, b)


def test_short_attention_is_taken_where_it_can_be(monkeypatch) -> None:
    """Neither with dropout of weights, nor by models whose heads are of other sizes."""
    taken: list[str] = []
    for name in ("self_attention", "cross_attention"):
        right = getattr(short_attention, name)
        monkeypatch.setattr(
            short_attention, name, lambda *given, name=name, right=right: taken.append(name) or right(*given)
        )
    for sizes, count in (({}, 3), ({"attention_dropout": 0.1}, 0), ({"width": 24}, 0)):
        taken.clear()
        config = TransformerConfig(**{**SMALL, "layers": 1, **sizes})
        computed(make(config), batch(padded=True), fuse=True)
        assert len(taken) == count
