"""The sweep over tiles of training's kernels: it runs, and what it tries gives what the table's tiles give."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from regard.layers.decoding import triton_here
from regard.layers.training.tiling import TILES, Tiles, options, tiles_of, using

HERE = Path(__file__).parent
SCRIPT = HERE.parents[2] / "benchmarks" / "training_kernels.py"
SIZES = {"rows": 3, "length": 8, "width": 32, "heads": 2, "vocabulary": 100}
SIZES |= {"gpt-rows": 1, "gpt-length": 20, "gpt-width": 24, "gpt-vocabulary": 104}
ONCE = {"launches": 1, "replays": 1, "seconds": 500}
TINY = [*(f"--{name}={value}" for name, value in (SIZES | ONCE).items()), "--device=cpu", "--candidates"]


def run(*arguments: str | Path, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, "PYTHONWARNINGS": "ignore", **environment},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    if "only 0-dimensional arrays can be converted" in done.stderr + done.stdout:
        pytest.skip("Triton's interpreter does not get on with this numpy")
    assert done.returncode == 0, done.stderr
    return done.stdout


def rows_of(out: str) -> list[dict]:
    return [
        row for row in map(json.loads, filter(lambda line: line.startswith("{"), out.splitlines())) if "kernel" in row
    ]


def test_the_sweep_runs_where_there_are_no_kernels() -> None:
    out = run(SCRIPT, *TINY, "2", TRITON_INTERPRET="0")
    rows = rows_of(out)
    assert {row["kernel"] for row in rows} == set(TILES) - {"loss"}  # which has no reference
    assert not [row for row in rows if "error" in row]
    for row in rows:
        if row["candidate"] == "as it is":
            assert any(line.startswith(f"{row['kernel']:20} {row['shape']:34}") for line in out.splitlines())


def test_what_does_not_run_or_differs_is_named(tmp_path: Path) -> None:
    spoilt = """
import runpy, sys
from regard.layers.training import activations, tiling
right = activations.summed
def summed(d):
    if tiling.tiles_of("sum").programs == 1056:
        raise ValueError("too much")
    return right(d) * (1.0 if tiling.tiles_of("sum") == tiling.TILES["sum"] else 1.01)
activations.summed = summed
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
    (tmp_path / "spoilt.py").write_text(spoilt, encoding="utf-8")
    rows = rows_of(run(tmp_path / "spoilt.py", SCRIPT, *TINY, "3", "--kernels", "sum", TRITON_INTERPRET="0"))
    assert {row.get("error") for row in rows if "=" in row["candidate"]} == {"another result", "ValueError: too much"}
    assert not [row for row in rows if row["candidate"] in ("as it is", "torch") and "error" in row]


def test_tiles_hold_for_what_is_done_within() -> None:
    other = Tiles(rows=3, warps=2, registers=64)
    with using("sum", other):
        assert tiles_of("sum") == other
        assert tiles_of("loss") == TILES["loss"]
        with using("sum", TILES["sum"]):
            assert tiles_of("sum") == TILES["sum"]
    assert tiles_of("sum") == TILES["sum"]
    assert options(other) == {"num_warps": 2, "maxnreg": 64}
    assert options(TILES["sum"], 1) == {"num_warps": 1}


@pytest.mark.skipif(triton_here.triton is None, reason="needs Triton")
def test_other_tiles_by_tritons_interpreter() -> None:
    assert run(HERE / "training_tiles_cases.py", TRITON_INTERPRET="1").strip() == "equal"


@pytest.mark.skipif(triton_here.triton is None, reason="needs Triton")
def test_the_sweep_by_tritons_interpreter() -> None:
    rows = rows_of(run(SCRIPT, *TINY, "7", TRITON_INTERPRET="1"))
    assert {row["kernel"] for row in rows} == set(TILES)
    assert not [row for row in rows if "error" in row]
    assert {"as it is", "torch", "warps=4"} <= {row["candidate"] for row in rows}


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_all_candidates_on_a_gpu_give_the_same() -> None:
    once = (f"--{name}={value}" for name, value in ONCE.items())
    rows = rows_of(run(SCRIPT, "--rows=64", "--gpt-rows=1", *once, TRITON_INTERPRET="0"))
    assert not [row for row in rows if row.get("error") == "another result"]
