"""The label-writer against float64 NumPy from its equations, one token after the other."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from regard.core.errors import ConfigError
from regard.core.types import BOS, EOS, Padded, pad_rows
from regard.models.label_writer import LabelWriter, LabelWriterConfig

SOURCES, V = 9, 13
LABELS = [[5, EOS], [7, EOS], [5, 8, EOS]]  # one label, another, and a set of two
TARGET = [BOS, 4, 9, 9, 12]


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def step(x: np.ndarray, h: np.ndarray, c: np.ndarray, w: dict, name: str, cell: str) -> tuple[np.ndarray, np.ndarray]:
    a = w[f"{name}.weight_ih_l0"] @ x + w[f"{name}.bias_ih_l0"]
    u = w[f"{name}.weight_hh_l0"] @ h + w[f"{name}.bias_hh_l0"]
    size = len(h)
    if cell == "rnn":
        return np.tanh(a + u), c
    if cell == "gru":
        r, z = (sigmoid(a[k * size : (k + 1) * size] + u[k * size : (k + 1) * size]) for k in (0, 1))
        n = np.tanh(a[2 * size :] + r * u[2 * size :])
        return (1 - z) * n + z * h, c
    i, f, g, o = ((a + u)[k * size : (k + 1) * size] for k in range(4))
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    return sigmoid(o) * np.tanh(c), c


@pytest.mark.parametrize("feed", [True, False])
@pytest.mark.parametrize(("embedding", "tie"), [(6, "output"), (4, "output"), (4, "none")])
@pytest.mark.parametrize("cell", ["rnn", "gru", "lstm"])
def test_every_state_and_chance_is_that_of_the_equations(cell, embedding, tie, feed):
    torch.manual_seed(1)
    config = LabelWriterConfig(cell=cell, embedding=embedding, width=6, layers=2, label=3, feed=feed, tie=tie)
    model = LabelWriter(config, source_vocabulary=SOURCES, target_vocabulary=V, shared=False)
    for p in model.parameters():
        nn.init.normal_(p, std=0.5)
    w = {n: t.detach().numpy() for n, t in model.double().eval().state_dict().items()}
    tokens, keep = pad_rows(LABELS)
    source = Padded(nn.functional.pad(tokens, (0, 2), value=6), nn.functional.pad(keep, (0, 2)))
    hidden = model(source, torch.tensor([TARGET] * len(LABELS))).hidden
    scores = model.output.scores(hidden).exp().detach().numpy()
    for row, label in enumerate(LABELS):
        v = np.mean([w["label_embedding.weight"][token] for token in label[:-1]], axis=0)
        first = np.tanh(w["first.weight"] @ v + w["first.bias"])
        h, c = [first[:6], first[6:]], [np.zeros(6), np.zeros(6)]
        for t, token in enumerate(TARGET):
            x = w["embedding.weight"][token]
            x = np.concatenate((x, v)) if feed else x
            for i in range(2):
                h[i], c[i] = step(x, h[i], c[i], w, f"decoder.{i}", cell)
                x = h[i]
            if tie == "output" and embedding != 6:
                x = w["readout.weight"] @ x
            np.testing.assert_allclose(hidden[row, t].detach().numpy(), x, rtol=1e-8, atol=1e-10)
            table = w["embedding.weight"] if tie == "output" else w["output.weight"]
            logits = table @ x + w["output.bias"]
            np.testing.assert_allclose(scores[row, t], np.exp(logits) / np.exp(logits).sum(), rtol=1e-5)


def test_a_tied_output_has_the_table_of_words():
    sizes = {"source_vocabulary": SOURCES, "target_vocabulary": V, "shared": False}
    model = LabelWriter(LabelWriterConfig(width=6, label=3), **sizes)
    assert model.output.weight is model.embedding.weight
    assert LabelWriter(LabelWriterConfig(width=6, tie="none"), **sizes).output.weight.shape == (V, 6)


@pytest.mark.parametrize("changes", [{"layers": 0}, {"dropout": 1.0}, {"width": 1 << 15}, {"label": -1}])
def test_settings_that_make_no_sense_are_refused(changes):
    with pytest.raises(ConfigError, match=f"model.{next(iter(changes))}"):
        LabelWriterConfig(**changes)
