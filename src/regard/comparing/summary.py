"""What a comparison found: a row for each entry, with means over seeds, intervals, and tests against the best.

Means and deviations are over seeds. Intervals and tests are over the sentences of the test text, of the mean over seeds
(`regard.evaluation.significance.pooled_test`); p-values are the larger of two tests', corrected by Holm for the number of
entries. Half of the question, how much chance there is in training, only the deviation over seeds can answer.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from regard.comparing.results import Failure, Plan, RunResult, read_plan, read_results, read_test, read_translations
from regard.core.errors import CheckpointError
from regard.core.visible_text import visible
from regard.evaluation.lengths import LengthBin, count_words
from regard.evaluation.metrics import Score, Statistics
from regard.evaluation.significance import holm, mean_interval, pooled_test

METRICS = ("bleu", "chrf")
UNEVEN = 1.5  # how many times as fast as another seed one may be before that is worth a warning
LEVEL = 0.05
SAMPLES = 10_000  # so that the smallest p is still far below the level when it is corrected for many entries
BEST, WORSE, BETTER, SAME, UNTESTED, EMPTY = "best", "worse", "better", "not different", "not tested", "no result"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """One entry. What is not known is None: all scores of an entry without finished runs, a deviation of one seed.

    `verdict` is by BLEU: "best", significantly "worse" (or "better", on the seeds that both have, where some have
    failed), "not different", "not tested" (no seed in common with the best), or "no result". Differences are to
    the best entry, on `common_seeds` seeds. `_p` is the corrected p-value, `_bootstrap_p` and `_randomisation_p` are those
    of the two tests as they are.
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
    chrf_difference: float | None = None
    chrf_p: float | None = None
    chrf_bootstrap_p: float | None = None
    chrf_randomisation_p: float | None = None
    perplexity: float | None = None
    parameters: int | None = None
    training_seconds: float | None = None
    training_tokens_per_second: float | None = None
    decoding_tokens_per_second: float | None = None

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
    warnings = _warnings(plan, results)
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
        warnings=tuple(warnings),
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
        steps=max(run.training.steps for run in runs),
        training_seconds=statistics.fmean(run.training.seconds for run in runs),
        training_tokens_per_second=statistics.fmean(run.training.tokens_per_second for run in runs),
        decoding_tokens_per_second=statistics.fmean(run.decoding.tokens_per_second for run in runs),
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
    for columns in found.values():
        far = columns["bleu_p"] < LEVEL
        columns["verdict"] = SAME if not far else WORSE if columns["bleu_difference"] < 0 else BETTER
    return [
        dataclasses.replace(best, verdict=BEST),
        *(dataclasses.replace(row, **found.get(row.slug, {})) for row in others),
    ]


def _lengths(
    plan: Plan, finished: Mapping[str, Sequence[RunResult]], sources: Sequence[str], measured: Measured
) -> dict[str, list[LengthBin]]:
    """Scores by source length, as means over seeds; the bins are those of the first result."""
    first = next(run for runs in finished.values() for run in runs)
    words = np.array([count_words(source) for source in sources])
    places = [
        np.flatnonzero((words >= part.low) & (words <= (words.max() if part.high is None else part.high)))
        for part in first.by_length
    ]
    found: dict[str, list[LengthBin]] = {}
    for slug, runs in finished.items():
        bins = []
        for part, rows in zip(first.by_length, places, strict=True):
            if runs and len(rows):
                scores = []
                for metric, name in zip(METRICS, ("BLEU", "chrF"), strict=True):
                    of_runs = [measured[metric, slug, run.seed].take(rows) for run in runs]
                    mean = statistics.fmean(run.value() for run in of_runs)
                    scores.append(Score(name, mean, *mean_interval(of_runs, plan.flavour.bootstrap)))
                bins.append(LengthBin(part.low, part.high, len(rows), *scores))
        if bins:
            found[slug] = bins
    return found


def _warnings(plan: Plan, results: Sequence[RunResult]) -> list[str]:
    """What a reader must know before the table."""
    warnings = []
    for name, what in (("data", "text"), ("tokenizer", "tokenizer")):
        if len({result.fingerprints.get(name, "") for result in results}) > 1:
            rest = "The numbers cannot be compared." if name == "data" else "Perplexities cannot be compared."
            warnings.append(f"Not all runs had the same {what}. {rest}")
    if plan.part == "validation":
        warnings.append(
            "There is no test text: scores are of the validation text, by which the weights of a run may have been chosen."
        )
    if len(_tokens_a_step(plan)) > 1:
        warnings.append("Not all entries have batches of the same size: in equal steps they do not read the same text.")
    if len({result.device for result in results}) > 1:
        warnings.append("Not all runs had the same device or threads. Speeds cannot be compared.")
    uneven = [entry.name for entry in plan.entries if _uneven([run for run in results if run.entry == entry.slug])]
    if uneven:
        warnings.append(
            f"Seeds of one entry ran at very different speeds ({', '.join(uneven)}): the machine was busy with something "
            "else. Speeds and times say little."
        )
    wrong = [
        f"{plan.entry(result.entry).name} (seed {result.seed})"
        for result in results
        if plan.budget.kind != "time" and result.training.steps != plan.entry(result.entry).steps
    ]
    if wrong:
        warnings.append(f"Not all runs made the steps that were planned: {', '.join(wrong)}.")
    return warnings


def _uneven(runs: Sequence[RunResult]) -> bool:
    speeds = ([run.training.tokens_per_second for run in runs], [run.decoding.tokens_per_second for run in runs])
    return any(max(found) > UNEVEN * min(found) for found in speeds if found)


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
        "steps": result.training.steps,
        "training_seconds": result.training.seconds,
        "training_tokens_per_second": result.training.tokens_per_second,
        "decoding_tokens_per_second": result.decoding.tokens_per_second,
        "device": result.device,
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


# In words -------------------------------------------------------------------------------------------------------------


def finding(summary: Summary) -> str:
    """What was found, in one sentence."""
    best = summary.best
    if best is None:
        return "No run has finished."
    others = summary.rows[1:]
    if len(summary.rows) == 1:
        return f"{best.entry} has {best.bleu:.1f} BLEU."
    parts = [f"{best.entry} is best with {best.bleu:.1f} BLEU"]
    for verdict, one, many in (
        (BETTER, "does significantly better on the seeds that both have", "do significantly better on common seeds"),
        (SAME, "is not significantly different", "are not significantly different"),
        (WORSE, "is significantly worse", "are significantly worse"),
        (UNTESTED, "has no seed in common with it", "have no seed in common with it"),
        (EMPTY, "has no result", "have no result"),
    ):
        named = [row for row in others if row.verdict == verdict]
        if named:
            parts.append(f"{_listed([_named(row) for row in named])} {one if len(named) == 1 else many}")
    return "; ".join(parts) + "."


def _named(row: Row) -> str:
    return row.entry if row.bleu is None else f"{row.entry} ({row.bleu:.1f})"


def _listed(names: Sequence[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else names[0]


def in_words(row: Row) -> str:
    """The verdict of a row, as a reader sees it."""
    return {
        WORSE: "significantly worse",
        BETTER: "significantly better on common seeds",
        SAME: "not significantly different",
        UNTESTED: "not tested: no common seed",
    }.get(row.verdict, row.verdict)


def caveats(summary: Summary) -> list[str]:
    """What the tests do and what they cannot say, a paragraph each."""
    most = max((row.seeds for row in summary.rows), default=0)
    said = [
        "Intervals and tests are over sentences: they ask whether another test text of the same kind would give the same "
        "order. Each interval covers 95 % of 1,000 samples of the sentences, with repetition. Each entry is compared with "
        "the best by a paired bootstrap and by approximate randomisation (translations of a sentence are swapped by a "
        "coin), 10,000 samples each; p is the larger of the two, corrected by Holm for the number of entries. Significant "
        "means p < 0.05.",
    ]
    if most > 1:
        said.append(
            "A sentence counts once, however many seeds have translated it: its translations are drawn and swapped "
            "together, and what is tested is the mean over seeds. So the tests do not say how much chance there is in "
            "training; ± does: the standard deviation over seeds. Where a difference is not much larger than ±, train more "
            "seeds before you believe it."
        )
    else:
        said.append(
            "Each entry was trained once. A difference between single runs also holds the chance of training (another seed "
            "gives other weights), of which these tests know nothing: a significant difference says that these weights are "
            "better, not that the model is. More seeds tell (--seeds 3)."
        )
    said.append(
        "The best was chosen by the same scores that are tested, so it looks a little better than it is. Not significant "
        "does not mean equal: a longer test text may tell two entries apart that this one cannot."
    )
    return said


def budget_in_words(plan: Plan) -> str:
    """What was equal for all entries."""
    steps = sorted({entry.steps for entry in plan.entries if entry.steps})
    made = f"{steps[0]:,} steps" if len(steps) == 1 else "the same number of steps"
    if plan.budget.kind == "time":
        seconds = "the same time" if plan.budget.seconds is None else f"{plan.budget.seconds:,.10g} s"
        return (
            f"equal time: about {seconds} of training each; how many steps that is was found by a trial of each entry"
        )
    if plan.budget.kind == "parameters":
        wanted = "" if plan.budget.parameters is None else f", as near as they come to {plan.budget.parameters:,}"
        return f"equal parameters{wanted}, by another width of each model; {made} each"
    sizes = _tokens_a_step(plan)
    return f"equal steps: {made} each" + (f", of {sizes[0]:,} tokens at most" if len(sizes) == 1 else "")


def _tokens_a_step(plan: Plan) -> list[int]:
    """The sizes of batches that entries were planned with, each once."""
    trains = [entry.values.get("train", {}) for entry in plan.entries]
    return sorted({train["batch_tokens"] * train.get("accumulate", 1) for train in trains if "batch_tokens" in train})


def title(plan: Plan) -> str:
    count = len(plan.entries)
    named = f"{visible(plan.recipe, 200)}: " if plan.recipe else ""
    return f"{named}{count} system{'s' if count > 1 else ''} compared"


def about_seeds(summary: Summary) -> str:
    """How much was run, in one line."""
    plan, failed = summary.plan, len(summary.failures)
    every = len(plan.entries) * len(plan.seeds)
    left = every - len(summary.results) - failed
    systems = f"{len(plan.entries)} system{'s' if len(plan.entries) > 1 else ''}"
    said = f"{systems}, {len(plan.seeds)} seed{'s' if len(plan.seeds) > 1 else ''} each"
    if failed:
        said += f"; {failed} of {every} runs failed"
    return said + (f"; {left} of {every} runs are still to do" if left else "")


def methods(summary: Summary) -> list[tuple[str, str]]:
    """How it was measured: names and texts."""
    plan = summary.plan
    first = summary.results[0] if summary.results else None
    rows = [
        ("Recipe", plan.recipe or "none: sizes from the data"),
        ("Budget", budget_in_words(plan)),
        ("Seeds", ", ".join(map(str, plan.seeds))),
    ]
    if first is not None:
        beams = sorted({run.decoding.beam for run in summary.results})
        rows += [
            ("Test text", f"{first.decoding.sentences:,} sentences, the {plan.part} part of the data"),
            ("BLEU", first.scores["bleu"].signature),
            ("chrF", first.scores["chrf"].signature),
            ("Beam", ", ".join(map(str, beams))),
            ("Perplexity", "per target token, of the reference"),
            ("Device", ", ".join(sorted({run.device for run in summary.results}))),
        ]
        names = (("data", "Fingerprint of the text"), ("tokenizer", "Fingerprint of the tokenizer"))
        for key, name in names:
            rows.append((name, ", ".join(sorted({run.fingerprints.get(key, "") for run in summary.results}))))
    rows += [
        ("Machine", plan.machine),
        ("Versions", ", ".join(f"{name} {version}" for name, version in plan.versions.items())),
        ("Planned", plan.created),
    ]
    return [(name, text) for name, text in rows if text]
