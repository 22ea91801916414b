"""What a comparison found: a row for each entry, with means over seeds, intervals, and tests against the best.

Means and deviations are over seeds. Intervals and tests are over the sentences of the test text, of the mean over seeds
(`regard.evaluation.significance.pooled_test`); p-values are the larger of two tests', corrected by Holm for the number of
entries. Half of the question, how much chance there is in training, only the deviation over seeds can answer: a difference
that is smaller than twice its standard error over seeds is said to lie within that chance.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from regard.comparing.cautions import warnings_of
from regard.comparing.results import Failure, Plan, RunResult, read_plan, read_results, read_test, read_translations
from regard.core.errors import CheckpointError
from regard.evaluation.lengths import LengthBin, length_spans
from regard.evaluation.metrics import Score, Statistics
from regard.evaluation.significance import holm, mean_interval, pooled_test

METRICS = ("bleu", "chrf")
LEVEL = 0.05
SAMPLES = 10_000  # so that the smallest p is still far below the level when it is corrected for many entries
BEST, WORSE, BETTER, SAME, UNTESTED, EMPTY = "best", "worse", "better", "not different", "not tested", "no result"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """One entry. What is not known is None: all scores of an entry without finished runs, a deviation of one seed.

    `verdict` is by BLEU: "best", significantly "worse" (or "better", on the seeds that both have, where some have
    failed), "not different", "not tested" (no seed in common with the best), or "no result". Differences are to
    the best entry, on `common_seeds` seeds. `_p` is the corrected p-value, `_bootstrap_p` and `_randomisation_p` are those
    of the two tests as they are. `bleu_chance` is twice the standard error that the chance of training gives the
    difference, and `beyond_chance` whether the difference is at least as large: None with one seed, which cannot tell.
    """

    entry: str
    slug: str
    model: str
    changes: str
    seeds: int
    failed: int
    left: int  # runs that have neither a result nor a failure yet
    steps: int
    verdict: str = EMPTY
    bleu: float | None = None
    bleu_sd: float | None = None
    bleu_low: float | None = None
    bleu_high: float | None = None
    chrf: float | None = None
    chrf_sd: float | None = None
    chrf_low: float | None = None
    chrf_high: float | None = None
    common_seeds: int | None = None
    bleu_difference: float | None = None
    bleu_p: float | None = None
    bleu_bootstrap_p: float | None = None
    bleu_randomisation_p: float | None = None
    bleu_chance: float | None = None
    beyond_chance: bool | None = None
    chrf_difference: float | None = None
    chrf_p: float | None = None
    chrf_bootstrap_p: float | None = None
    chrf_randomisation_p: float | None = None
    perplexity: float | None = None
    parameters: int | None = None
    pairs: int | None = None  # of training
    left_out: int | None = None  # pairs that were too long
    training_seconds: float | None = None
    training_tokens_per_second: float | None = None
    decoding_tokens_per_second: float | None = None
    decoding_sentences_per_second: float | None = None
    beam: int | None = None
    batch_tokens: int | None = None  # of decoding

    def to_plain(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Summary:
    """A comparison in numbers. `rows` are sorted by BLEU, entries without a result last; `lengths` are by slug."""

    plan: Plan
    results: tuple[RunResult, ...]
    failures: tuple[Failure, ...]
    rows: tuple[Row, ...]
    lengths: dict[str, list[LengthBin]]
    warnings: tuple[str, ...]
    source: str  # the sentence of the pictures
    reference: str
    translations: dict[str, str]  # of that sentence, by slug, by the first seed of each entry

    @property
    def best(self) -> Row | None:
        return self.rows[0] if self.rows and self.rows[0].bleu is not None else None

    def of(self, slug: str) -> list[RunResult]:
        """The finished runs of an entry, by seed."""
        return [result for result in self.results if result.entry == slug]

    def runs(self) -> list[dict[str, Any]]:
        """One flat row for each finished run."""
        return [_run_row(self.plan, result) for result in self.results]


def summarise(folder: str | Path) -> Summary:
    """Reads what is finished in the folder of a comparison, and computes all that its report says."""
    folder = Path(folder)
    plan = read_plan(folder)
    results, failures = read_results(folder, plan)
    if not results:
        rows = tuple(_row(plan, slug, [], failures) for slug in (entry.slug for entry in plan.entries))
        return Summary(
            plan=plan, results=(), failures=tuple(failures), rows=rows, lengths={}, warnings=(),
            source="", reference="", translations={},
        )  # fmt: skip
    sources, references = read_test(folder)
    texts = {(result.entry, result.seed): read_translations(folder, result) for result in results}
    return summarise_texts(plan, results, failures, sources, references, texts)


def summarise_texts(
    plan: Plan,
    results: Sequence[RunResult],
    failures: Sequence[Failure],
    sources: Sequence[str],
    references: Sequence[str],
    translations: Mapping[tuple[str, int], Sequence[str]],
) -> Summary:
    """As `summarise`, of what was read already; `translations` are by slug and seed."""
    for result in results:
        if len(translations[result.entry, result.seed]) != len(references):
            what = f"its {len(translations[result.entry, result.seed])} translations are of another test text"
            raise CheckpointError(result.folder, what, "Remove its result and run the comparison again")
    measured = _measure(plan, results, references, translations)
    finished = {slug: [r for r in results if r.entry == slug] for slug in (entry.slug for entry in plan.entries)}
    rows = [_row(plan, slug, runs, failures, measured) for slug, runs in finished.items()]
    if len({result.fingerprints.get("tokenizer", "") for result in results}) > 1:
        rows = [dataclasses.replace(row, perplexity=None) for row in rows]
    rows.sort(key=lambda row: -math.inf if row.bleu is None else row.bleu, reverse=True)
    rows = _with_tests(rows, finished, measured)
    place = min(plan.sentence, len(sources) - 1)
    return Summary(
        plan=plan,
        results=tuple(results),
        failures=tuple(failures),
        rows=tuple(rows),
        lengths=_lengths(plan, finished, sources, measured),
        warnings=tuple(warnings_of(plan, results)),
        source=sources[place],
        reference=references[place],
        translations={slug: translations[slug, runs[0].seed][place] for slug, runs in finished.items() if runs},
    )


Measured = dict[tuple[str, str, int], Statistics]  # by metric, slug and seed


def _measure(
    plan: Plan,
    results: Sequence[RunResult],
    references: Sequence[str],
    translations: Mapping[tuple[str, int], Sequence[str]],
) -> Measured:
    return {
        (metric, run.entry, run.seed): Statistics.of(
            metric, translations[run.entry, run.seed], references, plan.flavour
        )
        for run in results
        for metric in METRICS
    }


def _row(
    plan: Plan,
    slug: str,
    runs: Sequence[RunResult],
    failures: Sequence[Failure],
    measured: Measured | None = None,
) -> Row:
    entry = plan.entry(slug)
    failed = sum(failure.entry == slug for failure in failures)
    row = Row(
        entry=entry.name,
        slug=slug,
        model=entry.model,
        changes=" ".join(entry.changes),
        seeds=len(runs),
        failed=failed,
        left=len(plan.seeds) - len(runs) - failed,
        steps=entry.steps,
        parameters=entry.parameters,
    )
    if not runs or measured is None:
        return row
    scores: dict[str, Any] = {}
    for metric in METRICS:
        of_runs = [measured[metric, slug, run.seed] for run in runs]
        values = [run.value() for run in of_runs]
        low, high = mean_interval(of_runs, plan.flavour.bootstrap)
        scores |= {metric: statistics.fmean(values), f"{metric}_low": low, f"{metric}_high": high}
        scores[f"{metric}_sd"] = statistics.stdev(values) if len(values) > 1 else None
    losses = [run.perplexity for run in runs if run.perplexity is not None and run.perplexity > 0]
    return dataclasses.replace(
        row,
        **scores,
        verdict=UNTESTED,
        perplexity=statistics.geometric_mean(losses) if len(losses) == len(runs) else None,  # that of the mean loss
        parameters=runs[0].parameters,
        pairs=runs[0].pairs,
        left_out=runs[0].left_out,
        steps=max(run.training.steps for run in runs),
        training_seconds=statistics.fmean(run.training.seconds for run in runs),
        training_tokens_per_second=statistics.fmean(run.training.tokens_per_second for run in runs),
        decoding_tokens_per_second=statistics.fmean(run.decoding.tokens_per_second for run in runs),
        decoding_sentences_per_second=statistics.fmean(run.decoding.sentences_per_second for run in runs),
        beam=runs[0].decoding.beam,
        batch_tokens=runs[0].decoding.batch_tokens,
    )


def _with_tests(rows: Sequence[Row], finished: Mapping[str, Sequence[RunResult]], measured: Measured) -> list[Row]:
    """The rows with the tests of each against the first, which is the best."""
    if not rows or rows[0].bleu is None:
        return list(rows)
    best, others = rows[0], list(rows[1:])
    seeds = {row.slug: {run.seed for run in finished[row.slug]} for row in rows}
    common = {row.slug: sorted(seeds[best.slug] & seeds[row.slug]) for row in others}
    tested = [row for row in others if common[row.slug]]
    found: dict[str, dict[str, Any]] = {row.slug: {"common_seeds": len(common[row.slug])} for row in tested}
    for metric in METRICS:
        tests = []
        for row in tested:
            old, new = ([measured[metric, slug, seed] for seed in common[row.slug]] for slug in (best.slug, row.slug))
            tests.append(pooled_test(old, new, samples=SAMPLES))
        corrected = holm([max(test.bootstrap_p, test.randomisation_p) for test in tests])
        for row, test, p in zip(tested, tests, corrected, strict=True):
            found[row.slug] |= {
                f"{metric}_difference": test.difference,
                f"{metric}_p": p,
                f"{metric}_bootstrap_p": test.bootstrap_p,
                f"{metric}_randomisation_p": test.randomisation_p,
            }
    for slug, columns in found.items():
        columns |= _chance(
            columns["bleu_difference"],
            *([measured["bleu", of, seed].value() for seed in common[slug]] for of in (best.slug, slug)),
        )
        far = columns["bleu_p"] < LEVEL
        columns["verdict"] = SAME if not far else WORSE if columns["bleu_difference"] < 0 else BETTER
    return [
        dataclasses.replace(best, verdict=BEST),
        *(dataclasses.replace(row, **found.get(row.slug, {})) for row in others),
    ]


def _chance(difference: float, best: Sequence[float], other: Sequence[float]) -> dict[str, Any]:
    """Whether a difference of means over seeds is more than the deviations over these seeds explain."""
    if len(best) < 2:
        return {"bleu_chance": None, "beyond_chance": None}
    chance = 2 * math.sqrt((statistics.variance(best) + statistics.variance(other)) / len(best))
    return {"bleu_chance": chance, "beyond_chance": abs(difference) >= chance}


def _lengths(
    plan: Plan, finished: Mapping[str, Sequence[RunResult]], sources: Sequence[str], measured: Measured
) -> dict[str, list[LengthBin]]:
    """Scores by source length, as means over seeds, of each entry that has a result."""
    found: dict[str, list[LengthBin]] = {slug: [] for slug, runs in finished.items() if runs}
    for span in length_spans(sources):
        for slug, bins in found.items():
            scores = []
            for metric, name in zip(METRICS, ("BLEU", "chrF"), strict=True):
                of_runs = [measured[metric, slug, run.seed].take(span.rows) for run in finished[slug]]
                mean = statistics.fmean(run.value() for run in of_runs)
                scores.append(Score(name, mean, *mean_interval(of_runs, plan.flavour.bootstrap)))
            bins.append(LengthBin(span.low, span.high, len(span.rows), *scores))
    return found


def _run_row(plan: Plan, result: RunResult) -> dict[str, Any]:
    entry = plan.entry(result.entry)
    return {
        "entry": entry.name,
        "slug": entry.slug,
        "model": entry.model,
        "changes": " ".join(entry.changes),
        "seed": result.seed,
        "bleu": result.scores["bleu"].value,
        "bleu_low": result.scores["bleu"].low,
        "bleu_high": result.scores["bleu"].high,
        "chrf": result.scores["chrf"].value,
        "chrf_low": result.scores["chrf"].low,
        "chrf_high": result.scores["chrf"].high,
        "perplexity": result.perplexity,
        "parameters": result.parameters,
        "pairs": result.pairs,
        "left_out": result.left_out,
        "steps": result.training.steps,
        "training_seconds": result.training.seconds,
        "training_tokens_per_second": result.training.tokens_per_second,
        "decoding_tokens_per_second": result.decoding.tokens_per_second,
        "decoding_sentences_per_second": result.decoding.sentences_per_second,
        "decoding_rounds": result.decoding.rounds,
        "beam": result.decoding.beam,
        "batch_tokens": result.decoding.batch_tokens,
        "device": result.device,
        "machine": result.machine,
        "versions": ", ".join(f"{name} {version}" for name, version in result.versions.items()),
        "folder": result.folder,
    }


def mean_curves(summary: Summary) -> tuple[dict[str, list[tuple[float, float]]], str]:
    """Validation losses by slug, as means over the seeds at the steps that all of them have; and what the x-axis is.

    Where time is the budget it is seconds (of evenly timed steps), since steps are not equal then.
    """
    timed = summary.plan.budget.kind == "time"
    curves: dict[str, list[tuple[float, float]]] = {}
    for row in summary.rows:
        runs = [run for run in summary.of(row.slug) if run.curve]
        if runs:
            losses = [dict(run.curve) for run in runs]
            steps = sorted(set[int].intersection(*(set(found) for found in losses)))
            scale = statistics.fmean(run.training.seconds / max(run.training.steps, 1) for run in runs) if timed else 1
            points = [(step * scale, statistics.fmean(found[step] for found in losses)) for step in steps]
            if points:
                curves[row.slug] = points
    return curves, "seconds of training" if timed else "steps of training"
