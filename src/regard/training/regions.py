"""The repeated layers of a model, compiled: one piece of code for all layers of a kind.

Compiling a layer takes a fraction of the time that a whole model takes, and gives most of what there is to gain: chains of
residuals, dropout and norms become one kernel each. The code is used in training only: validation has other shapes.

Shapes: `auto` compiles for the first shape of batch, and at the second for all shapes; `static` for every shape anew, which is
faster to run and takes as many times as long to compile. Recorded (`train.graphs`), code for all shapes costs the host nothing.
"""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

import torch
from torch import nn

from regard.layers.attention.multihead import SelfAttention
from regard.training.config import TrainConfig

Shapes = Literal["auto", "static", "dynamic"]
DYNAMIC = {"auto": None, "static": False, "dynamic": True}
MOST_VARIANTS = 512  # of one kind of layer, before it runs uncompiled

COMPILE_SECONDS = (
    60.0  # what compiling the layers of an encoder and a decoder takes at worst: twice, for one and for all shapes
)
SAVED = 0.25  # a part of the time of a step that it saves at least
USUAL_FLOPS = 2e14  # a second, of a GPU at training; a slower one trains longer, and earns the time back all the more


def repeated_layers(model: nn.Module) -> list[nn.Module]:
    """The layers that are compiled: those with self-attention in lists of layers of one kind. Loops over time are not."""
    found: list[nn.Module] = []
    for module in model.modules():
        if isinstance(module, nn.ModuleList) and len({type(layer) for layer in module}) == 1:
            found += [layer for layer in module if any(isinstance(part, SelfAttention) for part in layer.modules())]
    return found


def compile_pays(config: TrainConfig, model: nn.Module, device: torch.device) -> bool:
    """`auto` compiles where a run is long enough to earn the time back: by its size alone, so that a run is repeatable.

    A step takes 6 floating-point operations for each weight and token (and twice as many with R-Drop).
    """
    if config.compile != "auto":
        return config.compile
    if config.deterministic:
        return False
    if device.type != "cuda" or importlib.util.find_spec("triton") is None or not repeated_layers(model):
        return False
    return SAVED * estimated_seconds(config, sum(p.numel() for p in model.parameters())) > COMPILE_SECONDS


def estimated_seconds(config: TrainConfig, parameters: int) -> float:
    """What a run takes on a usual GPU, by its size."""
    tokens = config.steps * config.accumulate * config.batch_tokens * (2 if config.consistency else 1)
    return 6.0 * parameters * tokens / USUAL_FLOPS


class CompiledRegions:
    """Layers whose `forward` is compiled inside `applied`, and as it was outside."""

    def __init__(self, layers: list[nn.Module], *, shapes: Shapes = "auto", **options: Any):
        """`options` are those of torch.compile, such as backend and mode (without CUDA graphs: steps are recorded whole)."""
        import torch._dynamo as dynamo

        for name in ("recompile_limit", "cache_size_limit"):  # its name has changed between versions
            if hasattr(dynamo.config, name):
                setattr(dynamo.config, name, max(MOST_VARIANTS, getattr(dynamo.config, name)))
        compiled: dict[type, Callable] = {
            kind: torch.compile(kind.forward, dynamic=DYNAMIC[shapes], **options) for kind in {type(x) for x in layers}
        }
        self._forwards = [(layer, functools.partial(compiled[type(layer)], layer)) for layer in layers]

    @contextmanager
    def applied(self) -> Iterator[None]:
        for layer, forward in self._forwards:
            layer.__dict__["forward"] = forward
        try:
            yield
        finally:
            for layer, _ in self._forwards:
                layer.__dict__.pop("forward", None)
