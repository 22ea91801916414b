"""The dynamic convolutional network: "A Convolutional Neural Network for Modelling Sentences", Kalchbrenner, Grefenstette and
Blunsom 2014.

A sentence is a matrix of d rows, with a column for each of its s words. Each of the L layers is (section 3):

    F_j = Σ_k m_{j,k} * F_k                  wide convolutions: every row by itself, over all maps of the layer below   (8)
    folding                                  rows 1 and 2 are added, 3 and 4, ..: half as many are left        (section 3.6)
    k-max pooling                            the k largest values of each row, in the order they stand         (section 3.2)
    k_l = max(k_top, ⌈(L - l) / L · s⌉)      dynamic: k falls with depth, and grows with the sentence                   (4)
    g(· + b)                                 tanh, with one bias for each row

What the last layer leaves, of every sentence as much, is read by a linear layer over labels.

The paper's networks: sentiment in two classes d = 48, windows 7 and 5, 6 and 14 maps, k_top 4; in five classes windows 10 and 7,
6 and 12 maps, k_top 5; questions d = 32, one layer of 5 maps with window 8, its vectors trained beforehand on other text.

Departs:
- Where k values are not there, all are taken, and zeros stand for the rest (only where the windows are narrower than k_top).
- A filter is not turned around, as by the definition of a convolution; it is learnt, so that nothing changes.
- Of equal values the earlier is taken: the paper does not say.
- k_top of the network for questions and where weights start are not said: tables from N(0, 1/d), filters by their sizes, biases 0.
- L2 is `train.weight_decay`, which leaves biases out.
- `embedding_dropout`, dropout of the words' vectors, is not in the paper (0 by default), nor are narrow borders, stride, padding.
"""

from __future__ import annotations

import dataclasses
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.core.bounds import check_bounds
from regard.core.errors import ConfigError
from regard.core.types import PAD, Padded
from regard.layers.convolution import Border, RowConvolution
from regard.layers.output import SoftmaxOutput
from regard.layers.pooling import k_max
from regard.models.base import MODELS, Forced, Recorder
from regard.models.classifier import Classifier
from regard.models.kim import check_window_widths

SIZES = {"width": (1, 1 << 14), "k_top": (1, 1000), "stride": (1, 1000), "padding": (0, 1000)}
MOST_MAPS = 1 << 12
LAST = 0.01  # where the last layer's weights start


@dataclasses.dataclass(frozen=True, kw_only=True)
class DCNNConfig:
    """Sizes and choices of the dynamic convolutional network."""

    name: Literal["dcnn"] = "dcnn"
    width: int = 48  # d, of the words' vectors
    windows: tuple[int, ...] = (7, 5)  # m, of each layer
    maps: tuple[int, ...] = (6, 14)  # of each layer
    k_top: int = 4
    folding: bool = True
    border: Border = "wide"
    stride: int = 1
    padding: int = 0  # further zeros on both sides, in every layer
    dropout: float = 0.5  # of what the last layer leaves
    embedding_dropout: float = 0.0

    def __post_init__(self) -> None:
        check_bounds("model", self, SIZES, parts=("dropout", "embedding_dropout"))
        check_window_widths(self.windows)
        if len(self.maps) != len(self.windows) or not all(1 <= maps <= MOST_MAPS for maps in self.maps):
            what = f"a number between 1 and {MOST_MAPS} is expected for each of {len(self.windows)} windows, got {list(self.maps)}"
            raise ConfigError("setting model.maps", what, "Give as many as model.windows has, for example [6, 14]")
        if self.folding and self.width % (1 << len(self.windows)):
            what = f"{self.width} rows cannot be halved {len(self.windows)} times"
            raise ConfigError(
                "setting model.width", what, f"Give a multiple of {1 << len(self.windows)}, or folding=false"
            )


class DCNNLayer(nn.Module):
    """Convolution, folding, k-max pooling, bias and tanh."""

    def __init__(self, rows: int, inputs: int, maps: int, window: int, config: DCNNConfig):
        super().__init__()
        self.folding = config.folding
        self.convolution = RowConvolution(
            rows, inputs, maps, window, border=config.border, stride=config.stride, padding=config.padding
        )
        self.bias = nn.Parameter(torch.zeros(maps * (rows // 2 if config.folding else rows)))  # map after map
        if config.folding:  # two rows are added: as large as one
            self.convolution.weight.data *= 0.5**0.5

    def forward(
        self, x: Float[Tensor, "D B S I"], lengths: Int[Tensor, "B"], k: Int[Tensor, "B"], most: int
    ) -> tuple[Float[Tensor, "d B K J"], Int[Tensor, "B"]]:
        c, counts = self.convolution(x, lengths)
        if self.folding:
            c = c[0::2] + c[1::2]
        pooled, counts = k_max(c.permute(1, 3, 0, 2), counts, k, most)  # [B, J, d, K]
        a = torch.tanh(pooled + self.bias.view(*pooled.shape[1:3], 1))
        inside = torch.arange(a.shape[-1], device=a.device) < counts[:, None, None, None]
        return (a * inside).permute(2, 0, 3, 1), counts


@MODELS.register("dcnn")
class DCNN(Classifier):
    """Wide convolutions of each row, and the largest few values in their order."""

    Config = DCNNConfig

    def __init__(self, config: DCNNConfig, *, vocabulary: int, labels: int):
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(vocabulary, config.width)
        nn.init.normal_(self.embedding.weight, std=config.width**-0.5)
        rows, inputs = config.width, 1
        self.layers = nn.ModuleList()
        for window, maps in zip(config.windows, config.maps, strict=True):
            self.layers.append(DCNNLayer(rows, inputs, maps, window, config))
            rows, inputs = rows // 2 if config.folding else rows, maps
        self.word_dropout = nn.Dropout(config.embedding_dropout)
        self.dropout = nn.Dropout(config.dropout)
        self.output = SoftmaxOutput(rows * inputs * config.k_top, labels, never=(PAD,))
        nn.init.normal_(self.output.weight, std=LAST)

    def forward(self, source: Padded, target: Int[Tensor, "B 1"], record: Recorder | None = None) -> Forced:
        x = self.word_dropout(self.embedding(source.tokens)) * source.keep[..., None]
        x = x.permute(2, 0, 1)[..., None]  # [D, B, S, 1]: one map, rows first
        s = lengths = source.lengths
        total, k_top = len(self.layers), self.config.k_top
        for number, layer in enumerate(self.layers, start=1):
            left = total - number
            k = ((left * s + total - 1) // total).clamp(min=k_top)  # (4)
            most = max(k_top, (left * source.tokens.shape[1] + total - 1) // total)
            x, lengths = layer(x, lengths, k, most)
        x = nn.functional.pad(x, (0, 0, 0, k_top - x.shape[2]))
        return Forced(self.dropout(x.permute(1, 3, 0, 2).flatten(1))[:, None], {})
