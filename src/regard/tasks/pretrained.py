"""Models by folder or by name, and the small pretrained one that ships inside the package."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from regard.core.errors import CheckpointError
from regard.tasks.translation import Translator

BUNDLED = "tatoeba-en-de"


def bundled_model() -> Path:
    """The folder of the bundled English-German model."""
    folder = Path(str(resources.files("regard.data") / "bundled" / "model"))
    if not folder.is_dir():
        raise CheckpointError(
            folder, "the bundled model is missing from this installation", "Install regard again, or give --model DIR"
        )
    return folder


def find_model(path: str | Path | None) -> Path:
    """The folder that a path, the name of a bundled model, or None (the bundled model) stands for."""
    if path is None or (str(path) == BUNDLED and not Path(path).exists()):
        return bundled_model()
    return Path(path)


def load(path: str | Path | None = None, device: str = "auto") -> Translator:
    """A translator from a run folder or a bundled model's name; without one, the bundled English-German model."""
    return Translator.load(find_model(path), device)
