"""Measures a finished run on the test text: speed, scores, perplexity, scores by length, and one alignment."""

from __future__ import annotations

import dataclasses
import hashlib
import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

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
    run_folder,
)
from regard.core.errors import CheckpointError, ModelError
from regard.core.files import read_json, sha256_of
from regard.data.split import Pairs
from regard.evaluation.lengths import by_source_length
from regard.evaluation.metrics import corpus_scores, perplexity
from regard.tasks.folder import DATA, METRICS, RUN, tokenizer_names
from regard.tasks.lines import END
from regard.tasks.translation import Translator
from regard.training.log import read_metrics

WARM_UP = 8  # sentences translated before the clock starts


def measure(
    folder: Path, plan: Plan, entry: Entry, seed: int, test: Pairs, command: str
) -> tuple[RunResult, list[str]]:
    """The result of one run of a comparison, and its translations."""
    run = run_folder(folder, entry.slug, seed)
    prints = fingerprints(run)
    for name, what in (("data", "text"), ("tokenizer", "tokenizer")):
        if plan.fingerprints.get(name, prints[name]) != prints[name]:
            raise CheckpointError(
                run, f"its {what} is not that of the other runs", "Remove the folder and run it again"
            )
    if entry.values["train"]["threads"]:
        torch.set_num_threads(entry.values["train"]["threads"])
    translator = Translator.load(run, entry.values["train"]["device"])
    written, decoding = _decode(translator, test)
    references = [one_line(target) for target in test.targets]
    scores = corpus_scores(written, references, plan.flavour, metrics=("bleu", "chrf"))
    summary = read_json(run / RUN).get("summary", {})
    rows = read_metrics(run / METRICS)
    result = RunResult(
        entry=entry.slug,
        seed=seed,
        folder=run_folder(Path(), entry.slug, seed).as_posix(),
        parameters=translator.model.parameters_count(),
        device=str(summary.get("device", translator.device)),
        training=Training(
            steps=int(summary.get("steps", entry.steps)),
            seconds=float(summary.get("seconds", 0.0)),
            tokens_per_second=round(training_speed(rows), 1),
        ),
        decoding=decoding,
        scores=scores,
        perplexity=_perplexity(translator, test),
        by_length=tuple(by_source_length(test.sources, written, references, plan.flavour)),
        alignment=_alignment(translator, test, plan.sentence),
        fingerprints=prints,
        commands=(command,),
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
    first = test.head(WARM_UP)
    translator.hypotheses(first.sources, search=settings, tags=first.tags or None)
    began = time.monotonic()
    found = [many[0] for many in translator.hypotheses(test.sources, search=settings, tags=test.tags or None)]
    seconds = max(1e-6, time.monotonic() - began)
    tokens = sum(len(translation.token_log_probs) for translation in found)  # ends included
    decoding = Decoding(
        sentences=len(found),
        tokens=tokens,
        seconds=round(seconds, 3),
        tokens_per_second=round(tokens / seconds, 1),
        beam=settings.hypotheses,
    )
    return [one_line(translation.text) for translation in found], decoding


def training_speed(rows: Sequence[Mapping[str, Any]]) -> float:
    """Target tokens per second over all steps; the first line of the log, of a machine that warms up, does not count."""
    logged = [row for row in rows if row.get("tokens_per_second") and type(row.get("step")) is int]
    steps = [row["step"] - before for row, before in zip(logged, [0, *(row["step"] for row in logged)], strict=False)]
    parts = [(made, row["tokens_per_second"]) for made, row in zip(steps, logged, strict=True) if made > 0]
    parts = parts[1:] if len(parts) > 2 else parts
    if not parts:
        return 0.0
    return sum(made for made, _ in parts) / sum(made / speed for made, speed in parts)


def _perplexity(translator: Translator, test: Pairs) -> float | None:
    """Per target token; None where a line is longer than the model can read at once."""
    try:
        scored = translator.score(test.sources, test.targets, tags=test.tags or None)
    except ModelError:
        return None
    value = perplexity(-sum(s.log_prob for s in scored), sum(len(s.token_log_probs) for s in scored))
    return value if math.isfinite(value) else None


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
