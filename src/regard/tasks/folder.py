"""How a model comes out of a run's folder. The names of its files are in `tasks.run_files`, and to be had here too."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from regard.core import config as configuration
from regard.core.errors import CheckpointError
from regard.core.files import check_header, load_tensors
from regard.data.tokenizers import TokenizerPair
from regard.models.base import LABELLING, MODELS, Writer, build_model
from regard.tasks.run_files import (
    BEST,
    CHECKPOINTS,
    CONFIG,
    DATA,
    FORMAT,
    MAX_LABELS,
    METRICS,
    OPTIMIZER,
    RUN,
    SCORES,
    STATE,
    WEIGHTS,
    find_run,
    labels_of,
    open_run,
    read_config,
    tokenizer_names,
    weights_folder,
)

__all__ = [
    "BEST",
    "CHECKPOINTS",
    "CONFIG",
    "DATA",
    "FORMAT",
    "MAX_LABELS",
    "METRICS",
    "OPTIMIZER",
    "RUN",
    "SCORES",
    "STATE",
    "WEIGHTS",
    "find_run",
    "labels_of",
    "load_model",
    "open_run",
    "put_weights",
    "read_config",
    "shapes_of",
    "tokenizer_names",
    "weights_folder",
    "weights_of",
]


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    """The model's own tensors by name; tied tables appear once, under their first name."""
    tensors: dict[str, Tensor] = dict(model.named_parameters())
    tensors.update(model.named_buffers())
    persistent = model.state_dict()
    return {name: tensor for name, tensor in tensors.items() if name in persistent}


def put_weights(model: nn.Module, tensors: Mapping[str, Tensor], where: Path) -> None:
    """Copies weights into a model; any missing, foreign or misshapen tensor is an error and changes nothing."""
    own = weights_of(model)
    _compare(
        {name: tuple(t.shape) for name, t in own.items()}, {name: tuple(t.shape) for name, t in tensors.items()}, where
    )
    with torch.no_grad():
        for name, tensor in own.items():
            tensor.copy_(tensors[name])


def _compare(own: Mapping[str, tuple], given: Mapping[str, tuple], where: Path) -> None:
    missing, foreign = sorted(own.keys() - given.keys()), sorted(given.keys() - own.keys())
    advice = "Use the weights and the config.json of one run together"
    if missing or foreign:
        what = f"tensor {missing[0]!r} is missing" if missing else f"tensor {foreign[0]!r} belongs to another model"
        raise CheckpointError(where, f"the weights do not fit the configuration: {what}", advice)
    for name, shape in own.items():
        if given[name] != shape:
            what = f"tensor {name!r} has shape {list(given[name])}, the configuration says {list(shape)}"
            raise CheckpointError(where, f"the weights do not fit the configuration: {what}", advice)


def load_model(folder: Path) -> tuple[Writer, TokenizerPair, dict[str, Any]]:
    """The model of a run in float32 on the CPU, its tokenizers and its configuration, checked against the manifest."""
    config, place, tokenizers = open_run(folder)
    vocabulary = config["vocabulary"]
    section = config["model"]
    model_config = configuration.build(MODELS.get(str(section.get("name"))).Config, section, "model")
    sizes = {
        "source_vocabulary": vocabulary["source"],
        "target_vocabulary": vocabulary["target"],
        "shared": vocabulary["shared"],
    }
    if MODELS.get(model_config.name).capabilities & LABELLING:
        sizes["target_vocabulary"] = len(labels_of(config, folder)) + 1
    shapes = _shapes(place / WEIGHTS)
    deepest = max((value for key, value in section.items() if "layers" in key and isinstance(value, int)), default=0)
    if deepest > len(shapes):  # a million layers would take long even without their weights
        what = f"the weights do not fit the configuration: it has {deepest} layers, they are {len(shapes)} tensors"
        raise CheckpointError(place / WEIGHTS, what, "Use the weights and the config.json of one run together")
    _compare(shapes_of(model_config, sizes, place / WEIGHTS), shapes, place / WEIGHTS)
    with _Unset():
        model = build_model(model_config.name, model_config, **sizes)
    put_weights(model, load_tensors(place / WEIGHTS), place / WEIGHTS)
    return model.eval(), tokenizers, config


def shapes_of(config: Any, sizes: Mapping[str, Any], where: object) -> dict[str, tuple[int, ...]]:
    """The shapes of all weights of a model, without making them: a configuration that lies must not make us allocate."""
    try:
        with torch.device("meta"), _Unset():
            outline = build_model(config.name, config, **sizes)
    except (RuntimeError, TypeError, OverflowError):  # sizes beyond 64 bits
        what = "the weights do not fit the configuration: it asks for a model beyond all sizes"
        raise CheckpointError(where, what, "Use the weights and the config.json of one run together") from None
    return {name: tuple(tensor.shape) for name, tensor in weights_of(outline).items()}


class _Unset(TorchFunctionMode):
    """Builds models without filling in their first weights, which are about to be replaced. Loading is faster so."""

    FILLS = frozenset({"uniform_", "normal_", "zero_", "fill_", "ones_", "zeros_", "xavier_uniform_"})

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        target = args[0] if args else (kwargs or {}).get("tensor")
        if isinstance(target, nn.Parameter) and getattr(func, "__name__", "") in self.FILLS:
            return target
        return func(*args, **(kwargs or {}))


def _shapes(path: Path) -> dict[str, tuple]:
    check_header(path)
    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            return {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118 (not a dict)
    except (SafetensorError, OSError) as error:
        raise CheckpointError(
            path, f"it is not a readable safetensors file ({error})", "Restore it from a copy"
        ) from None
