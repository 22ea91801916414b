"""What all Hugging Face folders have in common: where weights lie, how config.json is checked, and how runs are made of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from regard.core.errors import CheckpointError
from regard.core.files import load_tensors, read_json, save_tensors, write_folder, write_json
from regard.data.tokenizers import TokenizerPair
from regard.tasks.folder import CONFIG, DATA, FORMAT, RUN, WEIGHTS, weights_of

INDEX, PICKLE = "model.safetensors.index.json", "pytorch_model.bin"
MOST_FILES = 1000


def model_type(folder: Path) -> str | None:
    """What config.json says that the model is."""
    if not folder.is_dir():
        raise CheckpointError(folder, "there is no such folder", "Give a folder with a model in Hugging Face's files")
    given = read_json(folder / CONFIG)
    if not isinstance(given, dict):
        raise CheckpointError(folder / CONFIG, "it is not the configuration of a model", "Give a Hugging Face folder")
    kind = given.get("model_type")
    return kind if isinstance(kind, str) else None


def checked_config(
    where: Path, given: Mapping[str, Any], usual: Mapping[str, Any], only: Mapping[str, Any], what_is_read: str
) -> dict[str, Any]:
    """The values that config.json has or leaves out, of the right types; values other than `only` are refused by name."""
    for name, value in only.items():
        found = given.get(name, value)
        same = math.isclose(found, value) if type(value) is type(found) is float else found == value
        if not same:
            raise CheckpointError(where, f"{name}={str(found)[:60]!r} is not supported", f"Only {what_is_read} is read")
    theirs = {name: given.get(name, value) for name, value in usual.items()}
    for name, value in theirs.items():
        allowed = (int, float) if type(usual[name]) is float else (type(usual[name]),)
        if type(value) not in allowed:
            raise CheckpointError(where, f"{name}={str(value)[:60]!r} is not supported", "Check the file")
    return theirs


def read_tensors(folder: Path, short: Callable[[str], str | None]) -> dict[str, Tensor]:
    """All weights in float32, from one file or several with an index, by the names that `short` gives; None leaves one out."""
    if (folder / WEIGHTS).is_file():
        files = [WEIGHTS]
    elif (folder / INDEX).is_file():
        index = read_json(folder / INDEX)
        places = index.get("weight_map") if isinstance(index, dict) else None
        if not isinstance(places, dict) or not all(isinstance(name, str) for name in places.values()):
            raise CheckpointError(folder / INDEX, "it does not say which file has which weight", "Restore it")
        files = sorted(set(places.values()))
        wrong = any(Path(name).name != name or not name.endswith(".safetensors") for name in files)
        if wrong or len(files) > MOST_FILES:
            raise CheckpointError(folder / INDEX, "it names files that are not parts of a model", "Restore it")
    elif (folder / PICKLE).is_file():
        todo = "Open it once with transformers in a safe place, and save it with save_pretrained"
        raise CheckpointError(folder / PICKLE, "it is a pickle, which can run any program when opened", todo)
    else:
        raise CheckpointError(folder, f"it has no {WEIGHTS}", "Give a folder with a model in Hugging Face's files")
    tensors: dict[str, Tensor] = {}
    for file in files:
        for name, tensor in load_tensors(folder / file).items():
            known = short(name)
            if known is None:
                continue
            if known in tensors:
                raise CheckpointError(folder / file, f"tensor {known!r} is there twice", "Restore the files")
            if not tensor.is_floating_point():
                raise CheckpointError(folder / file, f"tensor {name!r} holds {tensor.dtype}", "Use plain weights")
            tensors[known] = tensor.float()
    return tensors


def check_tensors(
    tensors: Mapping[str, Tensor], expected: Mapping[str, tuple[int, ...]], kind: str, folder: Path
) -> None:
    """Names and shapes against what config.json asks for, before anything is built from it."""
    advice = f"Use the weights and the {CONFIG} of one model together"
    missing, foreign = sorted(expected.keys() - tensors.keys()), sorted(tensors.keys() - expected.keys())
    if missing or foreign:
        what = f"tensor {missing[0]!r} is missing" if missing else f"tensor {foreign[0]!r} is not one of a {kind}"
        raise CheckpointError(folder, what, advice)
    for name, shape in expected.items():
        if tuple(tensors[name].shape) != shape:
            what = f"tensor {name!r} has shape {list(tensors[name].shape)}, {CONFIG} says {list(shape)}"
            raise CheckpointError(folder, what, advice)


def check_free(out: Path) -> None:
    if not out.name or (out.exists() and (not out.is_dir() or any(out.iterdir()))):
        raise CheckpointError(out, "there is something already", "Give the name of a new folder")


def write_run(out: Path, folder: Path, model: nn.Module, tokenizers: TokenizerPair, config: Mapping[str, Any]) -> None:
    """A finished run of a model that came from a folder."""

    def fill(place: Path) -> None:
        save_tensors(place / WEIGHTS, weights_of(model))
        tokenizers.save(place)
        write_json(place / CONFIG, config)
        write_json(place / DATA, {"format": FORMAT, "imported": str(folder)})
        write_json(place / RUN, {"format": FORMAT, "status": "finished", "imported": str(folder)})

    out.parent.mkdir(parents=True, exist_ok=True)
    write_folder(out, fill)
