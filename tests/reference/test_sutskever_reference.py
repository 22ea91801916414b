"""The deep LSTM against float64 NumPy written from the equations, sentence by sentence, word by word, layer by layer."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch

from regard.core.errors import ConfigError
from regard.core.types import EOS, Padded, pad_rows
from regard.models.sutskever import Sutskever, SutskeverConfig

V_X, V_Y, M, N = 11, 13, 6, 5
SOURCES = [[5, 9, 4, 7, 10, EOS], [8, EOS], [6, 6, 5, EOS], [EOS]]
TARGETS = [[1, 7, 12, 4, 9], [1, 5, 5, 8, 3], [1, 11, 6, 10, 7], [1, 4, 5, 6, 7]]
CHOICES = list(itertools.product((True, False), (1, 3)))


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def lstm(w: dict[str, np.ndarray], layer: str, x, h, c):
    """i, f, o = σ(W x + U h), g = tanh(W x + U h), c' = f c + i g, h' = o tanh(c'), unit by unit."""
    new_h, new_c = np.zeros(N), np.zeros(N)
    for j in range(N):
        total = {}
        for place, gate in enumerate("ifgo"):
            row = place * N + j
            total[gate] = w[f"{layer}.weight_ih_l0"][row] @ x + w[f"{layer}.weight_hh_l0"][row] @ h
        i, f, o = (sigmoid(total[gate]) for gate in "ifo")
        new_c[j] = f * c[j] + i * math.tanh(total["g"])
        new_h[j] = o * math.tanh(new_c[j])
    return new_h, new_c


def translate(w: dict[str, np.ndarray], x: list[int], y: list[int], layers: int, reverse: bool):
    """Of one sentence: the top layer's h at every target word, and the log-probabilities of the next one."""
    h, c = [np.zeros(N) for _ in range(layers)], [np.zeros(N) for _ in range(layers)]
    for word in x[::-1] if reverse else x:
        below = w["source_embedding.weight"][word]
        for layer in range(layers):
            h[layer], c[layer] = lstm(w, f"encoder.{layer}", below, h[layer], c[layer])
            below = h[layer]
    tops, log_p = [], []
    for word in y:
        below = w["target_embedding.weight"][word]
        for layer in range(layers):
            h[layer], c[layer] = lstm(w, f"decoder.{layer}", below, h[layer], c[layer])
            below = h[layer]
        logits = w["output.weight"] @ below + w["output.bias"]
        tops.append(below)
        log_p.append(logits - math.log(sum(math.exp(z) for z in logits)))
    return np.array(tops), np.array(log_p)


def make(seed: int = 3, shared: bool = False, **settings) -> Sutskever:
    config = SutskeverConfig(**{"embedding": M, "width": N, **settings})
    model = Sutskever(config, source_vocabulary=V_Y if shared else V_X, target_vocabulary=V_Y, shared=shared)
    generator = torch.Generator().manual_seed(seed)
    for p in model.parameters():
        p.data = torch.randn(p.shape, generator=generator, dtype=torch.float64) * 0.7
    return model.double()


def numpy_weights(model: Sutskever) -> dict[str, np.ndarray]:
    return {name: tensor.numpy().copy() for name, tensor in model.state_dict().items()}


@pytest.mark.parametrize(("reverse", "layers"), CHOICES)
@torch.no_grad()
def test_the_model_is_its_equations(reverse, layers):
    model = make(reverse=reverse, layers=layers).eval()
    hidden = model(pad_rows(SOURCES), torch.tensor(TARGETS)).hidden
    scores = model.output.scores(hidden)
    for row, (x, y) in enumerate(zip(SOURCES, TARGETS, strict=True)):
        tops, log_p = translate(numpy_weights(model), x, y, layers, reverse)
        np.testing.assert_allclose(hidden[row].numpy(), tops, rtol=0, atol=1e-12)
        np.testing.assert_allclose(scores[row].numpy(), log_p, rtol=0, atol=1e-5)  # scores are float32


@pytest.mark.parametrize("tie", ["target", "all"])
@torch.no_grad()
def test_the_model_is_its_equations_with_tied_tables(tie):
    model = make(shared=True, embedding=N, tie=tie)
    weights = numpy_weights(model)
    table = weights["target_embedding.weight"]
    weights |= {"output.weight": table} | ({"source_embedding.weight": table} if tie == "all" else {})
    hidden = model(pad_rows(SOURCES), torch.tensor(TARGETS)).hidden
    scores = model.output.scores(hidden)
    for row, (x, y) in enumerate(zip(SOURCES, TARGETS, strict=True)):
        tops, log_p = translate(weights, x, y, 2, True)
        np.testing.assert_allclose(hidden[row].numpy(), tops, rtol=0, atol=1e-12)
        np.testing.assert_allclose(scores[row].numpy(), log_p, rtol=0, atol=1e-5)


@pytest.mark.parametrize(("reverse", "layers"), CHOICES)
def test_gradients_are_those_of_the_equations(reverse, layers):
    """Every parameter, moved a little in a random direction: the loss of the equations changes as the gradient says."""
    model = make(reverse=reverse, layers=layers)
    target = torch.tensor(TARGETS)
    logits = model(pad_rows(SOURCES), target).hidden @ model.output.weight.t() + model.output.bias
    wanted = target.roll(-1, 1)
    torch.nn.functional.cross_entropy(logits.flatten(0, 1), wanted.flatten(), reduction="sum").backward()
    weights = numpy_weights(model)

    def loss(changed: dict[str, np.ndarray]) -> float:
        total = 0.0
        for x, y in zip(SOURCES, TARGETS, strict=True):
            _, log_p = translate(weights | changed, x, y, layers, reverse)
            total -= sum(log_p[i, word] for i, word in enumerate([*y[1:], y[0]]))
        return total

    rng = np.random.default_rng(0)
    for name, p in model.named_parameters():
        way = rng.normal(size=p.shape)
        step = 1e-5 / np.linalg.norm(way)
        slope = (loss({name: weights[name] + step * way}) - loss({name: weights[name] - step * way})) / (2 * step)
        assert p.grad is not None
        assert float((p.grad.numpy() * way).sum()) == pytest.approx(slope, rel=1e-5, abs=1e-7), name


@torch.no_grad()
def test_reversing_is_of_the_text_and_not_of_the_padding():
    """The reversing model reads EOS first and the first word last, wherever the padding ends."""
    reversing = make(reverse=True)
    plain = make(reverse=False)
    plain.load_state_dict(reversing.state_dict())
    source, target = pad_rows(SOURCES), torch.tensor(TARGETS)
    turned = pad_rows([row[::-1] for row in SOURCES])
    torch.testing.assert_close(reversing(source, target).hidden, plain(turned, target).hidden, rtol=0, atol=1e-12)
    wide = Padded(torch.nn.functional.pad(turned.tokens, (0, 3), value=7), torch.nn.functional.pad(turned.keep, (0, 3)))
    torch.testing.assert_close(reversing(source, target).hidden, plain(wide, target).hidden, rtol=0, atol=1e-12)


@torch.no_grad()
def test_hypotheses_of_one_sentence_go_their_own_ways():
    model = make().eval()
    memory, state = model.start(pad_rows(SOURCES), beams=2)
    tokens = torch.stack((torch.tensor(TARGETS), torch.tensor(TARGETS).flip(1)), 1)  # B K T
    parts = []
    for piece in (tokens[:, :, :2], tokens[:, :, 2:3], tokens[:, :, 3:]):
        hidden, state = model.advance(piece, memory, state)
        parts.append(hidden)
    assert [tensor.shape for tensor in (*state.h, *state.c)] == [(4, 2, N)] * 4  # the same size, however far it is
    hidden = torch.cat(parts, 2)
    for row, k in itertools.product(range(4), range(2)):
        tops, _ = translate(numpy_weights(model), SOURCES[row], tokens[row, k].tolist(), 2, True)
        np.testing.assert_allclose(hidden[row, k].numpy(), tops, rtol=0, atol=1e-12)


def test_parameter_counts_of_the_paper():
    """384 million with a source vocabulary of 160,000 and a target vocabulary of 80,000, 32 million in each stack (section 3.4)."""
    with torch.device("meta"):
        config = SutskeverConfig(embedding=1000, width=1000, layers=4)
        model = Sutskever(config, source_vocabulary=160_000, target_vocabulary=80_000, shared=False)
    stack = 4 * 4 * (1000 * 1000 + 1000 * 1000)  # layers, gates, from below and from before
    assert sum(p.numel() for p in model.encoder.parameters()) == stack == 32_000_000
    assert sum(p.numel() for p in model.decoder.parameters()) == stack
    biases = 80_000  # of the output
    assert model.parameters_count() - biases == 2 * stack + (160_000 + 80_000 + 80_000) * 1000 == 384_000_000


def test_initialisation_is_that_of_the_paper():
    torch.manual_seed(0)
    model = Sutskever(
        SutskeverConfig(embedding=30, width=40, initialise="paper"),
        source_vocabulary=90, target_vocabulary=200, shared=False,
    )  # fmt: skip
    for name, p in model.named_parameters():
        assert p.abs().max().item() == pytest.approx(0.08, rel=0.05), name
        assert p.std().item() == pytest.approx(0.08 / math.sqrt(3), rel=0.15), name


def test_dropout_acts_on_what_goes_up():
    torch.manual_seed(0)
    model = Sutskever(
        SutskeverConfig(embedding=40, width=50, layers=2, dropout=0.3),
        source_vocabulary=V_X, target_vocabulary=V_Y, shared=False,
    )  # fmt: skip
    source, target = pad_rows([[5, 6, 7, 8, EOS]] * 8), torch.tensor([[1, 5, 6, 7, 8]] * 8)
    seen = {}
    for name in ("encoder.0", "encoder.1", "decoder.0", "decoder.1"):
        layer = model.get_submodule(name)
        layer.register_forward_pre_hook(lambda _, inputs, name=name: seen.update({name: inputs[0]}))
    seen["top"] = model(source, target).hidden
    for name, x in seen.items():
        assert (x == 0).float().mean().item() == pytest.approx(0.3, abs=0.06), name
    model.eval()
    torch.testing.assert_close(model(source, target).hidden, model(source, target).hidden, rtol=0, atol=0)
    assert all((x != 0).all() for x in (model(source, target).hidden, *(seen[n] for n in seen if n != "top")))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"width": 0}, "model.width.*at least 1"),
        ({"layers": 1001}, "model.layers.*1001 is more than 1000"),
        ({"embedding": 1 << 15}, "model.embedding"),
        ({"dropout": 1.0}, "model.dropout"),
        ({"tie": "target", "embedding": 256}, r"model.tie.*width \(512\).*embedding \(256\)"),
    ],
)
def test_settings_that_cannot_be(settings, message):
    with pytest.raises(ConfigError, match=message):
        SutskeverConfig(**settings)


def test_scaled_initialisation_depends_on_the_sizes():
    torch.manual_seed(0)
    model = Sutskever(
        SutskeverConfig(embedding=60, width=80), source_vocabulary=90, target_vocabulary=200, shared=False
    )
    for name, p in model.named_parameters():
        if "_l0" in name:  # each gate is a matrix of its own, and none of their columns is a bias
            expected = math.sqrt(2 / (p.shape[1] + p.shape[0] // 4))
            assert float(p.detach().std()) == pytest.approx(expected, rel=0.05), name
            assert float(p.detach()[:, -1].std()) == pytest.approx(expected, rel=0.15), name
        elif p.dim() > 1:
            assert float(p.detach().std()) == pytest.approx(p.shape[1] ** -0.5, rel=0.05), name
        else:
            assert not p.any(), name
