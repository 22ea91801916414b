"""Small untrained models in folders, a service over them, and a real server on loopback, for the tests of the facades."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from regard.core.files import save_tensors, write_json, write_manifest
from regard.data.tokenizers import TokenizerConfig, TokenizerPair
from regard.models.base import MODELS, build_model
from regard.serving.app import make_app
from regard.serving.limits import Limits
from regard.serving.run import Server, address_of, listen
from regard.serving.service import Service
from regard.serving.shelf import Shelf
from regard.tasks.folder import CONFIG, FORMAT, WEIGHTS, tokenizer_names, weights_of
from regard.tasks.pretrained import BUNDLED

TEXTS = [
    "The cat sat on the mat, and the dog slept.",
    "A red car stood in the street; nobody drove it.",
    "Good morning!",
]
SMALL: dict[str, dict] = {
    "gpt": {"width": 16, "layers": 2, "heads": 2, "context": 64},
    "kim": {"width": 8, "maps": 3},
    "transformer-tagger": {"width": 16, "layers": 1, "heads": 2},
    "bert": {"width": 16, "layers": 2, "heads": 2, "context": 64},
    "cho": {"embedding": 8, "width": 8},
}
LABELS = ["de", "en"]
NAMES = {"writer": "gpt", "sorter": "kim", "tagger": "transformer-tagger", "reader": "bert"}


def small_folder(name: str, folder: Path, labels: Sequence[str] = LABELS, languages: Sequence[str] = ()) -> Path:
    """An untrained model, saved as a run is."""
    tokenizers = TokenizerPair.train_on_text(TEXTS * 3, TokenizerConfig(kind="bpe", size=150), tags=("<mask>",))
    torch.manual_seed(1)
    size = tokenizers.target.size
    labels = list(labels) if MODELS.get(name).capabilities & {"classifies", "tags"} else []
    config = MODELS.get(name).Config(name=name, **SMALL[name])
    target = len(labels) + 1 if labels else size
    model = build_model(name, config, source_vocabulary=size, target_vocabulary=target, shared=not labels)
    folder.mkdir(parents=True)
    tokenizers.save(folder)
    save_tensors(folder / WEIGHTS, weights_of(model))
    about = {"format": FORMAT, "resolved": True, "model": {"name": name, **SMALL[name]}}
    about |= {"vocabulary": {"source": size, "target": size, "shared": True}}
    if languages:
        about["data"] = dict(zip(("source_language", "target_language"), languages, strict=True))
    write_json(folder / CONFIG, {**about, "labels": labels} if labels else about)
    write_manifest(folder, [WEIGHTS, CONFIG, *tokenizer_names(folder)])
    return folder


def open_service(folders: dict[str, Path], limits: Limits | None = None) -> Service:
    """The bundled translator and the small models."""
    return Service(Shelf.open([BUNDLED, *(f"{name}={place}" for name, place in folders.items())]), limits)


@contextlib.contextmanager
def listening(service: Service, **settings: Any) -> Iterator[str]:
    """The server as `regard serve` has it, on loopback, in a thread; its address."""
    socket = listen("127.0.0.1", 0)
    server = Server(make_app(service, **settings), service)
    thread = threading.Thread(target=lambda: server.run([socket]), daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield address_of(socket)
    finally:
        server.should_exit = True
        thread.join(10)
