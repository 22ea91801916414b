"""Small random models on a shelf, for the tests of serving: nothing is read from disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from regard.core import config as configuration
from regard.data.tokenizer_training import TokenizerConfig
from regard.data.tokenizers import TokenizerPair
from regard.models.base import MODELS, build_model
from regard.search.config import SearchConfig
from regard.serving.shelf import Served, Shelf, Task
from regard.tasks.language_model import TextModel

LINES = ["the cat sat on the mat", "the dog sat", "a cat and a dog, and the mat", "naïve Ärger – don't!"]
CONTEXT = 14
LANGUAGE_MODELS: dict[str, dict[str, Any]] = {
    "nplm": {"name": "nplm", "order": 4, "embedding": 8, "width": 12, "direct": True},
    "rnnlm": {"name": "rnnlm", "width": 12},
    "rnnlm-classes": {"name": "rnnlm", "width": 12, "output": "classes"},
    "lstmlm": {"name": "lstmlm", "width": 12, "layers": 2},
    "gpt": {"name": "gpt", "width": 16, "layers": 2, "heads": 2, "context": CONTEXT},
    "gpt-rotary": {
        "name": "gpt", "width": 16, "layers": 2, "heads": 2, "context": CONTEXT, "positions": "none", "relative": "rotary",
    },
    "gpt-alibi": {
        "name": "gpt", "width": 16, "layers": 1, "heads": 2, "context": CONTEXT, "positions": "none", "relative": "alibi",
    },
    "gpt-shaw": {"name": "gpt", "width": 16, "layers": 1, "heads": 2, "context": CONTEXT, "relative": "shaw"},
    "gpt-t5": {"name": "gpt", "width": 16, "layers": 1, "heads": 2, "context": CONTEXT, "relative": "t5"},
}  # fmt: skip


def text_model(name: str = "gpt", kind: str = "char", size: int = 60, search: SearchConfig | None = None) -> TextModel:
    """A language model with weights that make texts of some variety."""
    tokenizers = TokenizerPair.train(LINES, LINES, TokenizerConfig(kind=kind, size=size, min_count=1))  # type: ignore[arg-type]
    section = LANGUAGE_MODELS[name]
    torch.manual_seed(5)
    config = configuration.build(MODELS.get(section["name"]).Config, section, "model")
    vocabulary = tokenizers.target.size
    sizes = {"source_vocabulary": vocabulary, "target_vocabulary": vocabulary, "shared": True}
    model = build_model(config.name, config, **sizes).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1 and float(parameter.std()) < 0.3:
                parameter.normal_(0, 0.4)
    return TextModel(model, tokenizers, search)


def shelf_of(task: Task = "language", **models: Any) -> Shelf:
    """A shelf with these models, by name."""
    shelf = Shelf(lambda folder: models[folder.name])
    for name in models:
        shelf.models[name] = Served(name, Path("/nowhere") / name, task, {}, shelf)
    return shelf
