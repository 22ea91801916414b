"""A full disk at any moment of a run: one clear sentence, and once there is room the run ends as it would have."""

import errno
import os

import pytest

from faults import CHANGES, Faults
from regard.core.errors import CheckpointError, ConfigError
from regard.core.files import sha256_of
from regard.training.progress import Reporter
from regard.training.run import resume, train

SETTINGS = {
    "data": {"valid_size": 4, "test_size": 2, "allow": ["same-file"]},
    "tokenizer": {"kind": "word"},
    "model": {"width": 8, "layers": 1, "heads": 1, "dropout": 0.1},
    "train": {"steps": 4, "save_every": 2, "log_every": 1, "batch_tokens": 60, "threads": 1, "workers": 0, "warmup": 2},
    "search": {"beam": 1, "max_length": 4},
}


@pytest.fixture
def start(tmp_path):
    lines = [" ".join("abcdefgh"[(i * k) % 8] for k in range(1, 2 + i % 5)) for i in range(60)]
    (tmp_path / "s").write_text("".join(line + "\n" for line in lines))
    (tmp_path / "t").write_text("".join(line.upper() + "\n" for line in lines))

    def begin(name: str):
        files = {"src": str(tmp_path / "s"), "tgt": str(tmp_path / "t")}
        return train(out=tmp_path / name, settings=SETTINGS, report=Reporter(quiet=True), **files)

    return begin


def no_room() -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_at_any_moment_is_one_sentence_and_loses_nothing(start, tmp_path, monkeypatch):
    faults = Faults(monkeypatch, no_room, CHANGES)
    with faults.armed(1 << 30):
        start("straight")
    total = faults.count
    expected = sha256_of(tmp_path / "straight" / "model.safetensors")
    assert total > 100
    for at in sorted({1, 2, 3, 4, 5, 6, 8, *range(10, total, 11), total - 1, total}):
        with faults.armed(at), pytest.raises((CheckpointError, ConfigError), match="No space left on device"):
            start(f"run{at}")
        run = tmp_path / f"run{at}"
        result = resume(run, Reporter(quiet=True)) if (run / "run.json").exists() else start(f"run{at}")
        assert result.interrupted is None
        assert sha256_of(run / "model.safetensors") == expected, at


def test_the_sentence_says_how_to_go_on(start, tmp_path, monkeypatch):
    faults = Faults(monkeypatch, no_room, CHANGES)
    with faults.armed(40), pytest.raises(CheckpointError) as caught:
        start("run")
    assert str(caught.value).endswith(
        f": writing the run failed (No space left on device). Make room or mend it, "
        f"then `regard train --resume {tmp_path / 'run'}`."
    )
