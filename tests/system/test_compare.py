"""`regard compare` as a user runs it: two models, two seeds, interrupted, gone on with, and reported again."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from runs import await_step

import regard

SOURCES = str(Path(regard.__file__).parent.parent)
RECIPE = """
[data]
src = "text.src"
tgt = "text.tgt"
valid_size = 10
test_size = 20
[tokenizer]
kind = "word"
[model]
width = 16
layers = 1
heads = 2
[train]
steps = 40
batch_tokens = 64
max_tokens = 10
save_every = 10
log_every = 1
threads = 1
[search]
beam = 2
max_length = 16
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A language whose translation is its words backwards and in capitals, and a recipe for it."""
    draw = random.Random(1)
    words = ("ab", "cd", "ef", "gh", "ij", "kl", "mn", "op")
    lines = [[draw.choice(words) for _ in range(draw.randint(2, 12))] for _ in range(250)]
    (tmp_path / "text.src").write_text("".join(" ".join(line) + "\n" for line in lines))
    (tmp_path / "text.tgt").write_text("".join(" ".join(reversed(line)).upper() + "\n" for line in lines))
    (tmp_path / "tiny.toml").write_text(RECIPE)
    return tmp_path


def start(place: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(Path(__file__).parent / "forked_runs.py"), *arguments],
        cwd=place,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "PYTHONPATH": SOURCES},
    )


def results(folder: Path) -> dict[str, int]:
    return {str(path.relative_to(folder)): path.stat().st_mtime_ns for path in folder.glob("runs/*/seed-?.json")}


def test_compare_from_the_command_line(place, command, monkeypatch):
    arguments = ["compare", "tiny.toml", "--models", "transformer,luong", "--seeds", "2", "--out", "out"]
    out = place / "out"
    process = start(place, *arguments)
    await_step(out / "runs" / "luong" / "seed-1", 10, seconds=60)
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 130, said
    assert "Stopped. Go on with: regard compare --resume out" in said
    assert "[1/4] transformer, seed 1: BLEU " in said
    first = results(out)
    assert list(first) == ["runs/transformer/seed-1.json"]

    process = start(place, *arguments)
    said, _ = process.communicate(timeout=120)
    assert process.returncode == 0, said
    assert "1 of 4 runs are finished already." in said
    assert "[2/4] luong, seed 1: going on, 40 steps" in said
    assert "Report: out/report.html" in said
    both = results(out)
    assert len(both) == 4
    assert both["runs/transformer/seed-1.json"] == first["runs/transformer/seed-1.json"]
    metrics = (out / "runs" / "luong" / "seed-1" / "metrics.jsonl").read_text().splitlines()
    assert [row["step"] for row in map(json.loads, metrics) if "nll" in row] == list(range(1, 41))
    assert not list(out.glob("runs/*/*.log"))
    for path in out.glob("runs/*/seed-?.json"):
        result, data = (json.loads(file.read_text()) for file in (path, path.with_suffix("") / "data.json"))
        assert 0 < result["left_out"] < 100  # the longest sentences
        assert result["pairs"] + result["left_out"] == data["pairs"]["train"]

    monkeypatch.chdir(place)
    for name in ("report.html", "report.md", "rows.csv", "rows.json"):
        (out / name).unlink()
    shown = command("compare", "--report", "out")
    assert shown.code == 0, shown.err
    assert "parameters" in shown.out
    rows = json.loads((out / "rows.json").read_text())
    assert sorted(row["entry"] for row in rows) == ["luong", "transformer"]
    assert [row["seeds"] for row in rows] == [2, 2]
    page = (out / "report.html").read_text()
    assert "regard train recipes/luong.toml --out runs/luong/seed-2 train.seed=2" in page
    assert f"regard {' '.join(arguments)}" in page
    assert str(place) in page
    assert "<script" not in page
    assert (out / "report.md").exists()
    assert (out / "rows.csv").exists()
    assert results(out) == both


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["tiny.toml", "--models", "transformer,luong"], "there is no output folder. Give --out DIR"),
        (["tiny.toml", "luong", "--out", "x"], "more than one recipe is given"),
        (["tiny.toml", "--models", "transformr", "--out", "x"], "Perhaps you mean transformer"),
        (["tiny.toml", "--seeds", "0", "--out", "x"], "--seeds: 0 is less than 1"),
        (["tiny.toml", "--budget", "time", "--out", "x"], "Add for example --seconds 600"),
        (["tiny.toml", "--out", "text.src"], "text.src: the output is a file, not a folder"),
        (["tiny.toml", "--out", "."], ".: the folder is not empty, and it holds no comparison"),
        (["tiny.toml", "--out", "x", "data.test_size=-1", "data.valid_size=-1"], "there is no test text"),
        (["--report", "."], "it is no comparison"),
        (["--resume", "x"], "it is no comparison"),
        (["--resume", "x", "--seeds", "2"], "--resume: it reads what to do from the folder"),
        (["--out", "x"], "there is nothing to train on"),
    ],
)
def test_mistakes_are_told_before_anything_is_made(place, command, monkeypatch, arguments, said):
    monkeypatch.chdir(place)
    shown = command("compare", *arguments)
    assert shown.code == 1
    assert said in shown.err
    assert not (place / "x").exists()
