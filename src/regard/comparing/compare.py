"""`regard.compare`: which model is better for this text, by how much, is it significant, and what does it cost?"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from regard.comparing.plan import Prepared, Request, existing_plan, prepare_plan, read_prepared
from regard.comparing.progress import PlanProgress
from regard.comparing.report import HTML, write_report
from regard.comparing.results import PLAN, Failure, Plan, read_plan
from regard.comparing.runner import run_plan
from regard.comparing.summary import Summary, summarise
from regard.comparing.tables import to_csv, to_latex, to_markdown
from regard.core.errors import CheckpointError, ConfigError
from regard.core.files import quoted, write_bytes
from regard.training.place import locked
from regard.training.progress import Reporter


@dataclasses.dataclass(frozen=True)
class Comparison:
    """A comparison in a folder. `interrupted` is the signal that stopped it, or None.

    `rows` has a flat dict for each entry, the best first: `pandas.DataFrame(comparison.rows)` is a table.
    """

    folder: Path
    interrupted: int | None = None

    @classmethod
    def load(cls, folder: str | Path) -> Comparison:
        """What is finished in a folder."""
        read_plan(folder)
        return cls(Path(folder))

    @functools.cached_property
    def summary(self) -> Summary:
        return summarise(self.folder)

    @property
    def plan(self) -> Plan:
        return self.summary.plan

    @property
    def rows(self) -> list[dict[str, Any]]:
        """One flat dict for each entry, the best first."""
        return [row.to_plain() for row in self.summary.rows]

    @property
    def runs(self) -> list[dict[str, Any]]:
        """One flat dict for each finished run."""
        return self.summary.runs()

    @property
    def failures(self) -> list[Failure]:
        return list(self.summary.failures)

    @property
    def report(self) -> Path:
        """The page."""
        return self.folder / HTML

    def to_csv(self, path: str | Path | None = None) -> str:
        """The rows as CSV, also written to `path` if one is given."""
        text = to_csv(self.summary.rows)
        if path is not None:
            write_bytes(Path(path), text.encode())
        return text

    def to_markdown(self) -> str:
        return to_markdown(self.summary.rows)

    def to_latex(self) -> str:
        return to_latex(self.summary.rows)


def compare(
    recipe: str | None = None,
    *,
    out: str | Path,
    models: str | Iterable[str] = (),
    variants: str | Iterable[str] = (),
    seeds: int = 3,
    budget: str = "steps",
    seconds: float | None = None,
    parameters: int | None = None,
    src: str = "",
    tgt: str = "",
    pairs: str = "",
    settings: str | Mapping[str, Any] | Iterable[str] = (),
    allow: Iterable[str] = (),
    tokenized: bool = False,
    lowercase: bool = False,
    report: Reporter | None = None,
    command: str = "",
) -> Comparison:
    """Trains several models on the same text with the same budget, measures them alike, and writes a report.

    `models` are names of models or of recipes; without them, there is only the recipe's own. A variant such as
    "model.heads=1", or "luong: model.score=dot", is one more entry of every model, or of the one that it names.
    `settings` go over all entries. The budget is "steps" (the recipe's), "time" (`seconds` of training each) or
    "parameters" (of the first entry, or as many as given; and equal steps).

    A folder that holds a part of the same comparison goes on; models, variants and seeds may be added to it. A run that
    fails does not end the others, and is tried again the next time.
    """
    folder, report = Path(out), report or Reporter()
    request = Request(
        recipe=recipe,
        files={name: path for name, path in (("src", src), ("tgt", tgt), ("pairs", pairs)) if path},
        models=models.split(",") if isinstance(models, str) and models else list(models),
        variants=[variants] if isinstance(variants, str) else list(variants),
        seeds=seeds,
        budget=budget,
        seconds=seconds,
        parameters=parameters,
        settings=settings if isinstance(settings, (str, Mapping)) else list(settings),
        allow=list(allow),
        tokenized=tokenized,
        lowercase=lowercase,
        command=command,
    )
    if not command:
        request = dataclasses.replace(request, command=_call(request, folder))
    before = existing_plan(folder)
    return _run(folder, prepare_plan(request, folder, report), before, report)


def resume_comparison(folder: str | Path, report: Reporter | None = None) -> Comparison:
    """Goes on with a comparison that stopped; what failed is tried again."""
    folder, report = Path(folder), report or Reporter()
    prepared = read_prepared(folder, report)
    return _run(folder, prepared, prepared.plan, report)


def report_comparison(folder: str | Path) -> Comparison:
    """Writes the report of what is finished in a folder again."""
    comparison = Comparison.load(folder)
    comparison.__dict__["summary"] = write_report(comparison.folder)
    return comparison


def _run(folder: Path, prepared: Prepared, before: Plan | None, report: Reporter) -> Comparison:
    plan = prepared.plan
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(folder, f"the folder cannot be made ({error.strerror})", "Give another --out") from None
    with _disk_errors(folder), locked(folder):
        if (folder / PLAN).exists() != (before is not None) or (before is not None and read_plan(folder) != before):
            raise CheckpointError(folder, "another process has just worked here", "Try again")
        _say_what(plan, report)
        interrupted = run_plan(folder, plan, prepared.corpus, PlanProgress(report))
        if interrupted is not None:
            return Comparison(folder, interrupted)
        report.say("Testing and writing the report...")
        comparison = Comparison(folder)
        comparison.__dict__["summary"] = write_report(folder)
        return comparison


@contextlib.contextmanager
def _disk_errors(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise
        what = f"writing the comparison failed ({error.strerror})"
        todo = f"Make room or mend it, then `regard compare --resume {quoted(folder)}`"
        raise CheckpointError(error.filename or folder, what, todo) from error


def _call(request: Request, folder: Path) -> str:
    """What was asked for in Python, as it is written there."""
    usual = Request()
    named = {field.name: getattr(request, field.name) for field in dataclasses.fields(Request)}
    for name in ("recipe", "command"):
        named.pop(name)
    parts = [repr(request.recipe)] if request.recipe is not None else []
    parts += [f"{name}={path!r}" for name, path in named.pop("files").items()]
    parts += [f"{name}={value!r}" for name, value in named.items() if value and value != getattr(usual, name)]
    return f"regard.compare({', '.join([*parts, f'out={str(folder)!r}'])})"


def _say_what(plan: Plan, report: Reporter) -> None:
    budget = {
        "steps": "equal steps",
        "time": f"{plan.budget.seconds or 0:g} seconds of training each",
        "parameters": f"equal steps and about {plan.budget.parameters or 0:,} parameters",
    }[plan.budget.kind]
    entries, seeds = len(plan.entries), len(plan.seeds)
    runs = f"{entries * seeds} run{'s' if entries * seeds > 1 else ''}"
    each = f", {seeds} seeds each" if seeds > 1 else ""
    names: Sequence[str] = [entry.name for entry in plan.entries]
    report.say(f"Comparing {', '.join(names)}{each}: {runs}, {budget}.")
