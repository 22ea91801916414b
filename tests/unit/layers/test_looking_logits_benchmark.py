"""The sweep over ways to cut the product with the vocabulary: what it tries gives what torch gives, and what differs is named."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from regard.layers.decoding import triton_here

SCRIPT = Path(__file__).parents[3] / "benchmarks" / "looking_logits_tiles.py"
SMALL = ["--device=cpu", "--rows=20", "--width=32", "--vocabulary=130"]
ONCE = ["--launches=1", "--replays=1", "--seconds=500"]


def run(*arguments: str | Path, interpreted: bool = True) -> tuple[list[dict], str]:
    done = subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, "PYTHONWARNINGS": "ignore", "TRITON_INTERPRET": str(int(interpreted))},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return [row for row in rows if "way" in row], done.stdout


@pytest.mark.skipif(triton_here.triton is None, reason="needs Triton")
def test_what_is_tried_gives_the_same() -> None:
    rows, shown = run(SCRIPT, *SMALL, *ONCE, "--candidates=3")
    assert len(rows) == 4
    assert not [row for row in rows if "error" in row or "microseconds" not in row]
    assert all(any(line.startswith(f"{row['way']} ") for line in shown.splitlines()) for row in rows)


@pytest.mark.skipif(triton_here.triton is None, reason="needs Triton")
def test_what_differs_is_named(tmp_path: Path) -> None:
    """A kernel that forgets what is forbidden, or its bias."""
    spoilt = """
import runpy, sys
from regard.layers.decoding import looking_logits
logits, calls = looking_logits.logits, []
def wrong(x, linear, banned, specials, also, tiles):
    calls.append(tiles)
    if len(calls) == 1:
        return logits(x, linear, banned, 0, also, tiles)
    return logits(x, linear._replace(bias=None), banned, specials, also, tiles)
looking_logits.logits = wrong
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
    (tmp_path / "spoilt.py").write_text(spoilt, encoding="utf-8")
    rows, _ = run(tmp_path / "spoilt.py", SCRIPT, *SMALL, *ONCE, "--candidates=2")
    assert len(rows) == 3
    assert {row["way"]: row.get("error") for row in rows if row["way"] == "torch"} == {"torch": None}
    assert {row.get("error") for row in rows if row["way"] != "torch"}.isdisjoint({None})
    assert all(row["error"].startswith("another result") for row in rows if row["way"] != "torch")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_all_ways_on_a_gpu_give_the_same() -> None:
    rows, _ = run(SCRIPT, "--rows=300", "--candidates=4", *ONCE, interpreted=False)
    assert not [row for row in rows if row.get("error", "").startswith("another")]


@pytest.mark.skipif(triton_here.triton is None, reason="needs Triton")
def test_one_that_fails_does_not_end_the_others(tmp_path: Path) -> None:
    """While it is compiled, or while it is timed; and what nobody had time for is named."""
    spoilt = """
import runpy, sys
from regard.layers.decoding import looking_logits
logits, calls = looking_logits.logits, []
def failing(*given):
    calls.append(given)
    if len(calls) in (1, 4):  # the first is compiled, and the second timed
        raise RuntimeError("no memory")
    return logits(*given)
looking_logits.logits = failing
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
    (tmp_path / "spoilt.py").write_text(spoilt, encoding="utf-8")
    rows, shown = run(tmp_path / "spoilt.py", SCRIPT, *SMALL, *ONCE, "--candidates=3")
    assert [row["error"] for row in rows if "error" in row] == ["RuntimeError: no memory"] * 2
    assert len(rows) == 4
    assert len(shown.splitlines()) == 1 + 4 + 3  # the machine, all ways, and a table of two
    rows, _ = run(SCRIPT, *SMALL, *ONCE[:2], "--seconds=0", "--candidates=2")
    assert {row["error"] for row in rows} == {"no time left"}
