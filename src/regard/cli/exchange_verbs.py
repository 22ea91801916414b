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
    folder: Annotated[
        Path, typer.Argument(help="A Hugging Face GPT-2 or BERT: config.json, model.safetensors and its tokenizer.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="The new model's folder.")],
    two_texts: Annotated[
        bool, typer.Option("--two-texts", help="A classifier of BERT's kind that reads pairs of texts.")
    ] = False,
) -> None:
    """Make a regard model of a Hugging Face GPT-2 or BERT checkpoint."""
    with whole_imports():
        from regard.core.errors import CheckpointError, ConfigError
        from regard.core.files import quoted
        from regard.exchange.huggingface_bert import import_bert
        from regard.exchange.huggingface_files import model_type
        from regard.exchange.huggingface_gpt2 import import_gpt2
        from regard.models.base import MODELS
        from regard.tasks.folder import read_config

    kind = model_type(folder)
    if kind not in ("gpt2", "bert"):
        what = "it has no model_type" if kind is None else f"model_type={kind[:60]!r} is not known"
        raise CheckpointError(folder / "config.json", what, "Give a folder with a GPT-2 or a BERT")
    if kind == "gpt2":
        if two_texts:
            raise ConfigError("--two-texts", "a GPT-2 is no classifier", "Leave it out")
        made = import_gpt2(folder, out)
        typer.echo(f'Done: {made}. Let it write with: regard generate --model {quoted(made)} --prompt "..."', err=True)
        return
    made = import_bert(folder, out, two_texts=two_texts)
    section = read_config(made)["model"]
    capabilities = MODELS.get(section["name"]).capabilities
    verb = "classify" if "classifies" in capabilities else "tag" if "tags" in capabilities else "fill"
    verb = "embed" if verb == "fill" and not section["head"] else verb
    typer.echo(f"Done: {made}. Use it with: regard {verb} --model {quoted(made)}", err=True)


def export(
    model: Annotated[
        Path, typer.Argument(help="The run folder of a GPT or a BERT; of any model, for its word vectors.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="The new folder, or the file of word vectors.")],
    to: Annotated[
        str,
        typer.Option(
            help="huggingface, or for the table of words word2vec (text) or word2vec-binary. Default: by the model."
        ),
    ] = "",
) -> None:
    """Write a GPT or a BERT as a Hugging Face checkpoint, or a model's word vectors as word2vec's file."""
    with whole_imports():
        from regard.cli.embed import run_export_vectors
        from regard.core.errors import ConfigError, ModelError
        from regard.core.files import quoted
        from regard.exchange.huggingface_bert import BERTS, write_bert
        from regard.exchange.huggingface_gpt2 import write_gpt2
        from regard.models.base import MODELS
        from regard.tasks.folder import read_config
        from regard.tasks.pretrained import find_model

    kinds = ("huggingface", "word2vec", "word2vec-binary")
    if to and to not in kinds:
        raise ConfigError(f"--to {to}", "there is no such format", f"Use {', '.join(kinds)}")
    folder = find_model(model)
    name = str(read_config(folder)["model"].get("name"))
    if to.startswith("word2vec") or (not to and "embeds" in MODELS.get(name).capabilities):
        count = run_export_vectors(folder, out, to == "word2vec-binary")
        typer.echo(
            f"Done: {count:,} vectors in {out}. Look into them with: regard nearest --model {quoted(out)} WORD",
            err=True,
        )
        return
    if name in BERTS:
        written = write_bert(folder, out)
        typer.echo(f"Done: {written.folder}. Open it with transformers' {written.architecture}.", err=True)
        return
    if name != "gpt":
        todo = "Only these become Hugging Face checkpoints; a table of words is written with --to word2vec"
        raise ModelError(f"model {name!r}", "it is neither a GPT nor a BERT", todo)
    made = write_gpt2(folder, out)
    typer.echo(f"Done: {made.folder}. Open it with transformers' AutoModelForCausalLM.from_pretrained.", err=True)
