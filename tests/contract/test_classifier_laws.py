"""The laws that every model which names labels keeps, run over every registered one: a newcomer is picked up by itself."""

from __future__ import annotations

import dataclasses
import json
import math

import pytest
import torch
from torch.nn.functional import pad

from regard.core import config as configuration
from regard.core.errors import ModelError
from regard.core.types import EOS, PAD, Padded, pad_rows
from regard.models.base import MODELS, Forced, build_model
from regard.tasks.folder import put_weights, weights_of

V, LABELS = 23, 4  # three labels, and the one of none
# Small sizes, and variants that change the mathematics. A model that is not listed is run with its defaults.
VARIANTS = {
    "deep-averaging": [
        {"embedding": 10, "width": 12},
        {"embedding": 10, "layers": 0, "bigrams": 50},
        {"embedding": 8, "width": 12, "layers": 3, "activation": "tanh", "bigrams": 7},
    ],
    "recurrent-classifier": [
        {"width": 12},
        {"embedding": 7, "width": 12, "layers": 2, "cell": "gru", "pool": "last", "token_dropout": 0.2},
        {"embedding": 7, "width": 10, "layers": 2, "cell": "rnn", "pool": "mean"},
        {"width": 9, "layers": 2, "cell": "lstm", "bidirectional": False, "pool": "last"},
        {"width": 9, "cell": "gru", "bidirectional": False, "pool": "max"},
    ],
    "transformer-classifier": [
        {"width": 16, "layers": 2, "heads": 2},
        {
            "width": 16,
            "layers": 2,
            "heads": 2,
            "pool": "first",
            "norm": "post",
            "positions": "learned",
            "max_length": 30,
        },
        {"width": 16, "layers": 2, "heads": 4, "pool": "first", "relative": "rotary", "positions": "none", "inner": 20},
        {"width": 16, "layers": 2, "heads": 2, "normalise": "batch", "token_dropout": 0.2},
        {"width": 16, "layers": 1, "heads": 2, "normalise": "rms", "norm": "post", "activation": "swiglu"},
    ],
    "bert-classifier": [
        {"attention_dropout": 0.0, "width": 16, "layers": 2, "heads": 2, "context": 40},
        {
            "attention_dropout": 0.0,
            "width": 16,
            "layers": 1,
            "heads": 4,
            "context": 30,
            "next_sentence": True,
            "head": True,
        },
        {
            "attention_dropout": 0.0,
            "width": 12,
            "layers": 1,
            "heads": 2,
            "context": 30,
            "pooler": True,
            "activation": "relu",
        },
    ],
    "gpt-classifier": [
        {"attention_dropout": 0.0, "width": 16, "layers": 2, "heads": 2, "context": 40},
        {"attention_dropout": 0.0, "width": 16, "layers": 2, "heads": 4, "context": 30, "norm": "post", "auxiliary": 2},
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
    ],
    "kim": [
        {"width": 12, "maps": 8},
        {"width": 8, "maps": 30, "windows": [2, 5], "channels": "multichannel", "border": "narrow", "max_norm": 0},
        {"width": 8, "maps": 30, "windows": [2, 3], "stride": 2, "padding": 1},
    ],
    "dcnn": [
        {"width": 12, "maps": [3, 4]},
        {"width": 8, "windows": [3], "maps": [5], "k_top": 6},
        {"width": 6, "windows": [3, 2, 2], "maps": [3, 2, 4], "k_top": 2, "folding": False},
    ],
}
CASES = [
    pytest.param(name, variant, id=f"{name}-{i}")
    for name in MODELS.names()
    if "classifies" in MODELS.get(name).capabilities
    for i, variant in enumerate(VARIANTS.get(name, [{}]))
]
pytestmark = pytest.mark.parametrize(("name", "variant"), CASES)


def make(name: str, variant: dict, seed: int = 0):
    torch.manual_seed(seed)
    config = configuration.build(MODELS.get(name).Config, {"name": name, **variant}, "model")
    model = build_model(name, config, source_vocabulary=V, target_vocabulary=LABELS, shared=False)
    for parameter in model.parameters():
        if parameter.dim() == 1:  # norms and biases start at 1 and 0: move them, or a mistake there stays unseen
            torch.nn.init.normal_(parameter, mean=float(parameter.detach().mean()), std=0.3)
        elif float(parameter.detach().std()) < 0.1:  # some papers start near 0, where tolerances hide mistakes
            torch.nn.init.normal_(parameter, std=0.3)
    return model.eval()


def still(name: str, variant: dict) -> dict:
    """The same without dropout."""
    return {**variant, **{setting: 0.0 for setting in _settings(name) if setting.endswith("dropout")}}


def texts() -> tuple[Padded, torch.Tensor]:
    """Texts of several lengths, one of them two texts, and their labels."""
    draw = torch.Generator().manual_seed(1)
    rows = [torch.randint(4, V, (n,), generator=draw).tolist() for n in (5, 1, 9, 3)]
    rows[2][4] = EOS
    return pad_rows(rows), torch.tensor([[2], [1], [3], [2]])


def run(model, source: Padded) -> Forced:
    return model(source, torch.full((len(source.tokens), 1), PAD))


def trained(model, source: Padded, labels: torch.Tensor) -> torch.Tensor:
    """What training minimises: the mean over labels, and the auxiliary losses."""
    forced = run(model, source)
    sums = model.output.loss(forced.hidden, labels)
    return sum(forced.losses.values(), sums.loss / sums.tokens)


@torch.no_grad()
def test_there_is_one_state_for_each_text_and_one_output_over_labels(name, variant):
    model = make(name, variant)
    hidden = run(model, texts()[0]).hidden
    assert hidden.shape[:2] == (4, 1)
    scores = model.output.scores(hidden)
    assert scores.shape == (4, 1, LABELS)
    torch.testing.assert_close(scores.exp().sum(-1), torch.ones(4, 1))
    assert float(scores[..., PAD].exp().max()) == 0  # none is no label


@torch.no_grad()
def test_padding_and_neighbours_change_nothing(name, variant):
    model = make(name, variant)
    source, _ = texts()
    together = run(model, source).hidden
    for row in range(len(together)):
        alone = run(model, source.take(torch.tensor([row]))).hidden
        torch.testing.assert_close(alone[0], together[row], rtol=1e-4, atol=1e-5)
    wider = Padded(pad(source.tokens, (0, 5), value=7), pad(source.keep, (0, 5)))
    torch.testing.assert_close(run(model, wider).hidden, together, rtol=1e-4, atol=1e-5)
    order = torch.tensor([2, 0, 3, 1])
    shuffled = run(model, Padded(source.tokens[order], source.keep[order])).hidden
    torch.testing.assert_close(shuffled, together[order], rtol=1e-4, atol=1e-5)


def test_padding_and_rows_without_a_label_change_no_gradient(name, variant):
    """On a GPU such rows fill batches up: EOS alone, and no label."""
    model = make(name, still(name, variant)).train()
    source, labels = texts()
    fill = pad_rows([[EOS]] * 3)
    width = source.tokens.shape[1] + 2
    filled = Padded(
        *(torch.cat([pad(one, (0, width - one.shape[1])) for one in both]) for both in zip(source, fill, strict=True))
    )
    gradients = []
    for sources, targets in ((source, labels), (filled, torch.cat([labels, torch.full((3, 1), PAD)]))):
        model.zero_grad()
        trained(model, sources, targets).backward()
        gradients.append({n: p.grad.clone() for n, p in model.named_parameters()})
    for n, one in gradients[0].items():
        torch.testing.assert_close(gradients[1][n], one, rtol=1e-4, atol=1e-5, msg=lambda text, n=n: f"{n}: {text}")


@torch.no_grad()
def test_every_token_counts_and_so_does_where_two_texts_meet(name, variant):
    model = make(name, variant)
    rows = [[5, 6, EOS, 7], [8, 6, EOS, 7], [5, 8, EOS, 7], [5, 6, EOS, 8], [5, EOS, 6, 7], [5, 6, 7]]
    states = [run(model, pad_rows([row])).hidden for row in rows]
    for other in states[1:]:
        assert not torch.allclose(states[0], other, atol=1e-4)


def test_dropout_and_auxiliary_losses_are_off_in_evaluation(name, variant):
    model = make(name, {**variant, "dropout": 0.4})
    source, _ = texts()
    first, again = run(model, source), run(model, source)
    assert torch.equal(first.hidden, again.hidden)
    assert first.losses == {}
    model.train()
    assert not torch.equal(run(model, source).hidden, run(model, source).hidden)


def test_every_parameter_is_trained(name, variant):
    model = make(name, still(name, variant)).train()
    trained(model, *texts()).backward()
    assert [n for n, p in model.named_parameters() if p.grad is None or p.grad.abs().max() == 0] == []


@torch.no_grad()
def test_the_first_loss_is_near_that_of_a_guess(name, variant):
    torch.manual_seed(2)
    config = configuration.build(MODELS.get(name).Config, {"name": name, **variant}, "model")
    model = build_model(name, config, source_vocabulary=1000, target_vocabulary=51, shared=False).eval()
    source = pad_rows(torch.randint(4, 1000, (64, 10)).tolist())
    sums = model.output.loss(run(model, source).hidden, torch.randint(1, 51, (64, 1)))
    assert 0.97 * math.log(50) < sums.nll.item() / sums.tokens.item() < 1.1 * math.log(50)


def test_sixteen_bits_where_they_are_allowed_change_little(name, variant):
    model = make(name, still(name, variant)).train()
    source, labels = texts()
    expected = run(model, source).hidden
    with torch.autocast("cpu", torch.float16):
        forced = run(model, source)
        loss = sum(forced.losses.values(), model.output.loss(forced.hidden, labels).loss)
    loss.backward()
    torch.testing.assert_close(forced.hidden.float(), expected, rtol=0.05, atol=0.05)
    for n, p in model.named_parameters():
        assert p.grad is not None, n
        assert p.grad.dtype == p.dtype, n
        assert torch.isfinite(p.grad).all(), n


@torch.no_grad()
def test_saved_weights_give_the_same_model(name, variant, tmp_path):
    model, other = make(name, variant, seed=1), make(name, variant, seed=2)
    source, _ = texts()
    assert not torch.allclose(run(model, source).hidden, run(other, source).hidden)
    put_weights(other, {n: t.clone() for n, t in weights_of(model).items()}, tmp_path)
    assert torch.equal(run(other, source).hidden, run(model, source).hidden)
    assert torch.equal(other.output.scores(run(other, source).hidden), model.output.scores(run(model, source).hidden))


def test_the_configuration_makes_a_round_trip(name, variant):
    config = make(name, variant).config
    plain = json.loads(json.dumps(configuration.to_plain(config)))
    assert configuration.build(type(config), plain, "model") == config
    assert plain["name"] == name
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.name = "other"


@torch.no_grad()
def test_limits_are_kept_with_a_clear_error(name, variant):
    model = make(name, variant)
    limit = model.limits.source
    if limit is None:
        assert torch.isfinite(run(model, pad_rows([[5] * 1100])).hidden).all()  # beyond any table
        return
    assert torch.isfinite(run(model, pad_rows([[5] * limit])).hidden).all()
    with pytest.raises(ModelError, match=str(limit)):
        run(model, pad_rows([[5] * (limit + 1)]))


@torch.no_grad()
def test_a_body_begins_with_the_weights_of_the_model_it_names(name, variant, tmp_path):
    model = make(name, variant)
    if not model.begins_with:
        return
    section = {k: v for k, v in configuration.to_plain(model.config).items() if k in _settings(model.begins_with)}
    config = configuration.build(MODELS.get(model.begins_with).Config, {**section, "name": model.begins_with}, "model")
    other = build_model(model.begins_with, config, source_vocabulary=V, target_vocabulary=V, shared=True)
    put_weights(model.body, weights_of(other), tmp_path)
    for n, tensor in weights_of(other).items():
        assert torch.equal(weights_of(model)[f"body.{n}"], tensor)


def _settings(name: str) -> set[str]:
    return {field.name for field in dataclasses.fields(MODELS.get(name).Config)}


def test_the_device_is_asked_nothing(name, variant):
    """On CUDA a step is recorded once and replayed: what depends on values that the host reads would be frozen in it."""
    model = make(name, variant).to("meta")
    source = texts()[0].to("meta")  # tensors without values: reading one is an error
    hidden = model(source, torch.full((4, 1), PAD, device="meta")).hidden
    assert hidden.shape[:2] == (4, 1)
