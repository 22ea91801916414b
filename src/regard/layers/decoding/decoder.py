"""A decoder as its weights, and one step of it: of few rows by kernels with the products in them, of many by torch's products."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from regard.layers.attention.cache import CacheState
from regard.layers.decoding.attention import attend_cache, attend_memory
from regard.layers.decoding.products import Linear, Norm, product
from regard.layers.decoding.residual_norm import add_and_normalise
from regard.layers.decoding.rotary import Turned
from regard.layers.feedforward import ACTIVATIONS

EPILOGUES = ("relu", "gelu_tanh")  # activations that cuBLAS has


class Cross(NamedTuple):
    """Attention to a source."""

    query: Linear
    out: Linear
    norm: Norm


class DecoderLayer(NamedTuple):
    attend: Linear  # queries, keys and values
    attended: Linear
    attend_norm: Norm
    cross: Cross | None
    inner: Linear
    outer: Linear
    feed_norm: Norm


@dataclasses.dataclass(frozen=True, kw_only=True)
class Source:
    """What a decoder looks at, by layers."""

    keys: tuple[Float[Tensor, "B H S Dh"], ...]
    values: tuple[Float[Tensor, "B H S Dh"], ...]
    keep: Bool[Tensor, "B S"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Decoder:
    """Embeddings, layers and output of a decoder, as tensors. `pre`: norms stand before sub-layers, and one after the last."""

    embedding: Float[Tensor, "V D"]
    embedding_scale: float
    positions: Float[Tensor, "P D"] | None  # added to embeddings
    layers: tuple[DecoderLayer, ...]
    last_norm: Norm | None
    pre: bool
    residual: bool
    heads: int
    scale: float  # of dot products
    activation: str
    rotary: Turned | None = None

    @property
    def width(self) -> int:
        return self.embedding.shape[1]

    def embed(self, tokens: Tensor, positions: Tensor) -> Float[Tensor, "*N D"]:
        x = self.embedding[tokens] * self.embedding_scale
        return x if self.positions is None else x + self.positions[positions]

    def few_rows(
        self, x: Float[Tensor, "N D"], source: Source | None, state: CacheState
    ) -> tuple[Float[Tensor, "N D"], Norm | None]:
        """The states of the next tokens before a last norm, and that norm. Writes into the state's caches."""
        waiting: Norm | None = None  # after a sub-layer: whoever reads x applies it
        for i, layer in enumerate(self.layers):
            waiting, before = self._norms(waiting, layer.attend_norm)
            mixed = self._attend(i, product(x, layer.attend, norm=before), state)
            x, waiting = self._written(mixed, layer.attended, x, waiting, layer.attend_norm)
            if layer.cross is not None and source is not None:
                waiting, before = self._norms(waiting, layer.cross.norm)
                query = product(x, layer.cross.query, norm=before)
                mixed = attend_memory(query, source.keys[i], source.values[i], source.keep, self.scale)
                x, waiting = self._written(mixed, layer.cross.out, x, waiting, layer.cross.norm)
            waiting, before = self._norms(waiting, layer.feed_norm)
            inner = product(x, layer.inner, norm=before, activation=self.activation)
            x, waiting = self._written(inner, layer.outer, x, waiting, layer.feed_norm)
        return x, self.last_norm if self.pre else waiting

    def _norms(self, waiting: Norm | None, own: Norm) -> tuple[Norm | None, Norm | None]:
        """What is still to be done to x, and what the next sub-layer reads of x as it is."""
        return (None, own) if self.pre else (waiting, waiting)

    def _written(
        self, y: Tensor, linear: Linear, x: Tensor, waiting: Norm | None, own: Norm
    ) -> tuple[Tensor, Norm | None]:
        residual = x if self.residual else None
        return product(y, linear, residual=residual, residual_norm=waiting), None if self.pre else own

    def many_rows(self, x: Float[Tensor, "N D"], source: Source | None, state: CacheState) -> Float[Tensor, "N D"]:
        """The states of the next tokens. Writes into the state's caches."""
        x, read = add_and_normalise(x, None, self.layers[0].attend_norm if self.pre else None)
        for i, layer in enumerate(self.layers):
            last = i + 1 == len(self.layers)
            following = self.last_norm if last else self.layers[i + 1].attend_norm
            written = _multiplied(self._attend(i, _multiplied(read, layer.attend), state), layer.attended)
            after = layer.feed_norm if layer.cross is None else layer.cross.norm
            x, read = self._added(x, written, layer.attend_norm, after)
            if layer.cross is not None and source is not None:
                query = _multiplied(read, layer.cross.query)
                mixed = attend_memory(query, source.keys[i], source.values[i], source.keep, self.scale)
                x, read = self._added(x, _multiplied(mixed, layer.cross.out), layer.cross.norm, layer.feed_norm)
            written = _multiplied(_multiplied(read, layer.inner, self.activation), layer.outer)
            x, read = self._added(x, written, layer.feed_norm, following)
        return read

    def _added(self, x: Tensor, written: Tensor, own: Norm, following: Norm | None) -> tuple[Tensor, Tensor]:
        """The sum, and what the next sub-layer reads of it."""
        if not self.residual:
            x, written = written, None  # type: ignore[assignment]
        total, read = add_and_normalise(x, written, following if self.pre else own)
        return (total, read) if self.pre else (read, read)

    def _attend(self, layer: int, projected: Tensor, state: CacheState) -> Tensor:
        keys, values = state.keys[layer], state.values[layer]
        longest = min(state.filled + 1, state.capacity)
        if self.rotary is not None:
            projected = self.rotary(projected, state.positions, self.heads)
        return attend_cache(projected, keys, values, state.hidden, state.positions, self.heads, self.scale, longest)


def _multiplied(x: Tensor, linear: Linear, activation: str | None = None) -> Tensor:
    """Of many rows."""
    if activation in EPILOGUES and linear.bias is not None and x.is_cuda:  # in the product's own kernel
        gelu = activation != "relu"
        return torch._addmm_activation(linear.bias, x, linear.weight.t(), use_gelu=gelu)  # pyright: ignore[reportPrivateImportUsage]
    return linear(x) if activation is None else ACTIVATIONS[activation](linear(x))
