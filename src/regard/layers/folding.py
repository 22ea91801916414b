"""Folding and unfolding: a sequence into fewer columns by stacked convolutions, and back into more (Kalchbrenner & Blunsom 2013).

Every row of the sentence matrix, that is every feature, has kernels of its own, and no feature sees another. A narrow
convolution with a kernel of i columns takes i - 1 columns away. To take away `gap` columns, kernels K^2, K^3, .. K^i follow
one another as long as the next takes no more than is left to go; they take i (i - 1) / 2. What is left after them is done by
one kernel L^j of another sequence. Each step ends with a non-linear function. Unfolding is the same from the end: the
transposed L^j, then the transposed K^i, .. K^3, K^2.

The sentences of a batch have gaps of their own. All levels are computed for all, and each sentence keeps what it needs: shapes
follow from those of the batch alone, and no value is asked of the device.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import embedding, pad

Activation = Literal["tanh", "sigmoid"]
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"tanh": torch.tanh, "sigmoid": torch.sigmoid}
SLOPES = {"tanh": 1.0, "sigmoid": 0.25}  # at zero


def widest(gap: int) -> int:
    """The widest kernel i of a stack that takes away at most `gap` columns: i (i - 1) / 2 <= gap. 1: none."""
    return (1 + math.isqrt(1 + 8 * max(0, gap))) // 2


class _Kernels(nn.Module):
    """Kernels of 2, 3, .. columns, one below the other, in two sequences: `k` for the stack and `l` for what is left."""

    def __init__(self, width: int, longest: int, activation: Activation):
        super().__init__()
        columns = _start(widest(longest - 1) + 1)
        self.k = nn.Parameter(torch.empty(columns, width))
        self.l = nn.Parameter(torch.empty(columns, width))
        self.activation = ACTIVATIONS[activation]
        for table in (self.k, self.l):
            for i in range(2, widest(longest - 1) + 1):
                _start_kernel(table.data[_start(i) : _start(i + 1)], activation)

    def kernel(self, i: int) -> Float[Tensor, "i D"]:
        """K^i, its columns one below the other."""
        return self.k[_start(i) : _start(i + 1)]

    def plan(self, gap: Int[Tensor, "B"], most: int) -> tuple[Int[Tensor, "B"], Int[Tensor, "B"]]:
        """Each sentence's widest kernel of the stack, and how many columns are left to L. No gap is above `most`."""
        i = torch.ones_like(gap)
        for level in range(2, widest(most) + 1):
            i = i + (gap >= level * (level - 1) // 2)
        return i, gap - i * (i - 1) // 2

    def top(self, left: Int[Tensor, "B"], most: int) -> Float[Tensor, "B i D"]:
        """Each sentence's own kernel L^{left + 1}, filled up with zeros; `most` is the widest that the batch can need."""
        place = torch.arange(most, device=left.device)
        j = left[:, None] + 1
        inside = (place < j) & (j > 1)
        start = (j - 1) * j // 2 - 1  # as _start
        return embedding(torch.where(inside, start + place, 0), self.l) * inside[..., None]


def _start(i: int) -> int:
    """Where the kernel of i columns starts in a table: 2 + 3 + .. + (i - 1)."""
    return (i - 1) * i // 2 - 1


def _start_kernel(kernel: Float[Tensor, "i D"], activation: Activation) -> None:
    """Random numbers of variance 1 / i, over the slope of the non-linear function.

    For tanh all positive, so that the words of a sentence add up: of random signs, a few words would be seen and others not.
    Their sums grow with the sentence, from a spread of 0.1 in the last column of 4 words to 0.8 in that of 60. What sigmoid
    gives is positive already, and would add up until nothing differs: there each kernel is less its mean, so that what all
    columns have in common falls out, and the spread stays between 0.01 and 0.05.
    """
    nn.init.normal_(kernel, std=len(kernel) ** -0.5 / SLOPES[activation])
    if activation == "sigmoid":
        kernel -= kernel.mean(0)
    else:
        kernel.abs_()


class Fold(_Kernels):
    """The convolutional sentence model: takes columns away until as many are left as are asked for."""

    def forward(self, x: Float[Tensor, "B S D"], gap: Int[Tensor, "B"], columns: int) -> Float[Tensor, "B C D"]:
        """The first `columns` columns after `gap` were taken away. Of a sentence with fewer, the rest means nothing."""
        width = x.shape[1]
        most = widest(width - 1)
        i, left = self.plan(gap, width - 1)
        reach = columns + most - 1  # as far as L may have to look
        result = _fit(x, reach)
        for level in range(2, most + 1):
            x = self.activation(convolve(x, self.kernel(level)))  # E_{i+1} = σ(K^{i+1} * E_i) (7b)
            result = torch.where((i >= level)[:, None, None], _fit(x, reach), result)
        if most == 1:
            return result
        folded = self.activation(convolve(result, self.top(left, most)))
        return torch.where((left > 0)[:, None, None], folded, result[:, :columns])


class Unfold(_Kernels):
    """The inverse: adds columns until as many are there as are asked for."""

    def forward(
        self, x: Float[Tensor, "B C D"], count: Int[Tensor, "B"], gap: Int[Tensor, "B"], columns: int
    ) -> Float[Tensor, "B T D"]:
        """`count` columns of each sentence are made count + gap <= `columns`; those beyond are zero."""
        place = torch.arange(columns, device=x.device)
        most = widest(columns - 1)
        i, left = self.plan(gap, columns - 1)
        x = _fit(x, columns).where(_first(count, place), 0)
        steps = [(left > 0, self.top(left, most), left)] if most > 1 else []
        for level in range(most, 1, -1):
            mine = i >= level
            steps.append((mine, self.kernel(level), mine * (level - 1)))
        for mine, kernel, more in steps:
            count = count + more
            unfolded = self.activation(convolve(pad(x, (0, 0, kernel.shape[-2] - 1, 0)), kernel.flip(-2)))
            x = torch.where(mine[:, None, None], unfolded, x).where(_first(count, place), 0)
        return x


def _fit(x: Float[Tensor, "B N D"], columns: int) -> Float[Tensor, "B C D"]:
    return pad(x, (0, 0, 0, max(0, columns - x.shape[1])))[:, :columns]


def _first(count: Int[Tensor, "B"], place: Int[Tensor, "T"]) -> Bool[Tensor, "B T 1"]:
    return (place < count[:, None])[..., None]


def convolve(x: Float[Tensor, "B N D"], kernel: Float[Tensor, "*B i D"]) -> Float[Tensor, "B C D"]:
    """A narrow convolution of every feature: y_n = Σ_t kernel_t x_{n+t}. Each sentence may have a kernel of its own."""
    return _Convolution.apply(x.to(kernel.dtype), kernel)  # type: ignore[return-value]


class _Convolution(torch.autograd.Function):
    """By hand, a multiplication for each column of the kernel: on a CPU several times as fast as the library's."""

    @staticmethod
    def forward(ctx, x, kernel):
        ctx.save_for_backward(x, kernel)
        n = x.shape[1] - kernel.shape[-2] + 1
        parts = kernel[..., None, :].unbind(-3)
        y = x[:, :n] * parts[0]
        for t, part in enumerate(parts[1:], start=1):
            y.addcmul_(x[:, t : t + n], part)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, d_y):  # pyright: ignore[reportIncompatibleMethodOverride]
        x, kernel = ctx.saved_tensors
        n = d_y.shape[1]
        d_x, d_kernel = torch.zeros_like(x), torch.empty_like(kernel)
        for t, part in enumerate(kernel[..., None, :].unbind(-3)):
            d_x[:, t : t + n].addcmul_(d_y, part)
            d_kernel[..., t, :] = (x[:, t : t + n] * d_y).sum((0, 1) if kernel.dim() == 2 else 1)
        return d_x, d_kernel
