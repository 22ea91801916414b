"""The convolutional network for sentences: "Convolutional Neural Networks for Sentence Classification", Kim 2014.

Words as vectors, filters over windows of h words, the largest value of each filter, and one linear layer (section 2):

    c_i = f(w · x_{i:i+h-1} + b)                     (2)
    c = [c_1, c_2, .., c_{n-h+1}],  ĉ = max{c}       (3)
    y = w · (z ∘ r) + b                              (5), with z = [ĉ_1, .., ĉ_m], r the mask of dropout

After each step, a row of the last layer whose norm is above s (`max_norm`) is scaled down to s.

The paper's four kinds: random vectors; `train.vectors=FILE train.freeze_vectors=true` (static); `train.vectors=FILE`
(non-static); and with `channels="multichannel"` besides, a second table that stays as it begins.

Departs:
- Zeros stand before and after every text, h - 1 on both sides (`border="wide"`), as in the released code; the equations are those
  of `border="narrow"`. The released code makes all texts equally long with zeros: there, windows without any word take part in
  the maximum as f(b), here they do not.
- "Each filter is applied to both channels and the results are added": a filter is linear, so it is applied to their sum.
- Where weights start: tables from U(-0.25, 0.25), filters from U(-0.01, 0.01), biases 0, as in the released code; the last layer
  from N(0, 0.01²), where it has zeros.
- The released code scales dropout by multiplying the weights at test time, here values are divided in training: the same.
- `embedding_dropout`, dropout of the words' vectors, is not in the paper (0 by default), nor are `stride` and `padding`.
"""

from __future__ import annotations

import dataclasses
from typing import Literal, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.core.bounds import check_bounds
from regard.core.errors import ConfigError
from regard.core.types import PAD, Padded
from regard.layers.convolution import Border, TextConvolution
from regard.layers.output import SoftmaxOutput
from regard.layers.pooling import max_over_time
from regard.models.base import MODELS, Forced, Recorder
from regard.models.classifier import Classifier

SIZES = {"width": (1, 1 << 14), "maps": (1, 1 << 14), "stride": (1, 1000), "padding": (0, 1000)}
MOST_WINDOWS, WIDEST = 64, 1000
TABLE, FILTERS, LAST = 0.25, 0.01, 0.01  # where weights start


@dataclasses.dataclass(frozen=True, kw_only=True)
class KimConfig:
    """Sizes and choices of the convolutional network for sentences."""

    name: Literal["kim"] = "kim"
    width: int = 300  # of the words' vectors
    windows: tuple[int, ...] = (3, 4, 5)  # h, in words
    maps: int = 100  # filters of each window
    channels: Literal["single", "multichannel"] = "single"  # multichannel: and a copy of the table that is not trained
    border: Border = "wide"
    stride: int = 1
    padding: int = 0  # further zeros on both sides
    dropout: float = 0.5  # of ĉ
    embedding_dropout: float = 0.0
    max_norm: float = 3.0  # s; 0: none

    def __post_init__(self) -> None:
        check_bounds("model", self, SIZES, parts=("dropout", "embedding_dropout"))
        check_window_widths(self.windows)
        if not 0 <= self.max_norm <= 1e6:
            what = f"{self.max_norm} is not in [0, 1,000,000]"
            raise ConfigError("setting model.max_norm", what, "Give for example 3, or 0 for none")


def check_window_widths(widths: tuple[int, ...]) -> None:
    """Widths of windows as a setting: at least one, none too wide."""
    if not 1 <= len(widths) <= MOST_WINDOWS or not all(1 <= width <= WIDEST for width in widths):
        what = f"1 to {MOST_WINDOWS} widths between 1 and {WIDEST} are expected, got {list(widths)}"
        raise ConfigError("setting model.windows", what, "Give for example [3, 4, 5]")


@MODELS.register("kim")
class Kim(Classifier):
    """Filters over windows of words, and the largest value of each."""

    Config = KimConfig
    fixed: Tensor  # the second channel's table

    def __init__(self, config: KimConfig, *, vocabulary: int, labels: int):
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(vocabulary, config.width)
        self.filters = nn.ModuleList(
            TextConvolution(
                config.width, config.maps, h, border=config.border, stride=config.stride, padding=config.padding
            )
            for h in config.windows
        )
        for part in self.filters.parameters():
            if part.dim() > 1:
                nn.init.uniform_(part, -FILTERS, FILTERS)
        self.word_dropout = nn.Dropout(config.embedding_dropout)
        self.dropout = nn.Dropout(config.dropout)
        self.output = SoftmaxOutput(config.maps * len(config.windows), labels, never=(PAD,))
        nn.init.uniform_(self.embedding.weight, -TABLE, TABLE)
        nn.init.normal_(self.output.weight, std=LAST)
        if config.channels == "multichannel":
            self.register_buffer("fixed", self.embedding.weight.detach().clone())

    def forward(self, source: Padded, target: Int[Tensor, "B 1"], record: Recorder | None = None) -> Forced:
        x, lengths = self._read(source), source.lengths
        largest = []
        for part in self.filters:
            c, counts = part(x, lengths)  # (2), f comes after the maximum: it never falls
            largest.append(max_over_time(c, counts))  # (3)
        z = torch.cat(largest, -1).relu()
        return Forced(self.dropout(z)[:, None], {})

    def _read(self, source: Padded) -> Float[Tensor, "B S D"]:
        """The words' vectors, zero where there is no word."""
        x = self.embedding(source.tokens)
        if self.config.channels == "multichannel":
            x = x + nn.functional.embedding(source.tokens, self.fixed)
        return self.word_dropout(x) * source.keep[..., None]

    @torch.no_grad()
    def vectors_changed(self) -> None:
        """Other vectors were put into the table: the second channel begins with them, too."""
        if self.config.channels == "multichannel":
            self.fixed.copy_(self.embedding.weight)

    @torch.no_grad()
    def constrain(self) -> None:
        """Scales rows of the last layer down to the largest norm allowed. What is allowed already stays, to the last bit."""
        if self.config.max_norm:
            shrink_rows(cast(SoftmaxOutput, self.output).weight, self.config.max_norm)


def shrink_rows(matrix: Float[Tensor, "N D"], most: float) -> None:
    """Rows with a norm above `most` are scaled down to it. Rounding leaves some a little above: these stay as they are."""
    norms = matrix.norm(dim=1, keepdim=True)
    matrix.mul_(torch.where(norms > most * (1 + 1e-5), most / norms, 1.0))
