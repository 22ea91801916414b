"""The recurrent language model against float64 NumPy written from the papers' equations, word by word."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from regard.core.errors import ConfigError
from regard.core.types import BOS, EOS, pad_rows
from regard.models.rnnlm import RNNLM, RNNLMConfig

V, D = 13, 5
TEXTS = [[BOS, 7, 12, 4, 9, BOS, 5], [BOS, 5, 5, 8, 3, 10, 11], [BOS, 11, 6, 10, 7, 7, 4]]
SOURCE = pad_rows([[EOS]] * len(TEXTS))
FORMS = [
    {},
    {"activation": "tanh", "embedding": 3},
    {"activation": "relu", "output": "classes"},
    {"output": "classes", "classes": 4, "embedding": 4},
    {"tie": "output"},
]
FUNCTIONS = {
    "sigmoid": lambda a: 1 / (1 + math.exp(-a)),
    "tanh": math.tanh,
    "relu": lambda a: max(0.0, a),
}


def softmax(y) -> np.ndarray:
    e = [math.exp(a) for a in y]
    return np.array(e) / sum(e)


def write(w: dict[str, np.ndarray], text: list[int], config: RNNLMConfig) -> tuple[np.ndarray, np.ndarray]:
    """Of one text: the states, and the log-probabilities of the next word after each of its words."""
    f, W = FUNCTIONS[config.activation], w["from_state.weight"]
    s, states, log_p = np.full(D, 0.1), [], []
    for word in text:
        one_hot = np.eye(V)[word]
        read = w["embedding.weight"].T @ one_hot  # U w_t
        if config.embedding:
            read = w["from_word.weight"] @ read
        s = np.array([f(read[j] + W[j] @ s) for j in range(D)])
        y = w["output.weight"] @ s + w["output.bias"]
        if config.output == "softmax":
            p = softmax(y)
        else:  # P(w) = P(class) P(w | class)
            of_class = softmax(w["output.class_weight"] @ s + w["output.class_bias"])
            size = math.ceil(V / len(of_class))
            within = np.concatenate([softmax(y[i : i + size]) for i in range(0, V, size)])
            p = np.array([of_class[word // size] for word in range(V)]) * within
        states.append(s)
        log_p.append(np.log(p))
    return np.array(states), np.array(log_p)


def make(**settings) -> RNNLM:
    model = RNNLM(RNNLMConfig(**{"width": D, **settings}), vocabulary=V)
    generator = torch.Generator().manual_seed(3)
    for p in model.parameters():
        p.data = torch.randn(p.shape, generator=generator, dtype=torch.float64) * 0.7
    return model.double()


def weights_of(model: RNNLM) -> dict[str, np.ndarray]:
    weights = {name: tensor.numpy().copy() for name, tensor in model.state_dict().items()}
    return weights | {"output.weight": model.output.get_parameter("weight").detach().numpy().copy()}


@pytest.mark.parametrize("form", FORMS)
@torch.no_grad()
def test_the_model_is_its_equations(form):
    model = make(**form).eval()
    hidden = model(SOURCE, torch.tensor(TEXTS)).hidden
    scores = model.output.scores(hidden)
    for row, text in enumerate(TEXTS):
        states, log_p = write(weights_of(model), text, model.config)
        np.testing.assert_allclose(hidden[row].numpy(), states, rtol=0, atol=1e-12)
        np.testing.assert_allclose(scores[row].numpy(), log_p, rtol=0, atol=1e-5)  # scores are float32


@pytest.mark.parametrize("form", FORMS)
def test_gradients_are_those_of_the_equations(form):
    model = make(**form)
    text = torch.tensor(TEXTS)
    weight = torch.randn(3, 7, D, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    (model(SOURCE, text).hidden * weight).sum().backward()
    weights = weights_of(model)

    def loss(changed: dict[str, np.ndarray]) -> float:
        return sum(
            float((write(weights | changed, y, model.config)[0] * weight[row].numpy()).sum())
            for row, y in enumerate(TEXTS)
        )

    rng = np.random.default_rng(0)
    for name, p in model.named_parameters():
        if name.startswith("output."):
            assert p.grad is None, name
            continue
        way = rng.normal(size=p.shape)
        step = 1e-6 / np.linalg.norm(way)
        slope = (loss({name: weights[name] + step * way}) - loss({name: weights[name] - step * way})) / (2 * step)
        assert p.grad is not None
        assert float((p.grad.numpy() * way).sum()) == pytest.approx(slope, rel=1e-5, abs=1e-7), name


@pytest.mark.parametrize("output", ["softmax", "classes"])
@torch.no_grad()
def test_probabilities_add_up_to_one(output):
    model = RNNLM(RNNLMConfig(width=16, output=output), vocabulary=101)
    text = torch.randint(4, 101, (4, 9))
    p = model.output.scores(model(pad_rows([[EOS]] * 4), text).hidden).double().exp()
    assert p.shape == (4, 9, 101)
    torch.testing.assert_close(p.sum(-1), torch.ones(4, 9, dtype=torch.float64), rtol=0, atol=1e-6)
    loss = model.output.loss(model(pad_rows([[EOS]] * 4), text).hidden, text.roll(-1, 1))
    own = p.gather(-1, text.roll(-1, 1)[..., None]).log().sum()
    assert loss.nll.item() == pytest.approx(-own.item(), rel=1e-5)


@pytest.mark.parametrize("activation", ["sigmoid", "tanh", "relu"])
@pytest.mark.parametrize("bptt", [0, 1, 2, 3, 4, 100])
def test_errors_flow_through_so_many_steps_and_no_further(bptt, activation):
    """What the last state owes to each word read, and to the state before the window."""
    model = make(bptt=bptt, activation=activation)
    with torch.no_grad():
        model.from_state.weight.abs_()  # so that no relu is shut
        model.embedding.weight.abs_()
    text = torch.tensor([[4, 5, 6, 7, 8, 9, 10]])  # seven words, no word twice
    state = model.begin(1)
    state.s.requires_grad_()
    hidden, _ = model.advance(text[:, None], model.start(pad_rows([[EOS]]))[0], state)
    hidden[0, 0, -1].sum().backward()
    assert model.embedding.weight.grad is not None
    reached = (model.embedding.weight.grad[4:11].abs().amax(1) > 0).tolist()
    first = {0: 0, 1: 6, 2: 6, 3: 6, 4: 4, 100: 0}[bptt]  # blocks of bptt words: the block of the last one begins there
    assert reached == [i >= first for i in range(7)]
    assert state.s.grad is not None
    assert bool((state.s.grad != 0).any()) == (first == 0)


@pytest.mark.parametrize("bptt", [1, 2, 3, 5])
def test_truncated_gradients_are_those_of_pieces_with_a_detached_state(bptt):
    gradients = []
    text = torch.tensor(TEXTS)
    wanted = torch.randn(3, 7, D, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    for pieces in (False, True):
        model = make(bptt=0 if pieces else bptt)
        memory, state = model.start(SOURCE)
        if pieces:
            parts = []
            for piece in text.split(bptt, 1):
                hidden, state = model.advance(piece[:, None], memory, state)
                state.s = state.s.detach()
                parts.append(hidden)
            hidden = torch.cat(parts, 2)
        else:
            hidden, _ = model.advance(text[:, None], memory, state)
        (hidden[:, 0] * wanted).sum().backward()
        gradients.append({name: p.grad for name, p in model.named_parameters() if p.grad is not None})
    assert gradients[0].keys() == gradients[1].keys() == {"embedding.weight", "from_state.weight"}
    for name, gradient in gradients[0].items():
        torch.testing.assert_close(gradient, gradients[1][name], rtol=0, atol=1e-12)


@torch.no_grad()
def test_the_state_goes_on_from_window_to_window():
    model = make().eval()
    text = torch.tensor(TEXTS)
    memory, state = model.start(SOURCE)
    assert (state.s == 0.1).all()
    first, state = model.advance(text[:, None, :3], memory, state)
    second, state = model.advance(text[:, None, 3:], memory, state)
    whole = model(SOURCE, text).hidden
    torch.testing.assert_close(torch.cat((first, second), 2)[:, 0], whole, rtol=0, atol=1e-12)
    torch.testing.assert_close(state.s[:, 0], whole[:, -1], rtol=0, atol=1e-12)


def test_against_torch():
    """A network of tanh without biases is torch's."""
    model = make(activation="tanh", embedding=4)
    assert model.from_word is not None
    layer = torch.nn.RNN(4, D, bias=False, batch_first=True, dtype=torch.float64)
    layer.load_state_dict({"weight_ih_l0": model.from_word.weight, "weight_hh_l0": model.from_state.weight})
    text = torch.tensor(TEXTS)
    hidden = model(SOURCE, text).hidden
    expected, _ = layer(model.embedding(text), torch.full((1, 3, D), 0.1, dtype=torch.float64))
    torch.testing.assert_close(hidden, expected, rtol=0, atol=1e-12)
    hidden.square().sum().backward()
    expected.square().sum().backward()
    torch.testing.assert_close(model.from_state.weight.grad, layer.weight_hh_l0.grad, rtol=0, atol=1e-12)


def test_parameter_counts():
    """Section 2 of the paper: the input is as long as vocabulary and state together; biases of the output are ours."""
    with torch.device("meta"):
        plain = RNNLM(RNNLMConfig(width=300), vocabulary=10_000)
        classes = RNNLM(RNNLMConfig(width=300, output="classes", classes=100), vocabulary=10_000)
        tied = RNNLM(RNNLMConfig(width=300, tie="output"), vocabulary=10_000)
        narrow = RNNLM(RNNLMConfig(width=300, embedding=40), vocabulary=10_000)
    assert plain.parameters_count() - 10_000 == 300 * (10_000 + 300) + 10_000 * 300
    assert classes.parameters_count() == plain.parameters_count() + 100 * 300 + 100
    assert tied.parameters_count() == plain.parameters_count() - 10_000 * 300
    assert narrow.parameters_count() == plain.parameters_count() - 10_000 * 260 + 40 * 300


def test_where_weights_start():
    torch.manual_seed(0)
    model = RNNLM(RNNLMConfig(width=80, output="classes"), vocabulary=200)
    for name, p in model.named_parameters():
        if p.dim() == 1:
            assert p.abs().max() == 0, name
        else:
            assert p.std().item() == pytest.approx(0.1, rel=0.06), name
    scaled = RNNLM(RNNLMConfig(width=80, initialise="scaled"), vocabulary=200)
    u = scaled.from_state.weight.detach()
    torch.testing.assert_close(u @ u.t(), torch.eye(80), rtol=0, atol=1e-5)
    assert scaled.embedding.weight.std().item() == pytest.approx(80**-0.5, rel=0.05)


def test_dropout_acts_on_words_and_on_the_way_to_the_output_only():
    torch.manual_seed(0)
    model = RNNLM(RNNLMConfig(width=60, embedding=40, dropout=0.3), vocabulary=V)
    assert model.from_word is not None
    seen = []
    model.from_word.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    text = torch.tensor([[BOS, 5, 6, 7, 8, 9, 10]] * 20)
    hidden, state = model.advance(text[:, None], model.start(pad_rows([[EOS]] * 20))[0], model.begin(20))
    assert (seen[0] == 0).float().mean().item() == pytest.approx(0.3, abs=0.03)
    assert (hidden == 0).float().mean().item() == pytest.approx(0.3, abs=0.03)
    assert (state.s != 0).all()  # what goes on in time is kept whole
    model.eval()
    assert (model(pad_rows([[EOS]] * 20), text).hidden != 0).all()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"width": 0}, "model.width.*at least 1"),
        ({"bptt": -1}, "model.bptt.*negative"),
        ({"embedding": 1 << 15}, "model.embedding"),
        ({"classes": -2}, "model.classes"),
        ({"dropout": -0.1}, "model.dropout"),
        ({"tie": "output", "embedding": 5, "width": 6}, r"model.tie.*width \(6\) equals embedding \(5\)"),
    ],
)
def test_settings_that_cannot_be(settings, message):
    with pytest.raises(ConfigError, match=message):
        RNNLMConfig(**settings)
