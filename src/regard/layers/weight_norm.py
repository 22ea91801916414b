"""Weight normalisation (Salimans & Kingma 2016, arXiv 1602.07868): each row of a matrix has a direction v and a length g."""

from __future__ import annotations

import dataclasses

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.layers.cpu_products import linear
from regard.layers.output import OutputLayer, SoftmaxOutput


def scale_of(v: Float[Tensor, "O I"], g: Float[Tensor, "O"]) -> Float[Tensor, "O"]:
    """g / |v| (eq. 2)."""
    return g / torch.linalg.vector_norm(v, dim=1)


@dataclasses.dataclass(frozen=True, eq=False)
class Affine:
    """x -> W x + b with W at hand, for many calls. It has no rows: `take` and `put` of a memory leave it as it is."""

    weight: Float[Tensor, "O I"]
    bias: Float[Tensor, "O"]

    def __call__(self, x: Float[Tensor, "*N I"]) -> Float[Tensor, "*N O"]:
        return linear(x, self.weight, self.bias)


class NormalisedLinear(nn.Module):
    """x -> (g v / |v|) x + b."""

    def __init__(self, inputs: int, outputs: int):
        super().__init__()
        self.v = nn.Parameter(torch.empty(outputs, inputs))
        self.g = nn.Parameter(torch.empty(outputs))
        self.bias = nn.Parameter(torch.zeros(outputs))
        self.start_from(inputs**-0.5)

    def start_from(self, std: float) -> None:
        """Draws the matrix g v / |v| from N(0, std²)."""
        _draw(self.v, self.g, std)

    def ready(self) -> Affine:
        """The layer with its matrix computed, once for many calls."""
        return Affine(self.v * scale_of(self.v, self.g)[:, None], self.bias)

    def forward(self, x: Float[Tensor, "*N I"]) -> Float[Tensor, "*N O"]:
        return self.ready()(x)


class NormalisedOutput(SoftmaxOutput):
    """softmax(W h + b) with W normalised."""

    def __init__(self, width: int, vocabulary: int):
        OutputLayer.__init__(self)  # the matrix of a plain output layer is a parameter; here it is computed
        self.vocabulary = vocabulary
        self.v = nn.Parameter(torch.empty(vocabulary, width))
        self.g = nn.Parameter(torch.empty(vocabulary))
        self.bias = nn.Parameter(torch.zeros(vocabulary))
        self.start_from(width**-0.5)

    def start_from(self, std: float) -> None:
        _draw(self.v, self.g, std)

    @property
    def weight(self) -> Float[Tensor, "V D"]:  # type: ignore[override]
        return self.v * scale_of(self.v, self.g)[:, None]

    def logits(self, hidden: Float[Tensor, "*N D"]) -> Float[Tensor, "*N V"]:
        """Few rows meet a large matrix here, at every step of a search: it is the products that are scaled."""
        products = linear(hidden, self.v, None).float()
        return torch.addcmul(self.bias.float(), products, scale_of(self.v, self.g).float())


def _draw(v: Tensor, g: Tensor, std: float) -> None:
    nn.init.normal_(v, std=std)
    with torch.no_grad():
        g.copy_(torch.linalg.vector_norm(v, dim=1))
