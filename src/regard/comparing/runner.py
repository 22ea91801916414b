"""Runs a plan: one process for each run, so that one that dies does not take the others with it.

Whatever happens, running the plan again goes on where it stopped: finished runs have a result and are left alone, begun
ones are resumed from their last checkpoint, failed ones are tried again.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import regard
from regard.comparing.budget import step_seconds, steps_within, trial_seconds, with_compiling, with_steps
from regard.comparing.plan import measured_part
from regard.comparing.progress import PlanProgress
from regard.comparing.recipe_text import to_toml
from regard.comparing.results import (
    TEST_REFERENCE,
    TEST_SOURCE,
    Entry,
    Failure,
    Plan,
    failure_path,
    read_result,
    read_translations,
    recipe_path,
    result_path,
    run_folder,
    train_arguments,
    write_failure,
    write_lines,
    write_plan,
)
from regard.core.device import choose_device
from regard.core.errors import CheckpointError
from regard.core.files import read_json, remove_partials, write_bytes
from regard.data.corpus import Corpus
from regard.tasks.folder import METRICS, RUN
from regard.training.log import read_metrics
from regard.training.place import locked
from regard.training.signals import Terminated, terminable

TRIALS = "trials"
MOST_DETAILS = 4000  # characters of what a failed run said
MOST_WARNINGS = 5
TAIL = 4096  # bytes of a log that are read to see how far it is
GLANCE = 0.5  # seconds between two looks
PATIENCE = 30.0  # seconds for the process of a killed plan to save and end
NEVER = 1_000_000_000


def run_plan(folder: Path, plan: Plan, corpus: Corpus, progress: PlanProgress) -> int | None:
    """Runs all that is left of a plan, and measures it. Gives the signal's number if one ended it."""
    try:
        with terminable():
            _run_plan(folder, plan, corpus, progress)
        return None
    except KeyboardInterrupt as stop:
        return int(_number(stop))
    finally:
        progress.end()


def _run_plan(folder: Path, plan: Plan, corpus: Corpus, progress: PlanProgress) -> None:
    _, test = measured_part(corpus)
    remove_partials(folder)
    write_plan(folder, plan)
    for name, lines in ((TEST_SOURCE, test.sources), (TEST_REFERENCE, test.targets)):
        if not (folder / name).exists():
            write_lines(folder / name, lines)
    (folder / "recipes").mkdir(exist_ok=True)
    plan = _with_known_steps(folder, plan, progress)
    for entry in plan.entries:
        if entry.steps:
            _write_recipe(folder, entry, plan)
    left = [(entry, seed) for entry, seed in plan.runs() if not _is_finished(folder, entry, seed)]
    if len(left) < len(plan.runs()):
        progress.report.say(f"{len(plan.runs()) - len(left)} of {len(plan.runs())} runs are finished already.")
    left = [(entry, seed) for entry, seed in left if entry.steps]  # without those whose trial failed
    progress.begin(plan, left)
    for entry, seed in left:
        plan = _one_run(folder, plan, entry, seed, progress)


def _is_finished(folder: Path, entry: Entry, seed: int) -> bool:
    """Whether there is a whole result; a damaged one is measured again."""
    if not result_path(folder, entry.slug, seed).exists():
        return False
    try:
        read_translations(folder, read_result(folder, entry.slug, seed))
    except CheckpointError:
        return False
    return True


def _one_run(folder: Path, plan: Plan, entry: Entry, seed: int, progress: PlanProgress) -> Plan:
    """Trains and measures one run. Gives the plan, which learns from the first one what tokenizer all must have."""
    run = run_folder(folder, entry.slug, seed)
    began = (run / RUN).exists()
    progress.begin_run(entry, seed, began)
    run.parent.mkdir(parents=True, exist_ok=True)
    remove_partials(run.parent)
    log = run.with_name(f"{run.name}.log")
    if not _is_trained(run):
        arguments = ["train", "--resume", str(run)] if began else train_arguments(folder, entry.slug, seed)
        code = run_process(arguments, log, lambda: _glance(run, progress), run if began else None)
        said = _said(log)
        if code == 0 and not _is_trained(run):
            code = 1
        if code != 0:
            _fail(folder, entry, seed, failure_reason(code, said), said, code, progress)
            return plan
        _pass_on_warnings(said, progress)
    progress.measuring()
    result_path(folder, entry.slug, seed).unlink(missing_ok=True)  # a damaged one
    code = run_process(["measure", str(folder), entry.slug, str(seed)], log, lambda: None)
    said = _said(log)
    if code != 0 or not _is_finished(folder, entry, seed):
        reason = failure_reason(code, said) if code else "it wrote no result"
        _fail(folder, entry, seed, f"measuring failed: {reason}", said, code or 1, progress)
        return plan
    _pass_on_warnings(said, progress)
    log.unlink(missing_ok=True)
    result = read_result(folder, entry.slug, seed)
    progress.finished(result)
    if "tokenizer" not in plan.fingerprints:
        plan = dataclasses.replace(plan, fingerprints=result.fingerprints)
        write_plan(folder, plan)
    return plan


def _pass_on_warnings(said: str, progress: PlanProgress) -> None:
    for line in [line for line in said.splitlines() if line.startswith("Warning: ")][:MOST_WARNINGS]:
        progress.report.warn(f"{progress.where}: {line.removeprefix('Warning: ')}")


def _write_recipe(folder: Path, entry: Entry, plan: Plan) -> None:
    about = f"{entry.name}: of a comparison over the recipe {plan.recipe or 'of sizes from the data'}."
    text = to_toml(entry.values, about).encode()
    path = recipe_path(folder, entry.slug)
    if not path.exists() or path.read_bytes() != text:
        write_bytes(path, text)


def _is_trained(run: Path) -> bool:
    with contextlib.suppress(CheckpointError):
        request = read_json(run / RUN) if (run / RUN).exists() else None
        return isinstance(request, dict) and request.get("status") == "finished"
    return False


def _glance(run: Path, progress: PlanProgress) -> None:
    row = last_row(run / METRICS)
    if row is not None:
        progress.update(row)


def last_row(path: Path) -> dict[str, Any] | None:
    """The last whole line of training in a log that is being written; None if there is none yet."""
    try:
        with open(path, "rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - TAIL))
            lines = file.read().split(b"\n")
    except OSError:
        return None
    for line in reversed(lines[:-1]):
        with contextlib.suppress(ValueError):
            row = json.loads(line)
            if isinstance(row, dict) and "tokens_per_second" in row and type(row.get("step")) is int:
                return row
    return None


# Processes ------------------------------------------------------------------------------------------------------------


def run_process(arguments: Sequence[str], log: Path, glance: Callable[[], Any], resumed: Path | None = None) -> int:
    """Runs `regard ARGUMENTS` to its end, and gives its exit code, or minus the signal that killed it.

    `glance` is called again and again meanwhile; if it gives True, the process is asked to stop. Ctrl-C and SIGTERM are
    passed on: the process saves and ends, and then we do. A second one ends it at once.
    """
    if resumed is not None:
        _await_lock(resumed)
    process = start_process(arguments, log)
    try:
        while True:
            try:
                return process.wait(GLANCE)
            except subprocess.TimeoutExpired:
                if glance():
                    process.send_signal(signal.SIGTERM)
                    return process.wait()
    except KeyboardInterrupt as stop:
        while process.poll() is None:
            if os.name != "nt":  # there, a console's Ctrl-C reaches all processes by itself
                process.send_signal(_number(stop))
            with contextlib.suppress(KeyboardInterrupt):
                process.wait()
        raise
    finally:
        if process.poll() is None:  # an error of ours
            process.kill()
            process.wait()
        if process.stdin is not None:
            process.stdin.close()


def start_process(arguments: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
    """Starts `regard ARGUMENTS` in a session of its own, so that Ctrl-C reaches it through us only."""
    here = str(Path(regard.__file__).parent.parent)
    paths = [here, *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    with open(log, "wb") as output:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "regard.comparing.child", *arguments],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )


def _await_lock(run: Path) -> None:
    """Waits until nobody trains in a folder: the process of a killed plan takes a moment to save and end."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        try:
            with locked(run):
                return
        except CheckpointError:
            time.sleep(0.2)


def _number(stop: KeyboardInterrupt) -> signal.Signals:
    return signal.SIGTERM if isinstance(stop, Terminated) else signal.SIGINT


# Failures -------------------------------------------------------------------------------------------------------------


def _fail(
    folder: Path, entry: Entry, seed: int, reason: str, details: str, code: int, progress: PlanProgress | None
) -> None:
    failure = Failure(entry=entry.slug, seed=seed, reason=reason, details=details[-MOST_DETAILS:], exit=code)
    write_failure(folder, failure)
    if progress is not None:
        progress.failed(reason)


def _said(log: Path) -> str:
    """The end of what a process said."""
    try:
        with open(log, "rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - 16 * MOST_DETAILS))
            return file.read().decode(errors="replace")
    except OSError:
        return ""


def failure_reason(code: int, said: str) -> str:
    """Why a process ended, in one line."""
    errors = [line for line in said.splitlines() if line.startswith("Error: ")]
    if errors:
        return errors[-1].removeprefix("Error: ")
    if code == -signal.SIGKILL:
        return "the process was killed, perhaps because the memory was full"
    if code < 0 or code in (128 + signal.SIGINT, 128 + signal.SIGTERM):
        number = -code if code < 0 else code - 128
        return f"the process was ended by {_signal_name(number)}"
    return _last_line(said) or f"the process ended with code {code}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:500] if lines else ""


# Time budgets ---------------------------------------------------------------------------------------------------------


def _with_known_steps(folder: Path, plan: Plan, progress: PlanProgress) -> Plan:
    """With a time budget, the plan with the steps that fit into it, by a trial of each entry. They are fixed from then on."""
    seconds = plan.budget.seconds
    if plan.budget.kind != "time" or seconds is None:
        return plan
    for entry in plan.entries:
        if entry.steps:
            continue
        progress.report.say(f"{entry.name}: a trial, to see how long a step takes")
        on_cuda = choose_device(entry.values["train"]["device"]).type == "cuda"
        entry = dataclasses.replace(entry, values=with_compiling(entry.values, seconds, on_cuda))
        took, code, said = _trial(folder, plan, entry, seconds)
        if took is None:
            reason = f"its trial failed: {failure_reason(code, said)}"
            for seed in plan.seeds:
                _fail(folder, entry, seed, reason, said, code, None)
            progress.report.warn(f"{entry.name}: {reason}")
            continue
        steps = steps_within(seconds, took)
        progress.report.say(f"{entry.name}: {steps:,} steps of {took:.3g} seconds")
        known = dataclasses.replace(entry, steps=steps, values=with_steps(entry.values, steps, entry.fixed))
        for seed in plan.seeds:
            failure_path(folder, entry.slug, seed).unlink(missing_ok=True)
        entries = tuple(known if other.slug == entry.slug else other for other in plan.entries)
        plan = dataclasses.replace(plan, entries=entries)
        write_plan(folder, plan)
    return plan


def _trial(folder: Path, plan: Plan, entry: Entry, seconds: float) -> tuple[float | None, int, str]:
    """What a step takes, the trial's exit code and what it said. The trial has a folder of its own, which goes away."""
    place = folder / TRIALS / entry.slug
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    recipe, run, log = place / "recipe.toml", place / "run", place / "log"
    write_bytes(recipe, to_toml(_trial_values(entry.values)).encode())
    wanted = trial_seconds(seconds)
    first_seen: list[float] = []

    def enough() -> bool:
        row = last_row(run / METRICS)
        if row is None:
            return False
        first_seen.append(time.monotonic())
        return row.get("seconds", 0) >= wanted or first_seen[-1] - first_seen[0] > 4 * wanted

    arguments = ["train", str(recipe), "--out", str(run), f"train.seed={plan.seeds[0]}"]
    try:
        code = run_process(arguments, log, enough)
        said = _said(log)
        stopped = code in (0, -signal.SIGTERM, 128 + signal.SIGTERM)
        return step_seconds(read_metrics(run / METRICS)) if stopped else None, code, said
    finally:
        shutil.rmtree(folder / TRIALS, ignore_errors=True)


def _trial_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """Without validation and without an end; logged often, though not so often that a GPU would wait."""
    on_cuda = choose_device(values["train"]["device"]).type == "cuda"
    endless = {"steps": NEVER, "save_every": NEVER, "validate_every": 0, "log_every": 10 if on_cuda else 2}
    return {**values, "train": {**values["train"], **endless}}
