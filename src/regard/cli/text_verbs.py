"""The verbs of language models and classifiers, `generate`, `next` and `classify`: thin layers, whose imports are inside."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from regard.cli.imports import whole_imports

ModelOption = Annotated[Path | None, typer.Option("--model", "-m", help="The run folder of a language model.")]
DeviceOption = Annotated[str, typer.Option("--device", help="auto, cpu, cuda, cuda:N or mps.")]


def add_text_verbs(app: typer.Typer) -> None:
    app.command()(generate)
    app.command("next")(next_)
    app.command()(classify)


def generate(
    prompt: Annotated[
        str | None, typer.Option("--prompt", "-p", help="Text to go on from. Without it, standard input; or nothing.")
    ] = None,
    label: Annotated[
        str | None, typer.Option(help="Write from this label instead, with a label-writer's run as --model.")
    ] = None,
    model: ModelOption = None,
    method: Annotated[str | None, typer.Option(help="sample (the default), greedy or beam.")] = None,
    samples: Annotated[int, typer.Option(help="How many texts to write.")] = 1,
    max_tokens: Annotated[int | None, typer.Option(help="Most tokens to write.")] = None,
    temperature: Annotated[float | None, typer.Option(help="Sampling: below 1 is tamer, above 1 wilder.")] = None,
    top_k: Annotated[int | None, typer.Option(help="Sampling: only the k likeliest tokens.")] = None,
    top_p: Annotated[
        float | None, typer.Option(help="Sampling: only the likeliest tokens that make up this probability.")
    ] = None,
    min_p: Annotated[
        float | None, typer.Option(help="Sampling: only tokens at least this likely relative to the likeliest.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Sampling: another seed, other draws.")] = None,
    beam: Annotated[int | None, typer.Option(help="Beam search: hypotheses kept.")] = None,
    echo: Annotated[
        bool | None, typer.Option("--echo/--no-echo", help="Write the prompt first. Default: on a terminal.")
    ] = None,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json", help="Print one JSON object: the prompt and all texts, with tokens and log-probabilities."
        ),
    ] = False,
    draft: Annotated[
        Path | None,
        typer.Option(help="A small language model with the same tokenizer that guesses: the same text, sooner."),
    ] = None,
    ahead: Annotated[int, typer.Option(help="How many tokens --draft guesses at a time.")] = 2,
    device: DeviceOption = "auto",
    compute: Annotated[str, typer.Option(help="Numbers: auto (float32), float32, bfloat16; on a CPU int8.")] = "auto",
) -> None:
    """Write text after a prompt with a language model, as its tokens come; or from a label."""
    with whole_imports():
        from regard.cli.compose import run_compose
        from regard.cli.generate import run_generate
        from regard.core.errors import ConfigError

    wishes = {
        "samples": samples, "method": method, "max_tokens": max_tokens, "temperature": temperature, "top_k": top_k,
        "top_p": top_p, "min_p": min_p, "seed": seed, "beam": beam,
    }  # fmt: skip
    if label is None:
        run_generate(prompt, model, wishes, echo, as_json, device, draft, ahead, compute)
        return
    if compute not in ("auto", "float32"):
        raise ConfigError("--compute", "a label-writer computes in float32", "Leave --compute out")
    if prompt is not None or echo:
        raise ConfigError("--label", "a text from a label goes on from no prompt", "Leave --prompt and --echo out")
    run_compose(label, model, wishes, as_json, device)


def next_(
    prompt: Annotated[list[str] | None, typer.Argument(help="The text so far. Without it, standard input.")] = None,
    model: ModelOption = None,
    top: Annotated[int, typer.Option(help="How many words to show.")] = 10,
    tokens: Annotated[bool, typer.Option("--tokens", help="Show tokens, which may be parts of words.")] = False,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json", help="Print one JSON object: the prompt and all rows, each with text, probability and kind."
        ),
    ] = False,
    device: DeviceOption = "auto",
) -> None:
    """The most probable next words after a text, with their probabilities."""
    with whole_imports():
        from regard.cli.next_words import run_next

    run_next(prompt, model, top, tokens, as_json, device)


def classify(
    text: Annotated[
        list[str] | None, typer.Argument(help="Text to classify. Without it, every line of standard input.")
    ] = None,
    model: Annotated[Path | None, typer.Option("--model", "-m", help="The run folder of a classifier.")] = None,
    top: Annotated[int, typer.Option(help="How many labels to show.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per text.")] = False,
    device: DeviceOption = "auto",
) -> None:
    """The most probable label of each text, with its probability. A tab separates two texts that belong together."""
    with whole_imports():
        from regard.cli.classify import run_classify
        from regard.core.errors import ConfigError

    if model is None:
        raise ConfigError("--model", "no classifier comes with regard", "Give the folder of a run on labelled text")
    run_classify(text, model, top, as_json, device)
