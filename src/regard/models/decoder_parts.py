"""The decoders of models as plain weights (layers/decoding), for those whose steps can be made of few kernels.

The models' own files say what a step computes; what is taken from them here is checked against them at its first use and in tests.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from regard.layers.cpu_products import is_plain
from regard.layers.decoding.decoder import Cross, Decoder, DecoderLayer, Source
from regard.layers.decoding.products import KINDS, Linear, Norm
from regard.layers.decoding.rotary import Turned
from regard.layers.output import SoftmaxOutput
from regard.layers.positions import LearnedPositions, NoPositions, Positions, SinusoidalPositions

MOST_WIDTH = 1 << 14  # of what a kernel reads at once
TYPES = (torch.float32, torch.bfloat16, torch.float16)


class Other(Exception):
    """A part that kernels do not have."""


def decoder_parts(model: Any, capacity: int) -> Decoder | None:
    """The decoder of a model, for texts of so many tokens; None where its steps are the model's own matter."""
    from regard.models.gpt import GPT
    from regard.models.transformer import Transformer

    makers: dict[type, Any] = {Transformer: _transformer, GPT: _gpt}
    maker = makers.get(type(model))
    if maker is None or model.training or type(model.output) is not SoftmaxOutput:
        return None
    try:
        decoder: Decoder = maker(model, capacity)
    except Other:
        return None
    tensors = _tensors((decoder.embedding, decoder.positions, decoder.layers, decoder.last_norm, model.output.matrix()))
    alike = {(tensor.dtype, tensor.device) for tensor in tensors}
    fits = len(alike) == 1 and decoder.embedding.dtype in TYPES and all(tensor.is_contiguous() for tensor in tensors)
    return decoder if fits and not any(map(is_watched, model.modules())) else None


def is_watched(module: nn.Module) -> bool:
    """Whether somebody hooked into what a module does, which kernels would pass by."""
    return bool(module._forward_hooks or module._forward_pre_hooks)


def source_parts(memory: Any) -> Source | None:
    """The source, for a decoder's step; None where there is none."""
    if not hasattr(memory, "keys"):
        return None
    return Source(keys=memory.keys, values=memory.values, keep=memory.keep[:, 0, 0])


def _transformer(model: Any, capacity: int) -> Decoder:
    config = model.config
    layers = [
        _layer(
            one.attention,
            one.feedforward,
            one.around_attention.norm,
            one.around_feedforward.norm,
            Cross(linear_parts(one.cross.query), linear_parts(one.cross.out), norm_parts(one.around_cross.norm)),
        )
        for one in model.decoder
    ]
    return Decoder(
        embedding=model.target_embedding.weight,
        embedding_scale=math.sqrt(config.width),
        positions=_positions(model.target_positions, capacity),
        layers=tuple(layers),
        last_norm=norm_parts(model.decoder_norm) if config.norm == "pre" else None,
        pre=config.norm == "pre",
        residual=config.residual,
        heads=config.heads,
        scale=(config.width // config.heads) ** -0.5 if config.scaling else 1.0,
        activation=_activation(config.activation),
        rotary=_rotary(config, config.width // config.heads),
    )


def _gpt(model: Any, capacity: int) -> Decoder:
    config = model.config
    if config.qk_norm:
        raise Other
    layers = [_layer(one.attention, one.feedforward, one.attention_norm, one.feedforward_norm) for one in model.decoder]
    return Decoder(
        embedding=model.embedding.weight,
        embedding_scale=1.0,
        positions=_positions(model.positions, capacity),
        layers=tuple(layers),
        last_norm=norm_parts(model.norm) if config.norm == "pre" else None,
        pre=config.norm == "pre",
        residual=True,
        heads=config.heads,
        scale=config.head_width**-0.5,
        activation=_activation(config.activation),
        rotary=_rotary(config, config.head_width),
    )


def _layer(attention: Any, feed: Any, attend_norm: Any, feed_norm: Any, cross: Cross | None = None) -> DecoderLayer:
    return DecoderLayer(
        linear_parts(attention.query_key_value),
        linear_parts(attention.out),
        norm_parts(attend_norm),
        cross,
        linear_parts(feed.inner),
        linear_parts(feed.out),
        norm_parts(feed_norm),
    )


def linear_parts(module: Any) -> Linear:
    if not is_plain(module) or max(module.weight.shape) > MOST_WIDTH:
        raise Other
    return Linear(module.weight, module.bias)


def norm_parts(module: Any) -> Norm:
    if isinstance(module, nn.LayerNorm) and module.weight is not None:
        return Norm(module.weight, module.bias, module.eps, rms=False)
    if isinstance(module, nn.RMSNorm) and module.weight is not None and module.eps is not None:
        return Norm(module.weight, None, module.eps, rms=True)
    raise Other


def _positions(positions: Positions, capacity: int) -> Tensor | None:
    if isinstance(positions, NoPositions):
        return None
    table: Tensor | None = None
    if isinstance(positions, SinusoidalPositions):
        table = positions.get_buffer("table")
    if isinstance(positions, LearnedPositions):
        table = positions.table.weight
    if table is None or len(table) < capacity:
        raise Other
    return table


def _rotary(config: Any, head_width: int) -> Turned | None:
    if config.relative not in ("none", "rotary"):
        raise Other
    return None if config.relative == "none" else Turned(head_width, config.rotary_base, config.rotary_layout)


def _activation(name: str) -> str:
    if name not in KINDS:
        raise Other
    return name


def _tensors(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    return [tensor for item in value for tensor in _tensors(item)] if isinstance(value, tuple) else []
