"""Models by folder or by name, and the small pretrained one that ships inside the package."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Any, overload

from regard.core.errors import CheckpointError, ConfigError, ModelError
from regard.core.number_formats import Asked, check_asked
from regard.engines.ctranslate2_limits import why_not
from regard.tasks.run_files import read_config
from regard.tasks.translation import Translator
from regard.tasks.translation_engines import Engine

BUNDLED = "tatoeba-en-de"
VERBS = {"continues": "generate", "classifies": "classify", "tags": "tag", "fills": "fill", "embeds": "nearest",
         "composes": "generate"}  # fmt: skip


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


def capabilities_of(section: dict[str, Any]) -> frozenset[str]:
    """What the model of a configuration can do. What CTranslate2 can run translates: that is known without importing models."""
    if why_not(section) is None:
        return frozenset({"translates", "attends"})
    from regard.models.base import MODELS

    return MODELS.get(str(section.get("name"))).capabilities


@overload
def load(
    path: None = None, device: str = "auto", *, engine: Engine = "auto", compute: Asked = "auto"
) -> Translator: ...
@overload
def load(path: str | Path, device: str = "auto", *, engine: Engine = "auto", compute: Asked = "auto") -> Any: ...
def load(
    path: str | Path | None = None, device: str = "auto", *, engine: Engine = "auto", compute: Asked = "auto"
) -> Any:
    """The model of a run folder or of a bundled model's name, as what it can do; without one, the bundled English-German model.

    Translators are run by an `engine`: see `Translator.load`. Other models are run by torch, whatever is asked for.
    `compute` is for translators and language models (CTranslate2's int8_float32 for translators alone).
    """
    check_asked(compute)
    folder = find_model(path)
    capabilities = capabilities_of(read_config(folder)["model"])
    if "continues" in capabilities:
        from regard.tasks.language_model import TextModel

        return TextModel.load(folder, device, "auto" if compute == "int8_float32" else compute)
    if "classifies" in capabilities:
        from regard.tasks.classification import TextClassifier

        return TextClassifier.load(folder, device)
    if "tags" in capabilities:
        from regard.tasks.tagging import TextTagger

        return TextTagger.load(folder, device)
    if "fills" in capabilities:
        from regard.tasks.masked import MaskedText

        return MaskedText.load(folder, device)
    if "embeds" in capabilities:
        from regard.tasks.word_vectors import WordVectors

        return WordVectors.load(folder)
    if "composes" in capabilities:
        from regard.tasks.composing import TextComposer

        if compute not in ("auto", "float32"):
            raise ConfigError("compute", "a label-writer computes in float32", "Use float32 or auto")
        return TextComposer.load(folder, device)
    return Translator.load(folder, device, engine=engine, compute=compute)


def load_translator(
    path: str | Path | None = None, device: str = "auto", *, engine: Engine = "torch", compute: Asked = "auto"
) -> Translator:
    """The translator of a run folder; anything else is refused."""
    folder = find_model(path)
    capabilities = capabilities_of(read_config(folder)["model"])
    for capability, verb in VERBS.items():
        if capability in capabilities:
            raise ModelError(str(path), "its model does not translate", f"Use `regard {verb}`, or another --model")
    return Translator.load(folder, device, engine=engine, compute=compute)
