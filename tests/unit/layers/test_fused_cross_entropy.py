"""Cross-entropy and its gradient in one kernel: the loss around it, and where Triton is installed the kernel itself."""

from __future__ import annotations

import os
import subprocess
import sys
from unittest.mock import Mock

import pytest
import torch

from regard.core.types import PAD
from regard.layers import fused_cross_entropy
from regard.layers.output import SoftmaxOutput


def in_place(logits, bias, target, smoothing):
    """What the kernel does, in torch's own operations."""
    z = logits.float() if bias is None else logits.float() + bias
    real = (target != PAD).float()
    lse, right = z.logsumexp(1) * real, z.gather(1, target[:, None])[:, 0] * real
    d_z = z.softmax(1)
    if not z.is_cuda:  # the kernel's own tests there try other sizes, too
        assert d_z.shape[1] % 8 == 0, "products are of sizes that tensor cores are fast at"
    d_z[torch.arange(len(z)), target] -= 1 - smoothing
    logits.copy_(d_z * real[:, None])
    return lse, right


def consistent_in_place(logits, bias, target, smoothing, weight):
    """By automatic differentiation."""
    real = (target != PAD).float()
    z = (logits.float() if bias is None else logits.float() + bias).detach().requires_grad_()
    with torch.enable_grad():
        log_a, log_b = z.log_softmax(1).chunk(2)
        gap = (log_a - log_b).masked_fill(log_a == -torch.inf, 0.0)  # tokens that only fill up
        divergence = weight * ((log_a.exp() - log_b.exp()) * gap).sum(1) * real.chunk(2)[0]
        (extra,) = torch.autograd.grad(divergence.sum(), z)
    lse, right = in_place(logits, bias, target, smoothing)
    logits += extra.nan_to_num()
    return lse, right, divergence.detach()


@pytest.mark.parametrize("vocabulary", [17, 24])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize(("never", "consistency"), [((), 0.0), ((0, 3), 0.0), ((), 5.0), ((0, 3), 5.0)])
def test_the_loss_and_its_gradients_are_those_of_the_plain_way(
    vocabulary, bias, smoothing, never, consistency, monkeypatch
):
    torch.manual_seed(0)
    layer = SoftmaxOutput(6, vocabulary, bias=bias, never=never)
    if layer.bias is not None:
        torch.nn.init.normal_(layer.bias)
    hidden = torch.randn(4, 5, 6)
    target = torch.randint(4, 17, (4, 5))
    # the plain way leaves padding out on a CPU; the fused one is for devices where that would mean waiting
    target[1, 2:] = PAD
    target[2:] = target[:2] if consistency else PAD
    outcomes = []
    for fused in (False, True):
        monkeypatch.setattr(fused_cross_entropy, "usable", lambda device, vocabulary, fused=fused: fused)
        kernel = Mock(side_effect=in_place)
        monkeypatch.setattr(fused_cross_entropy, "cross_entropy_in_place", kernel)
        if consistency:
            kernel.side_effect = consistent_in_place
            monkeypatch.setattr(fused_cross_entropy, "consistent_cross_entropy_in_place", kernel)
        monkeypatch.setattr("regard.layers.linear_cross_entropy.CHUNK_ELEMENTS_FUSED", vocabulary * 4)
        monkeypatch.setattr("regard.layers.linear_cross_entropy.TILE", 2)
        h = hidden.clone().requires_grad_()
        sums = layer.loss(h, target, smoothing, consistency)
        (0.3 * sums.loss).backward()
        outcomes.append([sums.loss, sums.nll, h.grad, *(p.grad for p in layer.parameters())])
        layer.zero_grad()
        assert bool(kernel.call_count) == fused
        assert not fused or kernel.call_count > 1, "several chunks"
    for plain, fused in zip(*outcomes, strict=True):
        torch.testing.assert_close(fused, plain, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("count", "vocabulary", "halves", "sizes"),
    [
        (16_384, 50_257, 1, [4096] * 4),
        (65_536, 32_000, 1, [8192] * 8),
        (40_000, 32_000, 1, [8064] * 4 + [7744]),  # in whole tiles but for the last
        (2 * 16_384, 50_257, 2, [2 * 2432] * 6 + [2 * 1792]),
        (1000, 32_000, 1, [1000]),
        (5, 1 << 27, 1, [5]),  # a tile's rows, though they are more than the budget
        (0, 32_000, 1, []),
    ],
)
def test_chunks_on_a_gpu_are_of_like_size_and_whole_tiles(count, vocabulary, halves, sizes):
    from regard.layers.linear_cross_entropy import _chunks

    found = list(_chunks(count, vocabulary, "cuda", halves, fused=True))
    assert [sum(place.stop - place.start for place in places) for places in found] == sizes
    assert all(len({place.stop - place.start for place in places}) == 1 for places in found)
    rows = [row for side in zip(*found, strict=True) for place in side for row in range(place.start, place.stop)]
    assert rows == list(range(count))


def test_padding_in_the_middle_of_a_chunk_gets_no_gradient(monkeypatch):
    """As on a GPU, where padding is not left out beforehand."""
    torch.manual_seed(0)
    weight, bias = torch.randn(9, 6, requires_grad=True), torch.randn(9, requires_grad=True)
    hidden, target = torch.randn(7, 6, requires_grad=True), torch.tensor([4, 0, 5, 6, 0, 0, 8])
    monkeypatch.setattr(fused_cross_entropy, "cross_entropy_in_place", in_place)
    from regard.layers.linear_cross_entropy import LinearCrossEntropy

    found = []
    for fused in (False, True):
        loss, nll = LinearCrossEntropy.apply(hidden, weight, bias, target, 0.1, 0.0, None, fused)  # type: ignore[misc]
        found.append([loss, nll, *torch.autograd.grad(loss, (hidden, weight, bias))])
    for plain, fused in zip(*found, strict=True):
        torch.testing.assert_close(fused, plain, rtol=1e-5, atol=1e-6)
    assert (found[1][2][target == PAD] == 0).all()


def test_the_kernel_is_for_gpus():
    assert not fused_cross_entropy.usable("cpu", 100)
    if torch.cuda.is_available():
        assert fused_cross_entropy.usable("cuda", 100) == (fused_cross_entropy.triton is not None)


@pytest.mark.parametrize(
    ("kernel", "works"), [(in_place, True), (Mock(side_effect=RuntimeError("no compiler")), False)]
)
def test_a_kernel_that_does_not_run_is_not_used(monkeypatch, kernel, works):
    monkeypatch.setattr(fused_cross_entropy, "cross_entropy_in_place", kernel)
    fused_cross_entropy._works.cache_clear()
    assert fused_cross_entropy._works("cpu") == works
    fused_cross_entropy._works.cache_clear()


KERNEL = """
import torch
from regard.layers.fused_cross_entropy import consistent_cross_entropy_in_place, cross_entropy_in_place
torch.manual_seed(0)
for vocabulary, biased in ((50, True), (9000, True), (8192, False)):
    z, y = 3 * torch.randn(5, vocabulary), torch.randint(1, vocabulary, (5,))
    y[2], bias = 0, torch.randn(vocabulary) if biased else None
    whole = z.clone() if bias is None else z + bias
    real = (y != 0)[:, None]
    expected = whole.softmax(1) - 0.9 * torch.nn.functional.one_hot(y, vocabulary)
    lse, right = cross_entropy_in_place(z, bias, y, 0.1)
    torch.testing.assert_close(z, expected * real, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(lse, whole.logsumexp(1) * real[:, 0], rtol=1e-6, atol=1e-5)
    torch.testing.assert_close(right, whole.gather(1, y[:, None])[:, 0] * real[:, 0], rtol=1e-6, atol=1e-5)
    z = 3 * torch.randn(6, vocabulary)
    z.requires_grad_()
    y = torch.tensor([5, 0, vocabulary - 1])
    added = 0 if bias is None else bias
    log_a, log_b = (z + added).log_softmax(1).chunk(2)
    real = (y != 0).float()
    apart = 2.5 * ((log_a.exp() - log_b.exp()) * (log_a - log_b)).sum(1) * real
    nll = -((log_a + log_b).gather(1, y[:, None])[:, 0] * real)
    smooth = 0.9 * nll + 0.1 * ((z + added).logsumexp(1).reshape(2, 3) * real).sum(0)
    (gradient,) = torch.autograd.grad((apart + smooth).sum(), z)
    inside = z.detach().clone()
    lse, right, found = consistent_cross_entropy_in_place(inside, bias, y.repeat(2), 0.1, 2.5)
    torch.testing.assert_close(found, apart.detach(), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(inside, gradient, rtol=1e-4, atol=2e-6)
    torch.testing.assert_close((lse - right).reshape(2, 3).sum(0), nll.detach(), rtol=1e-5, atol=1e-5)
import regard.layers.fused_cross_entropy as module
from regard.layers.output import SoftmaxOutput
layer, hidden = SoftmaxOutput(8, 1001), torch.randn(6, 8)
torch.nn.init.normal_(layer.bias)
target = torch.tensor([5, 0, 1000, 5, 0, 1000])
for consistency in (0.0, 5.0):
    found = []
    for fused in (False, True):
        module.usable = lambda device, vocabulary: fused
        h = hidden.clone().requires_grad_()
        sums = layer.loss(h, target, 0.1, consistency)
        found.append([sums.loss, sums.nll, *torch.autograd.grad(sums.loss, (h, layer.weight, layer.bias))])
    for a, b in zip(*found):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)
print("equal")
"""


def test_the_kernel_by_tritons_interpreter():
    pytest.importorskip("triton")
    done = subprocess.run(
        [sys.executable, "-c", KERNEL],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    if "only 0-dimensional arrays can be converted" in done.stderr:
        pytest.skip("Triton's interpreter (3.6) does not get on with numpy 2.4")
    assert done.stdout.strip() == "equal", done.stderr


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("vocabulary", [1000, 8192, 32000, 32001])
def test_the_kernel_on_a_gpu(dtype, vocabulary):
    pytest.importorskip("triton")
    torch.manual_seed(0)
    z = (3 * torch.randn(64, vocabulary, device="cuda")).to(dtype)
    y = torch.randint(0, vocabulary, (64,), device="cuda")
    y[::7] = PAD
    bias = torch.randn(vocabulary, device="cuda")
    expected = z.clone()
    lse, right = in_place(expected, bias, y, 0.1)
    found = fused_cross_entropy.cross_entropy_in_place(z, bias, y, 0.1)
    tolerance = 1e-5 if dtype == torch.float32 else 4e-3
    torch.testing.assert_close(z, expected, rtol=tolerance, atol=tolerance / 10)
    torch.testing.assert_close(found[0], lse, rtol=1e-5, atol=1e-4)
    torch.testing.assert_close(found[1], right, rtol=1e-5, atol=1e-4)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("vocabulary", [1000, 8192, 32000, 32001])
def test_the_kernel_of_pairs_on_a_gpu(dtype, vocabulary):
    pytest.importorskip("triton")
    torch.manual_seed(0)
    z = torch.randn(64, vocabulary, device="cuda").to(dtype)
    y = torch.randint(1, vocabulary, (32,), device="cuda").repeat(2)
    y[3] = y[35] = PAD
    bias = torch.randn(vocabulary, device="cuda")
    expected = z.float().clone()  # which float32 would not be by itself
    wanted = consistent_in_place(expected, bias, y, 0.1, 2.5)
    found = fused_cross_entropy.consistent_cross_entropy_in_place(z, bias, y, 0.1, 2.5)
    tolerance = 1e-4 if dtype == torch.float32 else 8e-3
    torch.testing.assert_close(z.float(), expected, rtol=tolerance, atol=tolerance / 10)
    for a, b in zip(found, wanted, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)
