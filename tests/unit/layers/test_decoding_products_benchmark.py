"""The sweep over ways to cut products of very many rows: what it tries gives what torch gives, and what differs is named."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from regard.layers.decoding import triton_here

SCRIPT = Path(__file__).parents[3] / "benchmarks" / "decoding_products.py"
SMALL = ["--device=cpu", "--rows=20", "--width=32", "--inner=64", "--vocabulary=130"]
ONCE = ["--launches=1", "--replays=1", "--seconds=500"]
PRODUCTS = {"queries, keys, values", "query or output", "inner", "outer", "vocabulary"}


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
    return [row for row in rows if "product" in row], done.stdout


@pytest.mark.skipif(triton_here.triton is None, reason="needs Triton")
def test_what_is_tried_gives_the_same() -> None:
    rows, shown = run(SCRIPT, *SMALL, *ONCE, "--candidates=3")
    assert {row["product"] for row in rows} == PRODUCTS
    assert len(rows) == len(PRODUCTS) * 4
    assert not [row for row in rows if "error" in row or "microseconds" not in row]
    assert all(any(line.startswith(name) for line in shown.splitlines()) for name in PRODUCTS)


@pytest.mark.skipif(triton_here.triton is None, reason="needs Triton")
def test_what_differs_is_named(tmp_path: Path) -> None:
    """A kernel that forgets what is forbidden, and one that forgets its bias."""
    spoilt = """
import runpy, sys
from regard.layers.decoding import tall_products
logits, product = tall_products.logits, tall_products.product
tall_products.logits = lambda x, linear, banned, specials, also, tiles: logits(x, linear, banned, 0, also, tiles)
tall_products.product = lambda x, linear, kind, tiles: product(x, linear._replace(bias=None), kind, tiles)
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
    (tmp_path / "spoilt.py").write_text(spoilt, encoding="utf-8")
    rows, _ = run(tmp_path / "spoilt.py", SCRIPT, *SMALL, *ONCE, "--candidates=1")
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
from regard.layers.decoding import tall_products
product = tall_products.product
calls = []
def failing(x, linear, kind, tiles):
    calls.append(tiles)
    if len(calls) in (1, 4):
        raise RuntimeError("no memory")
    return product(x, linear, kind, tiles)
tall_products.product = failing
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
    (tmp_path / "spoilt.py").write_text(spoilt, encoding="utf-8")
    rows, shown = run(tmp_path / "spoilt.py", SCRIPT, *SMALL, *ONCE, "--candidates=2")
    assert [row["error"] for row in rows if "error" in row] == ["RuntimeError: no memory"] * 2
    assert len(rows) == len(PRODUCTS) * 3
    assert "vocabulary" in shown.splitlines()[-5]
    rows, _ = run(SCRIPT, *SMALL, *ONCE[:2], "--seconds=0", "--candidates=2")
    assert {row["error"] for row in rows} == {"no time left"}
