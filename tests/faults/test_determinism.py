"""The same seed gives the same run, bit for bit: on CPUs always, on CUDA with `train.deterministic`; every model there.

`make soak` takes every model on the CPU, too.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from fault_runs import SOAK, files_of, plain_metrics, settings_of, write_texts

from regard.core.errors import ConfigError
from regard.core.files import sha256_of
from regard.models.base import MODELS
from regard.training import log
from regard.training.progress import Reporter
from regard.training.run import train

SAMPLE = MODELS.names() if SOAK else ["bahdanau", "word2vec"]
needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")


@pytest.fixture(autouse=True)
def as_before(monkeypatch):
    monkeypatch.setattr(log, "_tensorboard", lambda *_: None)
    monkeypatch.setattr(os, "environ", os.environ.copy() if not torch.cuda.is_available() else os.environ)


def ending(place: Path, name: str, model: str, *more: str, **train_settings: object) -> dict[str, object]:
    """All tensors that a run leaves behind, and its log."""
    settings = [*settings_of(model, steps=24, save_every=12, log_every=6, **train_settings), *more]
    train(out=place / name, settings=settings, report=Reporter(quiet=True), **files_of(model, place))
    tensors = {str(path.relative_to(place / name)): sha256_of(path) for path in (place / name).rglob("*.safetensors")}
    assert len(tensors) >= 4
    return {**tensors, "metrics": plain_metrics(place / name)}


@pytest.mark.parametrize("model", SAMPLE)
def test_the_same_seed_gives_the_same_run(tmp_path, model):
    write_texts(tmp_path)
    first, second, other = (ending(tmp_path, str(i), model, device="cpu", seed=max(1, i)) for i in range(3))
    assert first == second
    assert first["model.safetensors"] != other["model.safetensors"]


ON_CUDA = [(model, precision) for model in MODELS.names() for precision in ("float32", "bfloat16")]
ON_CUDA.remove(("word2vec", "bfloat16"))  # which is always trained in float32


@needs_cuda
@pytest.mark.parametrize(("model", "precision"), ON_CUDA)
def test_the_same_seed_gives_the_same_run_on_cuda(tmp_path, model, precision):
    write_texts(tmp_path, count=800)  # long batches: what adds up in any order would show
    how = {"device": "cuda", "deterministic": True, "precision": precision, "batch_tokens": 2048}
    width = 16 if model == "dcnn" else 64
    more = [word.replace("=8", f"={width}") for word in settings_of(model) if word == "model.width=8"]
    assert ending(tmp_path, "a", model, *more, **how) == ending(tmp_path, "b", model, *more, **how)


class Watching(Reporter):
    """Notes what torch was asked for while a run was trained."""

    def update(self, step: int, values: dict[str, object]) -> None:
        super().update(step, values)
        self.seen = torch.are_deterministic_algorithms_enabled()


def test_the_setting_asks_torch_for_kernels_that_add_up_in_order(tmp_path):
    write_texts(tmp_path)
    filled = torch.utils.deterministic.fill_uninitialized_memory
    for asked in (True, False):
        report = Watching(quiet=True)
        settings = settings_of("kim", steps=2, log_every=1, device="cpu", deterministic=asked)
        train(out=tmp_path / f"run-{asked}", settings=settings, report=report, **files_of("kim", tmp_path))
        assert report.seen is asked
        assert not torch.are_deterministic_algorithms_enabled()  # what comes after a run is not its business
        assert torch.utils.deterministic.fill_uninitialized_memory is filled
    assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
    with pytest.raises(ConfigError, match="chosen by how fast they were"):
        ending(tmp_path, "other", "gpt", deterministic=True, compile=True)
