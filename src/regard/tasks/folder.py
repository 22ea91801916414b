"""A run is a folder: the names of its files, and how a model comes out of one.

run.json            what was asked for: settings given, command, versions, state of the run
config.json         the resolved configuration, with the sizes of the vocabularies
data.json           fingerprint, sizes and files of the data
tokenizer.json      or tokenizer.src.json and tokenizer.tgt.json
model.safetensors   the final weights
manifest.json       SHA-256 of all that is needed to use the model
scores.json         scores on held-out text, with signatures
metrics.jsonl       what was logged while training
checkpoints/        step-N folders, each with a manifest of its own; best/ is the best validated model
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from regard.core import config as configuration
from regard.core.errors import CheckpointError, TokenizerError
from regard.core.files import MANIFEST, check_manifest, load_tensors, quoted, read_json
from regard.data.tokenizers import TokenizerPair
from regard.models.base import LABELLING, MODELS, Writer, build_model

RUN, CONFIG, DATA, SCORES, METRICS = "run.json", "config.json", "data.json", "scores.json", "metrics.jsonl"
WEIGHTS, OPTIMIZER, STATE = "model.safetensors", "optimizer.safetensors", "state.json"
CHECKPOINTS, BEST = "checkpoints", "best"
FORMAT = 1
MAX_LABELS = 1 << 20


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


def find_run(folder: Path) -> Path:
    """Checks that a path is a run folder."""
    if not folder.exists():
        raise CheckpointError(folder, "there is no such folder", "Give the folder that `regard train --out` wrote")
    if not folder.is_dir():
        raise CheckpointError(
            folder, "it is a file, not a run folder", "Give the folder that `regard train --out` wrote"
        )
    if not (folder / CONFIG).is_file():
        raise CheckpointError(
            folder, f"it is not a run folder: it has no {CONFIG}", "Give the folder that `regard train --out` wrote"
        )
    return folder


def weights_folder(folder: Path) -> Path:
    """Where a run's usable weights are: the finished model, else the best or newest checkpoint so far."""
    if not (folder / CHECKPOINTS).is_dir() or _is_finished(folder):
        return folder
    damage: CheckpointError | None = None
    for candidate in [folder / CHECKPOINTS / BEST, *sorted((folder / CHECKPOINTS).glob("step-*"), reverse=True)]:
        if candidate.is_dir():
            try:
                check_manifest(candidate, [WEIGHTS])
                return candidate
            except CheckpointError as error:
                damage = error
                warnings.warn(f"A damaged checkpoint is passed over. {error}", stacklevel=2)
    raise damage or CheckpointError(
        folder, "the run has no weights yet", f"Go on with `regard train --resume {quoted(folder)}`"
    )


def _is_finished(folder: Path) -> bool:
    """The manifest comes after the weights: weights that it does not list are those of a run killed at its end."""
    if not (folder / MANIFEST).exists():
        return (folder / WEIGHTS).exists()
    manifest = read_json(folder / MANIFEST)
    files = manifest.get("files") if isinstance(manifest, dict) else None
    return not isinstance(files, dict) or WEIGHTS in files


def read_config(folder: Path) -> dict[str, Any]:
    config = read_json(find_run(folder) / CONFIG)
    foreign = CheckpointError(
        folder / CONFIG, "it is not a configuration that regard wrote", "Give the folder of a regard run"
    )
    if not isinstance(config, dict) or not isinstance(config.get("model"), dict):
        raise foreign
    if config.get("format") != FORMAT:
        raise CheckpointError(
            folder / CONFIG,
            f"it has format {config.get('format')!r}, this version reads {FORMAT}",
            "Use a matching version of regard",
        )
    if config.get("resolved") is False:
        raise CheckpointError(
            folder, "the run has no weights yet", f"Go on with `regard train --resume {quoted(folder)}`"
        )
    sections = [config.get(name, {}) for name in ("data", "tokenizer", "train", "search", "vocabulary")]
    if not all(isinstance(section, dict) for section in sections) or not isinstance(
        config.get("usual_source_length", 0), int
    ):
        raise foreign
    if [type(config.get("vocabulary", {}).get(key)) for key in ("source", "target", "shared")] != [int, int, bool]:
        raise foreign
    return config


def labels_of(config: dict[str, Any], folder: Path) -> list[str]:
    """The labels that a run's configuration names."""
    labels = config.get("labels")
    if (
        not isinstance(labels, list)
        or not 2 <= len(labels) <= MAX_LABELS
        or not all(isinstance(label, str) and label for label in labels)
        or len(set(labels)) < len(labels)
    ):
        what = "it does not name the labels of its model"
        raise CheckpointError(folder / CONFIG, what, "Give the folder of a run on labelled or tagged text")
    return labels


def tokenizer_names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("tokenizer*.json"))


def load_model(folder: Path) -> tuple[Writer, TokenizerPair, dict[str, Any]]:
    """The model of a run in float32 on the CPU, its tokenizers and its configuration, checked against the manifest."""
    config = read_config(folder)
    place = weights_folder(folder)
    if place == folder and not (folder / WEIGHTS).exists() and not _is_finished(folder):
        raise CheckpointError(
            folder, "the run has no weights yet", f"Go on with `regard train --resume {quoted(folder)}`"
        )
    check_manifest(place, [WEIGHTS])
    check_manifest(folder, [CONFIG, *tokenizer_names(folder)])
    tokenizers = TokenizerPair.load(folder)
    vocabulary = config["vocabulary"]
    if (tokenizers.source.size, tokenizers.target.size, tokenizers.joint) != (
        vocabulary["source"],
        vocabulary["target"],
        vocabulary["shared"],
    ):
        raise TokenizerError(
            folder,
            f"the tokenizer has {tokenizers.source.size} and {tokenizers.target.size} tokens, "
            f"the model was built for {vocabulary['source']} and {vocabulary['target']}",
            "Put the run's own tokenizer back",
        )
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
    try:
        with torch.device("meta"), _Unset():  # shapes first: a configuration that lies must not make us allocate
            outline = build_model(model_config.name, model_config, **sizes)
    except (RuntimeError, TypeError, OverflowError):  # sizes beyond 64 bits
        what = "the weights do not fit the configuration: it asks for a model beyond all sizes"
        raise CheckpointError(
            place / WEIGHTS, what, "Use the weights and the config.json of one run together"
        ) from None
    _compare({name: tuple(t.shape) for name, t in weights_of(outline).items()}, shapes, place / WEIGHTS)
    with _Unset():
        model = build_model(model_config.name, model_config, **sizes)
    put_weights(model, load_tensors(place / WEIGHTS), place / WEIGHTS)
    return model.eval(), tokenizers, config


class _Unset(TorchFunctionMode):
    """Builds models without filling in their first weights, which are about to be replaced. Loading is faster so."""

    FILLS = frozenset({"uniform_", "normal_", "zero_", "fill_", "ones_", "zeros_", "xavier_uniform_"})

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        target = args[0] if args else (kwargs or {}).get("tensor")
        if isinstance(target, nn.Parameter) and getattr(func, "__name__", "") in self.FILLS:
            return target
        return func(*args, **(kwargs or {}))


def _shapes(path: Path) -> dict[str, tuple]:
    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            return {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118 (not a dict)
    except (SafetensorError, OSError) as error:
        raise CheckpointError(
            path, f"it is not a readable safetensors file ({error})", "Restore it from a copy"
        ) from None
