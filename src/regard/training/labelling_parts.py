"""What runs on labelled and on tagged text share: their tokenizer, where their weights begin, and what their folder says."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from regard.core import config as configuration
from regard.core.errors import ConfigError
from regard.core.files import (
    MANIFEST,
    check_manifest,
    load_tensors,
    save_tensors,
    write_folder,
    write_json,
    write_manifest,
)
from regard.data.augment import AugmentConfig
from regard.data.tokenizers import TokenizerPair
from regard.models.base import build_model
from regard.tasks.folder import (
    CHECKPOINTS,
    CONFIG,
    DATA,
    FORMAT,
    WEIGHTS,
    labels_of,
    put_weights,
    read_config,
    tokenizer_names,
    weights_folder,
    weights_of,
)
from regard.training.checkpoint import Checkpoints
from regard.training.config import OF_LABELS, RunConfig
from regard.training.first_vectors import begin_with_vectors
from regard.training.other_depth import put_at_depth
from regard.training.progress import Reporter
from regard.training.run_parts import INITIAL

Says = Callable[[Mapping[str, Any]], bool]


def check_labelling_settings(config: RunConfig, valid: int, setting: str, measures: Sequence[str]) -> None:
    """Refuses settings that mean nothing for labelled or tagged text. `setting` names the validation text."""
    train = config.train
    if train.best_by not in ("loss", *OF_LABELS) or train.valid_sentences:
        shown = " or ".join([f"train.best_by={measures[0]}", *measures[1:], "loss"])
        raise ConfigError("setting train.best_by", "a model that names labels has no BLEU", f"Use {shown}")
    if train.window:
        raise ConfigError("setting train.window", "it is about language models", "Use train.max_tokens")
    if config.augment != AugmentConfig():
        raise ConfigError("section augment", "it changes sentence pairs, and the text has labels", "Leave it out")
    if train.patience and not valid:
        raise ConfigError("setting train.patience", "early stopping needs validation text", f"Set data.{setting}")
    if train.best_by in measures and not valid:
        raise ConfigError("setting train.best_by", "it needs validation text", f"Set data.{setting}")
    if train.best_by not in (*measures, "loss"):
        what = f"there is no {train.best_by} of these labels"
        raise ConfigError("setting train.best_by", what, f"Use {' or '.join(measures)} or loss")


def first_tokenizers(
    config: RunConfig, texts: Sequence[str], start_from: str | None, report: Reporter
) -> TokenizerPair:
    """The tokenizer of the run that this one starts from, or a new one."""
    if start_from is not None:
        one = TokenizerPair.load(Path(start_from)).source
        return TokenizerPair(one, one, joint=True)
    report.say("Training the tokenizer...")
    return TokenizerPair.train_on_text(texts, config.tokenizer)


def most_tokens(config: RunConfig, model: Any) -> int:
    """How many tokens of a text are read together."""
    return min([config.train.max_tokens, *(n for n in (model.limits.source,) if n is not None)])


def say_cut(counts: Mapping[str, int], most: int, config: RunConfig, unit: str, report: Reporter) -> None:
    """Says how many texts of each part lost their end."""
    why = "train.max_tokens" if most == config.train.max_tokens else "the model's limit"
    for name, count in counts.items():
        if count:
            report.say(f"{count:,} {name} {unit} are cut: they are longer than {most} tokens ({why}).")


def first_labelling_model(
    folder: Path,
    config: RunConfig,
    tokenizers: TokenizerPair,
    labels: Sequence[str],
    start_from: str | None,
    report: Reporter,
    fits: Says = lambda theirs: True,
) -> Any:
    """A new model; of a run that starts from another, with the other's weights: all, or those of its body.

    `fits` says whether the configuration of another run with labels is that of text like this one's.
    """
    torch.manual_seed(config.train.seed)
    sizes = {"source_vocabulary": tokenizers.source.size, "target_vocabulary": len(labels) + 1, "shared": False}
    model = build_model(config.model.name, config.model, **sizes)
    begun = bool(Checkpoints(folder / CHECKPOINTS).steps())
    if start_from is not None and not begun:
        initial = folder / INITIAL
        if not initial.exists():  # our own copy: the other run may go away
            other = Path(start_from)
            whole = _has_same_labels(read_config(other), other, labels, fits)
            place = weights_folder(other)
            check_manifest(place, [WEIGHTS])
            put_at_depth(model if whole else model.body, load_tensors(place / WEIGHTS), place, report)
            write_folder(initial, lambda place: save_tensors(place / WEIGHTS, weights_of(model)))
        check_manifest(initial, [WEIGHTS])
        put_weights(model, load_tensors(initial / WEIGHTS), initial)
    begin_with_vectors(model, tokenizers, config.train.vectors, config.train.freeze_vectors, begun, report)
    return model


def _has_same_labels(theirs: Mapping[str, Any], other: Path, labels: Sequence[str], fits: Says) -> bool:
    """Whether the other run's model names labels, too: then the same."""
    if "labels" not in theirs:
        return False
    same = labels_of(dict(theirs), other) == list(labels)
    if not same or not fits(theirs):
        shown = ", ".join(theirs["labels"][:10])
        what = f"its labels ({shown}) are not those of this text" if not same else "its text is of another kind"
        todo = "Start from the model that it began with, or give text like its own"
        raise ConfigError(f"--from {other}", what, todo)
    return True


def write_labelling_config(
    folder: Path, config: RunConfig, tokenizers: TokenizerPair, labels: Sequence[str], **more: Any
) -> None:
    """Writes the resolved configuration of a new run. From then on, it is checked."""
    if (folder / MANIFEST).exists():
        return
    size = tokenizers.source.size
    plain = {
        "format": FORMAT,
        "resolved": True,
        **configuration.to_plain(config),
        "vocabulary": {"source": size, "target": size, "shared": True},
        "labels": list(labels),
        **more,
    }
    write_json(folder / CONFIG, plain)
    write_manifest(folder, [CONFIG, DATA, *tokenizer_names(folder)])
