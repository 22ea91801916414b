"""What stands between two sub-layers with norms before them, for training, in few kernels and with few tensors kept:

    x' = x + dropout(read Vᵀ + c)      the end of one: attention's last product, or that of the feed-forward network
    y = f(norm(x') Wᵀ + b)             the beginning of the next: queries, keys and values, or what is inside of the network

The first half is left out before the first sub-layer, the last product after the last one. Products are the library's; what is
between two of them is one kernel, forward and backward. The gradient of x' comes through here, and is added to that of the norm on
the way, so that no pass over all states is made for it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from regard.layers.decoding.products import Norm
from regard.layers.decoding.triton_here import engine_copies
from regard.layers.feedforward import ACTIVATIONS
from regard.layers.training.activations import activation_backward, summed
from regard.layers.training.norms import Dropout, add_and_norm, norm_backward
from regard.layers.training.relu_product import product_through_relu


class Matrix(NamedTuple):
    """Weights of a product as they learn, and in the type of numbers that are multiplied."""

    weight: Float[Tensor, "N K"]
    bias: Float[Tensor, "N"] | None
    low_weight: Float[Tensor, "N K"]
    low_bias: Float[Tensor, "N"] | None


class Added(NamedTuple):
    """What a sub-layer leaves to be multiplied, dropped from and added."""

    read: Float[Tensor, "*N K"]
    matrix: Matrix
    dropout: Dropout
    activated: Activated | None = None  # where what is read is y of a ReLU that nobody else reads


class Activated:
    """Between a ReLU and the product that reads it: backward, the product leaves the sum for the bias here.

    Where there is one, the gradient that comes back is that of what went into the ReLU.
    """

    sum: Float[Tensor, "K"] | None = None


def between(
    x: Float[Tensor, "*N D"],
    added: Added | None,
    norm: Norm,
    matrix: Matrix | None,
    activation: str | None = None,
    activated: Activated | None = None,
) -> tuple[Float[Tensor, "*N D"], Float[Tensor, "*N K"]]:
    """x' and y, see above. What is read, and y, are in the type of products. `activated` is for what reads y."""
    dtype = number_type(x)
    read, first, dropout, before = (None,) * 4 if added is None else added
    parts = (first, dropout, norm, matrix, activation, dtype, before, activated)
    return _Between.apply(  # type: ignore[return-value]
        x, read, *_learnt(first), norm.weight, norm.bias, *_learnt(matrix), parts
    )


def product(x: Float[Tensor, "*N K"], matrix: Matrix) -> Float[Tensor, "*N D"]:
    """x Wᵀ + b, of x in the type of products."""
    return _Product.apply(x, *_learnt(matrix), matrix)  # type: ignore[return-value]


def matrices(linears: Iterable[nn.Linear], dtype: torch.dtype) -> dict[nn.Linear, Matrix]:
    """Weights of all of them in this type, by few kernels."""
    linears = list(linears)
    learnt = [t for linear in linears for t in (linear.weight, linear.bias) if t is not None]
    low = [t.detach() for t in learnt]
    if any(t.dtype != dtype for t in low):
        low = [torch.empty_like(t, dtype=dtype) for t in low]
        with torch.no_grad():
            torch._foreach_copy_(low, learnt)  # type: ignore[attr-defined]
    there = iter(low)
    return {
        linear: Matrix(linear.weight, linear.bias, next(there), None if linear.bias is None else next(there))
        for linear in linears
    }


def number_type(x: Tensor) -> torch.dtype:
    """Of products: autocast's, or that of x."""
    kind = x.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype


def _learnt(matrix: Matrix | None) -> tuple[Tensor | None, Tensor | None]:
    return (None, None) if matrix is None else matrix[:2]


def _rows(x: Float[Tensor, "*N D"]) -> Float[Tensor, "M D"]:
    return x.reshape(-1, x.shape[-1]).contiguous()


def _product(x: Float[Tensor, "M K"], matrix: Matrix) -> Float[Tensor, "M N"]:
    weight, bias = matrix[2:]
    return x @ weight.t() if bias is None else torch.addmm(bias, x, weight.t())


def _matrix_gradient(d_out: Float[Tensor, "M N"], read: Float[Tensor, "M K"], matrix: Matrix) -> Float[Tensor, "N K"]:
    """Summed up in float32, and left so where the weights are float32 as well."""
    dtype = matrix.weight.dtype
    if d_out.is_cuda and d_out.dtype != dtype == torch.float32:
        return torch.mm(d_out.t(), read, out_dtype=torch.float32)
    return (d_out.t() @ read).to(dtype)


class _Between(torch.autograd.Function):
    """Gradients of x, what is read, and the weights: of the first product, the norm and the last product.

    The gradient of y is worked on in place: what reads y, reads it once, and so nobody else has it.
    """

    @staticmethod
    def forward(ctx: Any, x, read, _0, _1, _2, _3, _4, _5, parts):
        first, dropout, norm, matrix, activation, dtype, *_ = parts
        with torch.autocast(x.device.type, enabled=False):
            before = None if read is None else _rows(read)
            written = None if before is None else _product(before, first)
            total, normed = add_and_norm(_rows(x), written, dropout, norm, dtype)
            out, seen = normed, None
            if matrix is not None and activation == "relu" and matrix.low_bias is not None:
                out = seen = torch._addmm_activation(matrix.low_bias, normed, matrix.low_weight.t())  # type: ignore[attr-defined]
            elif matrix is not None:
                out = _product(normed, matrix)
                if activation is not None:
                    seen, out = out, ACTIVATIONS[activation](out)
        ctx.save_for_backward(before, total, None if matrix is None else normed, seen)
        ctx.set_materialize_grads(False)
        ctx.parts, ctx.shape, ctx.read_shape = parts, x.shape, None if read is None else read.shape
        return x if read is None else total.view(x.shape), out.view(*x.shape[:-1], -1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_total, d_out):  # pyright: ignore[reportIncompatibleMethodOverride]
        before, total, normed, seen = ctx.saved_tensors
        first, dropout, norm, matrix, activation, _, of_relu, activated = ctx.parts
        d_out = _rows(d_out)
        d_weight = d_bias = d_first = d_first_bias = d_read = None
        _, of_read, of_first, of_first_bias, _, _, of_weight, of_bias, _ = ctx.needs_input_grad
        if matrix is not None:
            if activated is not None and activated.sum is not None:
                d_bias, activated.sum = activated.sum, None
            elif activation is not None:
                d_out, d_bias = activation_backward(d_out, seen, activation)
            elif of_bias:
                d_bias = summed(d_out)
            d_weight = _matrix_gradient(d_out, normed, matrix) if of_weight else None
            d_bias = d_bias.to(matrix.bias.dtype) if of_bias and d_bias is not None else None
            d_out = d_out @ matrix.low_weight
        past = None if d_total is None else _rows(d_total)
        found = norm_backward(d_out, total, norm, past, dropout)
        if found.written is not None and found.written_sum is not None:
            d_first = _matrix_gradient(found.written, before, first) if of_first else None
            d_first_bias = found.written_sum.to(first.bias.dtype) if of_first_bias else None
            if of_read and of_relu is not None and engine_copies(found.written, first.low_weight, before):
                d_read, of_relu.sum = product_through_relu(found.written, first.low_weight, before)
            elif of_read:
                d_read = found.written @ first.low_weight
            d_read = None if d_read is None else d_read.view(ctx.read_shape)
        d_norm = (None if t is None else t.to(norm.weight.dtype) for t in (found.weight, found.bias))
        return found.x.view(ctx.shape), d_read, d_first, d_first_bias, *d_norm, d_weight, d_bias, None


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x, _0, _1, matrix):
        rows = _rows(x)
        ctx.save_for_backward(rows)
        ctx.matrix, ctx.shape = matrix, x.shape
        with torch.autocast(x.device.type, enabled=False):
            return _product(rows, matrix).view(*x.shape[:-1], -1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_out):  # pyright: ignore[reportIncompatibleMethodOverride]
        (rows,), matrix, d_out = ctx.saved_tensors, ctx.matrix, _rows(d_out)
        of_x, of_weight, of_bias, _ = ctx.needs_input_grad
        d_x = (d_out @ matrix.low_weight).view(ctx.shape) if of_x else None
        d_weight = _matrix_gradient(d_out, rows, matrix) if of_weight else None
        return d_x, d_weight, summed(d_out).to(matrix.bias.dtype) if of_bias else None, None
