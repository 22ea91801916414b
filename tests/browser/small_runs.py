"""Small, untrained runs of every kind, saved as runs are; a viewer that serves them; and what a browser needs to look at it."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
import uvicorn

from regard.core.files import save_tensors, write_json, write_manifest
from regard.data.tokenizers import TokenizerConfig, TokenizerPair
from regard.looking import evaluation
from regard.looking.server import make_app
from regard.looking.session import SENTENCE, Session
from regard.models.base import MODELS, build_model
from regard.tasks.folder import CONFIG, FORMAT, WEIGHTS, tokenizer_names, weights_of

ROOT = Path(__file__).parents[2]
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
LONGEST = 16  # tokens written: an untrained model does not know when to end


def needed() -> None:
    missing = [name for name, there in NEEDED.items() if not there]
    if missing and os.environ.get("REGARD_BROWSER") == "1":
        pytest.fail(f"missing: {', '.join(missing)}")
    if missing:
        pytest.skip(f"missing: {', '.join(missing)}")


@functools.cache
def small_tokenizers() -> TokenizerPair:
    settings = TokenizerConfig(kind="bpe", size=90, lowercase=True)
    return TokenizerPair.train_on_text([SENTENCE.lower()] * 4, settings, tags=("<mask>",))


def run_folder(name: str, folder: Path, sizes: dict[str, Any] | None = None) -> Path:
    """An untrained model, saved as a run is; of the sizes of SIZES where none are given."""
    sizes = SIZES[name] if sizes is None else sizes
    tokenizers = small_tokenizers()
    torch.manual_seed(0)
    size = tokenizers.target.size
    config = MODELS.get(name).Config(name=name, **sizes)
    capabilities = MODELS.get(name).capabilities
    labels = LABELS if capabilities & {"classifies", "tags", "composes"} else []
    scored = bool(capabilities & {"classifies", "tags"})
    target = len(labels) + 1 if scored else size
    model = build_model(name, config, source_vocabulary=size, target_vocabulary=target, shared=not scored)
    tokenizers.save(folder)
    save_tensors(folder / WEIGHTS, weights_of(model))
    about = {"format": FORMAT, "resolved": True, "model": {"name": name, **sizes}}
    about |= {"vocabulary": {"source": size, "target": size, "shared": True}}
    about |= {"search": {"max_length": LONGEST}}
    write_json(folder / CONFIG, {**about, "labels": labels} if labels else about)
    write_manifest(folder, [WEIGHTS, CONFIG, *tokenizer_names(folder)])
    (folder / "metrics.jsonl").write_text("".join(f'{{"step": {n}, "loss": {5 / n}}}\n' for n in range(1, 9)))
    return folder


def small_session(folder: Path) -> Session:
    """The bundled model, and one of each of SIZES, in this order."""
    needed()
    places: list[Path | None] = [None]
    for name in SIZES:
        (folder / name).mkdir()
        places.append(run_folder(name, folder / name))
    return Session(places, device="cpu")


@contextlib.contextmanager
def served(session: Session) -> Iterator[str]:
    """A viewer, and its address. Few sentences are translated to be evaluated."""
    server = uvicorn.Server(uvicorn.Config(make_app(session), port=0, log_level="warning", timeout_graceful_shutdown=1))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.05)
    try:
        with patch.object(evaluation, "MOST_SENTENCES", 60):
            yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/"
    finally:
        session.ended = True
        server.should_exit = True
        thread.join(10)


def run_node(script: str, *arguments: str, given: Any = None, timeout: int = 400) -> Any:
    """What a script beside this file prints, as JSON; `given` is its standard input, as JSON."""
    done = subprocess.run(
        ["node", str(Path(__file__).with_name(script)), *arguments],
        input=json.dumps(given),
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)
