"""Kim's network against float64 NumPy written from section 2 of the paper, text by text, window by window."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from regard.core.errors import ConfigError
from regard.core.types import EOS, PAD, Padded, pad_rows
from regard.models.kim import Kim, KimConfig, shrink_rows

V, D, MAPS, LABELS = 17, 5, 4, 3
TEXTS = [[5, 9, 4, 7, 10, 12], [8, EOS, 6], [11], [4, 4, 4, 4, 4, 4, 4, 4]]
WINDOWS = (2, 3, 5)


def make(**settings) -> Kim:
    torch.manual_seed(5)
    config = KimConfig(width=D, maps=MAPS, windows=WINDOWS, dropout=0.0, **settings)
    model = Kim(config, vocabulary=V, labels=LABELS + 1)
    for parameter in model.parameters():  # far from 0, where mistakes would not show
        torch.nn.init.normal_(parameter, std=0.7)
    if config.channels == "multichannel":
        torch.nn.init.normal_(model.fixed)
    return model.double()


def weights(model: Kim) -> dict[str, np.ndarray]:
    return {name: tensor.numpy() for name, tensor in model.state_dict().items()}


def features(text: list[int], w: dict[str, np.ndarray], narrow: bool = False) -> np.ndarray:
    tables = [w["embedding.weight"]] + ([w["fixed"]] if "fixed" in w else [])
    found = []
    for number, h in enumerate(WINDOWS):
        filters, bias = w[f"filters.{number}.weight"].reshape(MAPS, h, D), w[f"filters.{number}.bias"]
        around = 0 if narrow else h - 1
        channels = []
        for table in tables:
            words = [np.zeros(D)] * around + [table[token] for token in text] + [np.zeros(D)] * around
            channels.append(words + [np.zeros(D)] * (h - len(words)))
        for j in range(MAPS):
            c = []
            for i in range(len(channels[0]) - h + 1):
                value = sum(float(filters[j, n] @ words[i + n]) for words in channels for n in range(h))
                c.append(max(0.0, value + bias[j]))  # (2)
            found.append(max(c))  # (3)
    return np.array(found)


def scores(z: np.ndarray, w: dict[str, np.ndarray]) -> np.ndarray:
    """(4), over the labels: the first row is of none."""
    y = w["output.weight"][1:] @ z + w["output.bias"][1:]
    return y - y.max() - np.log(np.exp(y - y.max()).sum())


@pytest.mark.parametrize("channels", ["single", "multichannel"])
@pytest.mark.parametrize("border", ["wide", "narrow"])
@torch.no_grad()
def test_it_is_the_paper_s_equations(channels, border):
    model = make(channels=channels, border=border).eval()
    w = weights(model)
    hidden = model(pad_rows(TEXTS), torch.full((len(TEXTS), 1), PAD)).hidden
    log_probs = model.output.scores(hidden.double())
    for row, text in enumerate(TEXTS):
        z = features(text, w, narrow=border == "narrow")
        np.testing.assert_allclose(hidden[row, 0].numpy(), z, atol=1e-12)
        np.testing.assert_allclose(log_probs[row, 0, 1:].numpy(), scores(z, w), atol=1e-5)


@torch.no_grad()
def test_a_filter_that_no_window_moves_gives_nothing_whatever_the_padding():
    """All values are below 0: neither windows of padding nor other texts make a maximum above."""
    model = make().eval()
    for part in model.filters:
        part.bias.fill_(-100.0)
    wide = Padded(torch.full((1, 30), 6), torch.arange(30)[None] < 2)
    assert not model(wide, torch.full((1, 1), PAD)).hidden.any()


def test_the_second_channel_is_the_first_one_s_beginning_and_is_not_trained():
    config = KimConfig(width=D, maps=MAPS, channels="multichannel")
    model = Kim(config, vocabulary=V, labels=LABELS + 1)
    assert torch.equal(model.fixed, model.embedding.weight)
    assert "fixed" not in dict(model.named_parameters())
    with torch.no_grad():
        model.embedding.weight.fill_(0.5)
    model.vectors_changed()
    assert torch.equal(model.fixed, torch.full((V, D), 0.5))


def test_it_has_as_many_parameters_as_the_paper_s():
    model = Kim(KimConfig(), vocabulary=1000, labels=3)
    filters = sum(100 * (300 * h + 1) for h in (3, 4, 5))
    assert model.parameters_count() == 1000 * 300 + filters + 3 * (300 + 1)


@torch.no_grad()
def test_rows_above_the_norm_are_scaled_down_and_others_stay():
    matrix = torch.randn(50, 7, generator=torch.Generator().manual_seed(1))
    matrix[::2] *= 10
    before = matrix.clone()
    shrink_rows(matrix, 3.0)
    norms = before.norm(dim=1)
    assert ((norms > 3).any(), (norms < 3).any()) == (True, True)
    torch.testing.assert_close(matrix.norm(dim=1), norms.clamp(max=3.0))
    torch.testing.assert_close(matrix / matrix.norm(dim=1, keepdim=True), before / norms[:, None])
    assert torch.equal(matrix[norms <= 3], before[norms <= 3])
    again = matrix.clone()
    shrink_rows(again, 3.0)
    assert torch.equal(again, matrix)  # to the last bit
    zero = torch.zeros(2, 3)
    shrink_rows(zero, 3.0)
    assert not zero.any()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"windows": ()}, "model.windows"),
        ({"windows": (3, 0)}, "model.windows"),
        ({"windows": (1001,)}, "model.windows"),
        ({"max_norm": -1.0}, "model.max_norm"),
        ({"max_norm": float("nan")}, "model.max_norm"),
        ({"maps": 0}, "model.maps"),
        ({"stride": 0}, "model.stride"),
        ({"embedding_dropout": 1.0}, "model.embedding_dropout"),
    ],
)
def test_wrong_sizes_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        KimConfig(**settings)
