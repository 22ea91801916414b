"""The neural probabilistic language model against float64 NumPy written from equation 1 of the paper, word by word."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from regard.core.errors import ConfigError
from regard.core.types import BOS, EOS, PAD, pad_rows
from regard.models.nplm import NPLM, NPLMConfig

V, M, H = 13, 6, 5
TEXTS = [[BOS, 7, 12, 4, 9, BOS, 5], [BOS, 5, 5, 8, 3, 10, 11], [BOS, 11, 6, 10, 7, 7, 4]]
SOURCE = pad_rows([[EOS]] * len(TEXTS))
FORMS = [
    {},
    {"direct": True},
    {"order": 2},
    {"order": 9, "direct": True},
    {"order": 3, "tie": "output", "embedding": H},
]


def write(w: dict[str, np.ndarray], text: list[int], n: int, direct: bool) -> np.ndarray:
    """Of one text: the log-probabilities of the next word after each of its words."""
    C, H_, d, b = w["embedding.weight"], w["hidden.weight"], w["hidden.bias"], w["output.bias"]
    m = C.shape[1]
    W, U = (
        (w["output.weight"][:, : (n - 1) * m], w["output.weight"][:, (n - 1) * m :])
        if direct
        else (None, w["output.weight"])
    )
    log_p = []
    for t in range(1, len(text) + 1):  # w_t is the word to come
        x = []
        for i in range(1, n):  # w_{t-1}, w_{t-2}, .. w_{t-n+1}
            x += list(C[text[t - i]]) if t - i >= 0 else [0.0] * m
        x = np.array(x)
        y = b + U @ np.tanh(d + H_ @ x)
        if W is not None:
            y = y + W @ x
        log_p.append(y - math.log(sum(math.exp(a) for a in y)))
    return np.array(log_p)


def make(**settings) -> NPLM:
    model = NPLM(NPLMConfig(**{"embedding": M, "width": H, **settings}), vocabulary=V)
    generator = torch.Generator().manual_seed(3)
    for p in model.parameters():
        p.data = torch.randn(p.shape, generator=generator, dtype=torch.float64) * 0.7
    return model.double()


def weights_of(model: NPLM) -> dict[str, np.ndarray]:
    weights = {name: tensor.numpy().copy() for name, tensor in model.state_dict().items()}
    return weights | {"output.weight": model.output.weight.detach().numpy().copy()}


@pytest.mark.parametrize("form", FORMS)
@torch.no_grad()
def test_the_model_is_its_equations(form):
    model = make(**form).eval()
    scores = model.output.scores(model(SOURCE, torch.tensor(TEXTS)).hidden)
    for row, text in enumerate(TEXTS):
        expected = write(weights_of(model), text, model.config.order, model.config.direct)
        np.testing.assert_allclose(scores[row].numpy(), expected, rtol=0, atol=1e-5)  # scores are float32


@torch.no_grad()
def test_hidden_states_are_words_beside_the_tanh_where_there_are_direct_connections():
    model = make(direct=True, order=3).eval()
    hidden = model(SOURCE, torch.tensor(TEXTS)).hidden
    assert hidden.shape == (3, 7, 2 * M + H)
    w = weights_of(model)
    x = np.concatenate([w["embedding.weight"][TEXTS[0][4]], w["embedding.weight"][TEXTS[0][3]]])  # the last word first
    np.testing.assert_allclose(hidden[0, 4, : 2 * M].numpy(), x, rtol=0, atol=1e-12)
    tanh = np.tanh(w["hidden.bias"] + w["hidden.weight"] @ x)
    np.testing.assert_allclose(hidden[0, 4, 2 * M :].numpy(), tanh, rtol=0, atol=1e-12)


@pytest.mark.parametrize("form", FORMS)
def test_gradients_are_those_of_the_equations(form):
    model = make(**form)
    target = torch.tensor(TEXTS)
    logits = model(SOURCE, target).hidden @ model.output.weight.t() + model.output.bias
    torch.nn.functional.cross_entropy(logits.flatten(0, 1), target.roll(-1, 1).flatten(), reduction="sum").backward()
    weights = weights_of(model)
    n, direct = model.config.order, model.config.direct

    def loss(changed: dict[str, np.ndarray]) -> float:
        w = weights | changed
        if model.config.tie == "output":
            w |= {"output.weight": w["embedding.weight"]}
        return -sum(write(w, y, n, direct)[i, word] for y in TEXTS for i, word in enumerate([*y[1:], y[0]]))

    rng = np.random.default_rng(0)
    for name, p in model.named_parameters():
        way = rng.normal(size=p.shape)
        step = 1e-5 / np.linalg.norm(way)
        slope = (loss({name: weights[name] + step * way}) - loss({name: weights[name] - step * way})) / (2 * step)
        assert p.grad is not None
        assert float((p.grad.numpy() * way).sum()) == pytest.approx(slope, rel=1e-5, abs=1e-7), name


@torch.no_grad()
def test_the_state_is_the_last_words_and_goes_on_from_window_to_window():
    model = make(order=5).eval()
    text = torch.tensor(TEXTS)
    memory, state = model.start(SOURCE)
    assert (state.words == PAD).all()
    first, state = model.advance(text[:, None, :2], memory, state)
    assert state.words[0, 0].tolist() == [PAD, PAD, BOS, 7]
    second, state = model.advance(text[:, None, 2:], memory, state)
    assert state.words[:, 0].tolist() == [row[-4:] for row in TEXTS]
    whole = model(SOURCE, text).hidden
    torch.testing.assert_close(torch.cat((first, second), 2)[:, 0], whole, rtol=0, atol=1e-12)


@torch.no_grad()
def test_a_word_further_back_than_the_order_is_forgotten():
    model = make(order=3).eval()
    text = torch.tensor(TEXTS[:1])
    changed = text.clone()
    changed[0, 2] = 8
    one, other = (model(pad_rows([[EOS]]), words).hidden[0] for words in (text, changed))
    differs = (one - other).abs().amax(-1) > 1e-6
    assert differs.tolist() == [False, False, True, True, False, False, False]


@torch.no_grad()
def test_nothing_before_the_text_is_nothing_whatever_the_table_says():
    model = make().eval()
    before = model(SOURCE, torch.tensor(TEXTS)).hidden
    model.embedding.weight[PAD] += 5
    torch.testing.assert_close(model(SOURCE, torch.tensor(TEXTS)).hidden, before, rtol=0, atol=0)


def test_parameter_counts_are_those_of_the_paper():
    """Section 2: |V| (1 + nm + h) + h (1 + (n - 1) m), where its n m counts C and W with its m."""
    n, m, h, words = 5, 30, 50, 16_383
    for direct in (True, False):
        with torch.device("meta"):
            model = NPLM(NPLMConfig(order=n, embedding=m, width=h, direct=direct), vocabulary=words)
        with_direct = words * (1 + n * m + h) + h * (1 + (n - 1) * m)
        assert model.parameters_count() == (with_direct if direct else with_direct - words * (n - 1) * m)


def test_dropout_acts_on_words_and_on_the_hidden_layer():
    torch.manual_seed(0)
    model = NPLM(NPLMConfig(embedding=40, width=60, direct=True, dropout=0.3), vocabulary=V)
    text = torch.tensor([[BOS, 5, 6, 7, 8, 9, 10]] * 50)
    hidden = model(pad_rows([[EOS]] * 50), text).hidden[:, 4:]
    assert (hidden[..., : 4 * 40] == 0).float().mean().item() == pytest.approx(0.3, abs=0.02)
    assert (hidden[..., 4 * 40 :] == 0).float().mean().item() == pytest.approx(0.3, abs=0.02)
    model.eval()
    assert (model(pad_rows([[EOS]] * 50), text).hidden[:, 4:] != 0).all()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"order": 1}, "model.order.*at least 2"),
        ({"width": 0}, "model.width.*at least 1"),
        ({"embedding": 1 << 15}, "model.embedding"),
        ({"dropout": 1.0}, "model.dropout"),
        ({"tie": "output", "embedding": 5, "width": 6}, "model.tie.*width is 6, embedding 5.*equal"),
        ({"tie": "output", "embedding": 6, "width": 6, "direct": True}, "model.tie.*direct true.*direct=false"),
    ],
)
def test_settings_that_cannot_be(settings, message):
    with pytest.raises(ConfigError, match=message):
        NPLMConfig(**settings)
