"""The laws that every model which writes text keeps, run over every registered model: a newcomer is picked up by itself."""

from __future__ import annotations

import copy
import dataclasses
import json
import math

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from regard.core import config as configuration
from regard.core.errors import ModelError
from regard.core.types import BOS, EOS, PAD, Padded, pad_rows
from regard.layers.attention.cache import CacheState
from regard.layers.attention.scores import SCORES
from regard.models.base import MODELS, Recorder, Writer, build_model
from regard.search.config import SearchConfig
from regard.search.forcing import score_pairs
from regard.search.search import search
from regard.tasks.folder import put_weights, weights_of

V = 23
OF_LUONG = {
    "dot",
    "bilinear",
    "concat",
    "location",
}  # the paper's scores; all others, also new ones, are variants of their own
# Small sizes, and variants that change the mathematics. A model that is not listed is run with its defaults.
VARIANTS = {
    "bahdanau": [
        {"embedding": 10, "width": 16},
        {"embedding": 12, "width": 16, "attention": 7, "readout_from": "current", "reset": "before", "tie": "auto"},
        {"embedding": 10, "width": 16, "readout": 6, "initialise": "scaled"},
    ],
    "cho": [
        {"embedding": 10, "width": 16},
        {"embedding": 10, "width": 16, "reset": "before", "tie": "auto"},
        {"embedding": 10, "width": 15, "readout": 6, "initialise": "scaled", "tie": "target"},
    ],
    "convs2s": [
        {"embedding": 10, "width": 12, "max_length": 40},
        {"embedding": 12, "width": 10, "layers": 3, "decoder_layers": 1, "kernel": 5, "tie": "auto", "max_length": 40},
        {
            "embedding": 10,
            "width": 12,
            "layers": 2,
            "encoder_kernel": 1,
            "decoder_kernel": 4,
            "readout": 7,
            "max_length": 40,
        },
        {"embedding": 10, "width": 12, "layers": 2, "decoder_kernel": 1, "tie": "target", "max_length": 40},
    ],
    "gnmt": [
        {"embedding": 10, "width": 12, "layers": 3},
        {
            "embedding": 12,
            "width": 12,
            "layers": 2,
            "decoder_layers": 4,
            "attention": 7,
            "query": "current",
            "tie": "auto",
        },
        {"embedding": 10, "width": 12, "encoder_layers": 4, "query": "current", "context_to": "above", "residual": 4},
        {"embedding": 10, "width": 12, "layers": 3, "context_to": "above", "residual": 0, "initialise": "scaled"},
    ],
    "label-writer": [
        {"width": 12, "label": 5},
        {"embedding": 7, "width": 10, "layers": 2, "cell": "gru", "label": 0},
        {"embedding": 7, "width": 10, "layers": 2, "cell": "lstm", "feed": False, "tie": "none"},
        {"width": 10, "cell": "rnn", "label": 4},
    ],
    "lstmlm": [
        {"width": 12},
        {"embedding": 7, "width": 10, "layers": 1, "initialise_range": 0.3},
        {"width": 10, "layers": 3, "tie": "output", "variational": True},
    ],
    "gpt": [
        {"attention_dropout": 0.0, "width": 16, "layers": 2, "heads": 2, "context": 40},
        {"attention_dropout": 0.0, "width": 16, "layers": 2, "heads": 4, "norm": "post", "context": 40, "silent": True},
        {
            "attention_dropout": 0.0,
            "width": 16,
            "layers": 2,
            "heads": 4,
            "kv_heads": 2,
            "positions": "none",
            "relative": "rotary",
            "normalise": "rms",
            "activation": "swiglu",
            "qk_norm": True,
            "bias": False,
            "tie": False,
        },
        {
            "attention_dropout": 0.0,
            "width": 18,
            "layers": 2,
            "heads": 6,
            "kv_heads": 3,
            "positions": "none",
            "relative": "alibi",
            "bias": False,
        },
        {
            "attention_dropout": 0.0,
            "width": 16,
            "layers": 1,
            "heads": 4,
            "kv_heads": 1,
            "positions": "none",
            "relative": "shaw",
        },
        {
            "attention_dropout": 0.0,
            "width": 16,
            "layers": 2,
            "heads": 2,
            "context": 40,
            "relative": "music",
            "relative_distance": 3,
            "activation": "gelu",
        },
        {
            "attention_dropout": 0.0,
            "width": 16,
            "layers": 2,
            "heads": 4,
            "kv_heads": 2,
            "norm": "post",
            "positions": "none",
            "relative": "t5",
            "relative_distance": 6,
            "relative_buckets": 8,
            "activation": "relu",
        },
    ],
    "luong": [
        {"embedding": 10, "width": 16},
        {
            "embedding": 12,
            "width": 16,
            "readout": 12,
            "tie": "auto",
            "score": "dot",
            "attention": "local-m",
            "window": 2,
        },
        {"embedding": 10, "width": 16, "layers": 3, "score": "concat", "attention": "local-p", "window": 4},
        {
            "embedding": 10,
            "width": 16,
            "layers": 1,
            "score": "location",
            "max_source": 40,
            "reverse": False,
            "initialise": "scaled",
        },
        {"embedding": 10, "width": 16, "bidirectional": True, "input_feeding": False},
        {"embedding": 10, "width": 16, "input_feeding": False, "attention": "local-m", "window": 1},
        *({"embedding": 10, "width": 16, "layers": 1, "score": name} for name in sorted({*SCORES.names()} - OF_LUONG)),
    ],
    "nplm": [
        {"embedding": 6, "width": 9},
        {"order": 3, "embedding": 6, "width": 9, "direct": True},
        {"order": 2, "embedding": 8, "width": 8, "tie": "output"},
        {"order": 12, "embedding": 4, "width": 9},
    ],
    "rctm1": [
        {"width": 12, "max_source": 40},
        {"width": 12, "max_source": 40, "activation": "sigmoid", "output": "softmax", "tie": "auto"},
        {"width": 10, "max_source": 33, "classes": 3, "tie": "target"},
    ],
    "rctm2": [
        {"width": 12, "max_source": 40, "max_target": 40},
        {
            "width": 12,
            "max_source": 40,
            "max_target": 24,
            "activation": "sigmoid",
            "output": "softmax",
            "tie": "auto",
            "gram": 2,
        },
        {"width": 10, "max_source": 33, "max_target": 30, "classes": 3, "tie": "target", "gram": 6},
    ],
    "rnnlm": [
        {"width": 12},
        {"width": 12, "embedding": 7, "activation": "tanh", "output": "classes", "initialise": "scaled"},
        {"width": 10, "activation": "relu", "tie": "output", "bptt": 2, "initialise": "scaled"},
        {"width": 10, "embedding": 10, "output": "classes", "classes": 4, "tie": "output", "bptt": 1},
    ],
    "sutskever": [
        {"embedding": 10, "width": 16},
        {"embedding": 16, "width": 16, "layers": 3, "tie": "auto"},
        {"embedding": 10, "width": 16, "layers": 1, "reverse": False},
    ],
    "transformer": [
        {"width": 16, "layers": 2, "heads": 2},
        {"width": 16, "layers": 3, "heads": 4, "norm": "post", "encoder_layers": 1, "activation": "gelu"},
        {
            "width": 16,
            "layers": 1,
            "heads": 2,
            "positions": "learned",
            "max_length": 40,
            "activation": "swiglu",
            "tie": "none",
        },
        {"width": 16, "layers": 2, "heads": 2, "norm": "post", "activation": "swish", "tie": "target"},
        {"width": 16, "layers": 2, "heads": 2, "normalise": "rms", "scaling": False},
        {"width": 16, "layers": 1, "heads": 2, "norm": "post", "residual": False},
        {"width": 16, "layers": 2, "heads": 2, "normalise": "batch"},
        {"width": 16, "layers": 2, "heads": 2, "norm": "post", "normalise": "batch"},
        {"width": 16, "layers": 2, "heads": 2, "relative": "shaw", "relative_distance": 3, "positions": "none"},
        {"width": 16, "layers": 2, "heads": 2, "relative": "shaw", "relative_to": "keys", "relative_per_head": True},
        {
            "width": 16,
            "layers": 1,
            "heads": 2,
            "norm": "post",
            "relative": "shaw",
            "relative_distance": 2,
            "relative_to": "values",
            "relative_per_head": True,
            "positions": "none",
        },
        {"width": 16, "layers": 2, "heads": 2, "relative": "music", "relative_distance": 3, "positions": "none"},
        {"width": 16, "layers": 2, "heads": 4, "relative": "music", "relative_per_head": True, "positions": "sine"},
        {
            "width": 16,
            "layers": 2,
            "heads": 2,
            "relative": "t5",
            "relative_distance": 6,
            "relative_buckets": 8,
            "positions": "none",
        },
        {"width": 18, "layers": 2, "heads": 3, "relative": "alibi", "positions": "none"},
        {"width": 16, "layers": 2, "heads": 2, "relative": "rotary", "positions": "none"},
        {"width": 16, "layers": 2, "heads": 2, "relative": "rotary", "rotary_layout": "halves", "rotary_base": 500.0},
        {"width": 16, "layers": 2, "heads": 2, "positions": "sinusoidal-halves"},
        {"width": 15, "layers": 2, "heads": 3, "positions": "sine"},
        {"width": 16, "layers": 2, "heads": 2, "positions": "fraction", "norm": "post"},
    ],
    "universal": [
        {"width": 16, "steps": 3, "heads": 2},
        {"width": 16, "steps": 5, "heads": 4, "norm": "post", "inner": 24, "activation": "gelu", "tie": "none"},
        {"width": 16, "steps": 4, "heads": 2, "norm": "post", "halting": "act"},
        {"width": 16, "steps": 3, "heads": 2, "halting": "act", "average": "sum", "epsilon": 0.2, "tie": "target"},
    ],
}
UNORDERED = {"label-writer"}  # their source is a label, or a set of them
CASES = [
    pytest.param(name, variant, id=f"{name}-{i}")
    for name in MODELS.names()
    if issubclass(MODELS.get(name), Writer)  # the others write no text, and have laws of their own
    for i, variant in enumerate(VARIANTS.get(name, [{}]))
]
pytestmark = pytest.mark.parametrize(("name", "variant"), CASES)


def make(name: str, variant: dict, seed: int = 0):
    torch.manual_seed(seed)
    config = configuration.build(MODELS.get(name).Config, {"name": name, **variant}, "model")
    model = build_model(
        name, config, source_vocabulary=V, target_vocabulary=V, shared=variant.get("tie") in (None, "auto", "all")
    )
    for parameter in model.parameters():
        if parameter.dim() < 2:  # norms and biases start at 1 and 0: move them, or a mistake there stays unseen
            torch.nn.init.normal_(parameter, mean=float(parameter.detach().mean()), std=0.3)
        elif float(parameter.detach().std()) < 0.1:  # some papers start near 0, where tolerances hide mistakes
            torch.nn.init.normal_(parameter, std=0.3)
    return settled(model, *batch())


def settled(model, source: Padded, target: torch.Tensor):
    """A model in evaluation whose batch normalisation, if any, has seen such text: as it starts, it normalises nothing."""
    if any("running" in n for n, _ in model.named_buffers()):
        model.train()
        with torch.no_grad():
            for _ in range(40):
                model(source, target)
    return model.eval()


def batch(rows: int = 4, longest: int = 9, target: int = 7, seed: int = 1) -> tuple[Padded, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, longest, (rows,), generator=generator).tolist()
    source = pad_rows([[*torch.randint(4, V, (n,), generator=generator).tolist(), EOS] for n in lengths])
    tokens = torch.randint(4, V, (rows, target), generator=generator)
    tokens[:, 0] = BOS
    return source, tokens


@torch.no_grad()
def test_stepping_chunks_and_teacher_forcing_agree(name, variant):
    model = make(name, variant)
    source, target = batch()
    forced = model(source, target).hidden
    for chunks in ([1] * 7, [3, 1, 3], [7], [2, 5]):
        memory, state = model.start(source, beams=2, capacity=8, target_length=target.shape[1])
        parts, at = [], 0
        for count in chunks:
            piece = target[:, None, at : at + count].expand(-1, 2, -1)
            hidden, state = model.advance(piece, memory, state)
            parts.append(hidden)
            at += count
        together = torch.cat(parts, dim=2)
        torch.testing.assert_close(together, forced[:, None].expand_as(together), rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_reordered_hypotheses_keep_their_own_past(name, variant):
    """Each hypothesis reads different tokens; after every step they are shuffled, also onto one another."""
    model = make(name, variant)
    source, _ = batch(rows=3)
    generator = torch.Generator().manual_seed(5)
    beams, steps = 3, 6
    memory, state = model.start(source, beams=beams, capacity=steps, target_length=steps)
    histories = torch.zeros(3, beams, 0, dtype=torch.long)
    for step in range(steps):
        tokens = torch.full((3, beams), BOS) if step == 0 else torch.randint(4, V, (3, beams), generator=generator)
        histories = torch.cat((histories, tokens[:, :, None]), dim=2)
        hidden, state = model.step(tokens, memory, state)
        for k in range(beams):
            whole = torch.nn.functional.pad(histories[:, k], (0, steps - 1 - step), value=4)  # some models count them
            expected = model(source, whole).hidden[:, step]
            torch.testing.assert_close(hidden[:, k], expected, rtol=1e-4, atol=1e-5)
        parents = torch.randint(0, beams, (3, beams), generator=generator)
        state = state.reorder(parents)
        histories = histories.gather(1, parents[:, :, None].expand_as(histories))


@torch.no_grad()
def test_rows_can_be_taken_and_put(name, variant):
    """Continuous batching: sentences at different positions share one state."""
    model = make(name, variant)
    source, target = batch(rows=4)
    forced = model(source, target).hidden
    memory, state = model.start(source, beams=1, capacity=8, target_length=target.shape[1])
    early, late = torch.tensor([0, 2]), torch.tensor([1, 3])
    ahead = state.take(early)
    _, ahead = model.advance(target[early, None, :3], memory.take(early), ahead)
    state = state.put(early, ahead)
    position = torch.tensor([3, 0, 3, 0])
    for _ in range(4):
        tokens = target.gather(1, position[:, None])
        hidden, state = model.step(tokens, memory, state)
        expected = forced[torch.arange(4), position]
        torch.testing.assert_close(hidden[:, 0], expected, rtol=1e-4, atol=1e-5)
        position = position + 1
    moved = memory.put(late, memory.take(late))
    hidden, _ = model.step(target.gather(1, position[:, None].clamp(max=6)), moved, state)
    assert torch.isfinite(hidden).all()


@torch.no_grad()
def test_a_cloned_state_survives_advance(name, variant):
    model = make(name, variant)
    source, target = batch()
    memory, state = model.start(source, beams=1, capacity=8)
    _, state = model.advance(target[:, None, :2], memory, state)
    kept = state.clone()
    first, _ = model.advance(target[:, None, 2:4], memory, state)
    again, _ = model.advance(target[:, None, 2:4], memory, kept)
    torch.testing.assert_close(first, again)


class Count(TorchDispatchMode):
    """How many operations are asked for."""

    asked = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.asked += 1
        return func(*args, **(kwargs or {}))


@torch.no_grad()
def test_a_step_costs_the_same_late_as_early(name, variant):
    """Constant work: operations and sizes of the state do not grow. (Self-attention reads what is written, by design.)"""
    model = make(name, variant)
    source, _ = batch()
    memory, state = model.start(source, beams=2, capacity=30)
    if isinstance(state, CacheState):
        return
    costs = []
    for _ in range(30):
        with Count() as count:
            _, state = model.step(torch.full((4, 2), 5), memory, state)
        sizes: list[tuple[int, ...]] = []
        state.map(lambda tensor, sizes=sizes: (sizes.append(tuple(tensor.shape)), tensor)[1])
        costs.append((count.asked, sizes))
    assert costs[-1] == costs[1]  # the first also copies what all hypotheses begin with


@torch.no_grad()
def test_padding_and_neighbours_change_nothing(name, variant):
    model = make(name, variant)
    source, target = batch()
    together = model(source, target).hidden
    for row in range(len(target)):
        alone = model(source.take(torch.tensor([row])), target[row : row + 1]).hidden
        torch.testing.assert_close(alone[0], together[row], rtol=1e-4, atol=1e-5)
    wider = Padded(
        torch.nn.functional.pad(source.tokens, (0, 5), value=7), torch.nn.functional.pad(source.keep, (0, 5))
    )
    torch.testing.assert_close(model(wider, target).hidden, together, rtol=1e-4, atol=1e-5)


def test_rows_without_a_target_change_nothing(name, variant):
    """On a GPU such rows fill batches up: a source of EOS alone, and nothing but padding to write."""
    model = make(name, {**variant, "dropout": 0.0}).train()
    source, target = batch()
    fill = Padded(*(torch.zeros_like(part) for part in source))
    fill.tokens[:, 0], fill.keep[:, 0] = EOS, True
    filled = Padded(*(torch.cat(parts) for parts in zip(source, fill, strict=True)))
    outcomes = []
    for sources, targets in ((source, target), (filled, torch.cat([target, torch.full_like(target, PAD)]))):
        forced = model(sources, targets)
        assert torch.isfinite(forced.hidden).all()
        wanted = targets.roll(-1, 1)  # BOS comes last, as good a word as any
        loss = model.output.loss(forced.hidden, wanted).loss
        model.zero_grad()
        sum(forced.losses.values(), loss).backward()
        outcomes.append({n: p.grad.clone() for n, p in model.named_parameters()} | forced.losses)  # type: ignore[union-attr]
    for n, one in outcomes[0].items():
        torch.testing.assert_close(outcomes[1][n], one, rtol=1e-4, atol=1e-5, msg=lambda text, n=n: f"{n}: {text}")


@torch.no_grad()
def test_the_order_of_the_batch_changes_nothing(name, variant):
    model = make(name, variant)
    source, target = batch()
    order = torch.tensor([2, 0, 3, 1])
    shuffled = model(Padded(source.tokens[order], source.keep[order]), target[order]).hidden
    torch.testing.assert_close(shuffled, model(source, target).hidden[order], rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_nothing_leaks_from_the_future(name, variant):
    model = make(name, variant)
    source, target = batch()
    before = model(source, target).hidden
    for t in range(1, target.shape[1]):
        changed = target.clone()
        changed[:, t:] = (changed[:, t:] - 4 + 7) % (V - 4) + 4
        after = model(source, changed).hidden
        torch.testing.assert_close(after[:, :t], before[:, :t], rtol=1e-4, atol=1e-5)
        assert not torch.allclose(after[:, t], before[:, t], atol=1e-3)


@torch.no_grad()
def test_the_source_matters_and_so_does_its_order(name, variant):
    model = make(name, variant)
    _, target = batch(rows=1)
    one = model(pad_rows([[5, 6, 7, EOS]]), target).hidden
    if "continues" in model.capabilities:  # there is none
        assert torch.equal(one, model(pad_rows([[8, EOS]]), target).hidden)
        return
    backwards = model(pad_rows([[7, 6, 5, EOS]]), target).hidden
    assert torch.allclose(one, backwards, atol=1e-4) == (name in UNORDERED)
    assert not torch.allclose(one, model(pad_rows([[5, 6, 8, EOS]]), target).hidden, atol=1e-4)


@torch.no_grad()
def test_recording_changes_no_output_and_weights_are_distributions(name, variant):
    model = make(name, variant)
    if "attends" not in model.capabilities:
        return
    source, target = batch()
    record = Recorder()
    torch.testing.assert_close(model(source, target, record).hidden, model(source, target).hidden, rtol=1e-4, atol=2e-6)
    alignment = model.alignment(record)
    assert alignment.shape == (4, target.shape[1], source.tokens.shape[1])
    for weights in [alignment, *record.tensors.values()]:
        if variant.get("attention") == "local-p":  # its Gaussian takes from every weight, and nothing is renormalised
            assert 0 < float(weights.sum(-1).min()) <= float(weights.sum(-1).max()) <= 1
        else:
            torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:-1]))
        assert weights.min() >= 0
    assert alignment.masked_select(~source.keep[:, None].expand_as(alignment)).abs().max() == 0
    memory, state = model.start(source, beams=2, capacity=8)
    stepped = []
    for t in range(target.shape[1]):
        record = Recorder()
        _, state = model.step(target[:, None, t].expand(-1, 2), memory, state, record)
        stepped.append(model.alignment(record))
    stepped = torch.cat(stepped, dim=2)  # B K T S
    torch.testing.assert_close(stepped, alignment[:, None].expand_as(stepped), rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_the_first_loss_is_near_that_of_a_guess(name, variant):
    config = configuration.build(MODELS.get(name).Config, {"name": name, **variant}, "model")
    torch.manual_seed(2)
    large = 1000
    sizes = {
        "source_vocabulary": large,
        "target_vocabulary": large,
        "shared": variant.get("tie") in (None, "auto", "all"),
    }
    model = build_model(name, config, **sizes).eval()
    source = pad_rows(torch.randint(4, large, (32, 10)).tolist())
    target_in, target_out = torch.randint(4, large, (32, 12)), torch.randint(4, large, (32, 12))
    model = settled(model, source, target_in)
    sums = model.output.loss(model(source, target_in).hidden, target_out)
    guess = math.log(large)
    assert 0.98 * guess < sums.nll.item() / sums.tokens.item() < 1.12 * guess


def test_every_parameter_is_trained(name, variant):
    model = make(name, {**variant, "dropout": 0.0}).train()
    source, target = batch(rows=8)
    forced = model(source, target)
    loss = model.output.loss(forced.hidden, target.roll(-1, 1)).loss
    sum(forced.losses.values(), loss).backward()
    still = [n for n, p in model.named_parameters() if p.grad is None or p.grad.abs().max() == 0]
    assert still == []


def test_sixteen_bits_where_they_are_allowed_change_little(name, variant):
    """Autocast, as training on a GPU uses it: outputs stay near, and every parameter gets a gradient of its own type."""
    model = make(name, {**variant, "dropout": 0.0}).train()
    source, target = batch(rows=8)
    expected = model(source, target).hidden
    with torch.autocast("cpu", torch.float16):
        forced = model(source, target)
        sums = model.output.loss(forced.hidden, target.roll(-1, 1))
    sum(forced.losses.values(), sums.loss).backward()
    torch.testing.assert_close(forced.hidden.float(), expected, rtol=0.05, atol=0.05)
    for n, p in model.named_parameters():
        assert p.grad is not None, n
        assert p.grad.dtype == p.dtype, n
        assert torch.isfinite(p.grad).all(), n


@torch.no_grad()
def test_a_model_of_sixteen_bits_writes_nearly_the_same_or_says_why_not(name, variant):
    """In float16, which all CPUs can multiply: what must not be mixed with float32 is the same."""
    model = make(name, variant)
    reason = model.needs_float32(model.config)
    if reason is not None:
        assert " " in reason
        return
    source, target = batch()
    low = copy.deepcopy(model).to(torch.float16)
    expected, found = (one.output.scores(one(source, target).hidden) for one in (model, low))
    torch.testing.assert_close(found, expected, rtol=0.05, atol=0.1)
    memory, state = low.start(source, beams=2, capacity=8)
    stepped = low.advance(target[:, None].expand(-1, 2, -1), memory, state)[0]
    torch.testing.assert_close(low.output.scores(stepped[:, 1]), found, rtol=0.05, atol=0.1)
    config = SearchConfig(beam=3, nbest=3, max_length=6, max_repeat=0, length_norm="none")
    for ours, theirs in zip(search(low, source, config), search(model, source, config), strict=True):
        assert [h.score for h in ours] == pytest.approx([h.score for h in theirs], rel=0.03, abs=0.1)
        assert ours[0].score == pytest.approx(sum(ours[0].token_log_probs), abs=1e-4)


def test_saved_weights_give_the_same_model(name, variant, tmp_path):
    model, other = make(name, variant, seed=1), make(name, variant, seed=2)
    source, target = batch()
    with torch.no_grad():
        assert not torch.allclose(model(source, target).hidden, other(source, target).hidden)
        put_weights(other, {n: t.clone() for n, t in weights_of(model).items()}, tmp_path)
        torch.testing.assert_close(other(source, target).hidden, model(source, target).hidden, rtol=0, atol=0)


def test_the_configuration_makes_a_round_trip(name, variant):
    config = make(name, variant).config
    plain = json.loads(json.dumps(configuration.to_plain(config)))
    assert configuration.build(type(config), plain, "model") == config
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.name = "other"


@torch.no_grad()
def test_search_keeps_its_laws(name, variant):
    model = make(name, variant)
    source, words = batch(rows=5, longest=8)
    limits = {"max_extra": 6, "max_ratio": 1.0, "ban_unknown": False, "max_repeat": 0}
    cut = {**limits, "max_ratio": 0.0, "min_length": 9}  # no text can end
    prompts: list[list[int]] = [[]] * 5
    if "continues" in model.capabilities:  # no source, but prompts; no text can end before it has to
        prompts = [row[1 : 1 + i].tolist() for i, row in enumerate(words)]
        limits, cut = {**limits, "max_length": 9}, {**cut, "max_length": 9}
    for settings in (
        SearchConfig(beam=1, **limits),
        SearchConfig(beam=4, nbest=4, **limits),
        SearchConfig(beam=2, nbest=2, **cut),
        SearchConfig(method="sample", nbest=2, **cut),
    ):
        together = search(model, source, settings, prompts)
        for row, found in enumerate(together):
            alone = search(model, source.take(torch.tensor([row])), settings, [prompts[row]])[0]
            assert [h.tokens for h in alone] == [h.tokens for h in found]
            assert [h.score for h in alone] == pytest.approx([h.score for h in found], abs=1e-5)
            ended = [h for h in found if h.finished and len(h.tokens) - len(prompts[row]) < settings.min_length]
            assert not ended
            assert "continues" in model.capabilities or settings.min_length == 0 or not any(h.finished for h in found)
            for h in found:
                total, each = score_pairs(model, source.take(torch.tensor([row])), [h.tokens])[0]
                expected = total if h.finished else sum(each[:-1])
                assert h.log_prob == pytest.approx(expected, abs=1e-4)
    greedy = search(model, source, SearchConfig(beam=1, **limits), prompts)
    for row, found in enumerate(greedy):  # greedy is the likeliest token at every step
        tokens = [BOS, *found[0].tokens]
        hidden = model(source.take(torch.tensor([row])), torch.tensor([tokens])).hidden
        scores = model.output.scores(hidden)[0]
        scores[:, [PAD, BOS]] = -torch.inf
        if "plans" in model.capabilities:  # as long as was planned: of that length, the likeliest
            scores[:-1, EOS] = -torch.inf
            scores[-1, EOS] = torch.inf
        likeliest, given = scores.argmax(-1).tolist(), len(prompts[row])
        assert tokens[1 : 1 + given] == prompts[row]
        assert likeliest[given : len(tokens) - 1] == tokens[1 + given :]
        assert not found[0].finished or likeliest[-1] == EOS


@torch.no_grad()
def test_limits_are_kept_with_a_clear_error(name, variant):
    model = make(name, variant)
    limit = model.limits.source
    if limit is None:
        long = pad_rows([[5] * 1100 + [EOS]])  # beyond any table
        assert torch.isfinite(model(long, torch.tensor([[BOS, 5]])).hidden).all()
        return
    with pytest.raises(ModelError, match=str(limit)):
        model(pad_rows([[5] * limit + [EOS]]), torch.tensor([[BOS, 5]]))
