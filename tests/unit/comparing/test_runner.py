"""Running a plan: failures do not end it, nothing is done twice, and signals reach the run. Trainers are stand-ins."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from test_measure import SETTINGS

import regard.comparing.budget as budget
import regard.comparing.compare as comparing
import regard.comparing.runner as runner
from regard.comparing.compare import compare, report_comparison, resume_comparison
from regard.comparing.results import (
    Decoding,
    RunResult,
    Training,
    failure_path,
    read_plan,
    read_results,
    read_test,
    recipe_path,
    result_path,
    run_folder,
    write_result,
)
from regard.comparing.runner import failure_reason, last_row, run_process
from regard.comparing.summary import summarise
from regard.core.errors import CheckpointError, ConfigError
from regard.core.files import read_json, write_json
from regard.data.split import Pairs
from regard.evaluation.metrics import corpus_scores
from regard.training.place import locked
from regard.training.progress import Reporter

QUIET = Reporter(quiet=True)
TRAINER = """
import json, os, pathlib, shutil, signal, sys, time
ready, arguments = pathlib.Path(sys.argv[1]), sys.argv[2:]
resumed = arguments[1] == "--resume"
out = pathlib.Path(arguments[2] if resumed else arguments[arguments.index("--out") + 1])
with open(ready.parent / "calls", "a") as calls:
    print("resume" if resumed else "train", out.parent.name, out.name, file=calls)
what = (ready.parent / out.parent.name)
what = what.read_text() if what.exists() else "learn"
if "trials" in out.parts and what == "learn":
    what = "trial"
if what == "die":
    os.kill(os.getpid(), signal.SIGKILL)
if what == "refuse":
    sys.exit("Warning: careful\\nError: setting x: it is wrong. Mend it.")
if what in ("wait", "trial"):
    stopped = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda n, _: stopped.append(n))
    out.mkdir(parents=True, exist_ok=True)
    shutil.copy(ready / "run.json", out / "run.json")
    request = json.loads((out / "run.json").read_text())
    (out / "run.json").write_text(json.dumps({**request, "status": "interrupted"}))
    rows = [{"step": step, "seconds": step * 0.5, "tokens_per_second": 9} for step in range(1, 41)]
    (out / "metrics.jsonl").write_text("".join(json.dumps(row) + "\\n" for row in rows))
    while not stopped:
        time.sleep(0.005)
    sys.exit(128 + stopped[0])
shutil.rmtree(out, ignore_errors=True)
shutil.copytree(ready, out, ignore=shutil.ignore_patterns("checkpoints", "tensorboard"))
"""


@pytest.fixture
def trainer(monkeypatch, tmp_path, tiny_run):
    """Makes runs by copying one. A file with the name of an entry says what happens to it instead."""

    def start(arguments, log):
        if arguments[0] == "measure":
            _, folder, slug, seed = arguments
            return measured(Path(folder), slug, int(seed), log)
        with open(log, "wb") as output:
            return subprocess.Popen(
                [sys.executable, "-S", "-c", TRAINER, str(ready), *arguments],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    place = tmp_path / "trainer"
    place.mkdir()
    ready = place / "ready"
    ready.symlink_to(tiny_run)
    monkeypatch.setattr(runner, "start_process", start)
    monkeypatch.setattr(runner, "GLANCE", 0.01)
    monkeypatch.setattr(comparing, "write_report", reported)
    return place


def measured(folder, slug, seed, log):
    """Without translating: what is measured has tests of its own. A file "no measure" says what goes wrong instead."""
    wrong = folder.parent / "trainer" / "no measure"
    code = f"import sys; {wrong.read_text()}" if wrong.exists() else ""
    if not wrong.exists():
        plan, test = read_plan(folder), Pairs(*read_test(folder))
        write_result(folder, *result_of(plan, plan.entry(slug), seed, test))
    with open(log, "wb") as output:
        return subprocess.Popen([sys.executable, "-S", "-c", code], stdin=subprocess.PIPE, stdout=output, stderr=output)


def result_of(plan, entry, seed, test):
    written = [f"{text} {entry.slug}" if i % 2 else text for i, text in enumerate(test.targets)]
    scores = corpus_scores(written, test.targets, plan.flavour, metrics=("bleu", "chrf"))
    result = RunResult(
        entry=entry.slug,
        seed=seed,
        folder=f"runs/{entry.slug}/seed-{seed}",
        parameters=1000,
        pairs=100,
        left_out=0,
        device="cpu",
        machine=plan.machine,
        versions=plan.versions,
        training=Training(steps=20, seconds=1.0, tokens_per_second=100.0),
        decoding=Decoding(
            sentences=len(test),
            tokens=100,
            seconds=1.0,
            tokens_per_second=100.0,
            sentences_per_second=20.0,
            rounds=2,
            batch_tokens=400,
            beam=5,
        ),
        scores=scores,
        perplexity=2.0,
        alignment=None,
        fingerprints={**plan.fingerprints, "tokenizer": "same"},
        commands=("regard train",),
        curve=((10, 3.0),),
    )
    return result, written


def reported(folder):
    """Without pictures."""
    (folder / "report.html").write_text("")
    return summarise(folder)


@pytest.fixture
def ask(text_files, tmp_path):
    def call(models=("transformer", "luong"), out="out", report=QUIET, **asked):
        settings = [
            setting for setting in SETTINGS if not setting.startswith(("model.layers", "model.heads", "model.inner"))
        ]
        return compare(
            src=str(text_files.src),
            tgt=str(text_files.tgt),
            models=models,
            settings=settings,
            out=tmp_path / out,
            report=report,
            **{"seeds": 1, "command": "regard compare", **asked},
        )

    return call


def calls(trainer: Path) -> list[str]:
    path = trainer / "calls"
    made = path.read_text().splitlines() if path.exists() else []
    path.write_text("")
    return made


def times(folder: Path) -> dict[str, int]:
    files = [path for path in (folder / "runs").rglob("*") if path.is_file() and path.name != ".lock"]
    return {str(path): path.stat().st_mtime_ns for path in files}


def test_a_failed_run_does_not_end_the_plan_and_nothing_is_done_twice(trainer, ask, capsys):
    (trainer / "transformer").write_text("die")
    report = Reporter()
    report.console.file = sys.stderr
    found = ask(report=report)
    assert calls(trainer) == ["train transformer seed-1", "train luong seed-1"]
    assert [row["entry"] for row in found.rows] == ["luong", "transformer"]
    assert found.failures[0].reason == "the process was killed, perhaps because the memory was full"
    assert found.failures[0].exit == -signal.SIGKILL
    assert found.report.exists()
    said = capsys.readouterr().err
    assert "Warning: [1/2] transformer, seed 1 failed: the process was killed" in said
    assert "[2/2] luong, seed 1: BLEU " in said

    (trainer / "transformer").write_text("refuse")
    before = times(found.folder)
    again = resume_comparison(found.folder, QUIET)
    assert calls(trainer) == ["train transformer seed-1"]
    assert again.failures[0].reason == "setting x: it is wrong. Mend it."
    assert "Warning: careful" in again.failures[0].details
    assert {name: before[name] for name in before if "luong" in name} == {
        name: time for name, time in times(found.folder).items() if "luong" in name
    }

    (trainer / "transformer").unlink()
    whole = ask()
    assert calls(trainer) == ["train transformer seed-1"]
    assert whole.failures == []
    assert not failure_path(found.folder, "transformer", 1).exists()
    assert len(whole.rows) == len(whole.runs) == 2
    before = times(found.folder)
    assert ask().rows == whole.rows
    assert calls(trainer) == []
    assert times(found.folder) == before

    more = ask(models="luong,transformer,gnmt", seeds=2)
    assert calls(trainer) == [
        "train gnmt seed-1",
        "train transformer seed-2",
        "train luong seed-2",
        "train gnmt seed-2",
    ]
    assert {name: time for name, time in times(found.folder).items() if name in before} == before
    assert [row["seeds"] for row in more.rows] == [2, 2, 2]
    results, _ = read_results(found.folder)
    assert [f"{result.entry} {result.seed}" for result in results] == [
        "transformer 1", "transformer 2", "luong 1", "luong 2", "gnmt 1", "gnmt 2",
    ]  # fmt: skip
    assert more.to_csv(found.folder / "x.csv") == (found.folder / "x.csv").read_text()
    assert "luong" in more.to_latex()
    assert "luong" in more.to_markdown()


def test_a_damaged_result_is_measured_again_without_training(trainer, ask):
    found = ask()
    folder = found.folder
    calls(trainer)
    result_path(folder, "luong", 1).write_text("{")
    with pytest.raises(CheckpointError, match="not valid JSON") as error:
        report_comparison(folder)
    assert f"`regard compare --resume {folder}` measures that run again" in str(error.value)
    assert len(resume_comparison(found.folder, QUIET).runs) == 2
    assert calls(trainer) == []


@pytest.mark.parametrize(
    ("wrong", "reason", "code"),
    [
        ("sys.exit('Error: a: b. C.')", "measuring failed: a: b. C.", 1),
        ("import os; os.kill(os.getpid(), 9)", "measuring failed: the process was killed, perhaps because", -9),
        ("pass", "measuring failed: it wrote no result", 1),
    ],
)
def test_measuring_that_fails_does_not_end_the_plan_and_is_tried_again(trainer, ask, wrong, reason, code):
    (trainer / "no measure").write_text(wrong)
    found = ask()
    assert [failure.exit for failure in found.failures] == [code, code]
    assert found.failures[0].reason.startswith(reason)
    (trainer / "no measure").unlink()
    calls(trainer)
    assert len(resume_comparison(found.folder, QUIET).runs) == 2
    assert calls(trainer) == []  # they are trained


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_reach_the_run_and_the_plan_can_go_on(trainer, ask, tmp_path, number):
    (trainer / "luong").write_text("wait")

    def interrupt():
        while not (run_folder(tmp_path / "out", "luong", 1) / "metrics.jsonl").exists():
            time.sleep(0.01)
        os.kill(os.getpid(), number)

    thread = threading.Thread(target=interrupt)
    thread.start()
    found = ask()
    thread.join()
    assert found.interrupted == number
    assert [row["entry"] for row in found.runs] == ["transformer"]
    assert not failure_path(found.folder, "luong", 1).exists()
    calls(trainer)
    (trainer / "luong").unlink()
    assert len(resume_comparison(found.folder, QUIET).runs) == 2
    assert calls(trainer) == ["resume luong seed-1"]


def test_a_time_budget_fixes_the_steps_by_a_trial(trainer, ask, monkeypatch):
    monkeypatch.setattr(budget, "SHORTEST_TRIAL", 0.1)
    found = ask(budget="time", seconds=60.0)
    assert calls(trainer)[:2] == ["train transformer run", "train luong run"]
    plan = read_plan(found.folder)
    assert [entry.steps for entry in plan.entries] == [120, 120]
    train = plan.entries[0].values["train"]
    assert train["steps"] == 120
    assert (train["warmup"], train["save_every"]) == (5, 10)  # as they were given
    assert train["validate_every"] == 0
    assert train["compile"] is False  # 60 seconds are too few
    assert "steps = 120" in recipe_path(found.folder, "luong").read_text()
    assert not (found.folder / "trials").exists()
    ask(budget="time", seconds=60.0)
    assert calls(trainer) == []
    with pytest.raises(ConfigError, match=r"budget was time \(60 seconds\), not time"):
        ask(budget="time", seconds=61.0)


def test_a_trial_that_fails_is_reported_and_tried_again(trainer, ask, monkeypatch):
    monkeypatch.setattr(budget, "SHORTEST_TRIAL", 0.1)
    for number in (1, 2):
        (trainer / "luong").write_text("refuse")
        found = ask(budget="time", seconds=60.0)
        assert [failure.reason for failure in found.failures] == ["its trial failed: setting x: it is wrong. Mend it."]
        assert len(found.runs) == 1, number
    (trainer / "luong").unlink()
    found = resume_comparison(found.folder, QUIET)
    assert found.failures == []
    assert len(found.runs) == 2


def test_a_comparison_made_in_python_says_how(trainer, ask, tmp_path):
    found = ask(command="", models=["luong", "gnmt"], lowercase=True)
    (asked,) = read_plan(found.folder).commands
    said = asked["command"]
    assert asked["folder"] == os.getcwd()
    assert said.startswith("regard.compare(src='")
    assert "models=['luong', 'gnmt'], seeds=1, settings=[" in said
    assert said.endswith(f"lowercase=True, out='{tmp_path / 'out'}')")
    assert isinstance(found.rows[0]["bleu"], float)


def test_an_entry_can_be_taken_out_of_the_plan(trainer, ask):
    """As the documentation says: by taking it out of plan.json."""
    (trainer / "transformer").write_text("refuse")
    found = ask(models="transformer,luong,gnmt")
    assert len(found.failures) == 1
    plan = read_json(found.folder / "plan.json")
    write_json(found.folder / "plan.json", {**plan, "entries": plan["entries"][1:]})
    whole = report_comparison(found.folder)
    assert whole.failures == []
    assert sorted(row["entry"] for row in whole.rows) == ["gnmt", "luong"]
    calls(trainer)
    assert resume_comparison(found.folder, QUIET).rows == whole.rows
    assert calls(trainer) == []


def test_two_plans_do_not_work_in_one_folder(trainer, ask, tmp_path):
    found = ask()
    with locked(found.folder), pytest.raises(CheckpointError, match="another process"):
        resume_comparison(found.folder, QUIET)


def test_a_folder_that_is_no_comparison_has_no_report(tmp_path):
    with pytest.raises(CheckpointError, match=r"it is no comparison: it has no plan\.json"):
        report_comparison(tmp_path)


@pytest.mark.parametrize(
    ("code", "said", "reason"),
    [
        (1, "Warning: a\nError: b: c. D.\n", "b: c. D."),
        (1, "Traceback\n  x\nValueError: y\n", "ValueError: y"),
        (-11, "", "the process was ended by SIGSEGV"),
        (143, "Stopped and saved at step 3.", "the process was ended by SIGTERM"),
        (3, "", "the process ended with code 3"),
        (-99, "", "the process was ended by signal 99"),
    ],
)
def test_reasons(code, said, reason):
    assert failure_reason(code, said) == reason


def test_the_last_row_of_a_log_that_is_being_written(tmp_path):
    path = tmp_path / "metrics.jsonl"
    assert last_row(path) is None
    path.write_text("x\n")
    assert last_row(path) is None
    rows = [{"step": step, "tokens_per_second": 5} for step in range(400)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows) + '{"step": 400, "valid_nll": 2}\n{"st')
    assert last_row(path) == rows[-1]


def test_a_run_ends_when_its_plan_is_killed(tmp_path):
    """A real process of a run, whose plan is killed: the pipe from it ends, and so does the run."""
    log = tmp_path / "log"
    code = (
        "import os, subprocess, sys, time; "
        "p = subprocess.Popen([sys.executable, '-c', sys.argv[1]], stdin=subprocess.PIPE, start_new_session=True); "
        "print(p.pid, flush=True); time.sleep(60)"
    )
    follower = (
        "import sys, time, runpy; runpy.run_module = lambda *_, **__: time.sleep(60); "
        "from regard.comparing.child import main; main()"
    )
    with open(log, "wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-c", code, follower], stdout=subprocess.PIPE, stderr=output, text=True
        )
    assert process.stdout is not None
    pid = int(process.stdout.readline())
    time.sleep(0.3)
    os.kill(pid, 0)
    process.kill()
    process.wait()
    process.stdout.close()
    until = time.monotonic() + 20
    while _lives(pid):
        assert time.monotonic() < until
        time.sleep(0.01)


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (OSError, IndexError):
        return False


def test_a_real_process_is_regard(tmp_path):
    assert run_process(["--version"], tmp_path / "log", lambda: None) == 0
    assert (tmp_path / "log").read_text().startswith("regard ")
    assert run_process(["no-such-verb"], tmp_path / "log", lambda: None) == 2
    assert "Error: regard: no such command" in (tmp_path / "log").read_text()
