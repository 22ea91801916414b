"""The LSTM language model against float64 NumPy written from the paper's equations, word by word, and against torch."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from regard.core.errors import ConfigError
from regard.core.types import BOS, EOS, pad_rows
from regard.models.lstmlm import LSTMLM, LSTMLMConfig

V, N = 13, 5
TEXTS = [[BOS, 7, 12, 4, 9, BOS, 5], [BOS, 5, 5, 8, 3, 10, 11], [BOS, 11, 6, 10, 7, 7, 4]]
SOURCE = pad_rows([[EOS]] * len(TEXTS))
FORMS = [{}, {"embedding": 4, "layers": 3}, {"layers": 1, "tie": "output"}]


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def write(w: dict[str, np.ndarray], text: list[int], layers: int) -> tuple[np.ndarray, np.ndarray]:
    """Of one text: the outputs of the last layer, and the log-probabilities of the next word after each of its words."""
    h, c = np.zeros((layers, N)), np.zeros((layers, N))
    outputs, log_p = [], []
    for word in text:
        below = w["embedding.weight"][word]
        for i in range(layers):
            T = np.concatenate([w[f"layers.{i}.weight_ih_l0"], w[f"layers.{i}.weight_hh_l0"]], 1)
            b = w[f"layers.{i}.bias_ih_l0"] + w[f"layers.{i}.bias_hh_l0"]
            a = T @ np.concatenate([below, h[i]]) + b  # T [h^{l-1}_t ; h^l_{t-1}]
            i_, f, g, o = (a[k * N : (k + 1) * N] for k in range(4))  # the order of torch's gates
            c[i] = sigmoid(f) * c[i] + sigmoid(i_) * np.tanh(g)
            h[i] = sigmoid(o) * np.tanh(c[i])
            below = h[i]
        outputs.append(below.copy())
        y = w["output.weight"] @ below + w["output.bias"]
        log_p.append(y - math.log(sum(math.exp(a) for a in y)))
    return np.array(outputs), np.array(log_p)


def make(**settings) -> LSTMLM:
    model = LSTMLM(LSTMLMConfig(**{"width": N, **settings}), vocabulary=V)
    generator = torch.Generator().manual_seed(3)
    for p in model.parameters():
        p.data = torch.randn(p.shape, generator=generator, dtype=torch.float64) * 0.7
    return model.double()


def weights_of(model: LSTMLM) -> dict[str, np.ndarray]:
    weights = {name: tensor.numpy().copy() for name, tensor in model.state_dict().items()}
    return weights | {"output.weight": model.output.weight.detach().numpy().copy()}


@pytest.mark.parametrize("form", FORMS)
@torch.no_grad()
def test_the_model_is_its_equations(form):
    model = make(**form).eval()
    hidden = model(SOURCE, torch.tensor(TEXTS)).hidden
    scores = model.output.scores(hidden)
    for row, text in enumerate(TEXTS):
        outputs, log_p = write(weights_of(model), text, model.config.layers)
        np.testing.assert_allclose(hidden[row].numpy(), outputs, rtol=0, atol=1e-12)
        np.testing.assert_allclose(scores[row].numpy(), log_p, rtol=0, atol=1e-5)  # scores are float32


@pytest.mark.parametrize("form", FORMS)
def test_gradients_are_those_of_the_equations(form):
    model = make(**form)
    weight = torch.randn(3, 7, N, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    (model(SOURCE, torch.tensor(TEXTS)).hidden * weight).sum().backward()
    weights = weights_of(model)

    def loss(changed: dict[str, np.ndarray]) -> float:
        return sum(
            float((write(weights | changed, y, model.config.layers)[0] * weight[row].numpy()).sum())
            for row, y in enumerate(TEXTS)
        )

    rng = np.random.default_rng(0)
    for name, p in model.named_parameters():
        if name.startswith("output."):
            continue
        way = rng.normal(size=p.shape)
        step = 1e-6 / np.linalg.norm(way)
        slope = (loss({name: weights[name] + step * way}) - loss({name: weights[name] - step * way})) / (2 * step)
        assert p.grad is not None
        assert float((p.grad.numpy() * way).sum()) == pytest.approx(slope, rel=1e-5, abs=1e-7), name


def test_against_torch():
    """All layers are one of torch's, and so are the gradients."""
    model = make(embedding=4, layers=3)
    stack = torch.nn.LSTM(4, N, 3, batch_first=True, dtype=torch.float64)
    stack.load_state_dict(
        {f"{kind}_l{i}": layer.get_parameter(f"{kind}_l0") for i, layer in enumerate(model.layers)
         for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")}
    )  # fmt: skip
    text = torch.tensor(TEXTS)
    memory, state = model.start(SOURCE)
    hidden, state = model.advance(text[:, None], memory, state)
    expected, (h, c) = stack(model.embedding(text))
    torch.testing.assert_close(hidden[:, 0], expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(torch.stack(state.h)[:, :, 0], h, rtol=0, atol=1e-12)
    torch.testing.assert_close(torch.stack(state.c)[:, :, 0], c, rtol=0, atol=1e-12)
    hidden.square().sum().backward()
    expected.square().sum().backward()
    for i, layer in enumerate(model.layers):
        grads = layer.get_parameter("weight_hh_l0").grad, stack.get_parameter(f"weight_hh_l{i}").grad
        torch.testing.assert_close(*grads, rtol=0, atol=1e-12)


@torch.no_grad()
def test_the_state_goes_on_from_window_to_window():
    model = make().eval()
    text = torch.tensor(TEXTS)
    memory, state = model.start(SOURCE)
    first, state = model.advance(text[:, None, :3], memory, state)
    second, state = model.advance(text[:, None, 3:], memory, state)
    whole = model(SOURCE, text).hidden
    torch.testing.assert_close(torch.cat((first, second), 2)[:, 0], whole, rtol=0, atol=1e-12)
    anew, _ = model.advance(text[:, None, 3:], memory, model.begin(3))
    assert not torch.allclose(anew, second, atol=1e-2)


@pytest.mark.parametrize(
    ("width", "published", "exact"), [(200, 4.65, 4_653_200), (650, 19.8, 19_780_400), (1500, 66.0, 66_034_000)]
)
def test_parameter_counts_of_the_papers_sizes(width, published, exact):
    with torch.device("meta"):
        theirs = LSTMLM(LSTMLMConfig(width=width), vocabulary=10_000).parameters_count()
        ours = LSTMLM(LSTMLMConfig(width=width), vocabulary=10_002).parameters_count()  # PAD and BOS besides
        tied = LSTMLM(LSTMLMConfig(width=width, tie="output"), vocabulary=10_000).parameters_count()
    assert theirs == exact
    assert theirs / 1e6 == pytest.approx(published, rel=2e-3)
    assert ours - theirs == 2 * (2 * width + 1)
    assert theirs - tied == 10_000 * width


def test_everything_starts_from_the_range():
    torch.manual_seed(0)
    model = LSTMLM(LSTMLMConfig(width=40, initialise_range=0.05), vocabulary=100)
    for name, p in model.named_parameters():
        assert 0.047 < p.abs().max().item() <= 0.05, name
        assert p.std().item() == pytest.approx(0.05 / math.sqrt(3), rel=0.15), name


@pytest.mark.parametrize("variational", [False, True])
def test_dropout_acts_on_what_goes_up_and_never_on_what_goes_on_in_time(variational):
    torch.manual_seed(0)
    model = LSTMLM(LSTMLMConfig(width=60, layers=2, dropout=0.3, variational=variational), vocabulary=V)
    seen = []
    for layer in model.layers:
        layer.register_forward_pre_hook(lambda _, inputs: seen.append(inputs))
    text = torch.tensor([[BOS, 5, 6, 7, 8, 9, 10]] * 40)
    memory, state = model.start(pad_rows([[EOS]] * 40))
    _, state = model.advance(text[:, None], memory, state)
    seen.clear()
    hidden, state = model.advance(text[:, None], memory, state)
    for x in (seen[0][0], seen[1][0], hidden[:, 0]):
        assert (x == 0).float().mean().item() == pytest.approx(0.3, abs=0.04)
        same = ((x == 0) == (x[:, :1] == 0)).all()
        assert bool(same) == variational
        assert not ((x == 0) == (x[:1] == 0)).all()  # each row has a draw of its own
    for h, c in (inputs[1] for inputs in seen):
        assert (h != 0).all()
        assert (c != 0).all()
    assert all((h != 0).all() for h in (*state.h, *state.c))
    model.eval()
    whole = model(pad_rows([[EOS]] * 40), text).hidden
    assert (whole != 0).all()
    scale = LSTMLM(LSTMLMConfig(width=60, layers=2), vocabulary=V)
    scale.load_state_dict(model.state_dict())
    torch.testing.assert_close(whole, scale(pad_rows([[EOS]] * 40), text).hidden)


@pytest.mark.parametrize("variational", [False, True])
def test_what_is_kept_is_made_larger_so_that_the_mean_stays(variational):
    torch.manual_seed(0)
    model = LSTMLM(LSTMLMConfig(width=60, dropout=0.5, variational=variational), vocabulary=V)
    x = torch.ones(400, 3, 60)
    dropped = model._drop(x)
    assert dropped.unique().tolist() == [0.0, 2.0]
    assert dropped.mean().item() == pytest.approx(1.0, abs=0.02)


def test_weight_dropout_is_that_of_a_layer_with_such_weights():
    """One mask for all steps of a window; the matrix that words go through is kept whole, and gradients come back."""
    model = make(layers=1, weight_dropout=0.5).train()
    text = torch.tensor(TEXTS)
    torch.manual_seed(4)
    hidden = model(SOURCE, text).hidden
    torch.manual_seed(4)
    mask = torch.nn.functional.dropout(torch.ones(4 * N, N, dtype=torch.float64), 0.5)
    assert 0.3 < (mask == 0).double().mean() < 0.7
    plain = make(layers=1)
    with torch.no_grad():
        plain.layers[0].get_parameter("weight_hh_l0").mul_(mask)
    expected = plain(SOURCE, text).hidden
    torch.testing.assert_close(hidden, expected, rtol=0, atol=1e-12)
    hidden.square().sum().backward()
    expected.square().sum().backward()
    for (name, p), (_, q) in zip(model.named_parameters(), plain.named_parameters(), strict=True):
        if name.startswith("output."):
            continue
        assert p.grad is not None, name
        assert q.grad is not None, name
        torch.testing.assert_close(p.grad, q.grad * mask if "weight_hh" in name else q.grad, rtol=0, atol=1e-12)
    model.eval()  # and nothing is dropped where nothing is learnt
    torch.testing.assert_close(model(SOURCE, text).hidden, make(layers=1)(SOURCE, text).hidden, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"width": 0}, "model.width.*at least 1"),
        ({"layers": 0}, "model.layers.*at least 1"),
        ({"embedding": 1 << 15}, "model.embedding"),
        ({"dropout": 1.0}, "model.dropout"),
        ({"weight_dropout": -0.1}, "model.weight_dropout"),
        ({"initialise_range": 0.0}, "model.initialise_range.*above 0"),
        ({"tie": "output", "embedding": 5, "width": 6}, r"model.tie.*width \(6\) equals embedding \(5\)"),
    ],
)
def test_settings_that_cannot_be(settings, message):
    with pytest.raises(ConfigError, match=message):
        LSTMLMConfig(**settings)
