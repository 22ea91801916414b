"""The verb `evaluate` for language models: `regard evaluate --text FILE`."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress

from regard.cli.generate import load_text_model
from regard.core.errors import ConfigError
from regard.evaluation.run_trigram import trigram_of
from regard.evaluation.text_run import TextEvaluation, evaluate_text
from regard.models.base import MODELS
from regard.tasks.folder import read_config
from regard.tasks.pretrained import find_model

UNITS = ("auto", "line", "file", "blank")


def run_evaluate_text(
    text: Sequence[Path | str],
    model: Path | None,
    documents: str,
    context: int | None,
    stride: int | None,
    as_json: bool,
    device: str,
    trigram: float | None = None,
) -> None:
    """Prints the perplexity of a language model on files or folders of plain text; of a masked model, how well it fills in words.

    `trigram` is the share of a trigram of the training text that is mixed in; None: the model alone.
    """
    if documents not in UNITS:
        raise ConfigError("--documents", f"{documents!r} is not one of {', '.join(UNITS)}", "Choose one of them")
    for option, value in (("--context", context), ("--stride", stride)):
        if value is not None and value < 1:
            raise ConfigError(option, f"{value} is less than 1", "Give a number of tokens, or leave it out")
    unit: Any = documents
    if model is not None and fills_in_words(model):
        if not (context is stride is trigram is None):
            what = "a masked model reads rows as long as those of its training"
            raise ConfigError("evaluate", what, "Leave --context, --stride and --trigram out")
        from regard.cli.fill import run_evaluate_masked

        run_evaluate_masked(text, model, unit, as_json, device)
        return
    if trigram is not None and not 0 <= trigram <= 1:
        raise ConfigError("--trigram", f"{trigram} is not from 0 to 1 (the trigram alone)", "Give such a share")
    reader = load_text_model(model, device)
    other = None if trigram is None else trigram_of(reader)
    try:
        with Progress(console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as progress:
            task = progress.add_task("Reading")
            result = evaluate_text(
                reader,
                list(text),
                documents=unit,
                context=context or 0,
                stride=stride or 0,
                trigram=other,
                weight=1.0 if trigram is None else 1 - trigram,
                progress=lambda done, whole: progress.update(task, completed=done, total=whole),
            )
    except ConfigError as error:
        where = f"--{error.where}" if error.where in ("context", "stride") else error.where
        raise ConfigError(where, error.what, error.todo) from None
    if as_json:
        print(json.dumps(result.to_plain(), ensure_ascii=False))
    else:
        _show(result, trigram)
    if result.score.unknown:
        print(
            f"Note: {result.score.unknown:,} of {result.score.tokens:,} tokens stand for what the vocabulary lacks. Compare only "
            "with models that have the same vocabulary.",
            file=sys.stderr,
        )


def fills_in_words(model: Path) -> bool:
    """Whether a run is one of a masked model."""
    return "fills" in MODELS.get(str(read_config(find_model(model))["model"].get("name"))).capabilities


def _show(result: TextEvaluation, trigram: float | None) -> None:
    console, score = Console(highlight=False, soft_wrap=True), result.score
    console.print(result.name, markup=False)
    size = f"{score.documents:,} documents, {score.words:,} words, {score.bytes:,} bytes (their ends counted)"
    console.print(f"  {size}, {score.tokens:,} tokens", markup=False)
    if trigram is not None:
        console.print(f"  mixed with a trigram of its training text, whose share is {trigram:g}", markup=False)
    how = "the state carried from end to end"
    if result.context is not None:
        how = f"windows of {result.context} tokens, {result.stride} apart"
    console.print(f"  perplexity {score.word_perplexity:.3f} per word", markup=False)
    console.print(f"  perplexity {score.byte_perplexity:.4f} per byte ({score.bits_per_byte:.4f} bits)", markup=False)
    console.print(f"  perplexity {score.perplexity:.3f} per token of its own; {how}", markup=False)
