"""Exporting: a model becomes a folder for another program, with a certificate that both give the same answers.

    regard.export("run", to="ctranslate2", out="fast", quantise="int8")
    regard.export(regard.load("run"), to="huggingface", out="hub")

The folder appears whole, with parity.json in it, or not at all. The live model is not changed.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch

from regard.core.errors import CheckpointError, ConfigError, ModelError
from regard.core.files import MANIFEST, write_bytes, write_folder
from regard.exchange.export_plan import README, Plan
from regard.exchange.parity import FLOAT32, INT8, PARITY, About, Tolerance, certify
from regard.exchange.parity_questions import questions_for
from regard.exchange.parity_sides import (
    MEASURES,
    live_model,
    on_cpu,
    regard_side,
    weights_sha256,
)
from regard.layers.int8_linear import Int8Matrix

Target = Literal["ctranslate2", "huggingface", "onnx"]
TARGETS: tuple[Target, ...] = ("ctranslate2", "huggingface", "onnx")
Quantise = Literal["float32", "int8"]
QUANTISE: tuple[Quantise, ...] = ("float32", "int8")


class Exported(NamedTuple):
    """A finished export: its folder, its certificate (the content of parity.json), and what opens it."""

    folder: Path
    certificate: dict[str, Any]
    hint: str


def export(
    model: Any = None,
    *,
    to: Target,
    out: str | Path,
    quantise: Quantise = "float32",
    sentences: str | Path | None = None,
    references: str | Path | None = None,
    tolerance: float | None = None,
    force: bool = False,
) -> Exported:
    """Writes a model for another program, and proves that the answers are the same.

    `model` is a run folder, a bundled model's name, None (the bundled translator), or what `regard.load` gave. Both programs
    answer about the lines of `sentences` (bundled ones, without), with `references` BLEU is compared, too. `tolerance` is the
    largest difference of two log-probabilities (or states) that is allowed; a larger one than usual allows other outputs, too.
    `force` replaces an earlier export.
    """
    if to not in TARGETS:
        raise ConfigError(f"--to {to}", "there is no such format", f"Use {', '.join(TARGETS)}")
    if quantise not in QUANTISE:
        raise ConfigError(f"--quantise {quantise}", "there is no such type", f"Use {' or '.join(QUANTISE)}")
    out = Path(out)
    check_out(out, force)
    task = open_model(model)
    before = weights_sha256(live_model(task))
    allowed = _tolerance(quantise, tolerance)
    files = [None if path is None else Path(path) for path in (sentences, references)]
    return _write(task, plan_export(task, to, quantise), to, quantise, out, before, files, allowed)


def _write(
    task: Any,
    plan: Plan,
    to: Target,
    quantise: Quantise,
    out: Path,
    before: str,
    files: list[Path | None],
    tolerance: Tolerance,
) -> Exported:
    model = live_model(task)
    compared = on_cpu(task)
    questions = questions_for(compared, *files)
    certificates = []

    def fill(place: Path) -> None:
        plan.fill(place)
        write_bytes(place / README, plan.readme.encode())
        certificates.append(
            certify(
                place,
                ours=plan.ours(regard_side(compared, plan.measure)),
                theirs=plan.side(place),
                questions=questions,
                tolerance=tolerance,
                about=About(
                    target=to,
                    compute=quantise,
                    model=model.config.name,
                    measure=MEASURES[plan.measure],
                    before=before,
                    weights=lambda: weights_sha256(model),
                    tokenizers=[t.fingerprint for t in (task.tokenizers.source, task.tokenizers.target)],
                    notes=plan.notes,
                ),
            )
        )

    out.parent.mkdir(parents=True, exist_ok=True)
    write_folder(out, fill)
    return Exported(out, certificates[0], plan.hint)


def plan_export(task: Any, to: Target, quantise: Quantise) -> Plan:
    """How a model becomes a folder for a program; what cannot be expressed is refused at once."""
    if to == "ctranslate2":
        from regard.exchange.ctranslate2_export import plan_ctranslate2

        return plan_ctranslate2(task, quantise)
    if to == "onnx":
        from regard.exchange.onnx_export import plan_onnx

        return plan_onnx(task, quantise)
    if quantise != "float32":
        what = "Hugging Face's files keep the weights as they are"
        raise ConfigError(f"--quantise {quantise}", what, "Leave it out, or use --to ctranslate2")
    from regard.exchange.huggingface_export import plan_huggingface

    return plan_huggingface(task)


def open_model(model: Any) -> Any:
    """What is exported, opened: a folder's model by torch; what `regard.load` gave as it is."""
    if model is None or isinstance(model, (str, Path)):
        from regard.tasks.pretrained import find_model, load

        model = load(find_model(model), "cpu", engine="torch")
    if not hasattr(model, "tokenizers") or not hasattr(model, "config"):
        what = "there is nothing to run: it is a table of vectors, or no model at all"
        todo = "Write word vectors with --to word2vec; else give what `regard.load` gives"
        raise ModelError(type(model).__name__, what, todo)
    live = live_model(model)
    bits = 8 if any(isinstance(value, Int8Matrix) for part in live.modules() for value in vars(part).values()) else 32
    if bits == 8 or any(p.dtype in (torch.bfloat16, torch.float16) for p in live.parameters()):
        what = f"its weights were rounded to {min(bits, 16)} bits when it was loaded"
        raise ModelError(type(model).__name__, what, "Load it with compute='float32', or give its folder")
    return model


def check_out(out: Path, force: bool) -> None:
    """Raises unless the folder can be written: it must be new or empty, or with `force` an earlier export."""
    if not out.name:
        raise CheckpointError(out, "it is no name of a folder", "Give the name of a new folder")
    for parent in out.parents:
        if parent.exists() and not parent.is_dir():
            raise CheckpointError(out, f"{parent} is a file, not a folder", "Give the name of a new folder")
    if not out.exists() or (out.is_dir() and not out.is_symlink() and not any(out.iterdir())):
        return
    if out.is_symlink() or not (out / PARITY).is_file() or not (out / MANIFEST).is_file():
        what = "there is something already, which `regard export` has not written"
        raise CheckpointError(out, what, "Remove it yourself, or give the name of a new folder")
    if not force:
        raise CheckpointError(out, "there is an export already", "Give the name of a new folder, or --force")


def _tolerance(quantise: Quantise, given: float | None) -> Tolerance:
    usual = FLOAT32 if quantise == "float32" else INT8
    if given is None:
        return usual
    looser = given > (usual.difference or 0.0)
    return Tolerance(difference=given) if looser else dataclasses.replace(usual, difference=given)
