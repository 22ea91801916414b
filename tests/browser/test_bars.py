"""The page on a long sentence: 512 tokens on both sides, 6 layers with 8 heads each, of a real model with random weights.

The bars are 1 s for the overview, 200 ms for any head and 300 MiB for the heap. Tests share the machine with others: by the clock,
times may be BUSY times as long here; those of the processor may not. `benchmarks/viewer_bars.py` prints what they are.
"""

from __future__ import annotations

import importlib.util
import statistics
from pathlib import Path

from small_runs import needed

PLACE = Path(__file__).parents[2] / "benchmarks" / "viewer_bars.py"
BUSY = 5


def test_a_long_sentence_is_painted_in_time_and_in_little_memory():
    needed()
    spec = importlib.util.spec_from_file_location("viewer_bars", PLACE)
    assert spec is not None
    assert spec.loader is not None
    bars = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(bars)
    found = bars.measure(tokens=512, layers=6, heads=8, width=64)
    assert (found["source"], found["target"]) == (512, 512)
    assert found["errors"] == []
    assert len(found["overviews"]) == 3
    overviews, heads = (
        {what: [one[what] for one in found[name]] for what in ("clock", "processor")} for name in ("overviews", "heads")
    )
    assert min(heads["processor"]) > 0
    assert max(overviews["processor"]) < bars.BARS["overview"]
    assert max(heads["processor"]) < bars.BARS["head"]
    assert max(overviews["clock"]) < BUSY * bars.BARS["overview"]
    assert statistics.median(heads["clock"]) < BUSY * bars.BARS["head"]
    assert 1 < found["heap"] < bars.BARS["heap"]
