"""The RNN encoder-decoder against float64 NumPy written from appendix A of the paper, sentence by sentence, word by word."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from regard.core.errors import ConfigError
from regard.core.types import EOS, pad_rows
from regard.models.cho import Cho, ChoConfig

V_X, V_Y, M, N, S = 11, 13, 6, 5, 4
SOURCES = [[5, 9, 4, 7, 10, EOS], [8, EOS], [6, 6, 5, EOS], [EOS]]
TARGETS = [[1, 7, 12, 4, 9], [1, 5, 5, 8, 3], [1, 11, 6, 10, 7], [1, 4, 5, 6, 7]]
RESETS = ["before", "after"]


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def paper(w: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The model's weights under the paper's names; ' is the decoder's. The model's gates stand in the order r, z, candidate."""
    p = {"e": w["source_embedding.weight"], "e'": w["target_embedding.weight"]}
    p |= {"V": w["summary.weight"], "b_V": w["summary.bias"], "V'": w["first.weight"], "b_V'": w["first.bias"]}
    p |= {"O_h": w["readout_state.weight"], "b_O": w["readout_state.bias"], "O_y": w["readout_word.weight"]}
    p |= {"O_c": w["readout_context.weight"], "G_r": w["readout_rank.weight"]}
    p |= {"G_l": w["output.weight"], "b_G": w["output.bias"]}
    for i, gate in enumerate(("_r", "_z", "")):
        rows = slice(i * N, (i + 1) * N)
        p[f"W{gate}"], p[f"U{gate}"] = w["encoder.weight_ih_l0"][rows], w["encoder.weight_hh_l0"][rows]
        p[f"W'{gate}"], p[f"b'{gate}"] = w["gates_from_word.weight"][rows], w["gates_from_word.bias"][rows]
        p[f"U'{gate}"], p[f"C{gate}"] = w["gates_from_state.weight"][rows], w["gates_from_context.weight"][rows]
    return p


def encode(p, x: list[int], reset: str):
    """A.1.1: c = tanh(V h_N)."""
    h = np.zeros(N)
    for word in x:
        e = p["e"][word]
        new = np.zeros(N)
        r = [sigmoid(p["W_r"][j] @ e + p["U_r"][j] @ h) for j in range(N)]
        for j in range(N):
            z = sigmoid(p["W_z"][j] @ e + p["U_z"][j] @ h)
            recurrent = p["U"][j] @ (np.array(r) * h) if reset == "before" else r[j] * (p["U"][j] @ h)
            new[j] = z * h[j] + (1 - z) * math.tanh(p["W"][j] @ e + recurrent)
        h = new
    return np.tanh(p["V"] @ h + p["b_V"])


def translate(p, x: list[int], y: list[int], reset: str):
    """Of one sentence: G_r s at every target word, and the log-probabilities of the next one. `y` starts with BOS (A.1.2)."""
    c = encode(p, x, reset)
    h = np.tanh(p["V'"] @ c + p["b_V'"])
    hidden, log_p = [], []
    for word in y:
        e = p["e'"][word]
        new = np.zeros(N)
        for j in range(N):
            r, z = (
                sigmoid(p[f"W'{g}"][j] @ e + p[f"b'{g}"][j] + p[f"U'{g}"][j] @ h + p[f"C{g}"][j] @ c)
                for g in ("_r", "_z")
            )
            candidate = math.tanh(p["W'"][j] @ e + p["b'"][j] + r * (p["U'"][j] @ h + p["C"][j] @ c))
            new[j] = z * h[j] + (1 - z) * candidate
        h = new
        s_prime = p["O_h"] @ h + p["b_O"] + p["O_y"] @ e + p["O_c"] @ c
        s = np.array([max(s_prime[2 * i], s_prime[2 * i + 1]) for i in range(len(s_prime) // 2)])
        hidden.append(p["G_r"] @ s)
        logits = p["G_l"] @ hidden[-1] + p["b_G"]
        log_p.append(logits - math.log(sum(math.exp(a) for a in logits)))
    return np.array(hidden), np.array(log_p)


def make(shared: bool = False, **settings) -> Cho:
    config = ChoConfig(**{"embedding": M, "width": N, "readout": S, **settings})
    model = Cho(config, source_vocabulary=V_Y if shared else V_X, target_vocabulary=V_Y, shared=shared)
    generator = torch.Generator().manual_seed(3)
    for p in model.parameters():  # as they start, they are so small that mistakes stay unseen
        p.data = torch.randn(p.shape, generator=generator, dtype=torch.float64) * 0.7
    return model.double()


def numpy_weights(model: Cho) -> dict[str, np.ndarray]:
    return {name: tensor.numpy().copy() for name, tensor in model.state_dict().items()}


@pytest.mark.parametrize("reset", RESETS)
@torch.no_grad()
def test_the_model_is_its_equations(reset):
    model = make(reset=reset).eval()
    hidden = model(pad_rows(SOURCES), torch.tensor(TARGETS)).hidden
    assert hidden.shape == (4, 5, M)
    scores = model.output.scores(hidden)
    for row, (x, y) in enumerate(zip(SOURCES, TARGETS, strict=True)):
        expected, log_p = translate(paper(numpy_weights(model)), x, y, reset)
        np.testing.assert_allclose(hidden[row].numpy(), expected, rtol=0, atol=1e-12)
        np.testing.assert_allclose(scores[row].numpy(), log_p, rtol=0, atol=1e-5)  # scores are float32


@pytest.mark.parametrize("tie", ["target", "all"])
@torch.no_grad()
def test_the_model_is_its_equations_with_tied_tables(tie):
    model = make(shared=True, reset="before", tie=tie)
    weights = numpy_weights(model)
    table = weights["target_embedding.weight"]
    weights |= {"output.weight": table} | ({"source_embedding.weight": table} if tie == "all" else {})
    hidden = model(pad_rows(SOURCES), torch.tensor(TARGETS)).hidden
    scores = model.output.scores(hidden)
    for row, (x, y) in enumerate(zip(SOURCES, TARGETS, strict=True)):
        expected, log_p = translate(paper(weights), x, y, "before")
        np.testing.assert_allclose(hidden[row].numpy(), expected, rtol=0, atol=1e-12)
        np.testing.assert_allclose(scores[row].numpy(), log_p, rtol=0, atol=1e-5)


@pytest.mark.parametrize("reset", RESETS)
def test_gradients_are_those_of_the_equations(reset):
    """Every parameter, moved a little in a random direction: the loss of the equations changes as the gradient says."""
    model = make(reset=reset)
    target = torch.tensor(TARGETS)
    logits = model(pad_rows(SOURCES), target).hidden @ model.output.weight.t() + model.output.bias
    wanted = target.roll(-1, 1)
    torch.nn.functional.cross_entropy(logits.flatten(0, 1), wanted.flatten(), reduction="sum").backward()
    weights = numpy_weights(model)

    def loss(changed: dict[str, np.ndarray]) -> float:
        total = 0.0
        for x, y in zip(SOURCES, TARGETS, strict=True):
            _, log_p = translate(paper(weights | changed), x, y, reset)
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
def test_hypotheses_of_one_sentence_go_their_own_ways():
    model = make().eval()
    memory, state = model.start(pad_rows(SOURCES), beams=2)
    tokens = torch.stack((torch.tensor(TARGETS), torch.tensor(TARGETS).flip(1)), 1)  # B K T
    parts = []
    for piece in (tokens[:, :, :2], tokens[:, :, 2:3], tokens[:, :, 3:]):
        hidden, state = model.advance(piece, memory, state)
        parts.append(hidden)
    assert state.h.shape == (4, 2, N)  # the same size, however far it is
    hidden = torch.cat(parts, 2)
    for row in range(4):
        for k in range(2):
            p = paper(numpy_weights(model))
            expected, _ = translate(p, SOURCES[row], tokens[row, k].tolist(), "after")
            np.testing.assert_allclose(hidden[row, k].numpy(), expected, rtol=0, atol=1e-12)


def test_parameter_counts_of_the_papers_sizes():
    """Vocabularies of 15,000, embeddings of 100, 1000 hidden units, 500 maxout units (section 4.1). The paper gives no total."""
    with torch.device("meta"):
        config = ChoConfig(embedding=100, width=1000, readout=500)
        model = Cho(config, source_vocabulary=15_000, target_vocabulary=15_000, shared=False)
    m, n, words = 100, 1000, 15_000
    encoder = 3 * (n * m + n * n) + n * n  # W, U of three gates; V
    decoder = n * n + 3 * (n * m + n * n + n * n)  # V'; W', U', C of three gates
    readout = n * (n + m + n)  # O_h, O_y, O_c to 2 x 500
    tables = words * m + words * m + words * m + m * 500  # e(x), e(y), G_l and G_r
    biases = n + n + 3 * n + n + words  # V, V', gates, O_h, G_l
    assert model.parameters_count() - biases == encoder + decoder + readout + tables == 18_250_000
    assert ChoConfig(width=1000).readout == 0
    assert (
        Cho(ChoConfig(width=10), source_vocabulary=5, target_vocabulary=5, shared=False).readout_rank.in_features == 5
    )


@pytest.mark.parametrize("reset", RESETS)
def test_initialisation_is_that_of_the_paper(reset):
    torch.manual_seed(0)
    model = Cho(
        ChoConfig(embedding=60, width=64, reset=reset, initialise="paper"),
        source_vocabulary=90,
        target_vocabulary=120,
        shared=False,
    )
    for name, p in model.named_parameters():
        if name in ("encoder.weight_hh_l0", "gates_from_state.weight"):
            for u in p.detach().split(64):  # of each gate by itself
                torch.testing.assert_close(u @ u.t(), torch.eye(64), rtol=0, atol=1e-5)
        elif p.dim() == 1:
            assert p.abs().max() == 0, name
        else:
            assert p.std().item() == pytest.approx(0.01, rel=0.06), name
            assert p.abs().max() > 0.025, name  # a normal distribution, not a uniform one


def test_scaled_initialisation_follows_the_sizes():
    torch.manual_seed(0)
    config = ChoConfig(embedding=60, width=80, initialise="scaled")
    model = Cho(config, source_vocabulary=90, target_vocabulary=120, shared=False)
    glorot = {
        "encoder.weight_ih_l0": (60, 80), "summary.weight": (80, 80), "first.weight": (80, 80),
        "gates_from_word.weight": (60, 80), "gates_from_context.weight": (80, 80),
        "readout_state.weight": (80, 80), "readout_word.weight": (60, 80), "readout_context.weight": (80, 80),
        "readout_rank.weight": (40, 60),
    }  # fmt: skip
    for name, (inside, outside) in glorot.items():
        expected = math.sqrt(6 / (inside + outside))
        assert model.get_parameter(name).abs().max().item() == pytest.approx(expected, rel=0.02), name
    for name in ("source_embedding.weight", "target_embedding.weight", "output.weight"):
        assert model.get_parameter(name).std().item() == pytest.approx(60**-0.5, rel=0.05), name
    for u in model.gates_from_state.weight.detach().split(80):
        torch.testing.assert_close(u @ u.t(), torch.eye(80), rtol=0, atol=1e-5)


def test_dropout_acts_on_embeddings_summary_and_readout():
    torch.manual_seed(0)
    model = Cho(
        ChoConfig(embedding=40, width=60, initialise="scaled", dropout=0.3),
        source_vocabulary=V_X, target_vocabulary=V_Y, shared=False,
    )  # fmt: skip
    source, target = pad_rows([[5, 6, 7, 8, EOS]] * 8), torch.tensor([[1, 5, 6, 7, 8]] * 8)
    seen = {}
    dropped = ("encoder", "first", "gates_from_context", "readout_context", "gates_from_word", "readout_word")
    for name in (*dropped, "readout_rank", "readout_state", "summary"):
        layer = model.get_submodule(name)
        layer.register_forward_pre_hook(lambda _, inputs, name=name: seen.update({name: inputs[0]}))
    model(source, target)
    for name in (*dropped, "readout_rank"):
        assert (seen[name] == 0).float().mean().item() == pytest.approx(0.3, abs=0.06), name
    for name in ("readout_state", "summary"):  # what comes through time is kept whole
        assert (seen[name] != 0).all(), name
    torch.testing.assert_close(seen["gates_from_word"], seen["readout_word"])
    model.eval()
    model(source, target)
    assert all((x != 0).all() for x in seen.values())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"width": 0}, "model.width.*at least 1"),
        ({"readout": -1}, "model.readout.*-1 is negative"),
        ({"embedding": 1 << 15}, "model.embedding"),
        ({"dropout": -0.1}, "model.dropout"),
    ],
)
def test_settings_that_cannot_be(settings, message):
    with pytest.raises(ConfigError, match=message):
        ChoConfig(**settings)
