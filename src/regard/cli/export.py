"""What `regard export` does: word vectors as word2vec's file, and models as folders for other programs, with a certificate."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from regard.cli.imports import whole_imports

VECTORS = ("word2vec", "word2vec-binary")
PROGRAMS = ("ctranslate2", "huggingface", "onnx")


def run_export(
    model: Path,
    out: Path,
    to: str,
    *,
    quantise: str,
    sentences: Path | None,
    references: Path | None,
    tolerance: float | None,
    force: bool,
) -> None:
    with whole_imports():
        from regard.core.errors import ConfigError
        from regard.models.base import MODELS
        from regard.tasks.folder import read_config
        from regard.tasks.pretrained import find_model

    if to and to not in (*PROGRAMS, *VECTORS):
        todo = f"Use {', '.join((*PROGRAMS, *VECTORS))}"
        raise ConfigError(f"--to {to}", "there is no such format", todo)
    folder = find_model(model)
    name = str(read_config(folder)["model"].get("name"))
    if to in VECTORS or (not to and "embeds" in MODELS.get(name).capabilities):
        options = {"--sentences": sentences, "--references": references, "--tolerance": tolerance, "--force": force}
        for option, given in {**options, "--quantise": quantise != "float32"}.items():
            if given:
                raise ConfigError(option, "word vectors are written as they are", "Leave it out")
        _export_vectors(folder, out, to == "word2vec-binary")
        return
    with whole_imports():
        from regard.exchange.export import export

    made = export(
        folder,
        to=to or "huggingface",  # type: ignore[arg-type]
        out=out,
        quantise=quantise,  # type: ignore[arg-type]
        sentences=sentences,
        references=references,
        tolerance=tolerance,
        force=force,
    )
    for line in said(made.certificate):
        typer.echo(line, err=True)
    typer.echo(f"Done: {made.folder}. Open it with {made.hint}; its README.md says how.", err=True)


def said(certificate: dict[str, Any]) -> list[str]:
    """A certificate in a few lines."""
    lines = [
        f"Compared on {certificate['cases']} texts: {certificate['numbers']:,} numbers differ by at most "
        f"{certificate['largest_difference']:.2g} ({certificate['measure']})."
    ]
    if certificate["identical_outputs"] is not None:
        lines.append(f"{certificate['identical_outputs']:.1%} of {certificate['outputs']} outputs are the same.")
    if certificate["bleu"] is not None:
        ours, theirs = (certificate["bleu"][side] for side in certificate["sides"])
        lines.append(f"BLEU {ours:.2f} and {theirs:.2f}.")
    return [*lines, *certificate["notes"]]


def _export_vectors(folder: Path, out: Path, binary: bool) -> None:
    from regard.cli.embed import run_export_vectors
    from regard.core.files import quoted

    count = run_export_vectors(folder, out, binary)
    done = f"Done: {count:,} vectors in {out}. Look into them with: regard nearest --model {quoted(out)} WORD"
    typer.echo(done, err=True)
