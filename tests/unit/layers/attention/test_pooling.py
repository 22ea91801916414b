"""Attention pooling: special cases, empty neighbourhoods, shapes, gradients, and what it refuses."""

from __future__ import annotations

import inspect
import math
import subprocess
import sys

import pytest
import torch

import regard
from regard.core.errors import ConfigError, ModelError
from regard.layers.attention.kernels import KERNELS
from regard.layers.attention.pooling import attend
from regard.layers.attention.scores import make_score
from regard.layers.attention.scores.additive import Additive

RULES = ("dot", "scaled_dot", "cosine", *KERNELS)
COMPACT = ("boxcar", "triangular", "epanechnikov", "exact")
# The type checks of tests come before the messages that users meet.
unchecked = inspect.unwrap(attend)


def test_gaussian_attention_is_dot_product_attention_where_keys_have_one_norm():
    """exp(-|q - k|²/2) = exp(q·k) exp(-|q|²/2) exp(-|k|²/2): the last factor cancels if, and only if, it is one for all."""
    torch.manual_seed(0)
    query, keys, values = (torch.randn(n, 6, dtype=torch.float64) for n in (4, 9, 9))
    on_a_sphere = 1.7 * keys / keys.norm(dim=-1, keepdim=True)
    kernel, score = (attend(query, on_a_sphere, values, score=name) for name in ("gaussian", "dot"))
    torch.testing.assert_close(kernel.weights, score.weights)
    torch.testing.assert_close(kernel.values, score.values)
    wide = attend(query, on_a_sphere, values, score="gaussian", bandwidth=6**0.25)  # |q - k|² / √d: the scaled dot
    torch.testing.assert_close(wide.weights, attend(query, on_a_sphere, values).weights)
    kernel, score = (attend(query, keys, values, score=name) for name in ("gaussian", "dot"))
    assert (kernel.weights - score.weights).abs().max() > 0.1


def test_exact_match_is_a_database_query():
    keys = torch.tensor([[1.0, 0.0], [2.0, 0.0], [1.0, 0.0], [0.3, 0.0]])
    values = torch.tensor([[10.0], [20.0], [30.0], [40.0]])
    query = torch.tensor([[1.0, 0.0], [2.0, 0.0], [5.0, 0.0], [0.1 + 0.2, 0.0]])
    found = attend(query, keys, values, score="exact", normalise="none")
    assert found.values[:, 0].tolist() == [40.0, 20.0, 0.0, 40.0]  # duplicates are summed
    assert attend(query, keys, values, score="exact").values[:, 0].tolist() == [20.0, 20.0, 0.0, 40.0]  # or averaged
    near = torch.tensor([[1e-25, 0.0]])  # another key, though the square of the distance is 0 in float32
    assert attend(near, torch.zeros(1, 2), torch.ones(1, 1), score="exact").values.item() == 0


def test_approximate_match_and_average():
    keys, values = torch.tensor([[0.0], [1.0], [2.0], [4.0]]), torch.tensor([[1.0], [2.0], [3.0], [8.0]])
    query = torch.tensor([[1.0]])
    found = attend(query, keys, values, score="boxcar", bandwidth=1.0)
    torch.testing.assert_close(found.weights, torch.tensor([[1 / 3, 1 / 3, 1 / 3, 0.0]]))  # the edge belongs to it
    assert attend(query, keys, values, score="boxcar", bandwidth=0.99).values.item() == 2.0
    assert attend(query, keys, values, score="average").values.item() == 3.5
    assert attend(query, keys, values, score="average", normalise="none").values.item() == 14
    assert attend(torch.zeros(1, 7), keys, values, score="average").values.item() == 3.5  # it compares nothing
    assert attend(query, keys, values, score="gaussian", bandwidth=math.inf).values.item() == 3.5


def test_distances_far_from_the_origin_are_exact():
    """As |q|² - 2q·k + |k|² they would be lost in rounding."""
    keys = torch.tensor([[5000.0, 5000.0], [5000.5, 5000.0]])
    found = attend(keys[:1], keys, keys, score="triangular", normalise="none")
    assert found.weights.tolist() == [[1.0, 0.5]]


def test_triangular_and_epanechnikov_are_different_things():
    keys = torch.tensor([[0.0], [0.5], [1.0]])
    shapes = {
        name: attend(torch.zeros(1, 1), keys, keys, score=name, normalise="none").weights[0].tolist()
        for name in ("triangular", "epanechnikov", "boxcar", "gaussian")
    }
    assert shapes["triangular"] == [1.0, 0.5, 0.0]
    assert shapes["epanechnikov"] == [0.75, 0.5625, 0.0]
    assert shapes["boxcar"] == [1.0, 1.0, 1.0]
    assert shapes["gaussian"] == pytest.approx([1.0, math.exp(-1 / 8), math.exp(-1 / 2)])


@pytest.mark.parametrize("normalise", ["sum", "softmax"])
@pytest.mark.parametrize("name", RULES)
def test_normalised_weights_are_convex(name, normalise):
    torch.manual_seed(0)
    keys, values = torch.randn(2, 9, 3), torch.randn(2, 9, 4)
    found = attend(keys[:, :4], keys, values, score=name, normalise=normalise)
    assert (found.weights >= 0).all()
    torch.testing.assert_close(found.weights.sum(-1), torch.ones(2, 4))
    assert (found.values <= values.amax(1, keepdim=True) + 1e-6).all()
    assert (found.values >= values.amin(1, keepdim=True) - 1e-6).all()


@pytest.mark.parametrize("name", RULES)
def test_weights_without_normalisation_are_a_cone(name):
    torch.manual_seed(0)
    found = attend(torch.randn(5, 3), torch.randn(9, 3), torch.rand(9, 4), score=name, normalise="none")
    assert (found.weights >= 0).all()
    assert (found.values >= 0).all()


@pytest.mark.parametrize("name", COMPACT)
@pytest.mark.parametrize("normalise", ["none", "sum"])
def test_a_query_without_a_neighbour_gets_what_was_asked_for(name, normalise):
    keys, values = torch.tensor([[0.0], [10.0], [19.0]]), torch.tensor([[1.0, 2.0], [3.0, 4.0], [9.0, 9.0]])
    query = torch.tensor([[0.0], [15.0]])  # the second has none; its nearest is the last, which is hidden from it
    mask = torch.tensor([[True, True, True], [True, True, False]])

    def of(empty):
        return attend(query, keys, values, score=name, normalise=normalise, mask=mask, empty=empty)

    zero = of("zero")
    assert zero.weights[1].tolist() == [0, 0, 0]
    assert zero.values[1].tolist() == [0, 0]
    nan = of("nan")
    assert nan.weights[1].isnan().all()
    assert nan.values[1].isnan().all()
    mean = of("mean")
    assert mean.weights[1].tolist() == [0.5, 0.5, 0.0]
    assert mean.values[1].tolist() == [2.0, 3.0]
    nearest = of("nearest")
    assert nearest.weights[1].tolist() == [0.0, 1.0, 0.0]
    assert nearest.values[1].tolist() == [3.0, 4.0]
    for other in (nan, mean, nearest):  # who has neighbours is left alone
        assert torch.equal(other.values[0], zero.values[0])
        assert torch.equal(other.weights[0], zero.weights[0])
    assert torch.equal(attend(query, keys, values, score=name, normalise=normalise, mask=mask).values, zero.values)


@pytest.mark.parametrize("normalise", ["none", "sum", "softmax"])
@pytest.mark.parametrize("name", RULES)
def test_a_query_that_may_see_nothing(name, normalise):
    torch.manual_seed(0)
    query, keys, values = torch.randn(3, 2), torch.randn(5, 2), torch.randn(5, 4)
    mask = torch.ones(3, 5, dtype=torch.bool)
    mask[1] = False
    for empty in ("zero", "mean", "nearest"):
        found = attend(query, keys, values, score=name, normalise=normalise, mask=mask, empty=empty)
        assert found.weights[1].abs().max() == 0
        assert found.values[1].abs().max() == 0
        assert found.weights.isfinite().all()
    found = attend(query, keys, values, score=name, normalise=normalise, mask=mask, empty="nan")
    assert found.weights[1].isnan().all()
    assert found.values[1].isnan().all()
    for empty, expected in (("zero", 0.0), ("mean", 0.0), ("nearest", 0.0), ("nan", math.nan)):  # no key at all
        none = attend(query, keys[:0], values[:0], score=name, normalise=normalise, empty=empty)
        assert none.weights.shape == (3, 0)
        torch.testing.assert_close(none.values, torch.full((3, 4), expected), equal_nan=True)


def test_a_softmax_over_kernel_values_leaves_no_query_without_neighbours():
    keys, values = torch.tensor([[0.0], [50.0]]), torch.tensor([[1.0], [3.0]])
    found = attend(torch.tensor([[20.0]]), keys, values, score="boxcar", normalise="softmax", empty="nan")
    assert found.values.item() == 2.0


def test_a_gaussian_always_has_neighbours_though_its_values_vanish_in_floating_point():
    keys, values = torch.tensor([[0.0], [1.0]]), torch.tensor([[5.0], [7.0]])
    far = torch.tensor([[1000.0]])
    for bandwidth in (1.0, 1e-6, 1e-18):
        found = attend(far, keys, values, score="gaussian", bandwidth=bandwidth, empty="nan")
        assert found.values.item() == 7.0
    close = attend(far, keys, values, score="gaussian", bandwidth=30.0).weights[0, 1].item()  # u² is about 1,111
    assert close == pytest.approx(1 / (1 + math.exp((999**2 - 1000**2) / (2 * 30**2))), rel=1e-4)
    assert attend(far, keys, values, score="gaussian", normalise="none", empty="nan").values.item() == 0
    assert attend(far, keys, values, score="gaussian", bandwidth=1e-30).values.isfinite().all()
    keys, values = torch.tensor([[0.0], [1.0], [1000.0]]), torch.ones(3, 1)
    mask = torch.tensor([[True, True, False], [True, True, True]])
    hidden = attend(far.expand(2, 1), keys, values, mask=mask, score="gaussian", bandwidth=1e-18)
    assert hidden.weights.tolist() == [[0, 1, 0], [0, 0, 1]]  # what is nearest but hidden from a query changes nothing


@pytest.mark.parametrize("name", RULES)
def test_pairs_that_nobody_sees_may_hold_anything(name):
    torch.manual_seed(0)
    query, keys, values = torch.randn(2, 3), torch.randn(4, 3), torch.randn(4, 2)
    query[0] = keys[0]
    mask = torch.tensor([True, True, True, False])
    expected = attend(query, keys[:3], values[:3], score=name)
    keys[3], values[3] = torch.nan, torch.inf
    query.requires_grad_()
    found = attend(query, keys, values, score=name, mask=mask)
    torch.testing.assert_close(found.values, expected.values)
    assert found.weights[:, 3].abs().max() == 0
    if found.values.requires_grad:
        found.values.sum().backward()
        assert query.grad.isfinite().all()


def test_shapes():
    torch.manual_seed(0)
    query, keys, values = torch.randn(2, 1, 3, 5), torch.randn(4, 7, 5), torch.randn(2, 4, 7, 6)
    for rule in (*RULES, Additive(5, 5, 4)):
        found = attend(query, keys, values, score=rule)
        assert found.values.shape == (2, 4, 3, 6)
        assert found.weights.shape == (2, 4, 3, 7)
        for b, h in ((0, 3), (1, 2)):
            alone = attend(query[b, 0], keys[h], values[b, h], score=rule)
            torch.testing.assert_close(alone.values, found.values[b, h])
            one = attend(query[b, 0, 1], keys[h], values[b, h], score=rule)
            torch.testing.assert_close(one.values, found.values[b, h, 1])
            assert one.weights.shape == (7,)
        assert attend(query[:, :, :0], keys, values, score=rule).values.shape == (2, 4, 0, 6)
        assert attend(query[:0], keys, values[:0], score=rule).values.shape == (0, 4, 3, 6)


def test_masks_are_broadcast():
    torch.manual_seed(0)
    query, keys, values = torch.randn(2, 3, 5), torch.randn(2, 4, 5), torch.randn(2, 4, 6)
    padding = torch.tensor([[True, True, True, True], [True, True, False, False]])
    found = attend(query, keys, values, mask=padding[:, None])
    torch.testing.assert_close(found.values[1], attend(query[1], keys[1, :2], values[1, :2]).values)
    assert torch.equal(attend(query, keys, values, mask=padding[1]).weights[1], found.weights[1])
    one = attend(query[1, 0], keys[1], values[1], mask=padding[1])
    torch.testing.assert_close(one.values, found.values[1, 0])


def test_float64_stays_float64():
    for rule in RULES:
        found = attend(*(torch.randn(3, 2, dtype=torch.float64) for _ in range(3)), score=rule, empty="mean")
        assert found.values.dtype == found.weights.dtype == torch.float64


def test_a_score_of_ones_own_with_other_widths():
    torch.manual_seed(0)
    for name in ("bilinear", "additive", "concat", "location"):
        score = make_score(name, query_width=5, key_width=3, width=4, limit=9)
        found = attend(torch.randn(2, 6, 5), torch.randn(2, 7, 3), torch.randn(2, 7, 2), score=score)
        torch.testing.assert_close(found.weights.sum(-1), torch.ones(2, 6))
        found.values.square().sum().backward()
        assert all(p.grad.abs().max() > 0 for p in score.parameters())


@pytest.mark.parametrize("name", ["gaussian", "triangular", "epanechnikov"])
def test_a_bandwidth_can_be_learned(name):
    """Leave one out on a noisy sine: the gradient is the slope of the loss, and following it lowers the loss."""
    torch.manual_seed(0)
    x = torch.linspace(0, 6, 40, dtype=torch.float64)[:, None]
    y = x.sin() + 0.3 * torch.randn_like(x)
    others = ~torch.eye(40, dtype=torch.bool)

    def loss(bandwidth):
        return (attend(x, x, y, score=name, mask=others, bandwidth=bandwidth).values - y).square().mean()

    log = torch.tensor(math.log(3.0), dtype=torch.float64, requires_grad=True)
    first = loss(log.exp())
    first.backward()
    h = 1e-5
    slope = (loss((log + h).exp()) - loss((log - h).exp())).item() / (2 * h)
    assert log.grad.item() == pytest.approx(slope, rel=1e-4)
    optimiser = torch.optim.Adam([log], lr=0.1)
    for _ in range(60):
        optimiser.zero_grad()
        loss(log.exp()).backward()
        optimiser.step()
    assert loss(log.exp()) < 0.5 * first
    assert 0.1 < log.exp().item() < 2


def test_a_bandwidth_of_each_query():
    torch.manual_seed(0)
    query, keys, values = torch.randn(2, 3, 2), torch.randn(2, 5, 2), torch.randn(2, 5, 1)
    widths = torch.tensor([[0.5], [1.0], [2.0]])
    found = attend(query, keys, values, score="gaussian", bandwidth=widths)
    for n, width in enumerate((0.5, 1.0, 2.0)):
        alone = attend(query[:, n : n + 1], keys, values, score="gaussian", bandwidth=width)
        torch.testing.assert_close(found.values[:, n], alone.values[:, 0])


def test_gradients_are_finite_also_where_query_and_key_coincide_or_nothing_is_near_or_visible():
    for name in KERNELS:
        for empty in ("zero", "mean", "nearest", "nan"):
            query = torch.tensor([[0.0, 0.0], [9.0, 9.0], [0.0, 0.5]], requires_grad=True)
            keys = torch.tensor([[0.0, 0.0], [0.5, 0.5]], requires_grad=True)
            values = torch.tensor([[1.0], [2.0]], requires_grad=True)
            bandwidth = torch.tensor(1.0, requires_grad=True)
            mask = torch.tensor([[True, True], [True, True], [False, False]])
            found = attend(query, keys, values, score=name, mask=mask, bandwidth=bandwidth, empty=empty).values
            found[found.isfinite()].sum().backward()
            for tensor in (query, keys, values, bandwidth):
                assert tensor.grad is None or tensor.grad.isfinite().all(), (name, empty)


GOOD = {"query": torch.zeros(2, 3, 4), "keys": torch.zeros(2, 5, 4), "values": torch.zeros(2, 5, 6)}


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"score": "dott"}, ConfigError, "attend, score: there is no 'dott'. Choose one of .*dot.*gaussian"),
        ({"score": "additive"}, ConfigError, r"weights to learn, .* Pass a module: score=Additive\(...\)"),
        ({"normalise": "l2"}, ConfigError, "attend, normalise: there is no 'l2'. Choose one of none, sum, softmax"),
        ({"empty": "one"}, ConfigError, "attend, empty: there is no 'one'. Choose one of zero, nan, mean, nearest"),
        ({"score": "boxcar", "bandwidth": 0}, ConfigError, "attend, bandwidth: it must be a number above 0, got 0"),
        ({"score": "boxcar", "bandwidth": -1.0}, ConfigError, "above 0, got -1.0"),
        ({"score": "boxcar", "bandwidth": math.nan}, ConfigError, "above 0, got nan"),
        ({"score": "boxcar", "bandwidth": "wide"}, ConfigError, "above 0, got 'wide'"),
        ({"score": "boxcar", "bandwidth": torch.tensor([[1.0], [0.0], [1.0]])}, ConfigError, "above 0"),
        ({"score": "boxcar", "bandwidth": torch.ones(7)}, ModelError, r"bandwidth: its shape \[7\] does not broadcast"),
        ({"bandwidth": 2.0}, ConfigError, "scores have none, got 2.0. Leave it out, or choose a kernel"),
        ({"bandwidth": torch.tensor(1.0)}, ConfigError, "scores have none"),
        ({"query": [1.0]}, ModelError, "attend, query: got a list. Pass a tensor of floating-point numbers"),
        ({"keys": torch.zeros(2, 5, 4, dtype=torch.long)}, ModelError, "attend, keys: got torch.int64"),
        ({"values": torch.zeros(2, 5, 6).double()}, ModelError, "got torch.float64 where the query is torch.float32"),
        ({"keys": torch.zeros(4)}, ModelError, r"attend, keys: its shape is \(4,\). Pass query \[.. N Dq\]"),
        ({"query": torch.tensor(1.0)}, ModelError, r"attend, query: its shape is \(\)"),
        ({"values": torch.zeros(2, 4, 6)}, ModelError, "there are 5 keys and 4 values"),
        ({"query": torch.zeros(3, 3, 4)}, ModelError, r"leading dimensions do not match: query \[3, 3, 4\], keys \[2"),
        ({"query": torch.zeros(2, 3, 5)}, ModelError, "one width here, got 5 and 4"),
        ({"query": torch.zeros(2, 3, 5), "score": "gaussian"}, ModelError, "one width here, got 5 and 4"),
        ({"mask": torch.ones(2, 1, 5)}, ModelError, "attend, mask: got torch.float32. Pass a tensor of bool"),
        ({"mask": torch.ones(2, 5).bool()}, ModelError, r"mask: its shape \[2, 5\] .* passed as mask\[:, None\]"),
        ({"mask": torch.ones(7, 2, 3, 5).bool()}, ModelError, "does not broadcast to that of the weights"),
    ],
)
def test_what_it_refuses(change, error, message):
    with pytest.raises(error, match=message):
        unchecked(**{**GOOD, **change})


def test_it_is_there_as_regard_attend_and_costs_nothing_before():
    assert regard.attend is attend
    assert {"attend", "nadaraya_watson"} <= set(regard.__all__)
    subprocess.run([sys.executable, "-c", "import sys, regard; assert 'torch' not in sys.modules"], check=True)
