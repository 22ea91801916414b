"""The verbs `import` and `export`: models that come from, and go to, other libraries."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from regard.cli.imports import whole_imports


def add_exchange_verbs(app: typer.Typer) -> None:
    app.command("import")(import_)
    app.command()(export)


def import_(
    model: Annotated[
        Path,
        typer.Argument(
            help="A folder of Hugging Face (Marian, GPT-2, BERT) or CTranslate2, or a checkpoint of OpenNMT-py or fairseq."
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="The new model's folder.")],
    pieces: Annotated[
        Path | None, typer.Option(help="The SentencePiece model of the texts, where it is not in the folder.")
    ] = None,
    target_pieces: Annotated[Path | None, typer.Option(help="That of the target, where it has its own.")] = None,
    source_end: Annotated[
        bool | None,
        typer.Option("--source-end/--no-source-end", help="Of CTranslate2: whether sources end with EOS."),
    ] = None,
    two_texts: Annotated[
        bool, typer.Option("--two-texts", help="A classifier of BERT's kind that reads pairs of texts.")
    ] = False,
) -> None:
    """Make a regard model of a model of Hugging Face, CTranslate2, OpenNMT-py or fairseq. Nothing of its files is run."""
    with whole_imports():
        from regard.core.files import quoted
        from regard.exchange.import_model import import_model
        from regard.models.base import MODELS
        from regard.tasks.folder import read_config

    made = import_model(
        model, out, pieces=pieces, target_pieces=target_pieces, source_end=source_end, two_texts=two_texts
    )
    section = read_config(made)["model"]
    capabilities = MODELS.get(section["name"]).capabilities
    if "continues" in capabilities:
        typer.echo(f'Done: {made}. Let it write with: regard generate --model {quoted(made)} --prompt "..."', err=True)
        return
    verbs = {"translates": "translate", "classifies": "classify", "tags": "tag"}
    verb = next((verb for name, verb in verbs.items() if name in capabilities), "fill")
    verb = "embed" if verb == "fill" and not section["head"] else verb
    typer.echo(f"Done: {made}. Use it with: regard {verb} --model {quoted(made)}", err=True)


def export(
    model: Annotated[Path, typer.Argument(help="A run folder, or the name of a bundled model.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The new folder, or the file of word vectors.")],
    to: Annotated[
        str,
        typer.Option(
            help="ctranslate2, huggingface or onnx; for the table of words word2vec (text) or word2vec-binary. "
            "Default: huggingface, of word vectors word2vec."
        ),
    ] = "",
    quantise: Annotated[
        str, typer.Option(help="float32, or int8: a quarter of the size, and faster (ctranslate2, onnx).")
    ] = "float32",
    sentences: Annotated[
        Path | None, typer.Option(help="Lines on which both programs are compared. Default: bundled ones.")
    ] = None,
    references: Annotated[
        Path | None, typer.Option(help="Right translations of --sentences, to compare BLEU as well.")
    ] = None,
    tolerance: Annotated[
        float | None, typer.Option(help="The largest difference of two log-probabilities that is allowed.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an earlier export.")] = False,
) -> None:
    """Write a model for CTranslate2, transformers or ONNX Runtime, and prove that the answers are the same.

    Both programs answer the same questions; parity.json has the differences. Where they are too large, nothing is written.
    """
    from regard.cli.export import run_export

    run_export(
        model,
        out,
        to,
        quantise=quantise,
        sentences=sentences,
        references=references,
        tolerance=tolerance,
        force=force,
    )
