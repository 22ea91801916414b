"""Int8 matrices: near the float32 ones, independent of what is computed beside, in every translator, and shared with nothing."""

from __future__ import annotations

import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from regard.core.errors import ModelError
from regard.core.types import EOS, pad_rows
from regard.layers import int8_linear
from regard.layers.int8_linear import Int8Matrix, quantise, why_not
from regard.models.base import MODELS, build_model
from regard.search import search
from regard.search.config import SearchConfig

pytestmark = pytest.mark.skipif(why_not() is not None, reason="no int8 products here")
TRANSLATORS = [name for name in MODELS.names() if "translates" in MODELS.get(name).capabilities]


def _matrix(out=96, width=64):
    torch.manual_seed(5)
    weight = torch.randn(out, width) * torch.rand(out, 1).add(0.01)  # rows of different sizes
    return weight, Int8Matrix(weight)


def _error(found, wanted):
    return float((found - wanted).norm(dim=-1).div(wanted.norm(dim=-1)).max())


def test_a_product_is_within_two_percent_whatever_the_size_of_its_row():
    weight, int8 = _matrix()
    x, bias = torch.randn(4, 3, 64) * torch.logspace(-3, 3, 12).view(4, 3, 1), torch.randn(96)
    assert 0 < _error(F.linear(x, int8), F.linear(x, weight)) < 0.02
    assert torch.allclose(F.linear(x, int8, bias), F.linear(x, int8) + bias, rtol=1e-6)
    assert torch.equal(x @ int8.t(), F.linear(x, int8))


def test_integers_are_exact():
    x = torch.randint(-127, 128, (5, 64)).float()
    weight = torch.randint(-127, 128, (7, 64)).float()
    x[:, 0], weight[:, 0] = 127, 127  # so that all scales are 1
    if int8_linear._input_levels() == 127:
        assert torch.allclose(F.linear(x, Int8Matrix(weight)), F.linear(x, weight), rtol=1e-5, atol=1e-2)


def test_a_row_does_not_depend_on_the_rows_beside_it():
    _, int8 = _matrix()
    x = torch.randn(9, 64) * torch.logspace(-2, 4, 9)[:, None]
    together = F.linear(x, int8, torch.ones(96))
    for i in range(9):
        assert torch.equal(F.linear(x[i : i + 1], int8, torch.ones(96))[0], together[i])


def test_a_row_of_zeros_gives_the_bias_and_what_is_no_number_stays_none():
    _, int8 = _matrix()
    x, bias = torch.zeros(3, 64), torch.randn(96)
    x[1, 3], x[2, 3] = torch.nan, torch.inf
    found = F.linear(x, int8, bias)
    assert torch.equal(found[0], bias)
    assert not found[1:].isfinite().any()


def test_columns_are_a_matrix_of_their_own():
    weight, int8 = _matrix()
    x = torch.randn(5, 24)
    left, right = int8.split((40, 24), 1)
    assert left.shape == (96, 40)
    assert _error(F.linear(x, right), F.linear(x, weight[:, 40:])) < 0.02
    assert right is int8[:, 40:]
    assert isinstance(int8[:, 40:].detach().to(torch.float32), Int8Matrix)


def test_all_else_sees_the_float32_matrix():
    weight, int8 = _matrix()
    assert (int8.shape, int8.dtype, int8.device.type, len(int8), int8.requires_grad) == (
        (96, 64),
        torch.float32,
        "cpu",
        96,
        False,
    )
    step = weight.abs().amax(1, keepdim=True) / 127
    assert ((int8.float32() - weight).abs() <= step * 0.51).all()
    assert torch.equal(int8 * 2, int8.float32() * 2)
    assert torch.equal(int8[3], int8.float32()[3])
    assert torch.equal(torch.linalg.vector_norm(int8, dim=1), int8.float32().norm(dim=1))
    assert int8.new_zeros(2).shape == (2,)
    assert F.linear(torch.randn(2, 64).double(), int8.double()).dtype == torch.float64


def test_products_that_would_overflow_16_bits_are_noticed(monkeypatch):
    """Processors without VNNI add two products of 8 bits into 16 and end at 32,767: there inputs get 7 bits."""
    real = int8_linear._int8_product
    monkeypatch.setattr(int8_linear, "_int8_product", lambda *given: real(*given) * 0.9)
    int8_linear._input_levels.cache_clear()
    assert int8_linear._input_levels() == 63
    monkeypatch.undo()
    x, (weight, int8) = torch.randn(4, 64), _matrix()
    assert _error(F.linear(x, int8), F.linear(x, weight)) < 0.04
    int8_linear._input_levels.cache_clear()
    assert int8_linear._input_levels() in (127, 63)


def _model(name):
    torch.manual_seed(1)
    model = build_model(name, MODELS.get(name).Config(), source_vocabulary=40, target_vocabulary=40, shared=False)
    return model.eval()


@pytest.mark.parametrize("name", TRANSLATORS)
def test_every_translator_computes_nearly_the_same(name, monkeypatch):
    monkeypatch.setattr(int8_linear, "SMALLEST", 1)
    model = _model(name)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        int8 = quantise(model)
    source, target = pad_rows([[5, 6, 7, 8, EOS], [9, 5, EOS]]), torch.randint(4, 40, (2, 6))
    with torch.no_grad():
        wanted, found = (one.output.scores(one(source, target).hidden) for one in (model, int8))
    assert (wanted - found).abs().max() < 0.05 + 0.05 * wanted.std(-1).max()
    assert not torch.equal(wanted, found)
    assert isinstance(int8.output.weight, Int8Matrix)
    assert before.keys() == model.state_dict().keys()
    assert all(torch.equal(value, model.state_dict()[key]) for key, value in before.items())
    assert all(p.requires_grad for p in model.parameters())
    config = SearchConfig(beam=3, max_extra=4, max_ratio=0.5)
    alone = search(int8, source.take(torch.tensor([0])), config)[0][0]
    assert search(int8, source, config)[0][0].tokens == alone.tokens


def test_small_matrices_and_tables_stay():
    model = nn.Sequential(nn.Embedding(3000, 512), nn.Linear(512, 512), nn.Linear(512, 8))
    int8 = quantise(model)
    assert isinstance(int8[1].weight, Int8Matrix)
    assert int8[2].weight is model[2].weight
    assert int8[0].weight is model[0].weight
    assert isinstance(quantise(int8)[1].weight, Int8Matrix)


def test_what_cannot_be_done_is_said(monkeypatch):
    with pytest.raises(ModelError, match="not on the CPU in float32"):
        quantise(nn.Linear(4, 4).double())
    monkeypatch.setattr(int8_linear, "_int8_product", None)
    with pytest.raises(ModelError, match="has no int8 products"):
        quantise(nn.Linear(4, 4))


def test_normalised_weights_are_settled(monkeypatch):
    monkeypatch.setattr(int8_linear, "SMALLEST", 1)
    ready = quantise(_model("convs2s")).readout.ready()
    assert isinstance(ready.weight, Int8Matrix)


@torch.inference_mode()
def test_linear_layers_ask_the_matrix_itself_and_give_what_torch_would():
    torch.manual_seed(7)
    plain = nn.ModuleList([nn.Linear(512, 512), nn.Linear(512, 512, bias=False), nn.Linear(8, 8)])
    made = quantise(plain)
    assert [type(layer) for layer in plain] == [nn.Linear] * 3
    assert [type(layer) for layer in made] == [int8_linear.Int8Linear, int8_linear.Int8Linear, nn.Linear]
    x = torch.randn(3, 2, 512)
    for layer, float32 in list(zip(made, plain, strict=True))[:2]:
        assert torch.equal(layer(x), F.linear(x, layer.weight, layer.bias))  # type: ignore[arg-type]
        assert 0 < _error(layer(x), float32(x)) < 0.02
    with pytest.raises(RuntimeError, match="same dtype"):  # of other numbers torch says what it would have said
        made[0](x.double())
