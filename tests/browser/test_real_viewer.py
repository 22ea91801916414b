"""The page in a real browser, on real models: nothing blank, no error, and every number the model's own.

Needs Node, `npm ci` in viewer/, and chromium. Where they are missing the tests are skipped, but not where REGARD_BROWSER=1 says
that they must be there.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import torch
import uvicorn

from regard.core.files import save_tensors, write_json, write_manifest
from regard.data.tokenizers import TokenizerConfig, TokenizerPair
from regard.looking.server import make_app
from regard.looking.session import SENTENCE, Session
from regard.looking.tracing import make_trace
from regard.models.base import MODELS, build_model
from regard.tasks.folder import CONFIG, FORMAT, WEIGHTS, tokenizer_names, weights_of

ROOT = Path(__file__).parents[2]
SCRIPT = Path(__file__).with_name("real.mjs")
NEEDED = {
    "node": shutil.which("node") is not None,
    "npm ci in viewer/": (ROOT / "viewer" / "node_modules" / "playwright-core").is_dir(),
    "chromium": any(Path(place).exists() for place in ("/usr/bin/chromium", "/usr/bin/chromium-browser")),
}
SIZES = {
    "bahdanau": {"embedding": 8, "width": 8},
    "luong": {"embedding": 8, "width": 8, "attention": "local-p", "window": 3},
    "gnmt": {"width": 8, "layers": 2},
    "convs2s": {"embedding": 8, "width": 8, "layers": 2},
    "universal": {"width": 16, "heads": 2, "steps": 3, "halting": "act"},
    "gpt": {"width": 16, "layers": 2, "heads": 2, "context": 64},
    "lstmlm": {"width": 8, "layers": 1},
    "bert": {"width": 16, "layers": 2, "heads": 2, "context": 64},
    "kim": {"width": 8, "maps": 3},
    "transformer-tagger": {"width": 16, "layers": 1, "heads": 2},
}
LABELS = ["a", "b"]


def needed() -> None:
    missing = [name for name, there in NEEDED.items() if not there]
    if missing and os.environ.get("REGARD_BROWSER") == "1":
        pytest.fail(f"missing: {', '.join(missing)}")
    if missing:
        pytest.skip(f"missing: {', '.join(missing)}")


def run_folder(name: str, folder: Path) -> Path:
    """An untrained model, saved as a run is."""
    settings = TokenizerConfig(kind="bpe", size=90, lowercase=True)
    tokenizers = TokenizerPair.train_on_text([SENTENCE.lower()] * 4, settings, tags=("<mask>",))
    torch.manual_seed(0)
    size = tokenizers.target.size
    config = MODELS.get(name).Config(name=name, **SIZES[name])
    labels = LABELS if MODELS.get(name).capabilities & {"classifies", "tags"} else []
    target = len(labels) + 1 if labels else size
    model = build_model(name, config, source_vocabulary=size, target_vocabulary=target, shared=not labels)
    tokenizers.save(folder)
    save_tensors(folder / WEIGHTS, weights_of(model))
    about = {"format": FORMAT, "resolved": True, "model": {"name": name, **SIZES[name]}}
    about |= {"vocabulary": {"source": size, "target": size, "shared": True}}
    write_json(folder / CONFIG, {**about, "labels": labels} if labels else about)
    write_manifest(folder, [WEIGHTS, CONFIG, *tokenizer_names(folder)])
    (folder / "metrics.jsonl").write_text("".join(f'{{"step": {n}, "loss": {5 / n}}}\n' for n in range(1, 9)))
    return folder


@pytest.fixture(scope="module")
def session(tmp_path_factory):
    needed()
    folders = []
    for name in SIZES:
        folder = tmp_path_factory.mktemp("runs") / name
        folder.mkdir()
        folders.append(run_folder(name, folder))
    return Session([None, *folders], device="cpu")


@pytest.fixture(scope="module")
def seen(session):
    server = uvicorn.Server(uvicorn.Config(make_app(session), port=0, log_level="warning"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.05)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        done = subprocess.run(
            ["node", str(SCRIPT), f"http://127.0.0.1:{port}/"], capture_output=True, text=True, timeout=400, check=False
        )
    finally:
        server.should_exit = True
        thread.join(10)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


def test_every_view_of_every_model_shows_something(seen):
    assert len(seen["views"]) == 15 * (len(SIZES) + 1)
    wrong = []
    for one in seen["views"]:
        if one["able"] is not True:
            good = "Not applicable to" in one["text"]
        elif one["view"] == "evaluation" and one["model"] in SIZES:  # an untrained run has no text to be evaluated on
            good = one["alert"] is not None
        else:
            good = one["alert"] is None and len(one["text"]) > 40 and not one["errors"]
        if not good:
            wrong.append(one)
    assert wrong == []


def test_nothing_is_asked_of_other_places(seen):
    assert seen["foreign"] == []


def test_numbers_on_the_page_are_the_models_own(seen, session):
    trace = make_trace(session.models[0].task, SENTENCE)
    assert trace.alignment is not None
    assert seen["alignment"] == pytest.approx(float(trace.alignment[3, 2]), abs=1e-6)
    steps = {step.name: step for step in trace.steps("decoder.cross", 1, 2, 3)}
    for name, numbers in seen["steps"].items():
        shown = np.asarray(numbers)
        own = np.concatenate([np.asarray(tensor.values, dtype=np.float64).ravel() for tensor in steps[name].tensors])
        assert len(shown) >= len(own)
        for value in own:
            assert np.abs(shown - value).min() < 1e-6
