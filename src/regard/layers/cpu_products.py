"""Matrix products on a CPU by oneDNN, where torch's own leave half of the processor idle.

torch multiplies matrices of float32 by MKL, which takes AVX-512 on Intel's processors alone. oneDNN, which torch has inside for
convolutions, takes it on all of them: on an AMD EPYC its products are 2.1 times as fast (docs/lab/2026-11-training-cpu.md). Which
one is used depends on the processor, not on a measurement, so that runs can be repeated.
"""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path
from typing import Any, TypeGuard

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

FEWEST_ROWS = 4  # fewer are a product with a vector, which waits for memory
MULTIPLE, FEWEST_FILLED = 32, 128  # rows
FEWEST_OPERATIONS = 1 << 20  # multiplications: asking oneDNN takes ten microseconds
PLAIN = (Tensor, nn.Parameter)  # not of int8, nor shared out among processes
ABOUT_PROCESSOR = Path("/proc/cpuinfo")


@cache
def pays() -> bool:
    """Whether oneDNN is the faster one here."""
    return (
        vendor() not in ("", "GenuineIntel")
        and torch.backends.cpu.get_cpu_capability().startswith("AVX512")
        and works()
    )


def vendor() -> str:
    """Who made the processor; empty where that is not known."""
    try:
        lines = ABOUT_PROCESSOR.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("vendor_id")), "")


def works() -> bool:
    """Whether torch has this product, which no documentation promises, and it is right."""
    like = {"device": "cpu", "dtype": torch.float32}
    a, b = torch.arange(48, **like).reshape(6, 8) / 48, torch.arange(40, **like).reshape(8, 5) / 40
    try:
        with torch.autocast("cpu", enabled=False), torch.no_grad():
            found = [_by_onednn(a, b.t(), None), _by_onednn(a.t().contiguous().t(), b.t().contiguous(), None)]
            return all(torch.allclose(one, a @ b, atol=1e-5) for one in found)
    except (AttributeError, RuntimeError, TypeError):
        return False


def dense(weight: Float[Tensor, "O I"]) -> Float[Tensor, "O I"]:
    """A matrix without gaps in memory, in either order. Of others, as of columns of a larger one, oneDNN's product takes a thousand
    times as long: it has no kernel for them, but a plain loop."""
    if weight.is_contiguous() or weight.t().is_contiguous():
        return weight
    return weight.t().contiguous().t() if weight.stride(0) < weight.stride(1) else weight.contiguous()


def _by_onednn(x: Float[Tensor, "N I"], weight: Float[Tensor, "O I"], bias: Float[Tensor, "O"] | None) -> Tensor:
    """x Wᵀ + b."""
    return _multiply(
        x, dense(weight), None if bias is None else bias.contiguous()
    )  # it does not look at a bias' stride


def _multiply(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return torch.ops.mkldnn._linear_pointwise.default(x, weight, bias, "none", [], "")


def suits(a: Tensor, b: Tensor) -> bool:
    """Whether oneDNN multiplies these two; graphs that are compiled or exported keep torch's own product.

    To be asked before any question about sizes: in such a graph an answer to that would hold for these sizes alone.
    """
    return (
        pays()
        and type(a) in PLAIN
        and type(b) in PLAIN
        and a.dtype == b.dtype == torch.float32
        and a.device.type == b.device.type == "cpu"
        and not torch.compiler.is_compiling()
        and not torch.is_autocast_enabled("cpu")
    )


def is_large(rows: int, matrix: Tensor) -> bool:
    """Whether so many rows times a matrix are worth asking oneDNN."""
    return rows >= FEWEST_ROWS and rows * matrix.numel() >= FEWEST_OPERATIONS


def product(a: Float[Tensor, "M K"], b: Float[Tensor, "K N"]) -> Float[Tensor, "M N"]:
    """a b, for which nothing is recorded: the caller knows its gradient."""
    return _by_onednn(a, b.t(), None) if suits(a, b) and is_large(len(a), b) else a @ b


def turned_product(a: Float[Tensor, "K M"], b: Float[Tensor, "K N"]) -> Float[Tensor, "M N"]:
    """aᵀ b. Of a and b, oneDNN would copy the first in turned order: the narrower one is given as such."""
    return product(a.t(), b) if a.shape[1] <= b.shape[1] else product(b.t(), a).t()


def filled(rows: Float[Tensor, "N I"]) -> Float[Tensor, "M I"]:
    """With rows of zeros up to a multiple: oneDNN compiles a product for every number of rows that it meets, and keeps about half a
    megabyte for each."""
    more = missing(len(rows))
    return nn.functional.pad(rows, (0, 0, 0, more)) if more else rows


def missing(rows: int) -> int:
    """How many rows `filled` adds."""
    return -rows % MULTIPLE if rows >= FEWEST_FILLED else 0


class _Linear(torch.autograd.Function):
    """x Wᵀ + b with its gradients."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        x, ctx.rows = filled(x), len(x)
        ctx.save_for_backward(x, weight)
        return _by_onednn(x, weight, bias)[: ctx.rows]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_y: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        x, weight = ctx.saved_tensors
        needed, d_y = ctx.needs_input_grad, filled(d_y.contiguous())
        d_x = product(d_y, weight)[: ctx.rows] if needed[0] else None
        d_weight = turned_product(d_y, x) if needed[1] else None
        return d_x, d_weight, d_y.sum(0) if needed[2] else None


def linear(
    x: Float[Tensor, "*N I"], weight: Float[Tensor, "O I"], bias: Float[Tensor, "O"] | None
) -> Float[Tensor, "*N O"]:
    """torch.nn.functional.linear, by whichever product is the faster one."""
    if not suits(x, weight) or not is_large(math.prod(x.shape[:-1]), weight):
        return nn.functional.linear(x, weight, bias)
    rows = x.reshape(-1, x.shape[-1])
    if torch.is_grad_enabled() and any(one is not None and one.requires_grad for one in (x, weight, bias)):
        found = _Linear.apply(rows, weight, bias)
    else:
        found = _by_onednn(filled(rows), weight, bias)[: len(rows)]
    return found.unflatten(0, x.shape[:-1]) if x.ndim != 2 else found  # type: ignore[union-attr]


class QuickLinear(nn.Linear):
    """`nn.Linear` by such products."""

    def forward(self, input: Float[Tensor, "*N I"]) -> Float[Tensor, "*N O"]:
        return linear(input, self.weight, self.bias)


def is_plain(module: nn.Module) -> TypeGuard[nn.Linear]:
    """Whether a module is a linear layer and nothing more."""
    return type(module) in (nn.Linear, QuickLinear)


def quicken(model: nn.Module) -> None:
    """Lets all plain linear layers of a model multiply by oneDNN, where that pays: the same weights under the same names."""
    if not pays():
        return
    for module in model.modules():
        if type(module) is nn.Linear:
            module.__class__ = QuickLinear
