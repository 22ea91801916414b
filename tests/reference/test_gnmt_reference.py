"""GNMT against float64 NumPy written from sections 3 to 3.2 of the paper: sentence by sentence, step by step, gate by gate."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch

from regard.core.errors import ConfigError
from regard.core.types import EOS, Padded, pad_rows
from regard.layers.attention.scores import additive
from regard.models.base import Recorder
from regard.models.gnmt import GNMT, GNMTConfig

V_X, V_Y, E, N, A = 11, 13, 6, 5, 7
SOURCES = [[5, 9, 4, 7, 10, EOS], [8, EOS], [6, 6, 5, EOS]]
TARGETS = [[1, 7, 12, 4, 9], [1, 5, 5, 8, 3], [1, 11, 6, 10, 7]]
CHOICES = list(itertools.product(("previous", "current"), ("all", "above")))
SHAPES = [
    {"layers": 4},
    {"encoder_layers": 5, "decoder_layers": 3},
    {"layers": 2},
    {"layers": 4, "residual": 0},
    {"layers": 5, "residual": 4},
]


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


def lstm(w, name: str, x, m, c):
    """c_t, m_t = LSTM(c_{t-1}, m_{t-1}, x_t), one unit at a time; rows of the weights are input, forget, new, output."""
    if name.startswith("encoder"):
        x = np.append(x, 1.0)  # the last input's weights are biases
    pre = w[f"{name}.weight_ih_l0"] @ x + w[f"{name}.weight_hh_l0"] @ m
    if f"{name}.bias_ih_l0" in w:
        pre = pre + w[f"{name}.bias_ih_l0"] + w[f"{name}.bias_hh_l0"]
    new_m, new_c = np.zeros(N), np.zeros(N)
    for u in range(N):
        i, f, g, o = sigmoid(pre[u]), sigmoid(pre[N + u]), math.tanh(pre[2 * N + u]), sigmoid(pre[3 * N + u])
        new_c[u] = f * c[u] + i * g
        new_m[u] = o * math.tanh(new_c[u])
    return new_m, new_c


def encode(w, words: list[int], config: GNMTConfig, drop) -> list[np.ndarray]:
    """x_1 .. x_M: LSTM_f and LSTM_b side by side (section 3.2), then layers in one direction (5), (6)."""
    inputs = [drop(w["source_embedding.weight"][word]) for word in words]
    ways = {}
    for way, order in (("forwards", range(len(words))), ("backwards", reversed(range(len(words))))):
        m = c = np.zeros(N)
        ways[way] = {}
        for t in order:
            m, c = lstm(w, f"encoder_bottom.{way}", inputs[t], m, c)
            ways[way][t] = m
    x = [np.concatenate((ways["forwards"][t], ways["backwards"][t])) for t in range(len(words))]
    for layer in range(2, config.depth[0] + 1):
        m = c = np.zeros(N)
        above = []
        for x_t in x:
            m, c = lstm(w, f"encoder.{layer - 2}", drop(x_t), m, c)
            above.append(m + x_t if config.residual and layer >= config.residual else m)
        x = above
    return [drop(x_t) for x_t in x]


def attention(w, y, xs):
    """s_t = AttentionFunction(y, x_t), p = softmax(s), a = Σ p_t x_t (4)."""
    hidden = [np.tanh(w["score.query.weight"] @ y + w["score.key.weight"] @ x) for x in xs]
    s = [math.exp(sum(v * h for v, h in zip(w["score.v"], each, strict=True))) for each in hidden]
    p = [s_t / sum(s) for s_t in s]
    return sum(p_t * x for p_t, x in zip(p, xs, strict=True)), p


def translate(w, source: list[int], target: list[int], config: GNMTConfig, drop=lambda x: x):
    """Of one sentence: the top outputs, the weights and log p of every word at every step. `target` starts with BOS.

    `drop` stands where what goes up may be dropped.
    """
    xs = encode(w, source, config, drop)
    depth = config.depth[1]
    m, c = [np.zeros(N)] * depth, [np.zeros(N)] * depth
    tops, weights, log_p = [], [], []
    for word in target:
        e = drop(w["target_embedding.weight"][word])
        a_before, p = attention(w, m[0], xs)  # of y_{i-1}, which is zero before the first step
        m[0], c[0] = lstm(
            w, "decoder.0", np.concatenate((e, a_before)) if config.context_to == "all" else e, m[0], c[0]
        )
        a = a_before
        if config.query == "current":
            a, p = attention(w, m[0], xs)
        x = m[0]
        for i in range(1, depth):
            m[i], c[i] = lstm(w, f"decoder.{i}", np.concatenate((drop(x), a)), m[i], c[i])
            x = m[i] + x if config.residual and i + 1 >= config.residual else m[i]
        x = drop(x)
        logits = w["output.weight"] @ x + w["output.bias"]
        tops.append(x)
        weights.append(p)
        log_p.append(logits - math.log(sum(math.exp(z) for z in logits)))
    return np.array(tops), np.array(weights), np.array(log_p)


def make(**choices) -> GNMT:
    config = GNMTConfig(**{"embedding": E, "width": N, "attention": A, "layers": 4, **choices})
    shared = config.tie == "all"
    model = GNMT(config, source_vocabulary=V_Y if shared else V_X, target_vocabulary=V_Y, shared=shared).double()
    generator = torch.Generator().manual_seed(3)
    for p in model.parameters():  # as they start, all is near zero and mistakes stay unseen
        p.data = torch.randn(p.shape, generator=generator, dtype=torch.float64) * 0.6
    return model.eval()


def numpy_weights(model: GNMT) -> dict[str, np.ndarray]:
    return {name: tensor.numpy().copy() for name, tensor in model.state_dict().items()}


def compare(model: GNMT, w: dict[str, np.ndarray], drop=lambda x: x) -> None:
    record = Recorder()
    hidden = model(pad_rows(SOURCES), torch.tensor(TARGETS), record).hidden
    scores = torch.log_softmax(hidden @ model.output.weight.t() + model.output.bias, -1)
    assert record.tensors["decoder.0.cross"].shape == (3, 1, 5, 6)
    for row, (x, y) in enumerate(zip(SOURCES, TARGETS, strict=True)):
        tops, weights, log_p = translate(w, x, y, model.config, drop)
        np.testing.assert_allclose(hidden[row].numpy(), tops, rtol=0, atol=1e-12)
        np.testing.assert_allclose(model.alignment(record)[row, :, : len(x)].numpy(), weights, rtol=0, atol=1e-12)
        np.testing.assert_allclose(scores[row].numpy(), log_p, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("query", "context_to"), CHOICES)
@pytest.mark.parametrize("shape", SHAPES)
@torch.no_grad()
def test_the_model_is_its_equations(query, context_to, shape):
    model = make(query=query, context_to=context_to, **shape)
    compare(model, numpy_weights(model))


@pytest.mark.parametrize("tie", ["target", "all"])
@torch.no_grad()
def test_the_model_is_its_equations_with_tied_tables(tie):
    model = make(embedding=N, tie=tie)
    w = numpy_weights(model)
    table = w["target_embedding.weight"]
    compare(model, w | {"output.weight": table} | ({"source_embedding.weight": table} if tie == "all" else {}))


@torch.no_grad()
def test_queries_compared_in_parts_are_those_compared_at_once(monkeypatch):
    model = make(context_to="above")
    monkeypatch.setattr(additive, "CELLS", 2 * 3 * 6 * A)  # two queries at a time, of five
    compare(model, numpy_weights(model))


@pytest.mark.parametrize(("query", "context_to"), CHOICES)
@torch.no_grad()
def test_several_hypotheses_over_several_steps_are_each_by_itself(query, context_to):
    model, source = make(query=query, context_to=context_to), pad_rows(SOURCES)
    tokens = torch.tensor([TARGETS, TARGETS[::-1]]).transpose(0, 1)  # B K T
    memory, state = model.start(source, beams=2)
    record = Recorder()
    hidden, _ = model.advance(tokens, memory, state, record)
    for k in range(2):
        alone = Recorder()
        torch.testing.assert_close(hidden[:, k], model(source, tokens[:, k], alone).hidden, rtol=0, atol=1e-12)
        torch.testing.assert_close(model.alignment(record)[:, k], model.alignment(alone), rtol=0, atol=1e-12)


@pytest.mark.parametrize(("query", "context_to"), CHOICES)
def test_gradients_are_those_of_the_equations(query, context_to):
    """Every parameter, moved a little in a random direction: the loss of the equations changes as the gradient says."""
    model = make(query=query, context_to=context_to, layers=3)
    target = torch.tensor(TARGETS)
    wanted = target.roll(-1, 1)
    hidden = model(pad_rows(SOURCES), target).hidden
    logits = hidden @ model.output.weight.t() + model.output.bias
    torch.nn.functional.cross_entropy(logits.flatten(0, 1), wanted.flatten(), reduction="sum").backward()
    w = numpy_weights(model)

    def loss(moved: dict[str, np.ndarray]) -> float:
        total = 0.0
        for x, y, z in zip(SOURCES, TARGETS, wanted.tolist(), strict=True):
            log_p = translate(w | moved, x, y, model.config)[2]
            total -= sum(log_p[i, word] for i, word in enumerate(z))
        return total

    rng = np.random.default_rng(1)
    for name, parameter in model.named_parameters():
        direction = rng.normal(size=parameter.shape)
        step = 1e-5 * direction / np.linalg.norm(direction)
        slope = loss({name: w[name] + step}) - loss({name: w[name] - step})
        assert parameter.grad is not None, name
        expected = 2 * float((parameter.grad.numpy() * step).sum())
        assert abs(expected) > 1e-10, name  # so that the comparison says something
        assert slope == pytest.approx(expected, rel=1e-3), name


def count(**choices) -> int:
    with torch.device("meta"):
        model = GNMT(GNMTConfig(**choices), source_vocabulary=32_000, target_vocabulary=32_000, shared=False)
    return model.parameters_count()


def test_parameter_count_of_the_papers_sizes():
    """8 layers of 1024 on each side. Shazeer et al. 2017, table 2, count 278 million in all and 214 million that every step
    multiplies by: 32 million for each of three tables, which leaves 182 million for LSTMs and attention."""
    n, gates, v = 1024, 4 * 1024, 32_000
    encoder = 2 * gates * (n + n) + gates * (2 * n + n) + 6 * gates * (n + n)  # LSTM_f, LSTM_b; layer 2; layers 3 to 8
    decoder = 8 * gates * (2 * n + n)  # each reads [x; a] and its own past
    attention = 2 * n * n + n
    assert encoder + decoder + attention == 182_453_248
    biases = 9 * gates + 8 * 2 * gates + v  # encoder, decoder (torch's LSTM has two), words: not in the equations
    paper = {"embedding": n, "width": n, "layers": 8}
    assert count(**paper) == encoder + decoder + attention + 3 * v * n + biases == 280_854_784 + 9 * gates
    assert count(**paper, context_to="above") == count(**paper) - gates * n  # the bottom layer reads no context
    assert count(**paper, attention=100) == count(**paper) - (n - 100) * (2 * n + 1)
    assert count(**paper, query="current", residual=0) == count(**paper)
    assert count(**paper, decoder_layers=3) == count(**paper) - 5 * (gates * 3 * n + 2 * gates)
    assert count(**paper, encoder_layers=2) == count(**paper) - 6 * gates * (2 * n + 1)


@pytest.mark.parametrize("context_to", ["all", "above"])
def test_initialisation_is_the_papers(context_to):
    """Section 8.3: every parameter uniform between -0.04 and 0.04."""
    torch.manual_seed(0)
    config = GNMTConfig(embedding=40, width=60, layers=3, context_to=context_to, initialise="paper")
    for name, p in GNMT(config, source_vocabulary=300, target_vocabulary=400, shared=False).named_parameters():
        p = p.detach()
        assert 0.036 < float(p.abs().max()) <= 0.04, name
        assert float(p.std()) == pytest.approx(0.04 / math.sqrt(3), rel=0.2 if p.dim() == 1 else 0.05), name


def test_scaled_initialisation_depends_on_the_sizes():
    torch.manual_seed(0)
    config = GNMTConfig(embedding=40, width=60, layers=3, attention=50, initialise="scaled")
    for name, p in GNMT(config, source_vocabulary=300, target_vocabulary=400, shared=False).named_parameters():
        p = p.detach()
        if name.startswith("encoder") and "_ih_" in name:
            p, bias = p[:, :-1], p[:, -1]
            assert (bias == torch.tensor([0.0, 1.0, 0.0, 0.0]).repeat_interleave(60)).all(), name
        if name.endswith("bias_ih_l0"):
            assert (p == torch.tensor([0.0, 1.0, 0.0, 0.0]).repeat_interleave(60)).all(), name
        elif p.dim() == 1:
            assert float(p.abs().max()) == 0, name
        elif "embedding" in name or name == "output.weight":
            assert float(p.std()) == pytest.approx(p.shape[1] ** -0.5, rel=0.05), name
        else:
            outputs = p.shape[0] // 4 if "_l0" in name else p.shape[0]  # each gate is a matrix of its own
            assert float(p.std()) == pytest.approx(math.sqrt(2 / (p.shape[1] + outputs)), rel=0.05), name


@torch.no_grad()
def test_what_padding_holds_changes_nothing():
    for query, context_to in CHOICES:
        model = make(query=query, context_to=context_to)
        source = pad_rows(SOURCES)
        other = Padded(source.tokens.masked_fill(~source.keep, 9), source.keep)
        target = torch.tensor(TARGETS)
        torch.testing.assert_close(model(other, target).hidden, model(source, target).hidden, rtol=0, atol=1e-13)


class Half(torch.nn.Module):
    """A dropout whose every draw is known."""

    def forward(self, x):
        return x * 0.5


@pytest.mark.parametrize(("query", "context_to"), CHOICES)
@torch.no_grad()
def test_dropout_is_on_what_goes_up(query, context_to):
    model = make(query=query, context_to=context_to)
    model.dropout = Half()  # type: ignore[assignment]
    compare(model, numpy_weights(model), lambda x: 0.5 * x)


def test_dropout_is_that_of_the_setting_and_only_in_training():
    model = make(layers=3, dropout=0.4)
    source, target = pad_rows(SOURCES * 50), torch.tensor(TARGETS * 50)
    torch.testing.assert_close(model(source, target).hidden, model(source, target).hidden, rtol=0, atol=0)
    torch.manual_seed(0)
    dropped = model.train()(source, target).hidden == 0
    assert float(dropped.double().mean()) == pytest.approx(0.4, abs=0.03)


@pytest.mark.parametrize(
    ("setting", "values", "message"),
    [
        ("layers", {"layers": 1}, "less than 2"),
        ("encoder_layers", {"encoder_layers": 1}, "less than 2"),
        ("decoder_layers", {"decoder_layers": 1}, "less than 2"),
        ("width", {"width": 1 << 20}, "more than 16384"),
        ("residual", {"residual": 2}, "too low"),
        ("residual", {"residual": -1}, "negative"),
        ("tie", {"tie": "all", "embedding": 256}, "embedding (256) equals width (512)"),
        ("dropout", {"dropout": 1.0}, "not in [0, 1)"),
    ],
)
def test_sizes_that_cannot_be_are_refused(setting, values, message):
    with pytest.raises(ConfigError) as error:
        GNMTConfig(**values)
    assert str(error.value).startswith(f"setting model.{setting}: ")
    assert message in str(error.value)
