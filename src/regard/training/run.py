"""A run from beginning to end: folder, data, tokenizer, model, training, final weights, scores.

The folder with what was asked for exists before any other work, so that a run killed at any moment can be resumed.
"""

from __future__ import annotations

import contextlib
import os
import platform
import shlex
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

import regard
from regard.core import config as configuration
from regard.core.device import choose_device
from regard.core.errors import CheckpointError, ConfigError, DataError, TokenizerError
from regard.core.files import MANIFEST, check_manifest, read_json, remove_partials, write_json
from regard.models.base import MODELS, Capability
from regard.tasks.folder import CHECKPOINTS, CONFIG, FORMAT, RUN, find_run, load_model, read_config, tokenizer_names
from regard.tasks.pretrained import find_model
from regard.training.checking import keep_input
from regard.training.config import build_run_config
from regard.training.distributed.joining import joined
from regard.training.distributed.team import Team, current_team
from regard.training.other_depth import differs_in_depth
from regard.training.place import disk_errors, forget, locked, new_folder
from regard.training.progress import Reporter
from regard.training.request import gather
from regard.training.run_parts import RunResult, read_scores
from regard.training.signals import Terminated, terminable
from regard.training.text import with_allowed

__all__ = ["RunResult", "resume", "train", "versions"]


def train(
    recipe: str | None = None,
    *,
    out: str | Path,
    src: str = "",
    tgt: str = "",
    pairs: str = "",
    text: str = "",
    labelled: str = "",
    tagged: str = "",
    settings: str | Mapping[str, Any] | Iterable[str] = (),
    allow: Iterable[str] = (),
    start_from: str | Path | None = None,
    report: Reporter | None = None,
    command: str = "",
) -> RunResult:
    """Trains a model into a new folder.

    Give a recipe (a name that `regard recipes` lists, or a path), or two aligned text files, or one file of pairs, or plain
    text for a language model, labelled text for a classifier or tagged text for a tagger, or a recipe and files, which go over
    the recipe's. Without a recipe, sizes are chosen from the data. `settings` go over everything: nested values, or texts such
    as "train.steps=1000". `allow` names findings of the data check that do not refuse. `start_from` is another run, whose
    model, tokenizer and weights this one begins with; of models whose layers are all alike, settings may ask for other depths.
    """
    report, command = report or Reporter(), command or shlex.join(sys.argv)
    files = {"src": src, "tgt": tgt, "pairs": pairs, "text": text, "labelled": labelled, "tagged": tagged}
    with joined() as team:
        if not team.leads or (
            team.again and _was_asked(Path(out), command)
        ):  # the leader has made, or had made, the folder
            return _go(Path(out), report)
        with _telling(team):
            values, start_from = asked(recipe, files, settings, allow, start_from)
            existed = Path(out).exists()
            folder = new_folder(Path(out))
            request = {
                "format": FORMAT,
                **what_is_asked(recipe, values, start_from),
                "command": command,
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


def _was_asked(folder: Path, command: str) -> bool:
    """Whether a folder holds the run that a command began, before a launcher gave the command anew."""
    if not (folder / RUN).is_file():
        return False
    request = read_json(folder / RUN)
    return isinstance(request, dict) and request.get("command") == command


@contextlib.contextmanager
def _telling(team: Team) -> Iterator[None]:
    """However the leader ends, the others do not wait for it."""
    failed = True
    try:
        yield
        failed = False
    finally:
        team.say_end(failed)


def asked(
    recipe: str | None,
    files: Mapping[str, str],
    settings: str | Mapping[str, Any] | Iterable[str],
    allow: Iterable[str],
    start_from: str | Path | None,
) -> tuple[dict[str, Any], Path | None]:
    """The values of a run and the run it starts from, all checked before there is a folder."""
    if start_from is not None:
        start_from = find_model(start_from)
        load_model(start_from)  # damaged weights
    values = with_allowed(gather(recipe, files, settings, start_from), allow)
    choose_device(build_run_config(values).train.device)
    return values, start_from


def what_is_asked(recipe: str | None, values: Mapping[str, Any], start_from: Path | None) -> dict[str, Any]:
    """What a run keeps of a request. All that it has to know of the run it starts from: that one may go away."""
    student = start_from is not None and differs_in_depth(
        build_run_config(values).model, read_config(start_from)["model"]
    )
    place = str(start_from.absolute()) if start_from is not None else None
    return {"given": values, "choose_sizes": recipe is None, "start_from": place, "student": student}


def resume(folder: str | Path, report: Reporter | None = None) -> RunResult:
    """Goes on with a run from its newest checkpoint, exactly as if it had never stopped."""
    folder = Path(folder)
    with joined() as team, _telling(team):
        if not (folder / RUN).is_file() and team.leads:
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


@contextlib.contextmanager
def _choices_of_kernels() -> Iterator[None]:
    """What `train.deterministic` asks of torch holds for a run, not for what the program does after it."""
    asked, warned = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    filled = torch.utils.deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(asked, warn_only=warned)
        torch.utils.deterministic.fill_uninitialized_memory = filled  # type: ignore[attr-defined]


@_choices_of_kernels()
def _go(folder: Path, report: Reporter, request: dict[str, Any] | None = None) -> RunResult:
    """Runs what a folder asks for; with a request, it is a new run, and the request is written first of all."""
    team = current_team()
    try:
        if not team.leads:
            report.silence()
            with disk_errors(folder), terminable():
                return _run(folder, report) if team.await_leader() else _finished(folder, read_json(folder / RUN))
        with disk_errors(folder), terminable(), locked(folder), _telling(team):
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
        return _finished(folder, request)
    if not (folder / CONFIG).exists():  # first of all, so that the folder says what it is
        config = build_run_config(request["given"])
        write_json(folder / CONFIG, {"format": FORMAT, "resolved": False, **configuration.to_plain(config)})
    if (folder / MANIFEST).exists():
        check_manifest(folder, [CONFIG, *tokenizer_names(folder)])
    saved = read_json(folder / CONFIG)
    model = MODELS.get(str(saved["model"]["name"]))
    return kind_of_run(model.capabilities)(folder, request, saved, report)


def _finished(folder: Path, request: Mapping[str, Any]) -> RunResult:
    return RunResult(folder, None, read_scores(folder), request.get("summary", {}))


def kind_of_run(capabilities: frozenset[Capability]) -> Callable[[Path, dict, dict, Reporter], RunResult]:
    """The function of (folder, request, configuration, report) that goes on with a run of such a model."""
    if "continues" in capabilities:
        from regard.training.language_run import run_language

        return run_language
    if "classifies" in capabilities:
        from regard.training.classification_run import run_classification

        return run_classification
    if "tags" in capabilities:
        from regard.training.tagging_run import run_tagging

        return run_tagging
    if "fills" in capabilities:
        from regard.training.masked_run import run_masked

        return run_masked
    if "embeds" in capabilities:
        from regard.training.word2vec_run import run_word2vec

        return run_word2vec
    if "composes" in capabilities:
        from regard.training.composing_run import run_composing

        return run_composing
    from regard.training.translation_run import run_translation

    return run_translation
