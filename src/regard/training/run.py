"""A run from beginning to end: folder, data, tokenizer, model, training, final weights, scores.

The folder with what was asked for exists before any other work, so that a run killed at any moment can be resumed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import platform
import shlex
import shutil
import signal
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

import regard
from regard.core import config as configuration
from regard.core.device import choose_device
from regard.core.errors import CheckpointError, ConfigError, DataError, TokenizerError
from regard.core.files import (
    MANIFEST,
    check_manifest,
    load_tensors,
    read_json,
    remove_partials,
    save_tensors,
    write_folder,
    write_json,
    write_manifest,
)
from regard.data.changes import augmentation
from regard.data.corpus import Corpus, load_corpus
from regard.data.tokenizers import TokenizerPair
from regard.evaluation.metrics import Score
from regard.models.base import Writer
from regard.tasks.folder import (
    CHECKPOINTS,
    CONFIG,
    DATA,
    FORMAT,
    RUN,
    SCORES,
    STATE,
    WEIGHTS,
    find_run,
    load_model,
    put_weights,
    tokenizer_names,
    weights_of,
)
from regard.tasks.lines import Habits
from regard.tasks.pretrained import find_model
from regard.tasks.translation import Translator
from regard.training.checking import check_before_training, keep_input
from regard.training.checkpoint import Checkpoints
from regard.training.config import RunConfig, build_run_config
from regard.training.loop import Trainer
from regard.training.place import disk_errors, forget, locked, new_folder
from regard.training.progress import Reporter
from regard.training.request import gather
from regard.training.signals import Terminated, terminable
from regard.training.text import longest, model_for, sizes_for, token_store, train_tokenizers, with_allowed
from regard.training.validation import Validation, score_text

INITIAL = "initial"  # the weights that a fine-tuning run starts from
DEFAULT_DECODED = 500


@dataclasses.dataclass(frozen=True)
class RunResult:
    """How a run ended. `interrupted` is the signal that stopped it, or None."""

    folder: Path
    interrupted: int | None
    scores: dict[str, Score]
    summary: dict[str, Any]


def train(
    recipe: str | None = None,
    *,
    out: str | Path,
    src: str = "",
    tgt: str = "",
    pairs: str = "",
    settings: str | Mapping[str, Any] | Iterable[str] = (),
    allow: Iterable[str] = (),
    start_from: str | Path | None = None,
    report: Reporter | None = None,
    command: str = "",
) -> RunResult:
    """Trains a model into a new folder.

    Give a recipe (a name that `regard recipes` lists, or a path), or two aligned text files, or one file of pairs, or a
    recipe and files, which go over the recipe's. Without a recipe, sizes are chosen from the data. `settings` go over
    everything: nested values, or texts such as "train.steps=1000". `allow` names findings of the data check that do not
    refuse. `start_from` is another run, whose model, tokenizer and weights this one begins with.
    """
    report = report or Reporter()
    if start_from is not None:
        start_from = find_model(start_from)
        load_model(start_from)  # damaged weights are an error before there is a folder
    values = with_allowed(gather(recipe, {"src": src, "tgt": tgt, "pairs": pairs}, settings, start_from), allow)
    choose_device(build_run_config(values).train.device)
    existed = Path(out).exists()
    folder = new_folder(Path(out))
    request = {
        "format": FORMAT,
        "given": values,
        "choose_sizes": recipe is None,
        "start_from": str(Path(start_from).absolute()) if start_from is not None else None,
        "command": command or shlex.join(sys.argv),
        "working_folder": os.getcwd(),
        "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "versions": versions(),
        "status": "started",
    }
    try:
        keep_input(values["data"], folder)
        return _go(folder, report, request)
    except (ConfigError, DataError, TokenizerError):
        forget(folder, existed)
        raise


def resume(folder: str | Path, report: Reporter | None = None) -> RunResult:
    """Goes on with a run from its newest checkpoint, exactly as if it had never stopped."""
    folder = Path(folder)
    if not (folder / RUN).is_file():
        find_run(folder)
        raise CheckpointError(
            folder, f"it has no {RUN}: it is a model, not a run that can go on", "Start a new run with --from"
        )
    return _go(folder, report or Reporter())


def versions() -> dict[str, str]:
    import sacrebleu
    import tokenizers

    return {
        "regard": regard.__version__,
        "torch": torch.__version__,
        "tokenizers": tokenizers.__version__,
        "sacrebleu": sacrebleu.__version__,
        "python": platform.python_version(),
    }


def _go(folder: Path, report: Reporter, request: dict[str, Any] | None = None) -> RunResult:
    """Runs what a folder asks for; with a request, it is a new run, and the request is written first of all."""
    try:
        with disk_errors(folder), terminable(), locked(folder):
            if request is not None:
                if (folder / RUN).exists():  # another process was quicker
                    raise CheckpointError(folder, "another process has started a run here", "Give another --out")
                write_json(folder / RUN, request)
            remove_partials(folder)
            return _run(folder, report)
    except KeyboardInterrupt as stop:  # before or after the training loop, which sees to signals itself
        number = signal.SIGTERM if isinstance(stop, Terminated) else signal.SIGINT
        steps = sorted(path.name.removeprefix("step-") for path in (folder / CHECKPOINTS).glob("step-*"))
        return RunResult(folder, int(number), {}, {"steps": int(steps[-1]) if steps else 0})


def _run(folder: Path, report: Reporter) -> RunResult:
    request = read_json(folder / RUN)
    if not isinstance(request, dict) or not isinstance(request.get("given"), dict):
        raise CheckpointError(folder / RUN, "it is not a run that regard wrote", "Give the folder of a regard run")
    if request.get("status") == "finished":
        report.say(f"{folder}: the run is finished; nothing is left to do.")
        return RunResult(folder, None, _read_scores(folder), request.get("summary", {}))
    if not (folder / CONFIG).exists():  # first of all, so that the folder says what it is
        config = build_run_config(request["given"])
        write_json(folder / CONFIG, {"format": FORMAT, "resolved": False, **configuration.to_plain(config)})
    if (folder / MANIFEST).exists():
        check_manifest(folder, [CONFIG, *tokenizer_names(folder)])
    saved = read_json(folder / CONFIG)
    data = build_run_config(_sections(saved)).data
    if not (folder / DATA).exists():  # a run that goes on has been checked when it began
        check_before_training(data, report)
    corpus = load_corpus(data, report.say)
    if not saved.get("resolved"):
        values = request["given"]
        if request.get("choose_sizes"):
            chosen = sizes_for(corpus, values, fine_tuning=request.get("start_from") is not None)
            listed = _as_settings(chosen, values)
            values = configuration.merge(chosen, values)
            if listed:
                report.say(f"Chosen from the data: {listed}. Change any of it with section.key=value.")
        saved = configuration.to_plain(build_run_config(values))
    config = build_run_config(_sections(saved))
    _set_threads(folder, config)
    _check_data(folder, corpus, report)
    tokenizers = _tokenizers(folder, config, corpus, request.get("start_from"), report)
    model = _model(folder, config, tokenizers, request.get("start_from"))
    most = longest(config, model)
    train_store = token_store(corpus, tokenizers, most, report)
    if train_store.dropped:
        why = "train.max_tokens" if most == config.train.max_tokens else "the model's limit"
        report.say(f"{train_store.dropped:,} pairs are longer than {most} tokens ({why}) and are left out.")
    vocabulary = {"source": tokenizers.source.size, "target": tokenizers.target.size, "shared": tokenizers.joint}
    habits = Habits.of(corpus.train, int(np.percentile(train_store.source.lengths, 99.5)) + 1)
    if not (folder / MANIFEST).exists():
        write_json(
            folder / CONFIG,
            {
                "format": FORMAT,
                "resolved": True,
                **configuration.to_plain(config),
                "vocabulary": vocabulary,
                "usual_source_length": habits.usual_length,
                "one_sentence_lines": habits.one_sentence,
            },
        )
        write_manifest(folder, [CONFIG, DATA, *tokenizer_names(folder)])  # from now on, these are checked
    device = choose_device(config.train.device)
    report.say(
        f"{len(train_store):,} training pairs, {len(corpus.valid):,} for validation, {len(corpus.test):,} for testing; "
        f"{config.model.name} with {model.parameters_count():,} parameters on {device}"
    )
    translator = Translator(model, tokenizers, config.search, device=device, habits=habits)
    validation = _validation(config, corpus, translator, most)
    change, growth = augmentation(config.augment, train_store, tokenizers, config.train.seed, most)
    trainer = Trainer(model, train_store, validation, config.train, folder, device, report, change, growth)
    interrupted = trainer.run()
    if interrupted is not None:
        write_json(folder / RUN, {**request, "status": "interrupted"})
        return RunResult(folder, interrupted, {}, trainer.summary())
    save_tensors(folder / WEIGHTS, weights_of(model))
    write_manifest(folder, [WEIGHTS, CONFIG, *tokenizer_names(folder)])
    scores = _test(folder, config, corpus, translator, report)
    summary = {**trainer.summary(), "pairs": len(train_store), "left_out": train_store.dropped}
    request |= {"status": "finished", "summary": {**summary, "device": _device_name(device)}}
    write_json(folder / RUN, request)
    shutil.rmtree(folder / INITIAL, ignore_errors=True)
    return RunResult(folder, None, scores, summary)


def _as_settings(chosen: Mapping[str, Any], given: Mapping[str, Any]) -> str:
    """What was chosen and not given, as the user would write it."""
    return " ".join(
        f"{section}.{key}={value}"
        for section, part in chosen.items()
        for key, value in part.items()
        if key not in given.get(section, {})
    )


def _sections(saved: Mapping[str, Any]) -> dict[str, Any]:
    return {name: saved[name] for name in ("data", "tokenizer", "model", "augment", "train", "search") if name in saved}


def _device_name(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{device.type}, {torch.get_num_threads()} threads"


def _set_threads(folder: Path, config: RunConfig) -> None:
    """Another number of threads gives other weights in the last bits: a resumed run takes the number it began with."""
    if config.train.threads:
        torch.set_num_threads(config.train.threads)
        return
    checkpoints = Checkpoints(folder / CHECKPOINTS)
    for step in checkpoints.steps():
        with contextlib.suppress(CheckpointError):
            threads = read_json(checkpoints.path(step) / STATE).get("threads")
            if isinstance(threads, int) and 1 <= threads <= 1024:
                torch.set_num_threads(threads)
                return


def _check_data(folder: Path, corpus: Corpus, report: Reporter) -> None:
    """Records the data's fingerprint, or on resume refuses data that is not what the run began with."""
    if (folder / DATA).exists():
        known = read_json(folder / DATA)
        if known.get("fingerprint") != corpus.fingerprint:
            raise DataError(
                folder, "the text is not what this run was started with", "Restore the files, or start a new run"
            )
        return
    if corpus.dropped:
        report.say(f"{corpus.dropped:,} pairs with an empty side are left out.")
    for name, count in corpus.filtered.items():
        report.say(f"{count:,} pairs are left out by the filter {name}.")
    if corpus.set_apart:
        report.say(f"{corpus.set_apart:,} more pairs are left out, since their sentences are held out.")
    sizes = {
        "train": len(corpus.train),
        "valid": len(corpus.valid),
        "test": len(corpus.test),
        "dropped": corpus.dropped,
        "filtered": corpus.filtered,
        "set_apart": corpus.set_apart,
    }
    write_json(
        folder / DATA,
        {"fingerprint": corpus.fingerprint, "pairs": sizes, "files": {k: str(v) for k, v in corpus.files.items()}},
    )


def _tokenizers(
    folder: Path, config: RunConfig, corpus: Corpus, start_from: str | None, report: Reporter
) -> TokenizerPair:
    if any(folder.glob("tokenizer*.json")):
        with contextlib.suppress(TokenizerError):  # killed while they were written: they will come out the same
            return TokenizerPair.load(folder)
    if start_from is not None:
        tokenizers = TokenizerPair.load(Path(start_from))
        for tag in corpus.tags:
            tokenizers.source.tag(tag)  # says so where the other run does not know it
    else:
        tokenizers = train_tokenizers(corpus, config.tokenizer, report)
    tokenizers.save(folder)
    return tokenizers


def _model(folder: Path, config: RunConfig, tokenizers: TokenizerPair, start_from: str | None) -> Writer:
    torch.manual_seed(config.train.seed)
    model = model_for(config, tokenizers)
    if start_from is not None and not Checkpoints(folder / CHECKPOINTS).steps():
        initial = folder / INITIAL
        if not initial.exists():  # our own copy: the other run may go away
            other, _, _ = load_model(Path(start_from))
            write_folder(initial, lambda place: save_tensors(place / WEIGHTS, weights_of(other)))
        check_manifest(initial, [WEIGHTS])
        put_weights(model, load_tensors(initial / WEIGHTS), initial)
    return model


def _validation(config: RunConfig, corpus: Corpus, translator: Translator, most: int) -> Validation | None:
    if not len(corpus.valid):
        if config.train.best_by == "bleu" or config.train.patience:
            raise ConfigError(
                "setting train.patience",
                "early stopping needs validation text",
                "Set data.valid_src and data.valid_tgt",
            )
        return None
    decoded = config.train.valid_sentences or (DEFAULT_DECODED if config.train.best_by == "bleu" else 0)
    return Validation(
        corpus.valid,
        translator,
        batch_tokens=config.train.batch_tokens,
        max_tokens=most,
        decoded=decoded,
        language=config.data.target_language,
    )


def _test(
    folder: Path, config: RunConfig, corpus: Corpus, translator: Translator, report: Reporter
) -> dict[str, Score]:
    """Scores the final model on the held-out text, by the same path as validation."""
    part, name = (corpus.test, "test") if len(corpus.test) else (corpus.valid, "validation")
    if not len(part):
        return {}
    report.say(f"Translating {len(part):,} {name} sentences...")
    began = time.monotonic()
    scores = score_text(translator, part, config.data.target_language, confidence=True)
    rows = {key: score.to_plain() for key, score in scores.items()}
    write_json(
        folder / SCORES,
        {"part": name, "sentences": len(part), "seconds": round(time.monotonic() - began, 1), "scores": rows},
    )
    for score in scores.values():
        report.say(f"{score}  ({score.signature})")
    return scores


def _read_scores(folder: Path) -> dict[str, Score]:
    if not (folder / SCORES).exists():
        return {}
    return {key: Score(**row) for key, row in read_json(folder / SCORES)["scores"].items()}
