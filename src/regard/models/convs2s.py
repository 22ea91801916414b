"""ConvS2S: "Convolutional Sequence to Sequence Learning", Gehring et al. 2017 (arXiv 1705.03122).

Departs:
- Within a decoder layer attention reads the output of the gated linear unit, and the residual sum comes after attention, as
  in the authors' code; the paper's equations read as if the sum came first.
- A linear layer brings what attention gives back to the width of the decoder, as in the authors' code.
- All layers of one side have one width and one kernel. The paper's largest models widen their top layers.
- Tables that are one with the output layer (`tie`) are not weight-normalised: lookup tables never are.
- Default sizes are for small corpora. The paper's for English-Romanian: embedding 512, width 512, layers 20, kernel 3.
- The paper trains with Nesterov's momentum, gradients clipped to 0.1; any optimizer can be used here.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from regard.core.bounds import check_bounds
from regard.core.errors import ConfigError, ModelError
from regard.core.tree import Memory, State
from regard.core.types import Padded
from regard.layers.attention.masked_softmax import context, masked_softmax
from regard.layers.convolution import windows
from regard.layers.embeddings import Tie, embedding_tables
from regard.layers.output import SoftmaxOutput
from regard.layers.positions import LearnedPositions
from regard.layers.weight_norm import Affine, NormalisedLinear, NormalisedOutput
from regard.models.base import MODELS, Limits, Recorder, Writer

SIZES = {
    "embedding": (1, 1 << 14),
    "width": (1, 1 << 14),
    "layers": (1, 1000),
    "encoder_layers": (0, 1000),
    "decoder_layers": (0, 1000),
    "kernel": (1, 1000),
    "encoder_kernel": (0, 1000),
    "decoder_kernel": (0, 1000),
    "readout": (0, 1 << 14),
    "max_length": (1, 1 << 20),
}
HALVED = math.sqrt(0.5)  # keeps the variance of a sum of two (section 3.4)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConvS2SConfig:
    """Sizes and choices of ConvS2S."""

    name: Literal["convs2s"] = "convs2s"
    embedding: int = 256  # f
    width: int = 256  # d, of every convolution's output
    layers: int = 4
    encoder_layers: int = 0  # 0: as `layers`
    decoder_layers: int = 0  # 0: as `layers`
    kernel: int = 3  # k, how many inputs a convolution sees; odd in the encoder
    encoder_kernel: int = 0  # 0: as `kernel`
    decoder_kernel: int = 0  # 0: as `kernel`
    readout: int = 0  # width of what the output layer reads; 0: as `embedding`
    max_length: int = 512  # of learned positions, on each side
    tie: Tie = "none"  # which tables are one; needs readout = embedding
    dropout: float = 0.2

    def __post_init__(self) -> None:
        check_bounds("model", self, SIZES, parts=("dropout",))
        if self.kernels[0] % 2 == 0:
            name = "encoder_kernel" if self.encoder_kernel else "kernel"
            what = f"{self.kernels[0]} is even: the encoder needs as many inputs on the left as on the right"
            raise ConfigError(f"setting model.{name}", what, "Give an odd number")
        if self.tie != "none" and (self.readout or self.embedding) != self.embedding:
            what = f"tables can be one only if readout ({self.readout}) equals embedding ({self.embedding})"
            raise ConfigError("setting model.tie", what, "Set readout=0 or tie=none")

    @property
    def depth(self) -> tuple[int, int]:
        return self.encoder_layers or self.layers, self.decoder_layers or self.layers

    @property
    def kernels(self) -> tuple[int, int]:
        return self.encoder_kernel or self.kernel, self.decoder_kernel or self.kernel


class DecoderLayer(nn.Module):
    """The matrices of one decoder layer."""

    def __init__(self, config: ConvS2SConfig):
        super().__init__()
        d, f = config.width, config.embedding
        self.convolution = NormalisedLinear(config.kernels[1] * d, 2 * d)  # W^l, b_w^l
        self.query = NormalisedLinear(d, f)  # W_d^l, b_d^l
        self.out = NormalisedLinear(f, d)

    def ready(self) -> ReadyLayer:
        return ReadyLayer(self.convolution.ready(), self.query.ready(), self.out.ready())


@dataclasses.dataclass(frozen=True, eq=False)
class ReadyLayer:
    """A decoder layer with its matrices normalised."""

    convolution: Affine
    query: Affine
    out: Affine

    def __call__(
        self,
        seen: Float[Tensor, "B K L D"],
        g: Float[Tensor, "B K T F"],
        memory: ConvS2SMemory,
    ) -> tuple[Float[Tensor, "B K T D"], Float[Tensor, "B K T S"]]:
        """From the inputs, of which the first k - 1 are of before, to what is added to them, and the weights a_ij."""
        beams, count = g.shape[1:3]
        h = F.glu(self.convolution(windows(seen, seen.shape[2] - count + 1)))  # v([A B]) = A ⊗ σ(B)
        d = (self.query(h) + g) * HALVED  # d_i = W_d h_i + b_d + g_i (1)
        scores = d.flatten(1, 2) @ memory.z.transpose(1, 2)  # d_i · z_j, of all K T queries of a sentence at once
        a = masked_softmax(scores, memory.keep[:, None])
        c = context(a, memory.values).unflatten(1, (beams, count))  # (2)
        return (h + self.out(c)) * HALVED, a.unflatten(1, (beams, count))


@dataclasses.dataclass(frozen=True, eq=False)
class ReadyDecoder:
    """The whole decoder with its matrices normalised, once for a source: for few rows that takes as long as a step."""

    inputs: Affine
    layers: tuple[ReadyLayer, ...]
    readout: Affine


@dataclasses.dataclass
class ConvS2SMemory(Memory):
    """The encoder's outputs z_j as keys, with the embeddings e_j as values, and the decoder that will read them."""

    z: Float[Tensor, "B S F"]
    values: Float[Tensor, "B S F"]  # (z_j + e_j), scaled
    keep: Bool[Tensor, "B S"]
    decoder: ReadyDecoder  # no rows: the same for all sentences

    def constants(self) -> list[Tensor]:
        layers = [part for layer in self.decoder.layers for part in (layer.convolution, layer.query, layer.out)]
        return [part.weight for part in (self.decoder.inputs, *layers, self.decoder.readout)]


@dataclasses.dataclass
class ConvS2SState(State):
    """The last k - 1 inputs of every convolution, oldest first, and how many tokens were read. It never grows.

    The inputs move up by one at every step: a step needs them side by side in any case, and a ring would have to be unrolled.
    """

    past: tuple[Float[Tensor, "B K P D"], ...]
    positions: Int[Tensor, "B K"]
    filled: int = 0  # an upper bound of positions that the host knows without asking the device

    def within(self, span: int) -> ConvS2SState:
        return dataclasses.replace(self, filled=span - 1)

    def put(self, sentences: Int[Tensor, "N"], other: Any) -> ConvS2SState:
        return dataclasses.replace(super().put(sentences, other), filled=max(self.filled, other.filled))


@MODELS.register("convs2s")
class ConvS2S(Writer):
    """Convolutions with gates on both sides, and attention in every layer of the decoder (section 3, figure 1)."""

    Config = ConvS2SConfig
    capabilities = frozenset({"translates", "attends"})

    def __init__(self, config: ConvS2SConfig, *, source_vocabulary: int, target_vocabulary: int, shared: bool):
        super().__init__()
        self.config = config
        f, d, readout = config.embedding, config.width, config.readout or config.embedding
        encoders, decoders = config.depth
        tables = embedding_tables(source_vocabulary, target_vocabulary, f, config.tie, shared)
        self.target_embedding, self.source_embedding = tables.target, tables.source
        self.source_positions = LearnedPositions(f, config.max_length)
        self.target_positions = LearnedPositions(f, config.max_length)
        self.dropout = nn.Dropout(config.dropout)
        self.encoder_in = NormalisedLinear(f, d)
        self.encoder = nn.ModuleList(NormalisedLinear(config.kernels[0] * d, 2 * d) for _ in range(encoders))
        self.encoder_out = NormalisedLinear(d, f)
        self.decoder_in = NormalisedLinear(f, d)
        self.decoder = nn.ModuleList(DecoderLayer(config) for _ in range(decoders))
        self.readout = NormalisedLinear(d, readout)
        tied = tables.output
        self.output = (
            NormalisedOutput(readout, target_vocabulary)
            if tied is None
            else SoftmaxOutput(readout, target_vocabulary, tied)
        )
        self._initialise()

    def _initialise(self) -> None:
        """Section 3.5: lookup tables from N(0, 0.1²), biases 0, matrices so that the variance of activations stays.

        That is N(0, 1/n) for n inputs, N(0, 4/n) into a gated linear unit; times the part that dropout leaves of inputs.
        """
        kept = 1 - self.config.dropout
        for module in self.modules():
            if isinstance(module, nn.Embedding):
                nn.init.normal_(module.weight, std=0.1)
            elif isinstance(module, NormalisedLinear):
                module.start_from(math.sqrt(1 / module.v.shape[1]))
        convolutions: list[Any] = [*self.encoder, *(layer.convolution for layer in self.decoder)]
        for convolution in convolutions:
            convolution.start_from(math.sqrt(4 * kept / convolution.v.shape[1]))
        for first in (self.encoder_in, self.decoder_in):
            first.start_from(math.sqrt(kept / self.config.embedding))
        if isinstance(self.output, NormalisedOutput):
            self.output.start_from(math.sqrt(kept / self.output.v.shape[1]))

    @property
    def limits(self) -> Limits:
        return Limits(self.config.max_length, self.config.max_length)

    @classmethod
    def needs_float32(cls, config: Any) -> str | None:
        return None

    def _embed(
        self, tokens: Tensor, table: nn.Embedding, positions: LearnedPositions, at: Tensor, longest: int
    ) -> Tensor:
        """e = w + p, or g on the target's side (section 3.1)."""
        if longest > self.config.max_length:
            raise ModelError(
                "the source" if positions is self.source_positions else "the target",
                f"{longest} tokens are more than the model's learned positions, {self.config.max_length}",
                "Give shorter text",
            )
        return self.dropout(table(tokens) + positions(at, longest))

    def encode(self, source: Padded) -> ConvS2SMemory:
        """Section 3.2. Padding is zero wherever a convolution looks, as is what lies beyond the sentence."""
        length = source.tokens.shape[1]
        at = torch.arange(length, device=source.tokens.device)
        e = self._embed(source.tokens, self.source_embedding, self.source_positions, at, length)
        kernel = self.config.kernels[0]
        keep = source.keep[..., None]
        x = _as_weights(self.encoder_in(e), self.encoder_in)
        for convolution in self.encoder:
            seen = F.pad(self.dropout(x) * keep, (0, 0, kernel // 2, kernel // 2))
            x = (F.glu(convolution(windows(seen, kernel))) + x) * HALVED
        # Section 3.4: every attention sends a gradient back here, which is scaled down; but for the embeddings.
        z = _ScaledGradient.apply(self.encoder_out(x), 1 / (2 * len(self.decoder)))
        m = source.lengths[:, None, None]  # of tokens, without padding
        values = (z + e) * HALVED * m.to(e.dtype).sqrt()  # what attention gives is multiplied by m √(1/m)
        decoder: list[Any] = list(self.decoder)
        ready = ReadyDecoder(self.decoder_in.ready(), tuple(layer.ready() for layer in decoder), self.readout.ready())
        return ConvS2SMemory(z, values, source.keep, ready)  # type: ignore[arg-type]

    def start(
        self, source: Padded, *, beams: int = 1, capacity: int = 256, target_length: int | None = None
    ) -> tuple[ConvS2SMemory, ConvS2SState]:
        memory = self.encode(source)
        shape = (source.tokens.shape[0], beams, self.config.kernels[1] - 1, self.config.width)
        past = tuple(self.decoder_in.v.new_zeros(shape) for _ in self.decoder)
        return memory, ConvS2SState(past, source.tokens.new_zeros(shape[:2]))

    def advance(
        self, tokens: Int[Tensor, "B K T"], memory: ConvS2SMemory, state: ConvS2SState, record: Recorder | None = None
    ) -> tuple[Float[Tensor, "B K T D"], ConvS2SState]:
        """Section 3.3: all T tokens at once, whether they are a whole target or one step. Nothing looks to the right."""
        count = tokens.shape[2]
        longest = state.filled + count
        at = (state.positions[..., None] + torch.arange(count, device=tokens.device)).clamp(max=longest - 1)
        g = self._embed(tokens, self.target_embedding, self.target_positions, at, longest)
        x = _as_weights(memory.decoder.inputs(g), self.decoder_in)
        pasts = []
        for i, layer in enumerate(memory.decoder.layers):
            seen = torch.cat((state.past[i], self.dropout(x)), 2)
            pasts.append(seen[:, :, count:])
            written, weights = layer(seen, g, memory)
            x = (written + x) * HALVED
            if record is not None:
                record.add(f"decoder.{i}.cross", weights[:, :, None])
        hidden = self.dropout(memory.decoder.readout(x))
        return hidden, ConvS2SState(tuple(pasts), state.positions + count, state.filled + count)

    def alignment(self, record: Recorder) -> Float[Tensor, "B *K T S"]:
        """The mean over layers: the lower ones of a deep decoder look elsewhere, but not together at one place."""
        layers = [record.tensors[f"decoder.{i}.cross"] for i in range(len(self.decoder))]
        return torch.stack(layers).mean(0).squeeze(-3)


def _as_weights(x: Tensor, layer: NormalisedLinear) -> Tensor:
    """As precise as the weights: under autocast the residual sums, which go through all layers, stay out of 16 bits."""
    return x.to(layer.v.dtype)


class _ScaledGradient(torch.autograd.Function):
    """x -> x, whose gradient is multiplied by a number."""

    @staticmethod
    def forward(ctx, x, scale):
        ctx.scale = scale
        return x.view_as(x)

    @staticmethod
    @once_differentiable
    def backward(ctx, d_x):  # pyright: ignore[reportIncompatibleMethodOverride]
        return d_x * ctx.scale, None
