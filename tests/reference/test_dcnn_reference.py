"""The dynamic convolutional network against float64 NumPy written from section 3 of the paper, row by row."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from regard.core.errors import ConfigError
from regard.core.types import EOS, PAD, pad_rows
from regard.models.dcnn import DCNN, DCNNConfig

V, LABELS = 17, 3
TEXTS = [[5, 9, 4, 7, 10, 12, 6, 6, 8, 4, 13], [8, EOS, 6, 7], [11], [4, 5, 4, 5, 4, 5, 4]]
SHAPES = [
    {"width": 8, "windows": (4, 3), "maps": (2, 3), "k_top": 3},
    {"width": 4, "windows": (5,), "maps": (3,), "k_top": 2},
    {"width": 6, "windows": (3, 2, 2), "maps": (2, 3, 2), "k_top": 2, "folding": False},
    {"width": 4, "windows": (2, 2), "maps": (2, 2), "k_top": 7},  # fewer values than k_top, zeros for the rest
]


def make(shape: dict) -> DCNN:
    torch.manual_seed(6)
    model = DCNN(DCNNConfig(dropout=0.0, **shape), vocabulary=V, labels=LABELS + 1)
    for parameter in model.parameters():  # far from 0, where mistakes would not show
        torch.nn.init.normal_(parameter, std=0.6)
    return model.double().eval()


def k_largest(values: np.ndarray, k: int) -> list[float]:
    best = sorted(range(len(values)), key=lambda i: (-values[i], i))[:k]
    return [float(values[i]) for i in sorted(best)]


def features(text: list[int], w: dict[str, np.ndarray], shape: dict) -> np.ndarray:
    """What the last layer leaves: map after map, row after row, k_top values each."""
    windows, maps, k_top, folding = shape["windows"], shape["maps"], shape["k_top"], shape.get("folding", True)
    layers, s = len(windows), len(text)
    below = [np.array([w["embedding.weight"][token] for token in text]).T]  # one map: d rows, s columns
    for number, m in enumerate(windows, start=1):
        rows = below[0].shape[0]
        kernel = w[f"layers.{number - 1}.convolution.weight"].reshape(rows, m, len(below), maps[number - 1])
        k = max(k_top, math.ceil((layers - number) / layers * s))  # (4), of the true length
        above = []
        for j in range(maps[number - 1]):
            c = np.zeros((rows, below[0].shape[1] + m - 1))  # wide
            for row in range(rows):
                for n, map_below in enumerate(below):  # (8)
                    padded = np.concatenate([np.zeros(m - 1), map_below[row], np.zeros(m - 1)])
                    c[row] += np.correlate(padded, kernel[row, :, n, j], mode="valid")
            if folding:
                c = np.array([c[row] + c[row + 1] for row in range(0, rows, 2)])
            bias = w[f"layers.{number - 1}.bias"].reshape(maps[number - 1], len(c))[j]
            above.append(np.array([np.tanh(np.array(k_largest(c[row], k)) + bias[row]) for row in range(len(c))]))
        below = above
    return np.array([np.pad(map_, ((0, 0), (0, k_top - map_.shape[1]))) for map_ in below]).ravel()


@pytest.mark.parametrize("shape", SHAPES, ids=["two", "one", "three-without-folding", "short"])
@torch.no_grad()
def test_it_is_the_paper_s_equations(shape):
    model = make(shape)
    w = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    hidden = model(pad_rows(TEXTS), torch.full((len(TEXTS), 1), PAD)).hidden
    log_probs = model.output.scores(hidden)
    for row, text in enumerate(TEXTS):
        z = features(text, w, shape)
        np.testing.assert_allclose(hidden[row, 0].numpy(), z, atol=1e-12)
        y = w["output.weight"][1:] @ z + w["output.bias"][1:]
        np.testing.assert_allclose(log_probs[row, 0, 1:].numpy(), y - np.log(np.exp(y).sum()), atol=1e-5)


@torch.no_grad()
def test_the_order_of_what_is_kept_counts():
    """k-max pooling that sorted by size would read both texts alike."""
    model = make(SHAPES[1])
    one, other = (model(pad_rows([text]), torch.full((1, 1), PAD)).hidden for text in ([5, 6, 7, 8], [8, 7, 6, 5]))
    assert not torch.allclose(one, other, atol=1e-3)
    assert not torch.allclose(one.sort().values, other.sort().values, atol=1e-3)


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ({}, 48 * 1000 + 48 * 7 * 6 + 6 * 24 + 24 * 5 * 6 * 14 + 14 * 12 + (14 * 12 * 4 + 1) * 7),
        ({"width": 32, "windows": (8,), "maps": (5,)}, 32 * 1000 + 32 * 8 * 5 + 5 * 16 + (5 * 16 * 4 + 1) * 7),
    ],
    ids=["sentiment", "questions"],
)
def test_it_has_as_many_parameters_as_the_paper_s(shape, expected):
    assert DCNN(DCNNConfig(**shape), vocabulary=1000, labels=7).parameters_count() == expected


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"maps": (6,)}, "model.maps"),
        ({"maps": (6, 0)}, "model.maps"),
        ({"width": 50}, "model.width"),
        ({"windows": (), "maps": ()}, "model.windows"),
        ({"k_top": 0}, "model.k_top"),
    ],
)
def test_wrong_sizes_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        DCNNConfig(**settings)


def test_an_odd_number_of_rows_is_fine_without_folding():
    assert DCNNConfig(width=7, folding=False).width == 7
