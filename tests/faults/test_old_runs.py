"""Runs of every released format are read, used and gone on with, as docs/compatibility.md promises."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from fault_runs import FAMILIES, plain_metrics, write_texts
from old_runs import PLACE, answers, exchange, home, kept_checkpoint
from torch import Tensor

from regard.core.errors import CheckpointError
from regard.core.files import load_tensors
from regard.tasks.run_files import FORMAT
from regard.training.progress import Reporter
from regard.training.run import resume

KEPT_RUNS = [(version, family) for version in range(1, FORMAT + 1) for family in FAMILIES]


@pytest.fixture(params=KEPT_RUNS, ids=lambda one: f"v{one[0]}-{one[1]}")
def kept(request) -> Path:
    """A folder of tests/data/runs: a new format is not released without folders of its own."""
    folder = home(*request.param)
    assert (folder / "config.json").exists(), "run tests/faults/old_runs.py before a format is released"
    return folder


def test_the_model_answers_as_it_did(kept, tmp_path):
    shutil.copytree(kept, tmp_path / "run")
    expected = json.loads((kept / "answers.json").read_text())
    found = answers(tmp_path / "run")
    assert found["words"] == expected["words"]
    assert found["numbers"] == pytest.approx(expected["numbers"], rel=1e-4, abs=1e-6)


def learned(name: str, tensor: Tensor) -> Tensor:
    """Without the biases of keys: softmax does not see them, so their gradients are rounding, which Adam makes as large as any."""
    if name.endswith("query_key_value.bias"):
        query, _, value = tensor.chunk(3)
        return torch.cat((query, value))
    return tensor.chunk(2)[1] if name.endswith("cross.key_value.bias") else tensor


def test_an_interrupted_run_goes_on_and_ends_as_it_did(kept, tmp_path):
    """Within float tolerance: another machine or version may differ in the last bits, see docs/compatibility.md."""
    run = tmp_path / "run"
    shutil.copytree(kept, run)
    write_texts(tmp_path)
    exchange(run, PLACE, str(tmp_path))
    request = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**request, "status": "interrupted"}))
    final, metrics = load_tensors(run / "model.safetensors"), plain_metrics(run)
    (run / "model.safetensors").unlink()
    manifest = json.loads((run / "manifest.json").read_text())
    del manifest["files"]["model.safetensors"]
    (run / "manifest.json").write_text(json.dumps(manifest))
    assert resume(run, Reporter(quiet=True)).interrupted is None
    assert json.loads((run / "resumed.jsonl").read_text().splitlines()[-1])["step"] == int(
        kept_checkpoint(kept).name.removeprefix("step-")
    )
    again = load_tensors(run / "model.safetensors")
    assert again.keys() == final.keys()
    for name, tensor in final.items():
        torch.testing.assert_close(learned(name, again[name]), learned(name, tensor), rtol=1e-4, atol=1e-5, msg=name)
    for row, expected in zip(plain_metrics(run), metrics, strict=True):
        assert row == pytest.approx(expected, rel=1e-3, abs=1e-5)


def test_the_folders_are_small_and_say_nothing_of_where_they_were_made(kept):
    files = [path for path in kept.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 100_000
    assert (kept_checkpoint(kept) / "manifest.json").exists()
    for name in ("run.json", "config.json", "data.json"):
        assert not any(word in (kept / name).read_text() for word in ("/tmp", "/home", "/work", "/root"))


def test_a_later_format_is_refused_by_its_number(tmp_path):
    shutil.copytree(home(1, "translation"), tmp_path / "run")
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    (tmp_path / "run" / "config.json").write_text(json.dumps({**config, "format": FORMAT + 1}))
    with pytest.raises(CheckpointError, match=f"it has format {FORMAT + 1}, this version reads {FORMAT}"):
        answers(tmp_path / "run")
