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
        Path, typer.Argument(help="A Hugging Face GPT-2: config.json, model.safetensors and its tokenizer.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="The new model's folder.")],
) -> None:
    """Make a regard model of a Hugging Face GPT-2 checkpoint."""
    with whole_imports():
        from regard.core.files import quoted
        from regard.exchange.huggingface_gpt2 import import_gpt2

    made = import_gpt2(folder, out)
    typer.echo(f'Done: {made}. Let it write with: regard generate --model {quoted(made)} --prompt "..."', err=True)


def export(
    model: Annotated[Path, typer.Argument(help="The run folder of a GPT.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The new folder.")],
) -> None:
    """Write a GPT as a Hugging Face GPT-2 checkpoint."""
    with whole_imports():
        from regard.exchange.huggingface_gpt2 import write_gpt2
        from regard.tasks.pretrained import find_model

    written = write_gpt2(find_model(model), out)
    typer.echo(f"Done: {written.folder}. Open it with transformers' AutoModelForCausalLM.from_pretrained.", err=True)
