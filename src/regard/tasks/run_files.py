"""A run is a folder: the names of its files, and what can be read of one without torch.

run.json            what was asked for: settings given, command, versions, state of the run
config.json         the resolved configuration, with the sizes of the vocabularies
data.json           fingerprint, sizes and files of the data
tokenizer.json      or tokenizer.src.json and tokenizer.tgt.json
model.safetensors   the final weights
manifest.json       SHA-256 of all that is needed to use the model
scores.json         scores on held-out text, with signatures
metrics.jsonl       what was logged while training
resumed.jsonl       the steps after which it went on, where it was interrupted
checkpoints/        step-N folders, each with a manifest of its own; best/ is the best validated model
ctranslate2/        the model as CTranslate2 reads it, made when it first translates on a CPU; can be deleted
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any, NamedTuple

from regard.core.errors import CheckpointError, TokenizerError
from regard.core.files import MANIFEST, check_manifest, check_place, quoted, read_json
from regard.data.tokenizers import TokenizerPair

RUN, CONFIG, DATA, SCORES, METRICS = "run.json", "config.json", "data.json", "scores.json", "metrics.jsonl"
WEIGHTS, OPTIMIZER, STATE = "model.safetensors", "optimizer.safetensors", "state.json"
CHECKPOINTS, BEST = "checkpoints", "best"
RESUMED = "resumed.jsonl"
FORMAT = 1
MAX_LABELS = 1 << 20


def find_run(folder: Path) -> Path:
    """Checks that a path is a run folder."""
    if not folder.exists():
        raise CheckpointError(folder, "there is no such folder", "Give the folder that `regard train --out` wrote")
    if not folder.is_dir():
        raise CheckpointError(
            folder, "it is a file, not a run folder", "Give the folder that `regard train --out` wrote"
        )
    if not (folder / CONFIG).is_file():
        inside = next((config.parent for config in sorted(folder.glob(f"runs/*/seed-*/{CONFIG}"))), None)
        give = "Give the folder that `regard train --out` wrote"
        todo = give if inside is None else f"`regard compare` wrote it: give one of its runs, such as {quoted(inside)}"
        raise CheckpointError(folder, f"it is not a run folder: it has no {CONFIG}", todo)
    return folder


def weights_folder(folder: Path) -> Path:
    """Where a run's usable weights are: the finished model, else the best or newest checkpoint so far."""
    if not (folder / CHECKPOINTS).is_dir() or _is_finished(folder):
        return folder
    check_place(folder / CHECKPOINTS)
    damage: CheckpointError | None = None
    for candidate in [folder / CHECKPOINTS / BEST, *sorted((folder / CHECKPOINTS).glob("step-*"), reverse=True)]:
        if candidate.is_dir():
            try:
                check_place(candidate)
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


class Opened(NamedTuple):
    """What is read of a run before its weights, checked against the manifest."""

    config: dict[str, Any]
    place: Path  # where the weights are
    tokenizers: TokenizerPair


def open_run(folder: Path) -> Opened:
    """The configuration and the tokenizers of a run, and where its weights are; all of it is what the manifests say."""
    config = read_config(folder)
    place = weights_folder(folder)
    if place == folder and not (folder / WEIGHTS).exists() and not _is_finished(folder):
        raise CheckpointError(
            folder, "the run has no weights yet", f"Go on with `regard train --resume {quoted(folder)}`"
        )
    needed = [CONFIG, *tokenizer_names(folder)]
    if place == folder:
        check_manifest(folder, [WEIGHTS, *needed])
    else:
        check_manifest(place, [WEIGHTS])
        check_manifest(folder, needed)
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
    return Opened(config, place, tokenizers)
