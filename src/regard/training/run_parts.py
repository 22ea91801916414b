"""What runs of all kinds of text share: how they end, what they write into their folder, and where their weights begin."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from regard.core import config as configuration
from regard.core.errors import CheckpointError, DataError, TokenizerError
from regard.core.files import (
    check_manifest,
    load_tensors,
    read_json,
    save_tensors,
    write_folder,
    write_json,
    write_manifest,
)
from regard.data.tokenizers import TokenizerPair
from regard.evaluation.metrics import Score
from regard.models.base import Writer
from regard.tasks.folder import (
    CHECKPOINTS,
    CONFIG,
    DATA,
    RUN,
    SCORES,
    STATE,
    WEIGHTS,
    load_model,
    tokenizer_names,
    weights_of,
)
from regard.training.checkpoint import Checkpoints
from regard.training.config import RunConfig, build_run_config
from regard.training.distributed.team import current_team
from regard.training.first_vectors import begin_with_vectors
from regard.training.loop import Trainer
from regard.training.other_depth import put_at_depth
from regard.training.progress import Reporter
from regard.training.text import model_for

INITIAL = "initial"  # the weights that a fine-tuning run starts from


@dataclasses.dataclass(frozen=True)
class RunResult:
    """How a run ended. `interrupted` is the signal that stopped it, or None."""

    folder: Path
    interrupted: int | None
    scores: dict[str, Score]
    summary: dict[str, Any]


def as_settings(chosen: Mapping[str, Any], given: Mapping[str, Any]) -> str:
    """What was chosen and not given, as the user would write it."""
    return " ".join(
        f"{section}.{key}={value}"
        for section, part in chosen.items()
        for key, value in part.items()
        if key not in given.get(section, {})
    )


def sections(saved: Mapping[str, Any]) -> dict[str, Any]:
    return {name: saved[name] for name in ("data", "tokenizer", "model", "augment", "train", "search") if name in saved}


def resolved(
    saved: Mapping[str, Any],
    request: Mapping[str, Any],
    choose: Callable[[dict[str, Any]], dict[str, Any]],
    report: Reporter,
) -> RunConfig:
    """The whole configuration of a run; of a new one without a recipe, with the sizes that `choose` finds for what was given."""
    if saved.get("resolved"):
        return build_run_config(sections(saved))
    values = request["given"]
    if request.get("choose_sizes"):
        chosen = choose(values)
        if values.get("train", {}).get("optimizer", "adamw") not in ("adamw", "muon"):
            chosen.get("train", {}).pop(
                "weight_decay", None
            )  # chosen for a decay of its own: inside the gradient it is far too much
        if listed := as_settings(chosen, values):
            report.say(f"Chosen from the data: {listed}. Change any of it with section.key=value.")
        values = configuration.merge(chosen, values)
    return build_run_config(values)


def device_name(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{device.type}, {torch.get_num_threads()} threads"


def set_threads(folder: Path, config: RunConfig) -> None:
    """Another number of threads gives other weights in the last bits: a resumed run takes the number it began with.

    With `train.deterministic`, torch takes kernels that add up in the same order every time (on CUDA; on CPUs all do).
    """
    if config.train.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read when the device is first used
        torch.use_deterministic_algorithms(True)
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined] (nothing reads it)
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


def same_text(folder: Path, fingerprint: str) -> bool:
    """Whether the text has been recorded already. One that is not what the run began with is refused."""
    if not (folder / DATA).exists():
        return False
    if read_json(folder / DATA).get("fingerprint") != fingerprint:
        raise DataError(
            folder, "the text is not what this run was started with", "Restore the files, or start a new run"
        )
    return True


def kept_tokenizers(folder: Path, make: Callable[[], TokenizerPair]) -> TokenizerPair:
    """The tokenizers of the folder, or else new ones, which are kept in it."""
    if any(folder.glob("tokenizer*.json")):
        with contextlib.suppress(TokenizerError):  # killed while they were written: they will come out the same
            return TokenizerPair.load(folder)
    tokenizers = make()
    tokenizers.save(folder)
    return tokenizers


def first_model(
    folder: Path, config: RunConfig, tokenizers: TokenizerPair, start_from: str | None, report: Reporter
) -> Writer:
    """A new model; of a run that starts from another, with the other's weights; and with word vectors, where they are given."""
    torch.manual_seed(config.train.seed)
    model = model_for(config, tokenizers)
    begun = bool(Checkpoints(folder / CHECKPOINTS).steps())
    if start_from is not None and not begun:
        initial = folder / INITIAL
        if not initial.exists():  # our own copy: the other run may go away
            other, _, _ = load_model(Path(start_from))
            write_folder(initial, lambda place: save_tensors(place / WEIGHTS, weights_of(other)))
        check_manifest(initial, [WEIGHTS])
        put_at_depth(model, load_tensors(initial / WEIGHTS), initial, report)
    begin_with_vectors(model, tokenizers, config.train.vectors, config.train.freeze_vectors, begun, report)
    return model


def write_scores(folder: Path, part: str, size: Mapping[str, int], began: float, scores: Mapping[str, Score]) -> None:
    if not current_team().leads:
        return
    rows = {key: score.to_plain() for key, score in scores.items()}
    seconds = round(time.monotonic() - began, 1)
    write_json(folder / SCORES, {"part": part, **size, "seconds": seconds, "scores": rows})


def read_scores(folder: Path) -> dict[str, Score]:
    if not (folder / SCORES).exists():
        return {}
    return {key: Score(**row) for key, row in read_json(folder / SCORES)["scores"].items()}


def go_through(
    folder: Path,
    request: dict[str, Any],
    trainer: Trainer,
    test: Callable[[], dict[str, Score]],
    counts: Mapping[str, int],
) -> RunResult:
    """Trains to the end, keeps the final weights, scores them, and says in the folder that the run is finished.

    A request of `instead` has the trainer tried out rather than run (planning.py).
    """
    if (instead := request.get("instead")) is not None:
        instead(trainer)
        return RunResult(folder, None, {}, {})
    leads = current_team().leads
    interrupted = trainer.run()
    if interrupted is not None:
        if leads:
            write_json(folder / RUN, {**request, "status": "interrupted"})
        return RunResult(folder, interrupted, {}, trainer.summary())
    if leads:
        save_tensors(folder / WEIGHTS, weights_of(trainer.model))
        write_manifest(folder, [WEIGHTS, CONFIG, *tokenizer_names(folder)])
    scores = test()
    summary = {**trainer.summary(), **counts}
    if leads:
        request |= {"status": "finished", "summary": {**summary, "device": device_name(trainer.device)}}
        write_json(folder / RUN, request)
        shutil.rmtree(folder / INITIAL, ignore_errors=True)
    return RunResult(folder, None, scores, summary)
