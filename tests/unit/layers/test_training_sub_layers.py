"""Fused sub-layers of training: the same values and gradients as the plain ones that the models' files are made of."""

from __future__ import annotations

import itertools
import threading
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from interpreted import interpreted
from torch import nn
from torch.profiler import profile
from training_cases import close, norm_of

from regard.layers.attention.relative import Layout
from regard.layers.decoding import triton_here
from regard.layers.feedforward import ACTIVATIONS
from regard.layers.training import dropped, norms, relu_product, trial
from regard.layers.training import embedded as embedded_module
from regard.layers.training.embedded import embedded
from regard.layers.training.norms import Dropout
from regard.layers.training.sub_layers import Added, Matrix, between, matrices, product
from regard.layers.training.tiling import tiles_of

HERE = Path(__file__).parent


def leaf(*shape: int) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.float32).requires_grad_()


def learnt(norm):
    bias = None if norm.bias is None else norm.bias.requires_grad_()
    return norm._replace(weight=norm.weight.requires_grad_(), bias=bias)


def gradients(outs, leaves):
    """Of a sum with weights that differ from number to number."""
    total = sum((out * torch.linspace(-1, 1, out.numel()).view(out.shape)).sum() for out in outs)
    return torch.autograd.grad(total, [one for one in leaves if one is not None], retain_graph=True)


def matrix_of(outputs: int, inputs: int, bias: bool) -> Matrix:
    linear = nn.Linear(inputs, outputs, bias=bias)
    return matrices([linear], torch.float32)[linear]


@pytest.mark.parametrize("kind", [1, 2, 3])
@pytest.mark.parametrize("activation", [None, "relu", "gelu", "gelu_tanh", "swish"])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("part", [None, 0.0, 0.25])
@pytest.mark.parametrize("last", [False, True])
def test_between_two_sub_layers(kind: int, activation: str | None, bias: bool, part: float | None, last: bool) -> None:
    torch.manual_seed(3)
    x, read, norm, seed = (
        leaf(4, 5, 12),
        leaf(4, 5, 20),
        learnt(norm_of(12, kind)),
        dropped.seeds(1, torch.device("cpu"))[0],
    )
    first, second = matrix_of(12, 20, bias), matrix_of(20, 12, bias)
    leaves = [x, norm.weight, norm.bias]
    total, added = x, None
    if part is not None:
        stays = dropped.kept((20, 12), part, seed).view(4, 5, 12) if part else torch.ones(4, 5, 12)
        total, added = x + F.linear(read, *first[:2]) * stays / (1 - part), Added(read, first, Dropout(part, seed))
        leaves += [read, *first[:2]]
    out = norm(total)
    if not last:
        leaves += second[:2]
        out = F.linear(out, *second[:2])
        out = out if activation is None else ACTIVATIONS[activation](out)
    found = between(x, added, norm, None if last else second, None if last else activation)
    for one, other in zip(found, (total, out), strict=True):
        close(one, other)
    for which in (slice(0, 2), slice(1, 2)):  # also where nobody reads the states any more
        pairs = zip(gradients(found[which], leaves), gradients((total, out)[which], leaves), strict=True)
        for one, other in pairs:
            close(one, other, 1e-4)


@pytest.mark.parametrize("bias", [True, False])
def test_a_product(bias: bool) -> None:
    x, matrix = leaf(4, 5, 12), matrix_of(20, 12, bias)
    found, expected, leaves = product(x, matrix), F.linear(x, *matrix[:2]), [x, *matrix[:2]]
    close(found, expected)
    for one, other in zip(gradients([found], leaves), gradients([expected], leaves), strict=True):
        close(one, other, 1e-4)


def test_what_is_only_read_gets_no_gradient() -> None:
    """Nor is it computed: a product less for each of the two."""
    norm, seed = learnt(norm_of(12, 2)), torch.tensor(3)
    first, second, third = (matrix_of(12, 12, True) for _ in range(3))
    counts = []
    for needed in (True, False):
        x, read, memory = (leaf(4, 5, 12).detach().requires_grad_(needed) for _ in range(3))
        out = between(x, Added(read, first, Dropout(0.0, seed)), norm, second)[1] + product(memory, third)
        with profile() as done:
            out.sum().backward()
        counts.append(sum(one.count for one in done.key_averages() if one.key == "aten::mm"))
        assert (read.grad is not None, memory.grad is not None) == (needed, needed)
    assert counts[0] - counts[1] == 2


def test_weights_are_converted_together() -> None:
    linears = [nn.Linear(3, 4), nn.Linear(4, 2, bias=False)]
    for dtype in (torch.float32, torch.float64):
        found = matrices(linears, dtype)
        for linear in linears:
            matrix = found[linear]
            assert matrix.weight is linear.weight
            assert matrix.low_weight.dtype == dtype
            assert torch.equal(matrix.low_weight.float(), linear.weight)
            assert (matrix.low_bias is None) == (linear.bias is None)
            assert matrix.low_bias is None or torch.equal(matrix.low_bias.float(), linear.bias)


@pytest.mark.parametrize("part", [0.0, 0.25, 0.8])
@pytest.mark.parametrize("learned", [True, False, None])
def test_embeddings_with_positions(part: float, learned: bool | None) -> None:
    torch.manual_seed(3)
    tokens, table = torch.randint(7, (4, 5)), leaf(7, 12)
    positions = None if learned is None else leaf(5, 12) if learned else torch.randn(5, 12)
    seed = dropped.seeds(1, table.device)[0]
    stays = dropped.kept((20, 12), part, seed).view(4, 5, 12) if part else torch.ones(4, 5, 12)
    expected = (table[tokens] * 3.0 + (0 if positions is None else positions)) * stays / (1 - part)
    found = embedded(tokens, table, 3.0, positions, part, seed)
    close(found, expected)
    leaves = [table, positions if learned else None]
    for one, other in zip(gradients([found], leaves), gradients([expected], leaves), strict=True):
        close(one, other, 1e-4)


@pytest.mark.parametrize("part", [0.1, 0.5, 0.9])
def test_what_is_dropped_is_as_random_as_it_should_be(part: float) -> None:
    torch.manual_seed(5)
    rows, width = 512, 256
    one, other = (dropped.kept((rows, width), part, seed).double() for seed in dropped.seeds(2, torch.device("cpu")))
    spread = (part * (1 - part)) ** 0.5
    most = 5 * spread / (rows * width) ** 0.5  # five standard errors
    assert abs(float(one.mean()) - (1 - part)) < most
    assert float((one.mean(0) - (1 - part)).abs().max()) < 5 * spread / rows**0.5
    assert float((one.mean(1) - (1 - part)).abs().max()) < 5 * spread / width**0.5

    def together(a: torch.Tensor, b: torch.Tensor) -> float:
        return abs(float(((a - a.mean()) * (b - b.mean())).mean())) / spread**2

    assert together(one, other) < 5 / (rows * width) ** 0.5
    for shift in (1, 2, 3, 8, 32):
        assert together(one[:, shift:], one[:, :-shift]) < 5.5 / (rows * (width - shift)) ** 0.5
        assert together(one[shift:], one[:-shift]) < 5.5 / ((rows - shift) * width) ** 0.5


def test_seeds_come_from_torch() -> None:
    torch.manual_seed(7)
    first = dropped.seeds(4, torch.device("cpu"))
    again = dropped.seeds(4, torch.device("cpu"))
    torch.manual_seed(7)
    assert torch.equal(first, dropped.seeds(4, torch.device("cpu")))
    assert not torch.equal(first, again)
    assert len(set(first.tolist())) == 4
    assert bool((first >> 32).abs().max() > 0)  # both halves count
    assert not torch.equal(*(dropped.kept((8, 8), 0.5, seed) for seed in (first[0], first[0] ^ (1 << 40))))


def test_nothing_is_kept_of_double_backward() -> None:
    x = leaf(2, 3, 8)
    out = between(x, None, learnt(norm_of(8, 2)), matrix_of(8, 8, True))[1].sum()
    (grad,) = torch.autograd.grad(out, x, create_graph=True)
    with pytest.raises(RuntimeError, match=r"once_differentiable|does not require grad"):
        grad.sum().backward()


@pytest.mark.skipif(triton_here.triton is None or triton_here.INTERPRETED, reason="needs Triton's compiler")
def test_no_kernel_is_compiled_anew_for_another_batch_or_seed() -> None:
    kernels = [norms._forward, norms._backward, dropped._gradient, embedded_module._embed]
    for kernel in kernels:
        assert {"seed", "rows", "drop"} <= {one.name for one in kernel.params if one.do_not_specialize}


@pytest.mark.skipif(triton_here.triton is None, reason="needs Triton")
def test_the_kernels_by_tritons_interpreter() -> None:
    assert interpreted("training_cases.py") == "equal"


@pytest.mark.parametrize(
    "name",
    ["summed", "embed", "add_and_norm", "norm_backward", "activation_backward", "copy_heads", "_attention_gradients"],
)
@pytest.mark.parametrize(("activation", "norm"), [("relu", 2), ("gelu_tanh", 1), ("swish", 3)])
def test_kernels_that_are_wrong_or_do_not_run_are_not_used(
    monkeypatch, caplog, name: str, activation: str, norm: int
) -> None:
    """On a CPU, where references stand for kernels; no two calls give the same, in whatever order threads make them."""
    monkeypatch.setattr(trial, "usable", lambda _: True)
    where = (torch.device("cpu"), trial.Kind(32, 2, activation, norm), torch.float32, torch.float32)
    trial.kernels_work.cache_clear()
    assert trial.kernels_work(*where)
    assert not caplog.records
    right, calls = getattr(trial, name), itertools.count()

    def wrong(*arguments):
        found = right(*arguments)
        if found is None:  # it writes into the first
            arguments[0].mul_(1 + 0.1 * next(calls))
            return None
        many = list(found) if isinstance(found, tuple) else [found]
        many[0] = many[0] * (1 + 0.1 * next(calls))
        return tuple(many)

    for other, why in ((wrong, "what torch finds"), (lambda *_: 1 / 0, "ZeroDivisionError")):
        monkeypatch.setattr(trial, name, other)
        trial.kernels_work.cache_clear()
        caplog.clear()
        assert not trial.kernels_work(*where)
        (record,) = caplog.records
        assert record.getMessage().startswith("train.fused: ")
        assert why in record.getMessage()
    trial.kernels_work.cache_clear()


def test_threads_that_try_kernels_have_the_device_before_they_begin(monkeypatch) -> None:
    """Triton asks the driver for descriptors of tensors, and that fails in a thread where torch has launched nothing."""
    bound: set[tuple[int, torch.device]] = set()
    here, right = torch.device("cpu"), trial.add_and_norm
    monkeypatch.setattr(trial, "usable", lambda _: True)
    monkeypatch.setattr(trial, "bound_to", lambda device: bound.add((threading.get_ident(), device)))

    def where(*arguments):
        assert (threading.get_ident(), here) in bound
        return right(*arguments)

    monkeypatch.setattr(trial, "add_and_norm", where)
    trial.kernels_work.cache_clear()
    assert trial.kernels_work(here, trial.Kind(32, 2), torch.float32, torch.float32)
    trial.kernels_work.cache_clear()


@pytest.mark.parametrize("name", ["embed", "turn_queries_and_keys", "_attention_gradients", "_attention"])
def test_packed_sentences_are_tried_too(monkeypatch, name: str) -> None:
    monkeypatch.setattr(trial, "usable", lambda _: True)
    where = (torch.device("cpu"), trial.Kind(32, 2, rotary="halves"), torch.float32, torch.float32)
    trial.packed_work.cache_clear()
    assert trial.packed_work(*where)
    right, calls = getattr(trial, name), itertools.count()

    def wrong(*arguments):
        found = right(*arguments)
        if found is None:  # it writes into the first
            arguments[0].mul_(1 + 0.1 * next(calls))
            return None
        return (
            found * (1 + 0.1 * next(calls)) if isinstance(found, torch.Tensor) else (found[0] * next(calls), *found[1:])
        )

    for other in (wrong, lambda *_: 1 / 0):
        monkeypatch.setattr(trial, name, other)
        trial.packed_work.cache_clear()
        assert not trial.packed_work(*where)
    trial.packed_work.cache_clear()
    monkeypatch.undo()
    assert not trial.packed_work(*where), "there are no kernels for a CPU"
    trial.packed_work.cache_clear()


def test_what_a_model_has_of_attention_and_what_is_not_there() -> None:
    """Which gradients are summed up for biases."""
    cases = {
        trial.Kind(32, 2): [(True, True), (False, True)],
        trial.Kind(32, 2, rotary="halves"): [(True, False), (False, False), (False, True)],
        trial.Kind(32, 2, biased=False): [(True, False), (False, False)],
        trial.Kind(32, 2, source=False): [(True, True)],
    }
    assert {kind: kind.attentions for kind in cases} == cases


@pytest.mark.parametrize(
    "kind",
    [
        trial.Kind(512, 4),
        trial.Kind(256, 2),
        trial.Kind(64, 2, rotary="halves"),
        trial.Kind(24, 2, inner=41, biased=False, source=False, positions=False),
    ],
)
@pytest.mark.parametrize("low", [torch.bfloat16, torch.float32])
def test_as_many_kernels_are_tried_as_references(kind: trial.Kind, low: torch.dtype) -> None:
    here, exact = torch.device("cpu"), torch.float32
    for pieces in (trial.pieces, trial.packed_pieces):
        there, references = pieces(here, kind, exact, low), pieces(here, kind, exact, exact, of=low, tiles=trial.TILES)
        assert len(list(there)) == len(list(references)) > 0
        for tiles in ((16,), (16, 32, 128)):
            for piece in pieces(here, kind, exact, low, tiles=tiles):
                assert all(found.isfinite().all() for found in piece())


@pytest.mark.skipif(triton_here.triton is None or triton_here.INTERPRETED, reason="needs Triton's compiler")
def test_the_product_through_a_relu_compiles_for_a_gpu(monkeypatch) -> None:
    """Two programs share a multiprocessor, and its tensor cores are used."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "search"))
    from compiled_for import TARGET, resources  # pyright: ignore[reportMissingImports]
    from triton import compile as compiled  # pyright: ignore[reportMissingImports]
    from triton.compiler import ASTSource  # pyright: ignore[reportMissingImports]

    kernel, tiles = relu_product._multiply, tiles_of("product through relu")
    tile, depth = tiles.rows, tiles.columns
    shapes = {"d_out": (tile, depth), "weight": (depth, tile), "active": (tile, tile), "d": (tile, tile)}
    known = {"K": 512, "TILE": tile, "DEPTH": depth}
    signature = {name: f"tensordesc<bf16[{a},{b}]>" for name, (a, b) in shapes.items()}
    signature |= {"parts": "*fp32", "width": "i32", "wide": "i32"} | dict.fromkeys(known, "constexpr")
    values = {(kernel.arg_names.index(name),): value for name, value in known.items()}
    found = compiled(
        ASTSource(kernel, signature, values),
        target=TARGET,
        options={"num_warps": tiles.warps, "num_stages": tiles.stages},
    )
    used = resources(found.asm["cubin"])
    assert "wgmma" in found.asm["ptx"]
    assert used["STACK"] == 0
    assert used["REG"] <= 255
    assert 2 * found.metadata.shared <= 227 << 10


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("rotary", [None, "interleaved", "halves"])
def test_the_kernels_work_on_a_gpu(rotary: Layout | None) -> None:
    trial.kernels_work.cache_clear()
    for state, low in (
        (torch.float32, torch.bfloat16),
        (torch.bfloat16, torch.bfloat16),
        (torch.float32, torch.float32),
    ):
        for activation, norm in (("relu", 2), ("gelu", 1), ("gelu_tanh", 3), ("swish", 2)):
            assert trial.kernels_work(torch.device("cuda"), trial.Kind(64, 2, activation, norm, rotary), state, low)
        for width in (64, 512):
            assert trial.packed_work(torch.device("cuda"), trial.Kind(width, 4, rotary=rotary), state, low)
    trial.kernels_work.cache_clear()
    trial.packed_work.cache_clear()
