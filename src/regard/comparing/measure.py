"""Measures a finished run on the test text: speed, scores, perplexity, and one alignment.

The text was translated once at the end of training, for the run's own scores; here it is again, for the clock.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
import shlex
import statistics
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from regard.comparing.plan import machine, measured_part
from regard.comparing.results import (
    MOST_PIECES,
    MOST_ROWS,
    Alignment,
    Decoding,
    Entry,
    Plan,
    RunResult,
    Training,
    one_line,
    read_plan,
    run_folder,
    train_arguments,
    write_result,
)
from regard.core.errors import CheckpointError, DataError, ModelError
from regard.core.files import read_json, sha256_of
from regard.data.corpus import load_corpus
from regard.data.split import Pairs
from regard.evaluation.metrics import corpus_scores
from regard.evaluation.run import text_perplexity
from regard.tasks.folder import DATA, METRICS, RUN, tokenizer_names
from regard.tasks.lines import END
from regard.tasks.translation import Translator
from regard.training.config import build_run_config
from regard.training.log import read_metrics

LONG_ENOUGH, MOST_ROUNDS = 2.0, 5  # the text is translated again until the clock has run for so many seconds


def measure_run(folder: Path, slug: str, seed: int) -> None:
    """Measures one run of a comparison and writes its result. Sets the process's threads to the run's."""
    plan = read_plan(folder)
    entry = plan.entry(slug)
    corpus = load_corpus(build_run_config(plan.common).data, print)
    if plan.fingerprints.get("data") != corpus.fingerprint:
        todo = "Restore the files, or start another comparison"
        raise DataError(folder, "the text is not what this comparison was started with", todo)
    if entry.values["train"]["threads"]:
        torch.set_num_threads(entry.values["train"]["threads"])
    result, translations = measure(folder, plan, entry, seed, measured_part(corpus)[1])
    write_result(folder, result, translations)


def measure(folder: Path, plan: Plan, entry: Entry, seed: int, test: Pairs) -> tuple[RunResult, list[str]]:
    """The result of one run of a comparison, and its translations."""
    run = run_folder(folder, entry.slug, seed)
    prints = fingerprints(run)
    for name, what in (("data", "text"), ("tokenizer", "tokenizer")):
        if plan.fingerprints.get(name, prints[name]) != prints[name]:
            raise CheckpointError(
                run, f"its {what} is not that of the other runs", "Remove the folder and run it again"
            )
    translator = Translator.load(run, entry.values["train"]["device"])
    written, decoding = _decode(translator, test)
    references = [one_line(target) for target in test.targets]
    scores = corpus_scores(written, references, plan.flavour, metrics=("bleu", "chrf"))
    request = read_json(run / RUN)
    summary = request.get("summary", {})
    rows = read_metrics(run / METRICS)
    loss = text_perplexity(translator, test.sources, test.targets, test.tags or None)
    result = RunResult(
        entry=entry.slug,
        seed=seed,
        folder=run_folder(Path(), entry.slug, seed).as_posix(),
        parameters=translator.model.parameters_count(),
        pairs=int(summary["pairs"]),
        left_out=int(summary["left_out"]),
        device=str(summary.get("device", translator.device)),
        machine=machine(),
        versions={name: str(version) for name, version in request.get("versions", {}).items()},
        training=Training(
            steps=int(summary.get("steps", entry.steps)),
            seconds=float(summary.get("seconds", 0.0)),
            tokens_per_second=round(training_speed(rows), 1),
        ),
        decoding=decoding,
        scores=scores,
        perplexity=loss if loss is not None and math.isfinite(loss) else None,
        alignment=_alignment(translator, test, plan.sentence),
        fingerprints=prints,
        commands=(shlex.join(["regard", *train_arguments(Path(), entry.slug, seed)]),),
        curve=tuple(_curve(rows)),
    )
    return result, written


def fingerprints(run: Path) -> dict[str, str]:
    """What a run was trained on: its text, and its tokenizer."""
    data = read_json(run / DATA)
    digest = hashlib.sha256("".join(sha256_of(run / name) for name in tokenizer_names(run)).encode())
    return {"data": str(data.get("fingerprint", "")), "tokenizer": digest.hexdigest()}


def _decode(translator: Translator, test: Pairs) -> tuple[list[str], Decoding]:
    """All translations, each on one line, and how long they took: with the model's own search, warmed up."""
    settings = dataclasses.replace(translator.search, nbest=1)
    batch_tokens = translator.batch_tokens(settings)
    first = test.head(_filling(translator, test, batch_tokens))
    translator.hypotheses(first.sources, search=settings, tags=first.tags or None, batch_tokens=batch_tokens)
    taken: list[float] = []
    found = []
    while len(taken) < MOST_ROUNDS and sum(taken) < LONG_ENOUGH:
        began = time.monotonic()
        many = translator.hypotheses(test.sources, search=settings, tags=test.tags or None, batch_tokens=batch_tokens)
        taken.append(max(1e-6, time.monotonic() - began))
        found = found or [best[0] for best in many]
    seconds = statistics.median(taken)
    tokens = sum(len(translation.token_log_probs) for translation in found)  # ends included
    decoding = Decoding(
        sentences=len(found),
        tokens=tokens,
        seconds=round(seconds, 6),
        tokens_per_second=round(tokens / seconds, 1),
        sentences_per_second=round(len(found) / seconds, 2),
        rounds=len(taken),
        batch_tokens=batch_tokens,
        beam=settings.hypotheses,
    )
    return [one_line(translation.text) for translation in found], decoding


def _filling(translator: Translator, test: Pairs, tokens: int) -> int:
    """How many sentences fill a batch of so many tokens."""
    total = 0
    for number, ids in enumerate(translator.tokenizers.source.encode(list(test.sources)), start=1):
        total += len(ids) + 1
        if total >= tokens:
            return number
    return len(test)


def training_speed(rows: Sequence[Mapping[str, Any]]) -> float:
    """Target tokens per second over all steps; the first line of the log, of a machine that warms up, does not count."""
    logged = [row for row in rows if row.get("tokens_per_second") and type(row.get("step")) is int]
    steps = [row["step"] - before for row, before in zip(logged, [0, *(row["step"] for row in logged)], strict=False)]
    parts = [(made, row["tokens_per_second"]) for made, row in zip(steps, logged, strict=True) if made > 0]
    parts = parts[1:] if len(parts) > 2 else parts
    if not parts:
        return 0.0
    return sum(made for made, _ in parts) / sum(made / speed for made, speed in parts)


def _alignment(translator: Translator, test: Pairs, place: int) -> Alignment | None:
    """The attention under which one sentence was translated; None for models without attention."""
    if "attends" not in translator.model.capabilities or not len(test):
        return None
    one = test.take([min(place, len(test) - 1)])
    try:
        best = translator.hypotheses(one.sources, attention=True, tags=one.tags or None)[0][0]
    except ModelError:  # these settings of the model do not attend
        return None
    weights = best.attention
    if not weights:
        return None
    source, target = [*best.source_tokens, END], [*best.tokens, END][: len(weights)]
    if max(len(source), len(target)) > MOST_PIECES or any(len(row) != len(source) for row in weights):
        return None
    return Alignment(
        source=tuple(source),
        target=tuple(target),
        weights=tuple(tuple(round(weight, 4) for weight in row) for row in weights),
    )


def _curve(rows: Sequence[Mapping[str, Any]]) -> list[tuple[int, float]]:
    points = [
        (row["step"], round(row["valid_nll"], 5))
        for row in rows
        if type(row.get("step")) is int and isinstance(row.get("valid_nll"), (int, float))
    ]
    return points[:: max(1, -(-len(points) // (MOST_ROWS // 10)))]
