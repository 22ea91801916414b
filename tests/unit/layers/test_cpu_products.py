"""Products by oneDNN are those of torch, with the same gradients, and are taken where they are meant to be."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from regard.core.types import EOS, pad_rows
from regard.layers import cpu_products, linear_cross_entropy
from regard.layers.cpu_products import (
    QuickLinear,
    dense,
    is_plain,
    linear,
    pays,
    product,
    quicken,
    turned_product,
    vendor,
)
from regard.layers.linear_cross_entropy import LinearCrossEntropy
from regard.layers.recurrent.deferred import Deferred
from regard.models.base import MODELS, build_model


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """oneDNN on any processor, and the sizes of what it was asked for."""
    if not cpu_products.works():
        pytest.skip("this build of torch has no such product")
    asked: list[tuple[int, ...]] = []
    real = cpu_products._multiply

    def told(x, weight, bias):
        assert weight.is_contiguous() or weight.t().is_contiguous()  # else it takes a thousand times as long
        asked.append((*x.shape, len(weight)))
        return real(x, weight, bias)

    monkeypatch.setattr(cpu_products, "_multiply", told)
    monkeypatch.setattr(cpu_products, "pays", lambda: True)
    monkeypatch.setattr(cpu_products, "FEWEST_OPERATIONS", 0)
    return asked


def test_products_are_torchs(called):
    torch.manual_seed(0)
    a, b = torch.randn(9, 33), torch.randn(33, 20)
    for left, right in ((a, b), (a.t().contiguous().t(), b), (a, b.t().contiguous().t()), (a[2:], b[:, 3:])):
        torch.testing.assert_close(product(left, right), left @ right, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(turned_product(left.t(), right), left @ right, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(turned_product(right, left.t()), (left @ right).t(), rtol=1e-5, atol=1e-5)
    assert len(called) == 12


@pytest.mark.parametrize("shape", [(7,), (3, 5), (2, 3, 4), (150,), (2, 65)])
@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("sizes", [(6, 11), (11, 6)])
def test_a_linear_layer_has_the_same_gradients(called, shape, biased, sizes):
    torch.manual_seed(0)
    plain = nn.Linear(*sizes, bias=biased)
    quick = copy.deepcopy(plain)
    quicken(quick)
    assert type(quick) is QuickLinear
    given = torch.randn(*shape, sizes[0])
    found = []
    for layer in (plain, quick):
        x = given.clone().requires_grad_()
        y = layer(x)
        (y * torch.linspace(-1, 1, y.numel()).view_as(y)).sum().backward()
        found.append([y.detach(), x.grad, *(p.grad for p in layer.parameters())])
    for expected, own in zip(*found, strict=True):
        assert expected is not None
        torch.testing.assert_close(own, expected, rtol=1e-5, atol=1e-5)
    assert len(called) == 3  # forward, and two products backward
    rows = given.numel() // sizes[0]
    expected = rows if rows < 128 else -(-rows // 32) * 32  # filled up, so that few numbers of rows occur
    assert called[0][0] == called[1][0] == called[2][1] == expected


def test_matrices_with_gaps_in_memory_are_copied_first(called):
    wide = torch.randn(12, 20)
    x = torch.randn(7, 10, requires_grad=True)
    for weight in (wide[:, :10], wide[:, 10:], wide[:, ::2], torch.randn(10, 24)[:, 3:15].t()):
        torch.testing.assert_close(linear(x, weight, None), nn.functional.linear(x, weight), rtol=1e-5, atol=1e-5)
        own = weight.clone().as_strided(weight.shape, (1, len(weight))).requires_grad_()
        linear(torch.randn(7, 20)[:, 10:], own, None).sum().backward()
    assert dense(wide) is wide
    assert dense(turned := wide.t()) is turned
    assert len(called) == 4 * 3
    called.clear()
    step = Deferred(wide[:, 10:].requires_grad_())
    assert step.weight.is_contiguous()  # once for all steps
    step(x).sum().backward()
    assert len(called) == 3


def test_a_bias_with_gaps_is_a_bias(called):
    x, weight = torch.randn(7, 10), torch.randn(6, 10)
    for bias in (torch.randn(12)[::2], torch.randn(()).expand(6)):
        torch.testing.assert_close(linear(x, weight, bias), nn.functional.linear(x, weight, bias), rtol=1e-5, atol=1e-5)
    assert len(called) == 2


def test_small_products_are_torchs_own(called, monkeypatch):
    monkeypatch.setattr(cpu_products, "FEWEST_OPERATIONS", 10 * 32 * 16)
    weight = torch.randn(16, 32)
    for rows, count in ((9, 0), (10, 2)):
        linear(torch.randn(rows, 32), weight, None)
        product(torch.randn(rows, 32), weight.t())
        assert len(called) == count


@pytest.mark.parametrize("name", ["luong", "gnmt", "bahdanau", "convs2s", "transformer"])
def test_translators_have_the_same_gradients(called, monkeypatch, name):
    torch.manual_seed(0)
    config = MODELS.get(name).Config()
    sizes = {"source_vocabulary": 30, "target_vocabulary": 30, "shared": True}
    model = build_model(name, config, **sizes).eval()
    source = pad_rows([[5, 6, 7, EOS], [8, EOS], [9, 10, 11, 12, EOS], [4, EOS]])
    target = torch.randint(4, 30, (4, 5))
    found = []
    for by in (True, False):
        monkeypatch.setattr(cpu_products, "pays", lambda by=by: by)
        called.clear()
        model.zero_grad()
        model.output.loss(model(source, target).hidden, target).loss.backward()
        found.append({key: p.grad.clone() for key, p in model.named_parameters() if p.grad is not None})
        assert bool(called) == by
    for key, gradient in found[1].items():
        largest = float(gradient.abs().max())
        torch.testing.assert_close(found[0][key], gradient, rtol=1e-3, atol=1e-4 * largest + 1e-6, msg=key)


def test_only_gradients_that_are_wanted_are_computed(called):
    layer = QuickLinear(6, 5)
    layer.weight.requires_grad_(False)
    x = torch.randn(4, 6, requires_grad=True)
    layer(x).sum().backward()
    assert layer.weight.grad is None
    assert torch.allclose(layer.bias.grad, torch.full((5,), 4.0))  # type: ignore[arg-type]
    assert called == [(4, 6, 5), (4, 5, 6)]
    called.clear()
    layer.weight.requires_grad_(True)
    layer(x.detach()).sum().backward()
    assert len(called) == 2
    with torch.no_grad():
        assert not layer(x).requires_grad
    called.clear()
    layer.weight.requires_grad_(False)
    layer.bias.grad = None
    layer(x.detach()).sum().backward()  # of the bias alone
    assert torch.allclose(layer.bias.grad, torch.full((5,), 4.0))  # type: ignore[arg-type]
    assert len(called) == 1


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_loss_and_its_gradients_are_the_same(called, monkeypatch, smoothing):
    monkeypatch.setitem(linear_cross_entropy.CHUNK_ELEMENTS, "cpu", 135 * 30)  # several chunks, some of them filled up
    torch.manual_seed(0)
    values = [torch.randn(290, 8), torch.randn(30, 8), torch.randn(30)]
    target = torch.randint(0, 30, (290,))
    found = []
    for by in (False, True):
        monkeypatch.setattr(cpu_products, "pays", lambda by=by: by)
        own = [value.clone().requires_grad_() for value in values]
        loss, nll = LinearCrossEntropy.apply(*own, target, smoothing, 0.0)  # type: ignore[misc]
        loss.backward()
        found.append([loss.detach(), nll, *(one.grad for one in own)])
        assert bool(called) == by
    for expected, other in zip(*found, strict=True):
        torch.testing.assert_close(other, expected, rtol=1e-5, atol=1e-5)


def test_what_oneDNN_does_not_take(called):
    weight = torch.randn(5, 6)
    for x, matrix in (
        (torch.randn(3, 6), weight),  # few rows
        (torch.randn(8, 6).double(), weight.double()),
        (torch.randn(8, 6), weight.as_subclass(type("Other", (torch.Tensor,), {}))),
    ):
        assert linear(x, matrix, None).shape == (len(x), 5)
    with torch.autocast("cpu", torch.float16, enabled=True):
        assert not cpu_products.suits(weight, weight)
    assert not called
    linear(torch.randn(8, 6), weight, None)
    assert len(called) == 1


def test_graphs_that_are_compiled_or_exported_keep_torchs_product(called, monkeypatch):
    layer, x = QuickLinear(6, 5), torch.randn(8, 6)
    exported = torch.export.export(layer, (x,))
    assert not called
    assert "mkldnn" not in str(exported.graph)
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    layer(x)
    assert not called


def test_exported_graphs_are_for_any_number_of_rows(called, monkeypatch):
    monkeypatch.setattr(cpu_products, "FEWEST_OPERATIONS", 1 << 10)  # three rows are below it, thirty are not
    sizes = ({0: torch.export.Dim("rows", min=1, max=1000)},)
    graph = torch.export.export(QuickLinear(16, 16).eval(), (torch.randn(3, 16),), dynamic_shapes=sizes)
    assert graph.module()(torch.randn(30, 16)).shape == (30, 16)
    assert not called


def test_models_are_built_with_such_layers_where_they_pay(called, monkeypatch):
    config = MODELS.get("gpt").Config(width=16, layers=1, heads=2)
    sizes = {"source_vocabulary": 20, "target_vocabulary": 20, "shared": True}
    quick = build_model("gpt", config, **sizes)
    monkeypatch.setattr(cpu_products, "pays", lambda: False)
    plain = build_model("gpt", config, **sizes)
    assert {type(one) for one in quick.modules() if isinstance(one, nn.Linear)} == {QuickLinear}
    assert {type(one) for one in plain.modules() if isinstance(one, nn.Linear)} == {nn.Linear}
    assert all(is_plain(one) for one in quick.modules() if isinstance(one, nn.Linear))
    assert quick.state_dict().keys() == plain.state_dict().keys()


@pytest.mark.parametrize(
    ("text", "capability", "expected"),
    [
        ("processor : 0\nvendor_id\t: AuthenticAMD\n", "AVX512", True),
        ("processor : 0\nvendor_id\t: GenuineIntel\n", "AVX512", False),
        ("processor : 0\nvendor_id\t: AuthenticAMD\n", "AVX2", False),
        ("nothing\n", "AVX512", False),
        (None, "AVX512", False),
    ],
)
def test_it_depends_on_the_processor(monkeypatch, tmp_path, text, capability, expected):
    place = tmp_path / "cpuinfo"
    if text is not None:
        place.write_text(text)
    monkeypatch.setattr(cpu_products, "ABOUT_PROCESSOR", place)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    monkeypatch.setattr(cpu_products, "works", lambda: True)
    assert pays.__wrapped__() is expected
    assert vendor() in ("", "AuthenticAMD", "GenuineIntel")


def test_a_build_of_torch_without_it_multiplies_as_before(monkeypatch):
    def missing(*_):
        raise AttributeError("no such operation")

    monkeypatch.setattr(cpu_products, "_multiply", missing)
    assert not cpu_products.works()
    monkeypatch.setattr(cpu_products, "_multiply", lambda x, weight, bias: x.new_zeros(len(x), len(weight)))
    assert not cpu_products.works()  # it is there, and wrong


def test_whether_it_works_does_not_depend_on_where_it_is_asked():
    expected = cpu_products.works()
    with torch.autocast("cpu", torch.float16):
        assert cpu_products.works() == expected
    torch.set_default_dtype(torch.float64)
    try:
        assert cpu_products.works() == expected
    finally:
        torch.set_default_dtype(torch.float32)
