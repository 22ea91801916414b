"""RNNsearch against float64 NumPy written from appendix A of the paper, sentence by sentence, position by position."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch

from regard.core.types import EOS, Padded, pad_rows
from regard.models.bahdanau import Bahdanau, BahdanauConfig
from regard.models.base import Recorder

V_X, V_Y, M, N, N_A, L = 11, 13, 6, 5, 7, 4  # K_x, K_y, m, n, n', l of the paper
SOURCES = [[5, 9, 4, 7, 10, EOS], [8, EOS], [6, 6, 5, EOS]]
TARGETS = [[1, 7, 12, 4, 9], [1, 5, 5, 8, 3], [1, 11, 6, 10, 7]]
CHOICES = list(itertools.product(("before", "after"), ("previous", "current")))


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def paper(w: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The model's weights under the paper's names. Its gate z lets the new state in, ours keeps the old: z' = 1 - z = σ(-..)."""
    names = {"r": 1, "z": -1, "": 1}  # the model's order of gates, and the sign of each
    p = {"E_x": w["source_embedding.weight"], "E_y": w["target_embedding.weight"], "v_a": w["score.v"]}
    p |= {
        "W_a": w["score.query.weight"],
        "U_a": w["score.key.weight"],
        "W_s": w["first.weight"],
        "b_s": w["first.bias"],
    }
    p |= {"W_o": w["output.weight"], "b_y": w["output.bias"], "b_o": w["readout_state.bias"]}
    p |= {"U_o": w["readout_state.weight"], "V_o": w["readout_word.weight"], "C_o": w["readout_context.weight"]}
    for i, (gate, sign) in enumerate(names.items()):
        rows = slice(i * N, (i + 1) * N)
        for way in ("forwards", "backwards"):
            p[f"W_{gate}.{way}"] = sign * w[f"encoder.{way}.weight_ih_l0"][rows]
            p[f"U_{gate}.{way}"] = sign * w[f"encoder.{way}.weight_hh_l0"][rows]
        p[f"W_{gate}.decoder"] = sign * w["gates_from_word.weight"][rows]
        p[f"b_{gate}.decoder"] = sign * w["gates_from_word.bias"][rows]
        p[f"U_{gate}.decoder"] = sign * w["gates_from_state.weight"][rows]
        p[f"C_{gate}.decoder"] = sign * w["gates_from_context.weight"][rows]
    return p


def gru(p, part: str, word, state, reset: str, context=None):
    """s_i = (1 - z) s_{i-1} + z s~, with s~ = tanh(W e + U [r s_{i-1}] + C c) (A.1.1, A.2.1, A.2.2)."""

    def enter(gate):
        total = p[f"W_{gate}.{part}"] @ word
        if context is not None:
            total = total + p[f"C_{gate}.{part}"] @ context + p[f"b_{gate}.{part}"]
        return total

    r = sigmoid(enter("r") + p[f"U_r.{part}"] @ state)
    z = sigmoid(enter("z") + p[f"U_z.{part}"] @ state)
    recurrent = p[f"U_.{part}"] @ (r * state) if reset == "before" else r * (p[f"U_.{part}"] @ state)
    candidate = np.tanh(enter("") + recurrent)
    return (1 - z) * state + z * candidate


def translate(p, x: list[int], y: list[int], reset: str, readout_from: str):
    """Of one sentence: the t_i, the weights a_ij and log p(y | y_1 .. y_{i-1}, x) for every word y. `y` starts with BOS."""
    forwards, backwards = [], []
    state = np.zeros(N)
    for word in x:
        state = gru(p, "forwards", p["E_x"][word], state, reset)
        forwards.append(state)
    state = np.zeros(N)
    for word in reversed(x):
        state = gru(p, "backwards", p["E_x"][word], state, reset)
        backwards.insert(0, state)
    h = [np.concatenate(both) for both in zip(forwards, backwards, strict=True)]
    s = np.tanh(p["W_s"] @ backwards[0] + p["b_s"])
    t, weights, log_p = [], [], []
    for previous in y:
        before = s
        e = [p["v_a"] @ np.tanh(p["W_a"] @ before + p["U_a"] @ h_j) for h_j in h]
        a = [math.exp(e_j) / sum(math.exp(e_k) for e_k in e) for e_j in e]
        c = sum(a_j * h_j for a_j, h_j in zip(a, h, strict=True))
        s = gru(p, "decoder", p["E_y"][previous], before, reset, c)
        seen = before if readout_from == "previous" else s
        t_tilde = p["U_o"] @ seen + p["V_o"] @ p["E_y"][previous] + p["C_o"] @ c + p["b_o"]
        t_i = np.array([max(t_tilde[2 * j], t_tilde[2 * j + 1]) for j in range(len(t_tilde) // 2)])
        logits = p["W_o"] @ t_i + p["b_y"]
        t.append(t_i)
        weights.append(a)
        log_p.append(logits - math.log(sum(math.exp(z) for z in logits)))
    return np.array(t), np.array(weights), np.array(log_p)


def make(reset, readout_from) -> Bahdanau:
    model = Bahdanau(
        BahdanauConfig(embedding=M, width=N, attention=N_A, readout=L, reset=reset, readout_from=readout_from),
        source_vocabulary=V_X, target_vocabulary=V_Y, shared=False,
    )  # fmt: skip
    generator = torch.Generator().manual_seed(3)
    for p in model.parameters():  # as they start, the scores are 0 and mistakes stay unseen
        p.data = torch.randn(p.shape, generator=generator, dtype=torch.float64) * 0.6
    return model.double()


def numpy_weights(model: Bahdanau) -> dict[str, np.ndarray]:
    return {name: tensor.numpy().copy() for name, tensor in model.state_dict().items()}


@pytest.mark.parametrize(("reset", "readout_from"), CHOICES)
@torch.no_grad()
def test_the_model_is_its_equations(reset, readout_from):
    model = make(reset, readout_from).eval()
    p = paper(numpy_weights(model))
    record = Recorder()
    hidden = model(pad_rows(SOURCES), torch.tensor(TARGETS), record).hidden
    scores = torch.log_softmax(hidden @ model.output.weight.t() + model.output.bias, -1)
    assert record.tensors["decoder.0.cross"].shape == (3, 1, 5, 6)
    for row, (x, y) in enumerate(zip(SOURCES, TARGETS, strict=True)):
        t, weights, log_p = translate(p, x, y, reset, readout_from)
        np.testing.assert_allclose(hidden[row].numpy(), t, rtol=0, atol=1e-12)
        np.testing.assert_allclose(model.alignment(record)[row, :, : len(x)].numpy(), weights, rtol=0, atol=1e-12)
        np.testing.assert_allclose(scores[row].numpy(), log_p, rtol=0, atol=1e-12)


@pytest.mark.parametrize("tie", ["target", "all"])
@torch.no_grad()
def test_the_model_is_its_equations_with_tied_tables(tie):
    model = Bahdanau(
        BahdanauConfig(embedding=M, width=N, reset="before", tie=tie),
        source_vocabulary=V_Y, target_vocabulary=V_Y, shared=True,
    ).double()  # fmt: skip
    for parameter in model.parameters():
        parameter.normal_(std=0.6)
    weights = numpy_weights(model)
    table = weights["target_embedding.weight"]
    shared = {"output.weight": table} | ({"source_embedding.weight": table} if tie == "all" else {})
    hidden = model(pad_rows(SOURCES), torch.tensor(TARGETS)).hidden
    for row, (x, y) in enumerate(zip(SOURCES, TARGETS, strict=True)):
        t, _, _ = translate(paper(weights | shared), x, y, "before", "previous")
        np.testing.assert_allclose(hidden[row].numpy(), t, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("reset", "readout_from"), CHOICES)
def test_gradients_are_those_of_the_equations(reset, readout_from):
    """Every parameter, moved a little in a random direction: the loss of the equations changes as the gradient says."""
    model = make(reset, readout_from)
    target = torch.tensor(TARGETS)
    wanted = target.roll(-1, 1)
    hidden = model(pad_rows(SOURCES), target).hidden
    logits = hidden @ model.output.weight.t() + model.output.bias
    torch.nn.functional.cross_entropy(logits.flatten(0, 1), wanted.flatten(), reduction="sum").backward()
    weights = numpy_weights(model)

    def loss(moved: dict[str, np.ndarray]) -> float:
        total = 0.0
        for x, y, z in zip(SOURCES, TARGETS, wanted.tolist(), strict=True):
            _, _, log_p = translate(paper(weights | moved), x, y, reset, readout_from)
            total -= sum(log_p[i, word] for i, word in enumerate(z))
        return total

    rng = np.random.default_rng(0)
    for name, parameter in model.named_parameters():
        direction = rng.normal(size=parameter.shape)
        step = 1e-5 * direction / np.linalg.norm(direction)
        slope = loss({name: weights[name] + step}) - loss({name: weights[name] - step})
        assert parameter.grad is not None, name
        expected = 2 * float((parameter.grad.numpy() * step).sum())
        assert abs(expected) > 1e-9, name  # so that the comparison says something
        assert slope == pytest.approx(expected, rel=1e-4), name


def test_parameter_count_of_the_papers_sizes():
    """Appendix B: n = 1000, m = 620, n' = 1000, l = 500, 30,000 words a side. The paper names no total."""
    k, m, n, n_a, length = 30_000, 620, 1000, 1000, 500
    embeddings = 2 * k * m
    encoder = 2 * 3 * (n * m + n * n)  # W, W_z, W_r and U, U_z, U_r, both ways
    alignment = n_a * n + n_a * 2 * n + n_a  # W_a, U_a, v_a
    decoder = n * n + 3 * (n * m + n * n + n * 2 * n)  # W_s; W, U and C of both gates and the candidate
    readout = 2 * length * (n + m + 2 * n) + k * length  # U_o, V_o, C_o, W_o
    assert embeddings + encoder + alignment + decoder + readout == 80_401_000
    biases = n + 3 * n + 2 * length + k  # of s_0, the decoder's gates, the readout, the words: not in the equations
    with torch.device("meta"):
        config = BahdanauConfig(embedding=m, width=n, attention=n_a, readout=length)
        model = Bahdanau(config, source_vocabulary=k, target_vocabulary=k, shared=False)
    assert model.parameters_count() == 80_401_000 + biases
    defaults = BahdanauConfig(embedding=m, width=n)
    with torch.device("meta"):
        smaller = Bahdanau(defaults, source_vocabulary=k, target_vocabulary=k, shared=False)
    more = 120 * (2 * (n + m + 2 * n) + k + 2)  # attention 0 is n, readout 0 is m: 620 instead of 500
    assert smaller.parameters_count() == model.parameters_count() + more


@pytest.mark.parametrize("reset", ["before", "after"])
@pytest.mark.parametrize("initialise", ["paper", "scaled"])
def test_initialisation_is_the_papers(reset, initialise):
    """B.1: recurrent matrices orthogonal, W_a and U_a N(0, 0.001²), v_a and biases 0, all else N(0, 0.01²)."""
    torch.manual_seed(0)
    config = BahdanauConfig(embedding=40, width=60, attention=50, readout=30, reset=reset, initialise=initialise)
    model = Bahdanau(config, source_vocabulary=300, target_vocabulary=400, shared=False)
    orthogonal = []
    for name, p in model.named_parameters():
        p = p.detach()
        if name == "score.v" and initialise == "scaled":
            assert 0.12 < p.abs().max().item() <= 50**-0.5
        elif p.dim() == 1:
            assert p.abs().max() == 0, name
        elif name.endswith("hh_l0") or name == "gates_from_state.weight":
            orthogonal += list(p.chunk(3))
        elif name.startswith("score") and initialise == "paper":
            assert p.std().item() == pytest.approx(0.001, rel=0.05), name
        elif initialise == "paper":
            assert p.std().item() == pytest.approx(0.01, rel=0.05), name
            assert abs(p.mean().item()) < 0.0006, name
        elif "embedding" in name or name == "output.weight":
            assert p.std().item() == pytest.approx(p.shape[1] ** -0.5, rel=0.05), name
        else:  # Glorot's bound, of each matrix by itself
            parts = 3 if name.startswith("gates") or name.endswith("ih_l0") else 1
            for matrix in p.chunk(parts):
                assert matrix.abs().max().item() == pytest.approx(math.sqrt(6 / sum(matrix.shape)), rel=0.03), name
    assert len(orthogonal) == 9  # r, z and the candidate, of two encoders and the decoder
    for matrix in orthogonal:
        torch.testing.assert_close(matrix @ matrix.t(), torch.eye(60), rtol=0, atol=1e-5)
    for one, other in itertools.combinations(orthogonal, 2):
        assert not torch.allclose(one, other, atol=0.01)


@torch.no_grad()
def test_at_first_attention_is_uniform():
    """v_a = 0: no word is preferred before anything is learnt."""
    torch.manual_seed(0)
    config = BahdanauConfig(embedding=8, width=8, initialise="paper")
    model = Bahdanau(config, source_vocabulary=V_X, target_vocabulary=V_Y, shared=False)
    source: Padded = pad_rows(SOURCES)
    record = Recorder()
    model(source, torch.tensor(TARGETS), record)
    uniform = source.keep / source.keep.sum(1, keepdim=True)
    torch.testing.assert_close(model.alignment(record), uniform[:, None].expand(-1, 5, -1))
