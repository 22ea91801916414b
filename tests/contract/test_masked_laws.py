"""The laws that every model which fills in hidden words keeps, run over every registered one: a newcomer is picked up by itself."""

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
from regard.models.base import MODELS, Forced, Recorder, build_model
from regard.tasks.folder import put_weights, weights_of

V = 23
# Small sizes, and variants that change the mathematics. A model that is not listed is run with its defaults.
VARIANTS = {
    "bert": [
        {"attention_dropout": 0.0, "width": 16, "layers": 2, "heads": 2, "context": 40},
        {
            "attention_dropout": 0.0,
            "width": 12,
            "layers": 3,
            "heads": 3,
            "inner": 20,
            "context": 30,
            "activation": "gelu_tanh",
            "next_sentence": False,
        },
        {"attention_dropout": 0.0, "width": 16, "layers": 1, "heads": 4, "context": 14, "activation": "relu", "segments": 3},
    ],
}  # fmt: skip
CASES = [
    pytest.param(name, variant, id=f"{name}-{i}")
    for name in MODELS.names()
    if "fills" in MODELS.get(name).capabilities
    for i, variant in enumerate(VARIANTS.get(name, [{}]))
]
pytestmark = pytest.mark.parametrize(("name", "variant"), CASES)


def make(name: str, variant: dict, seed: int = 0):
    torch.manual_seed(seed)
    config = configuration.build(MODELS.get(name).Config, {"name": name, **variant}, "model")
    model = build_model(name, config, source_vocabulary=V, target_vocabulary=V, shared=True)
    for parameter in model.parameters():
        if parameter.dim() == 1:  # norms and biases start at 1 and 0: move them, or a mistake there stays unseen
            torch.nn.init.normal_(parameter, mean=float(parameter.detach().mean()), std=0.3)
        elif float(parameter.detach().std()) < 0.1:  # some papers start near 0, where tolerances hide mistakes
            torch.nn.init.normal_(parameter, std=0.3)
    return model.eval()


def still(variant: dict) -> dict:
    """The same without dropout."""
    return {**variant, "dropout": 0.0}


def texts() -> tuple[Padded, torch.Tensor, torch.Tensor]:
    """Texts of several lengths, two of them two texts; which places are asked for, and what stood there."""
    draw = torch.Generator().manual_seed(1)
    rows = [torch.randint(4, V, (n,), generator=draw).tolist() for n in (5, 1, 9, 7)]
    rows[2][4] = rows[3][1] = EOS
    target = torch.tensor([[0, 1, 4, 0], [0, 0, 0, 0], [1, 8, 0, 3], [2, 5, 2, 0]])
    words = torch.tensor([[PAD, 7, 9, PAD], [PAD, 12, PAD, PAD], [PAD, 4, 5, 22], [PAD, 9, 8, PAD]])
    return pad_rows(rows), target, words


def trained(model, source: Padded, target: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
    """What training minimises: the mean over hidden words, and the auxiliary losses."""
    forced = model(source, target)
    sums = model.output.loss(forced.hidden, words)
    return sum(forced.losses.values(), sums.loss / sums.tokens)


@torch.no_grad()
def test_states_are_those_of_tokens_and_scores_those_of_words(name, variant):
    model = make(name, variant)
    source, target, _ = texts()
    states = model.states(source)
    assert states.shape[:2] == source.tokens.shape
    hidden = model(source, target).hidden
    assert hidden.shape[:2] == target.shape
    scores = model.output.scores(hidden)
    assert scores.shape == (*target.shape, V)
    torch.testing.assert_close(scores.exp().sum(-1), torch.ones(target.shape))


@torch.no_grad()
def test_a_place_is_a_token_of_the_source(name, variant):
    """Whoever asks for a place gets what asking for all places gives there."""
    model = make(name, variant)
    source, target, _ = texts()
    everywhere = torch.arange(source.tokens.shape[1]).expand(4, -1)
    whole = model(source, pad(everywhere, (1, 0))).hidden[:, 1:]
    asked = model(source, target).hidden[:, 1:]
    torch.testing.assert_close(asked, torch.take_along_dim(whole, target[:, 1:, None], 1), rtol=1e-4, atol=1e-5)
    for place in range(5):  # the word at a place counts more for its own state than for those of its neighbours
        changed = source.tokens.clone()
        changed[0, place] = 4 + (changed[0, place] - 3) % (V - 4)
        embedded, others = (recorded(model, Padded(tokens, source.keep))[0][0] for tokens in (changed, source.tokens))
        moved = (embedded - others).abs().sum(-1) > 1e-4
        assert moved.nonzero().flatten().tolist() == [place]


def recorded(model, source: Padded) -> list[torch.Tensor]:
    record = Recorder()
    model.states(source, record)
    names = sorted((n for n in record.tensors if n.endswith(".states")), key=lambda n: int(n.split(".")[1]))
    assert names == [f"reader.{i}.states" for i in range(len(names))]
    return [record.tensors[n] for n in names]


@torch.no_grad()
def test_a_recorder_changes_nothing_and_gets_the_states_of_all_layers(name, variant):
    model = make(name, variant)
    source, target, _ = texts()
    layers = recorded(model, source)
    assert len(layers) >= 2
    assert all(states.shape == layers[0].shape for states in layers)
    keep = source.keep[..., None]
    torch.testing.assert_close(layers[-1] * keep, model.states(source) * keep, rtol=1e-4, atol=1e-5)
    record = Recorder()
    torch.testing.assert_close(model(source, target, record).hidden, model(source, target).hidden, rtol=1e-4, atol=1e-5)
    for n, weights in record.tensors.items():
        if not n.endswith(".states"):
            torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:-1]))


@torch.no_grad()
def test_padding_and_neighbours_change_nothing(name, variant):
    model = make(name, variant)
    source, target, _ = texts()
    together = model(source, target).hidden[:, 1:]
    for row in range(len(together)):
        alone = model(source.take(torch.tensor([row])), target[row : row + 1]).hidden[:, 1:]
        torch.testing.assert_close(alone[0], together[row], rtol=1e-4, atol=1e-5)
    wider = Padded(pad(source.tokens, (0, 3), value=EOS), pad(source.keep, (0, 3)))
    torch.testing.assert_close(model(wider, target).hidden[:, 1:], together, rtol=1e-4, atol=1e-5)
    order = torch.tensor([2, 0, 3, 1])
    shuffled = model(Padded(source.tokens[order], source.keep[order]), target[order]).hidden[:, 1:]
    torch.testing.assert_close(shuffled, together[order], rtol=1e-4, atol=1e-5)


def test_padding_and_rows_without_a_word_change_no_gradient(name, variant):
    """On a GPU such rows fill batches up: EOS alone, no place, and nothing known of what follows what."""
    model = make(name, still(variant)).train()
    source, target, words = texts()
    fill = pad_rows([[EOS]] * 3)
    width = source.tokens.shape[1] + 2
    filled = Padded(
        *(torch.cat([pad(one, (0, width - one.shape[1])) for one in both]) for both in zip(source, fill, strict=True))
    )
    none = torch.full((3, target.shape[1]), PAD)
    batches = ((source, target, words), (filled, torch.cat([target, none]), torch.cat([words, none])))
    gradients = []
    for batch in batches:
        model.zero_grad()
        trained(model, *batch).backward()
        gradients.append({n: p.grad.clone() for n, p in model.named_parameters()})
    for n, one in gradients[0].items():
        torch.testing.assert_close(gradients[1][n], one, rtol=1e-4, atol=1e-5, msg=lambda text, n=n: f"{n}: {text}")


@torch.no_grad()
def test_every_token_is_seen_from_everywhere_and_so_is_where_two_texts_meet(name, variant):
    model = make(name, variant)
    rows = [[5, 6, EOS, 7], [8, 6, EOS, 7], [5, 8, EOS, 7], [5, 6, EOS, 8], [5, EOS, 6, 7], [5, 6, 7, EOS]]
    for place in (0, 3):
        states = [model(pad_rows([row]), torch.tensor([[0, place]])).hidden[:, 1:] for row in rows]
        for other in states[1:]:
            assert not torch.allclose(states[0], other, atol=1e-4)


def test_dropout_and_auxiliary_losses_are_off_in_evaluation(name, variant):
    model = make(name, {**variant, "dropout": 0.4})
    source, target, _ = texts()
    first, again = model(source, target), model(source, target)
    assert torch.equal(first.hidden, again.hidden)
    assert first.losses == {}
    model.train()
    assert not torch.equal(model(source, target).hidden, model(source, target).hidden)


def test_what_is_not_known_of_the_next_sentence_teaches_nothing(name, variant):
    model = make(name, still(variant)).train()
    source, target, _ = texts()
    target[:, 0] = 0
    assert all(float(loss.detach()) == 0 for loss in model(source, target).losses.values())


def test_every_parameter_is_trained(name, variant):
    model = make(name, still(variant)).train()
    trained(model, *texts()).backward()
    assert [n for n, p in model.named_parameters() if p.grad is None or p.grad.abs().max() == 0] == []


@torch.no_grad()
def test_the_first_loss_is_near_that_of_a_guess(name, variant):
    torch.manual_seed(2)
    config = configuration.build(MODELS.get(name).Config, {"name": name, **variant}, "model")
    model = build_model(name, config, source_vocabulary=1000, target_vocabulary=1000, shared=True).train()
    source = pad_rows(torch.randint(4, 1000, (64, 10)).tolist())
    target = torch.randint(1, 3, (64, 4))
    forced: Forced = model(source, target)
    sums = model.output.loss(forced.hidden, pad(torch.randint(4, 1000, (64, 3)), (1, 0)))
    assert 0.97 * math.log(1000) < sums.nll.item() / sums.tokens.item() < 1.1 * math.log(1000)
    for loss in forced.losses.values():
        assert 0.9 * math.log(2) < float(loss) < 1.1 * math.log(2)


def test_sixteen_bits_where_they_are_allowed_change_little(name, variant):
    model = make(name, still(variant)).train()
    source, target, words = texts()
    expected = model(source, target).hidden
    with torch.autocast("cpu", torch.float16):
        forced = model(source, target)
        loss = sum(forced.losses.values(), model.output.loss(forced.hidden, words).loss)
    loss.backward()
    torch.testing.assert_close(forced.hidden.float(), expected, rtol=0.05, atol=0.05)
    for n, p in model.named_parameters():
        assert p.grad is not None, n
        assert p.grad.dtype == p.dtype, n
        assert torch.isfinite(p.grad).all(), n


@torch.no_grad()
def test_saved_weights_give_the_same_model(name, variant, tmp_path):
    model, other = make(name, variant, seed=1), make(name, variant, seed=2)
    source, target, _ = texts()
    assert not torch.allclose(model(source, target).hidden, other(source, target).hidden)
    put_weights(other, {n: t.clone() for n, t in weights_of(model).items()}, tmp_path)
    hidden = model(source, target).hidden
    assert torch.equal(other(source, target).hidden, hidden)
    assert torch.equal(other.output.scores(hidden), model.output.scores(hidden))


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
    limit, target = model.limits.source, torch.zeros(1, 2, dtype=torch.long)
    if limit is None:
        assert torch.isfinite(model(pad_rows([[5] * 1100]), target).hidden).all()  # beyond any table
        return
    assert torch.isfinite(model(pad_rows([[5] * limit]), target).hidden).all()
    with pytest.raises(ModelError, match=str(limit)):
        model(pad_rows([[5] * (limit + 1)]), target)


def test_the_device_is_asked_nothing(name, variant):
    """On CUDA a step is recorded once and replayed: what depends on values that the host reads would be frozen in it."""
    model = make(name, variant).train().to("meta")
    source, target, _ = texts()  # tensors without values: reading one is an error
    assert model(source.to("meta"), target.to("meta")).hidden.shape[:2] == target.shape
