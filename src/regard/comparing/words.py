"""What a comparison found and how it was measured, in words."""

from __future__ import annotations

from collections.abc import Sequence

from regard.comparing.cautions import tokens_a_step
from regard.comparing.results import Failure, Plan, RunResult
from regard.comparing.summary import BETTER, EMPTY, SAME, UNTESTED, WORSE, Row, Summary
from regard.core.visible_text import visible
from regard.models.base import MODELS

WITHIN, UNKNOWN = "within the chance of training", "not known beyond the chance of training"


# What was found -------------------------------------------------------------------------------------------------------


def finding(summary: Summary) -> str:
    """What was found, in one sentence."""
    best = summary.best
    if best is None:
        return "No run has finished."
    if len(summary.rows) == 1:
        return f"{best.entry} has {best.bleu:.1f} BLEU."
    parts = [f"{best.entry} is best with {best.bleu:.1f} BLEU"]
    every = (True, False, None)
    for verdict, chances, one, many in (
        (
            BETTER,
            (True,),
            "does significantly better on the seeds that both have",
            "do significantly better on common seeds",
        ),
        (BETTER, (False,), *_on_this_text("better", WITHIN, " and the seeds that both have")),
        (BETTER, (None,), *_on_this_text("better", UNKNOWN, " and the seeds that both have")),
        (SAME, every, "is not significantly different", "are not significantly different"),
        (WORSE, (False,), *_on_this_text("worse", WITHIN)),
        (WORSE, (None,), *_on_this_text("worse", UNKNOWN)),
        (WORSE, (True,), "is significantly worse", "are significantly worse"),
        (UNTESTED, every, "has no seed in common with it", "have no seed in common with it"),
        (EMPTY, every, "has no result", "have no result"),
    ):
        named = [row for row in summary.rows[1:] if row.verdict == verdict and row.beyond_chance in chances]
        if named:
            parts.append(f"{_listed([_named(row) for row in named])} {one if len(named) == 1 else many}")
    return "; ".join(parts) + "."


def _on_this_text(what: str, chance: str, on: str = "") -> tuple[str, str]:
    return f"is {what} on this test text{on}, {chance}", f"are {what} on this test text{on}, {chance}"


def _named(row: Row) -> str:
    return row.entry if row.bleu is None else f"{row.entry} ({row.bleu:.1f})"


def _listed(names: Sequence[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else names[0]


def in_words(row: Row) -> str:
    """The verdict of a row, as a reader sees it."""
    if row.verdict in (WORSE, BETTER):
        if not row.beyond_chance:
            return f"{row.verdict} on this test text; {UNKNOWN if row.beyond_chance is None else WITHIN}"
        return "significantly worse" if row.verdict == WORSE else "significantly better on common seeds"
    return {SAME: "not significantly different", UNTESTED: "not tested: no common seed"}.get(row.verdict, row.verdict)


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


def why(failure: Failure) -> str:
    """The reason of a failure, with the exit code or the signal that ended the run, where one did."""
    if failure.exit == 0:
        return failure.reason
    return f"{failure.reason} ({'signal' if failure.exit < 0 else 'exit code'} {abs(failure.exit)})"


# How it was measured --------------------------------------------------------------------------------------------------


def caveats(summary: Summary) -> list[str]:
    """What the tests do and what they cannot say, a paragraph each."""
    most = max((row.seeds for row in summary.rows), default=0)
    said = [
        "Intervals and tests are over sentences: they ask whether another test text of the same kind would give the same "
        "order. Each interval covers 95 % of 1,000 samples of the sentences, with repetition. Each entry is compared with "
        "the best by a paired bootstrap and by approximate randomisation (translations of a sentence are swapped by a "
        "coin), 10,000 samples each; p is the larger of the two, corrected by Holm for the number of entries.",
    ]
    if most > 1:
        said.append(
            "A sentence counts once, however many seeds have translated it: its translations are drawn and swapped "
            "together, and what is tested is the mean over seeds. So the tests do not say how much chance there is in "
            "training; ± does: the standard deviation over seeds. Significantly worse means p < 0.05 and a difference of at "
            "least twice its standard error over seeds. Where p < 0.05 but the difference is smaller, it is one on this test "
            "text, within the chance of training: train more seeds before you believe it. Two or three seeds know their own "
            "deviation only roughly."
        )
    else:
        said.append(
            "Each entry was trained once. A difference between single runs also holds the chance of training (another seed "
            "gives other weights), of which these tests know nothing: p < 0.05 says that these weights are better on this "
            "kind of text, not that the model is. More seeds tell (--seeds 3)."
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
    sizes = tokens_a_step(plan)
    return f"equal steps: {made} each" + (f", of {sizes[0]:,} tokens at most" if len(sizes) == 1 else "")


def about_curves(summary: Summary) -> str:
    """What a reader of the validation losses must know; empty where there is nothing."""
    names = _planners(summary)
    if not names:
        return ""
    has = "plans the length of its output: its loss has" if len(names) == 1 else "plan lengths: their losses have"
    return f"{_listed(names)} {has} the length's share in it, which the others' do not have."


def _planners(summary: Summary) -> list[str]:
    """Entries whose model gives a probability to the length of the output, too."""
    known = MODELS.names()
    plans = {name for name in {row.model for row in summary.rows} & set(known) if "plans" in _capabilities(name)}
    return [row.entry for row in summary.rows if row.model in plans and row.seeds]


def _capabilities(model: str) -> frozenset[str]:
    return getattr(MODELS.get(model), "capabilities", frozenset())


def methods(summary: Summary) -> list[tuple[str, str]]:
    """How it was measured: names and texts."""
    plan = summary.plan
    rows = [
        ("Recipe", plan.recipe or "none: sizes from the data"),
        ("Budget", budget_in_words(plan)),
        ("Seeds", ", ".join(map(str, plan.seeds))),
        *(_of_results(summary, summary.results) if summary.results else []),
    ]
    machines = sorted({run.machine for run in summary.results}) or [plan.machine]
    versions = [run.versions for run in summary.results] or [plan.versions]
    rows += [
        ("Machine", " and ".join(machines)),
        ("Versions", " and ".join(sorted({", ".join(f"{n} {v}" for n, v in found.items()) for found in versions}))),
        ("Planned", plan.created),
    ]
    return [(name, text) for name, text in rows if text]


def _of_results(summary: Summary, results: Sequence[RunResult]) -> list[tuple[str, str]]:
    first, cuda = results[0], any(run.device.startswith("cuda") for run in results)
    rounds = sorted({run.decoding.rounds for run in results})
    counted = (
        f"{rounds[0]} to {rounds[-1]} times" if len(rounds) > 1 else "once" if rounds == [1] else f"{rounds[0]} times"
    )
    names = _planners(summary)
    shares = f"; of {_listed(names)} with the share of the length" if names else ""
    rows = [
        ("Test text", f"{first.decoding.sentences:,} sentences, the {summary.plan.part} part of the data"),
        ("BLEU", first.scores["bleu"].signature),
        ("chrF", first.scores["chrf"].signature),
        ("Perplexity", f"per target token, of the reference{shares}"),
        (
            "Training time",
            "from the first step to the last: validation, saving and waiting for batches included"
            + (", as is the recording of CUDA graphs" if cuda else "")
            + "; reading and encoding the text not, nor the final translation of the test text",
        ),
        (
            "Training tokens/s",
            "target tokens over the seconds of steps alone, without validation and saving; the first line of the log, "
            f"of a machine that warms up{' and records CUDA graphs' if cuda else ''}, does not count",
        ),
        (
            "Decoding",
            f"the whole test text {counted}, after a warm-up of one batch; the median counts. Tokens are the target's, ends "
            "included; reading the model does not count, splitting into pieces and joining them does",
        ),
        ("Device", ", ".join(sorted({run.device for run in results}))),
    ]
    for key, name in (("data", "Fingerprint of the text"), ("tokenizer", "Fingerprint of the tokenizer")):
        rows.append((name, ", ".join(sorted({run.fingerprints.get(key, "") for run in results}))))
    return rows
