"""Run folders of every released format, kept under tests/data/runs, and what their models answer.

`PYTHONPATH=src python tests/faults/old_runs.py` adds those of the present format that are not there yet; none is ever changed.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import torch
from fault_runs import FAMILIES, files_of, settings_of, write_texts

import regard
from regard.tasks.run_files import FORMAT
from regard.training.progress import Reporter

ROOT = Path(__file__).parents[1] / "data" / "runs"
PLACE = "/where/the/run/was/made"  # stands in the folders for the place of their texts
STEPS = 6
NAMES = ("run.json", "config.json", "data.json")


def home(version: int, family: str) -> Path:
    return ROOT / f"v{version}-{family}"


def kept_checkpoint(folder: Path) -> Path:
    """The one before the last, which is not kept: to be gone on from."""
    (found,) = (folder / "checkpoints").glob("step-*")
    return found


def write_plain_manifest(folder: Path) -> None:
    """The manifest of a folder in which paths were exchanged, by its definition."""
    manifest = json.loads((folder / "manifest.json").read_text())
    for name, entry in manifest["files"].items():
        content = (folder / name).read_bytes()
        entry["bytes"], entry["sha256"] = len(content), hashlib.sha256(content).hexdigest()
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n")


def exchange(folder: Path, old: str, new: str) -> None:
    for name in NAMES:
        (folder / name).write_text((folder / name).read_text().replace(old, new))
    write_plain_manifest(folder)


def answers(folder: Path) -> dict[str, Any]:
    """What the model of a run says, in words and in numbers."""
    model: Any = regard.load(folder, "cpu", engine="torch")
    if isinstance(model, regard.Translator):
        found = model.translate(["ab cd", "ef gh ij kl"], beam=2)
        return {"words": found, "numbers": [s.log_prob for s in model.score(["ab cd"], ["CD AB"])]}
    if isinstance(model, regard.TextModel):
        return {
            "words": [model.generate("ab", method="greedy", max_tokens=6)],
            "numbers": [model.perplexity(["ab cd"]).perplexity],
        }
    if isinstance(model, regard.MaskedText):
        found = model.fill("ab [MASK] ef", top=3)[0]
        return {"words": [word.word for word in found], "numbers": [word.probability for word in found]}
    if isinstance(model, regard.TextClassifier):
        found = model.classify(["ab cd", "op op"])
        return {"words": [g.label for g in found], "numbers": model.probabilities(["ab cd", "op op"]).ravel().tolist()}
    if isinstance(model, regard.TextTagger):
        found = model.tag("ab op cd")
        return {"words": [one.tag for one in found], "numbers": [one.probability for one in found]}
    if isinstance(model, regard.WordVectors):
        found = model.nearest("ab", top=3)
        return {"words": [one.word for one in found], "numbers": [one.similarity for one in found]}
    (text,) = model.write("yes", method="greedy", max_tokens=6)
    return {"words": [text.text], "numbers": [text.log_prob]}


def make(family: str) -> None:
    final = home(FORMAT, family)
    with tempfile.TemporaryDirectory() as place:
        texts = Path(place)
        write_texts(texts)
        settings = settings_of(FAMILIES[family], steps=STEPS)
        files = files_of(FAMILIES[family], texts)
        regard.train(out=texts / "run", settings=settings, report=Reporter(quiet=True), command="regard train", **files)
        ignored = shutil.ignore_patterns("tensorboard", ".lock", f"step-{STEPS:09d}")
        shutil.copytree(texts / "run", final, ignore=ignored)
        exchange(final, str(texts), PLACE)
        exchange(final, os.getcwd(), PLACE)
    (final / "answers.json").write_text(json.dumps(answers(final), indent=1) + "\n")


if __name__ == "__main__":
    torch.set_num_threads(1)
    for family in FAMILIES:
        if not home(FORMAT, family).exists():
            make(family)
            print(home(FORMAT, family))
