"""Damaged checkpoints and models: none is taken silently, none crashes the reader, and the checkpoint before is chosen.

`make soak` tries 10,000 (and as many of finished models); here it is a seeded sample.
"""

from __future__ import annotations

import collections
import hashlib
import json
import random
import shutil
from pathlib import Path

import pytest
import torch
from corruption import corrupt, lying_header
from fault_runs import FAMILIES, SOAK, files_of, plain_metrics, settings_of, write_texts
from old_runs import answers, home

from regard.core.errors import CheckpointError, RegardError
from regard.core.files import sha256_of
from regard.training.checkpoint import Checkpoints
from regard.training.progress import Reporter
from regard.training.run import resume, train

DAMAGED = 10_000 if SOAK else 150
RESUMED = 40 if SOAK else 1
MODELS = 2_000 if SOAK else 60


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """A finished run with all files that a checkpoint can have."""
    place = tmp_path_factory.mktemp("corruption")
    write_texts(place)
    model = FAMILIES["language"]
    settings = settings_of(model, steps=4, save_every=1, ema=0.9)
    train(out=place / "run", settings=settings, report=Reporter(quiet=True), **files_of(model, place))
    return place / "run"


def test_ten_thousand_damaged_checkpoints(run, tmp_path):
    draw = random.Random(14)
    folder = tmp_path / "checkpoints"
    shutil.copytree(run / "checkpoints", folder)
    newest, previous = Checkpoints(folder).steps()
    kept = Checkpoints(folder).load(previous)
    place, other = folder / f"step-{newest:09d}", folder / f"step-{previous:09d}"
    names = sorted(path.name for path in place.iterdir())
    assert names == [
        "average.safetensors", "carried.safetensors", "manifest.json", "model.safetensors", "optimizer.safetensors", "state.json",
    ]  # fmt: skip
    tried: collections.Counter[str] = collections.Counter()
    for _ in range(DAMAGED):
        name = draw.choice(names)
        content = (place / name).read_bytes()
        way, changed = corrupt(name, content, (other / name).read_bytes(), draw)
        (place / name).write_bytes(changed)
        said: list[str] = []
        checkpoints = Checkpoints(folder)
        chosen = checkpoints.newest(said.append)  # whatever else it raises is a crash
        assert (chosen, len(said)) == (previous, 1), (way, name, said)
        if tried.total() % 50 == 0:
            weights = checkpoints.load(previous).weights
            assert all(torch.equal(tensor, kept.weights[key]) for key, tensor in weights.items())
        tried[way] += 1
        (place / name).write_bytes(content)
    assert Checkpoints(folder).newest(pytest.fail) == newest
    print(f"\n{tried.total()} damaged checkpoints, 0 loaded, 0 crashes: {dict(tried)}")


def test_a_run_goes_on_from_the_checkpoint_before_and_ends_the_same(run, tmp_path):
    draw = random.Random(15)
    for i in range(RESUMED):
        again = tmp_path / str(i)
        shutil.copytree(run, again)
        manifest = json.loads((again / "manifest.json").read_text())
        del manifest["files"]["model.safetensors"]
        (again / "manifest.json").write_text(json.dumps(manifest))
        (again / "model.safetensors").unlink()
        (again / "run.json").write_text((again / "run.json").read_text().replace('"finished"', '"interrupted"'))
        newest, before = sorted(again.glob("checkpoints/step-*"), reverse=True)[:2]
        name = draw.choice(sorted(path.name for path in newest.iterdir()))
        way, changed = corrupt(name, (newest / name).read_bytes(), (before / name).read_bytes(), draw)
        (newest / name).write_bytes(changed)
        resume(again, Reporter(quiet=True))
        assert sha256_of(again / "model.safetensors") == sha256_of(run / "model.safetensors"), (way, name)
        assert sha256_of(newest / "optimizer.safetensors") == sha256_of(
            run / "checkpoints" / newest.name / "optimizer.safetensors"
        )
        assert plain_metrics(again) == plain_metrics(run)
        shutil.rmtree(again)


@pytest.mark.parametrize("what", ["link", "folder", "gone"])
@pytest.mark.parametrize("name", ["model.safetensors", "manifest.json"])
def test_what_is_no_file_is_passed_over_too(run, tmp_path, what, name):
    shutil.copytree(run / "checkpoints", tmp_path / "c")
    newest, previous = Checkpoints(tmp_path / "c").steps()
    path = tmp_path / "c" / f"step-{newest:09d}" / name
    shutil.move(path, tmp_path / "elsewhere")
    if what == "link":
        path.symlink_to(tmp_path / "elsewhere")
    elif what == "folder":
        path.mkdir()
    said: list[str] = []
    assert Checkpoints(tmp_path / "c").newest(said.append) == previous
    assert len(said) == 1


def test_headers_that_lie_with_a_manifest_that_agrees_are_passed_over(run, tmp_path):
    """As a broken writer or a hand might leave it: the checksum is right, and the file is not."""
    draw = random.Random(16)
    shutil.copytree(run / "checkpoints", tmp_path / "c")
    newest, previous = Checkpoints(tmp_path / "c").steps()
    place = tmp_path / "c" / f"step-{newest:09d}"
    before = (place / "manifest.json").read_bytes()
    for _ in range(400 if SOAK else 40):
        name = draw.choice(["model.safetensors", "optimizer.safetensors", "average.safetensors", "carried.safetensors"])
        content = (place / name).read_bytes()
        changed = lying_header(content, draw, b"")
        if changed == content:
            continue
        manifest = json.loads(before)
        manifest["files"][name] = {"bytes": len(changed), "sha256": hashlib.sha256(changed).hexdigest()}
        (place / "manifest.json").write_text(json.dumps(manifest))
        (place / name).write_bytes(changed)
        said: list[str] = []
        assert Checkpoints(tmp_path / "c").newest(said.append) == previous, (name, changed[:300])
        assert len(said) == 1
        (place / name).write_bytes(content)
        (place / "manifest.json").write_bytes(before)


@pytest.mark.filterwarnings("ignore")
def test_damaged_models_are_refused_in_one_sentence(tmp_path):
    """Any file that a finished model needs, of every family."""
    draw = random.Random(17)
    others = {
        family: home(1, other) for family, other in zip(FAMILIES, [*list(FAMILIES)[1:], "translation"], strict=True)
    }
    tried: collections.Counter[str] = collections.Counter()
    for family in FAMILIES:
        shutil.copytree(home(1, family), tmp_path / family, ignore=shutil.ignore_patterns("checkpoints"))
    while tried.total() < MODELS:
        family = draw.choice(list(FAMILIES))
        folder = tmp_path / family
        name = draw.choice(["manifest.json", *json.loads((folder / "manifest.json").read_bytes())["files"]])
        content = (folder / name).read_bytes()
        foreign = others[family] / name
        way, changed = corrupt(name, content, foreign.read_bytes() if foreign.exists() else content[::-1], draw)
        (folder / name).write_bytes(changed)
        with pytest.raises(RegardError):
            pytest.fail(f"{way} of {family}/{name} answers {answers(folder)}")
        tried[way] += 1
        (folder / name).write_bytes(content)
    print(f"\n{tried.total()} damaged models, 0 loaded, 0 crashes: {dict(tried)}")


def test_when_all_are_damaged_it_is_said_and_nothing_is_changed(run, tmp_path):
    shutil.copytree(run / "checkpoints", tmp_path / "c")
    for path in (tmp_path / "c").glob("step-*/state.json"):
        path.write_text("{}")
    before = sorted((path, path.read_bytes()) for path in (tmp_path / "c").rglob("*") if path.is_file())
    with pytest.raises(CheckpointError, match="every checkpoint of this run is damaged"):
        Checkpoints(tmp_path / "c").newest(lambda _: None)
    assert sorted((path, path.read_bytes()) for path in (tmp_path / "c").rglob("*") if path.is_file()) == before
