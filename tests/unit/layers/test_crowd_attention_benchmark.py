"""The sweep over ways to cut attention to a crowd: what it tries gives what the reference gives, and what differs is named."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from test_looking_logits_benchmark import run

from regard.layers.decoding import triton_here

SCRIPT = Path(__file__).parents[3] / "benchmarks" / "crowd_attention.py"
SMALL = ["--device=cpu", "--sentences=2", "--beams=2", "--heads=1", "--width=16", "--span=6", "--source=5"]
ONCE = ["--launches=1", "--replays=1", "--seconds=500"]


@pytest.mark.skipif(triton_here.triton is None, reason="needs Triton")
def test_what_is_tried_gives_the_same() -> None:
    rows, shown = run(SCRIPT, *SMALL, *ONCE, "--candidates=2")
    assert [row["kind"] for row in rows] == ["back"] * 2 + ["over"] * 2
    assert [len(row["each"]) for row in rows] == [4, 4, 1, 1]
    assert not [row for row in rows if "error" in row]
    assert all(any(row["way"] in line.split() for line in shown.splitlines()) for row in rows)


@pytest.mark.skipif(triton_here.triton is None, reason="needs Triton")
def test_what_differs_or_fails_is_named(tmp_path: Path) -> None:
    """A kernel that sees what is hidden, and one that does not run."""
    spoilt = """
import runpy, sys
from pathlib import Path
import torch
from regard.layers.decoding import attention
back = attention.attend_cache
def seeing(x, keys, values, hidden, *rest, cut):
    return back(x, keys, values, torch.zeros_like(hidden) if cut.skips else hidden, *rest, cut=cut)
def failing(*given, cut):
    raise RuntimeError("no memory")
attention.attend_cache, attention.attend_memory = seeing, failing
sys.argv = sys.argv[1:]
sys.path.insert(0, str(Path(sys.argv[0]).parent))
runpy.run_path(sys.argv[0], run_name="__main__")
"""
    (tmp_path / "spoilt.py").write_text(spoilt, encoding="utf-8")
    rows, _ = run(tmp_path / "spoilt.py", SCRIPT, *SMALL, *ONCE, "--candidates=2")
    errors = [row.get("error", "") for row in rows]
    assert errors[0] == ""
    assert errors[1].startswith("another result")
    assert errors[2:] == ["RuntimeError: no memory"] * 2


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_ways_on_a_gpu_give_the_same() -> None:
    rows, _ = run(SCRIPT, "--sentences=16", "--candidates=4", *ONCE, interpreted=False)
    assert not [row for row in rows if row.get("error", "").startswith("another")]
