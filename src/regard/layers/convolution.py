"""Convolution over time as matrix products: every window of inputs laid side by side.

How windows slide over a text is the same for all that read texts of several lengths: `border="wide"` gives every window that
touches the text (length + width - 1 of them, Kalchbrenner et al. 2014, section 2.1), `"narrow"` those inside it
(length - width + 1); `padding` adds further zeros on both sides, and with `stride` only every so manyth window is taken. A text
too short for one window is filled up with zeros behind it until there is one.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import linear, pad

Border = Literal["wide", "narrow"]


def windows(x: Float[Tensor, "*N L D"], width: int) -> Float[Tensor, "*N T W"]:
    """All T = L - width + 1 windows of neighbouring rows, each as one row [x_t; ...; x_{t+width-1}].

    Slices in one `cat` and one product are faster than `conv1d` on CPU, and add up in the same order at every run on GPU.
    """
    count = x.shape[-2] - width + 1
    if count == 1:  # a step of a search
        return x.flatten(-2).unsqueeze(-2)
    return torch.cat([x.narrow(-2, i, count) for i in range(width)], -1)


def _whole_precision(device: str) -> AbstractContextManager:
    return torch.autocast(device, enabled=False) if torch.amp.is_autocast_available(device) else nullcontext()


class _Sliding(nn.Module):
    """Windows over texts of several lengths, each text with as many as it would have alone."""

    def __init__(self, width: int, border: Border, stride: int, padding: int):
        super().__init__()
        self.width, self.stride = width, stride
        self.around = padding + (width - 1 if border == "wide" else 0)  # zeros on each side

    def slide(
        self, x: Float[Tensor, "*N S D"], lengths: Int[Tensor, "B"]
    ) -> tuple[Float[Tensor, "*N T W"], Int[Tensor, "B"]]:
        """All windows, and how many each text has. What lies beyond a text's length must be 0."""
        behind = max(self.around, self.width - self.around - x.shape[-2])
        found = windows(pad(x, (0, 0, self.around, behind)), self.width)
        if self.stride > 1:
            found = found[..., :: self.stride, :]
        inside = lengths + (2 * self.around - self.width)
        return found, (inside.div(self.stride, rounding_mode="floor") + 1).clamp(min=1)


class TextConvolution(_Sliding):
    """Feature maps of a text: c_i = w · x_{i:i+h-1} + b, each over all features of `width` neighbouring vectors."""

    def __init__(
        self, inputs: int, maps: int, width: int, *, border: Border = "wide", stride: int = 1, padding: int = 0
    ):
        super().__init__(width, border, stride, padding)
        self.weight = nn.Parameter(torch.empty(maps, width * inputs))
        self.bias = nn.Parameter(torch.zeros(maps))
        nn.init.xavier_uniform_(self.weight)

    def forward(
        self, x: Float[Tensor, "B S D"], lengths: Int[Tensor, "B"]
    ) -> tuple[Float[Tensor, "B T M"], Int[Tensor, "B"]]:
        found, counts = self.slide(x, lengths)
        return linear(found, self.weight, self.bias), counts


class RowConvolution(_Sliding):
    """Feature maps of feature maps, in which no row (that is no feature) sees another: each has filters of its own.

    A map j of the output is the sum over all maps k of the input, F_j = Σ_k m_{j,k} * F_k (Kalchbrenner et al. 2014, eq. 8).
    Without a bias: it belongs behind the pooling there.
    """

    def __init__(
        self,
        rows: int,
        inputs: int,
        maps: int,
        width: int,
        *,
        border: Border = "wide",
        stride: int = 1,
        padding: int = 0,
    ):
        super().__init__(width, border, stride, padding)
        self.weight = nn.Parameter(torch.empty(rows, width * inputs, maps))
        nn.init.normal_(self.weight, std=(width * inputs) ** -0.5)

    def forward(
        self, x: Float[Tensor, "D B S I"], lengths: Int[Tensor, "B"]
    ) -> tuple[Float[Tensor, "D B T J"], Int[Tensor, "B"]]:
        """Rows stand first: one matrix product for each."""
        found, counts = self.slide(x, lengths)
        with _whole_precision(x.device.type):  # pooling compares: sixteen bits would often be equal
            product = torch.bmm(found.flatten(1, 2).to(self.weight.dtype), self.weight)
        return product.unflatten(1, found.shape[1:3]), counts
