"""Exported models without torch: onnxruntime, NumPy and tokenizers are all that this needs.

    import regard.onnx
    regard.onnx.load("folder").translate(["Good morning."], beam=5)

The folder is what `regard export DIR --to onnx` wrote. `load` gives, by what the model does, an object with `translate`,
`generate`, `write`, `classify`, `tag` or `fill` and `embed`, as `regard.load` gives with torch.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any


def load(folder: Path | str) -> Any:
    """The model of an exported folder, checked against its hashes."""
    from regard.onnx.folder import open_folder

    folder = Path(folder)
    opened = open_folder(folder)
    task = opened.manifest.task
    if task == "translates":
        from regard.onnx.translator import OnnxTranslator

        return OnnxTranslator(opened, folder)
    if task in ("continues", "composes"):
        from regard.onnx.text import OnnxComposer, OnnxTextModel

        return (OnnxTextModel if task == "continues" else OnnxComposer)(opened, folder)
    from regard.onnx.reading import OnnxClassifier, OnnxMaskedText, OnnxTagger

    return {"classifies": OnnxClassifier, "tags": OnnxTagger, "fills": OnnxMaskedText}[task](opened, folder)


__all__ = ["load"]
