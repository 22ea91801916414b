"""What a reader must know before the table: where a comparison was not quite as equal as it should be."""

from __future__ import annotations

from collections.abc import Sequence

from regard.comparing.results import Plan, RunResult

UNEVEN = 1.5  # how many times as fast as another seed one may be before that is worth a warning
OFF_BUDGET = 0.1  # the share by which seconds may differ from those of the budget


def warnings_of(plan: Plan, results: Sequence[RunResult]) -> list[str]:
    """Sentences, the weightiest first; none where all is well."""
    return [*_of_text(plan, results), *_of_budget(plan, results), *_of_machines(plan, results)]


def _of_text(plan: Plan, results: Sequence[RunResult]) -> list[str]:
    said = []
    for name, what in (("data", "text"), ("tokenizer", "tokenizer")):
        if len({result.fingerprints.get(name, "") for result in results}) > 1:
            rest = "The numbers cannot be compared." if name == "data" else "Perplexities cannot be compared."
            said.append(f"Not all runs had the same {what}. {rest}")
    if len({(result.pairs, result.left_out) for result in results}) > 1:
        said.append(
            "Not all systems were trained on the same pairs: those that are longer than a model's limit or train.max_tokens "
            f"were left out. {_pairs(plan, results)}."
        )
    if plan.part == "validation":
        said.append(
            "There is no test text: scores are of the validation text, by which the weights of a run may have been chosen."
        )
    return said


def _pairs(plan: Plan, results: Sequence[RunResult]) -> str:
    """How many pairs there were, and of which entries."""
    amounts = sorted({(run.pairs, run.left_out) for run in results}, reverse=True)
    said = []
    for pairs, left_out in amounts:
        slugs = {run.entry for run in results if (run.pairs, run.left_out) == (pairs, left_out)}
        names = ", ".join(entry.name for entry in plan.entries if entry.slug in slugs)
        said.append(f"{pairs:,} pairs ({f'{left_out:,}' if left_out else 'none'} left out): {names}")
    return "; ".join(said)


def _of_budget(plan: Plan, results: Sequence[RunResult]) -> list[str]:
    said = []
    if len(tokens_a_step(plan)) > 1:
        said.append("Not all entries have batches of the same size: in equal steps they do not read the same text.")
    packing = {(entry.model, entry.values.get("train", {}).get("packed", False)) for entry in plan.entries}
    if len(packing) > 1 and any(packed for _, packed in packing):
        said.append(
            "Batches of some entries may be packed (train.packed), and hold more text: in equal steps they do not read the same."
        )
    if plan.budget.kind == "time":
        seconds = plan.budget.seconds or 0.0
        off = [
            f"{_run(plan, result)} {result.training.seconds:,.1f} s"
            for result in results
            if abs(result.training.seconds - seconds) > OFF_BUDGET * seconds > 0
        ]
        if off:
            said.append(
                f"Not all runs took the {seconds:,.10g} s of the budget: {', '.join(off)}. Those that took more than 10 % "
                "more or less are not compared at equal time."
            )
    else:
        wrong = [_run(plan, run) for run in results if run.training.steps != plan.entry(run.entry).steps]
        if wrong:
            said.append(f"Not all runs made the steps that were planned: {', '.join(wrong)}.")
    return said


def _run(plan: Plan, result: RunResult) -> str:
    return f"{plan.entry(result.entry).name} (seed {result.seed})"


def _of_machines(plan: Plan, results: Sequence[RunResult]) -> list[str]:
    said = []
    machines = sorted({result.machine for result in results})
    if len(machines) > 1:
        said.append(f"Not all runs were on the same machine ({' and '.join(machines)}). Speeds cannot be compared.")
    versions = sorted({(name, version) for result in results for name, version in result.versions.items()})
    names = [name for name, _ in versions]
    several = [f"{name} {version}" for name, version in versions if names.count(name) > 1]
    if several:
        said.append(f"Not all runs had the same versions ({', '.join(several)}): scores and speeds may differ by that.")
    if len({result.device for result in results}) > 1:
        said.append("Not all runs had the same device or threads. Speeds cannot be compared.")
    uneven = [entry.name for entry in plan.entries if _uneven([run for run in results if run.entry == entry.slug])]
    if uneven:
        said.append(
            f"Seeds of one entry ran at very different speeds ({', '.join(uneven)}): the machine was busy with something "
            "else. Speeds and times say little."
        )
    return said


def _uneven(runs: Sequence[RunResult]) -> bool:
    speeds = ([run.training.tokens_per_second for run in runs], [run.decoding.tokens_per_second for run in runs])
    return any(max(found) > UNEVEN * min(found) for found in speeds if found)


def tokens_a_step(plan: Plan) -> list[int]:
    """The sizes of batches that entries were planned with, each once."""
    trains = [entry.values.get("train", {}) for entry in plan.entries]
    return sorted({train["batch_tokens"] * train.get("accumulate", 1) for train in trains if "batch_tokens" in train})
