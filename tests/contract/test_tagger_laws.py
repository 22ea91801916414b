"""The laws that every model which names a label for each word keeps, run over every registered one."""

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
from regard.models.base import MODELS, Recorder, build_model
from regard.models.reader import at_places
from regard.tasks.folder import put_weights, weights_of

V, LABELS = 23, 5  # four labels, and the one of none
# Small sizes, and variants that change the mathematics. A model that is not listed is run with its defaults.
VARIANTS = {
    "recurrent-tagger": [
        {"width": 12},
        {"embedding": 7, "width": 12, "layers": 2, "cell": "gru", "token_dropout": 0.2},
        {"embedding": 7, "width": 10, "layers": 2, "cell": "rnn"},
        {"width": 9, "layers": 2, "bidirectional": False},
    ],
    "transformer-tagger": [
        {"width": 16, "layers": 2, "heads": 2},
        {"width": 16, "layers": 2, "heads": 2, "norm": "post", "positions": "learned", "max_length": 30},
        {"width": 16, "layers": 2, "heads": 4, "relative": "rotary", "positions": "none", "inner": 20},
        {"width": 16, "layers": 1, "heads": 2, "normalise": "rms", "activation": "swiglu"},
        {"width": 16, "layers": 2, "heads": 2, "normalise": "batch", "token_dropout": 0.2},
    ],
    "bert-tagger": [
        {"attention_dropout": 0.0, "width": 16, "layers": 2, "heads": 2, "context": 40},
        {"attention_dropout": 0.0, "width": 16, "layers": 1, "heads": 4, "context": 30, "next_sentence": True, "head": True},
    ],
}  # fmt: skip
CASES = [
    pytest.param(name, variant, id=f"{name}-{i}")
    for name in MODELS.names()
    if "tags" in MODELS.get(name).capabilities
    for i, variant in enumerate(VARIANTS.get(name, [{}]))
]
pytestmark = pytest.mark.parametrize(("name", "variant"), CASES)


def _settings(name: str) -> set[str]:
    return {field.name for field in dataclasses.fields(MODELS.get(name).Config)}


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


def texts() -> tuple[Padded, torch.Tensor, torch.Tensor]:
    """Sentences of several lengths, the places of their words' first tokens, and the words' labels."""
    draw = torch.Generator().manual_seed(1)
    source = pad_rows([torch.randint(4, V, (n,), generator=draw).tolist() for n in (5, 1, 9, 3)])
    places = pad_rows([[0, 1, 3], [0], [0, 2, 3, 6, 8], [0, 1, 2]]).tokens
    labels = pad_rows([[1, 2, 4], [3], [4, 4, 1, 2, 3], [2, 1, 1]]).tokens
    return source, places, labels


def trained(model, source: Padded, places: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """What training minimises: the mean over words, and the auxiliary losses."""
    forced = model(source, places)
    sums = model.output.loss(forced.hidden, labels)
    return sum(forced.losses.values(), sums.loss / sums.tokens)


@torch.no_grad()
def test_there_is_one_state_for_each_word_and_one_output_over_labels(name, variant):
    model = make(name, variant)
    source, places, _ = texts()
    hidden = model(source, places).hidden
    assert hidden.shape[:2] == places.shape
    scores = model.output.scores(hidden)
    assert scores.shape == (*places.shape, LABELS)
    torch.testing.assert_close(scores.exp().sum(-1), torch.ones(places.shape))
    assert float(scores[..., PAD].exp().max()) == 0  # none is no label


@torch.no_grad()
def test_states_at_places_are_states_gathered(name, variant):
    model = make(name, variant)
    source, places, labels = texts()
    states = model.states(source)
    assert states.shape[:2] == source.tokens.shape
    hidden = model(source, places).hidden
    real = labels != PAD
    torch.testing.assert_close(hidden[real], at_places(states, places)[real], rtol=1e-4, atol=1e-5)
    turned = places.flip(1)  # the order in which places are named is no more than that
    torch.testing.assert_close(model(source, turned).hidden.flip(1), hidden, rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_padding_and_neighbours_change_nothing(name, variant):
    model = make(name, variant)
    source, places, labels = texts()
    together = model(source, places).hidden
    for row in range(len(together)):
        words = int((labels[row] != PAD).sum())
        alone = model(source.take(torch.tensor([row])), places[row : row + 1, :words]).hidden
        torch.testing.assert_close(alone[0], together[row, :words], rtol=1e-4, atol=1e-5)
    wider = Padded(pad(source.tokens, (0, 5), value=7), pad(source.keep, (0, 5)))
    torch.testing.assert_close(model(wider, places).hidden, together, rtol=1e-4, atol=1e-5)
    order = torch.tensor([2, 0, 3, 1])
    shuffled = model(Padded(source.tokens[order], source.keep[order]), places[order]).hidden
    torch.testing.assert_close(shuffled, together[order], rtol=1e-4, atol=1e-5)


def test_padding_and_rows_without_labels_change_no_gradient(name, variant):
    """On a GPU such rows fill batches up: EOS alone, and no labels."""
    model = make(name, still(name, variant)).train()
    source, places, labels = texts()
    fill = pad_rows([[EOS]] * 3)
    width = source.tokens.shape[1] + 2
    filled = Padded(
        *(torch.cat([pad(one, (0, width - one.shape[1])) for one in both]) for both in zip(source, fill, strict=True))
    )
    more, none = (torch.cat([pad(one, (0, 2)), torch.full((3, 7), PAD)]) for one in (places, labels))
    gradients = []
    for given in ((source, places, labels), (filled, more, none)):
        model.zero_grad()
        trained(model, *given).backward()
        gradients.append({n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None})
    assert gradients[0].keys() == gradients[1].keys()
    for n, one in gradients[0].items():
        torch.testing.assert_close(gradients[1][n], one, rtol=1e-4, atol=1e-5, msg=lambda text, n=n: f"{n}: {text}")


@torch.no_grad()
def test_a_words_own_token_counts_and_so_do_those_before_it(name, variant):
    model = make(name, variant)
    places = torch.tensor([[1]])
    states = [model(pad_rows([row]), places).hidden for row in ([5, 6, 7], [5, 8, 7], [8, 6, 7])]
    for other in states[1:]:
        assert not torch.allclose(states[0], other, atol=1e-4)


def test_dropout_is_off_in_evaluation(name, variant):
    model = make(name, {**variant, "dropout": 0.4})
    source, places, _ = texts()
    first, again = model(source, places), model(source, places)
    assert torch.equal(first.hidden, again.hidden)
    assert first.losses == {}
    model.train()
    assert not torch.equal(model(source, places).hidden, model(source, places).hidden)


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
    places = torch.arange(0, 10, 2).expand(64, -1)
    sums = model.output.loss(model(source, places).hidden, torch.randint(1, 51, (64, 5)))
    assert 0.97 * math.log(50) < sums.nll.item() / sums.tokens.item() < 1.15 * math.log(50)


def test_sixteen_bits_where_they_are_allowed_change_little(name, variant):
    model = make(name, still(name, variant)).train()
    source, places, labels = texts()
    expected = model(source, places).hidden
    with torch.autocast("cpu", torch.float16):
        forced = model(source, places)
        loss = sum(forced.losses.values(), model.output.loss(forced.hidden, labels).loss)
    loss.backward()
    torch.testing.assert_close(forced.hidden.float(), expected, rtol=0.05, atol=0.05)
    for n, p in model.named_parameters():
        assert p.grad is not None, n
        assert p.grad.dtype == p.dtype, n
        assert torch.isfinite(p.grad).all(), n


@torch.no_grad()
def test_a_recorder_gets_the_states_of_all_layers_and_changes_nothing(name, variant):
    model = make(name, variant)
    source, places, _ = texts()
    record = Recorder()
    torch.testing.assert_close(model(source, places, record).hidden, model(source, places).hidden, rtol=1e-4, atol=1e-5)
    found = [n for n in record.tensors if n.startswith("reader.") and n.endswith(".states")]
    assert len(found) >= 2
    assert set(found) == {f"reader.{i}.states" for i in range(len(found))}
    for n in found:
        assert record.tensors[n].shape[:2] == source.tokens.shape, n


@torch.no_grad()
def test_saved_weights_give_the_same_model(name, variant, tmp_path):
    model, other = make(name, variant, seed=1), make(name, variant, seed=2)
    source, places, _ = texts()
    assert not torch.allclose(model(source, places).hidden, other(source, places).hidden)
    put_weights(other, {n: t.clone() for n, t in weights_of(model).items()}, tmp_path)
    first, second = (one(source, places).hidden for one in (model, other))
    assert torch.equal(first, second)
    assert torch.equal(other.output.scores(second), model.output.scores(first))


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
    limit, places = model.limits.source, torch.zeros((1, 1), dtype=torch.long)
    if limit is None:
        assert torch.isfinite(model(pad_rows([[5] * 1100]), places).hidden).all()  # beyond any table
        return
    assert torch.isfinite(model(pad_rows([[5] * limit]), places + limit - 1).hidden).all()
    with pytest.raises(ModelError, match=str(limit)):
        model(pad_rows([[5] * (limit + 1)]), places)


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


def test_the_device_is_asked_nothing(name, variant):
    """On CUDA a step is recorded once and replayed: what depends on values that the host reads would be frozen in it."""
    model = make(name, variant).to("meta")
    source, places, _ = texts()
    hidden = model(source.to("meta"), places.to("meta")).hidden  # tensors without values: reading one is an error
    assert hidden.shape[:2] == places.shape
