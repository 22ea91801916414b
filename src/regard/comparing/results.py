"""What a comparison keeps on disk: its plan, and the result or the failure of every run.

The folder of a comparison:

    plan.json                  what is compared, and how
    recipes/SLUG.toml          the recipe of each entry, with all its settings
    runs/SLUG/seed-N/          a run folder
    runs/SLUG/seed-N.json      what was measured on it
    runs/SLUG/seed-N.txt       its translations of the test text, one per line
    runs/SLUG/seed-N.failed.json   why there is none
    test.src, test.ref         the test text
    report.html, report.md, rows.csv, rows.json

Files may come from elsewhere: everything is checked and bounded when it is read, and no path is taken from a file.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from regard.core.errors import CheckpointError
from regard.core.files import read_json, write_bytes, write_json
from regard.evaluation.lengths import LengthBin
from regard.evaluation.metrics import Flavour, Score

FORMAT = 1
PLAN, RECIPES, RUNS = "plan.json", "recipes", "runs"
TEST_SOURCE, TEST_REFERENCE = "test.src", "test.ref"
BUDGETS = ("steps", "time", "parameters")
PARTS = ("test", "validation")
MOST_ENTRIES, MOST_SEEDS, MOST_ROWS, MOST_PIECES, MOST_BYTES = 200, 100, 100_000, 2_000, 512 << 20
MENDING = "Restore it from a copy, or remove it and run the comparison again"
_SLUG = re.compile(r"[a-z0-9][a-z0-9._-]{0,99}", re.ASCII)
_LINE_ENDS = re.compile(r"[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]+")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Budget:
    """What is equal for all entries: steps, seconds of training, or parameters (and steps)."""

    kind: str = "steps"
    seconds: float | None = None
    parameters: int | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Entry:
    """One line of the table: a model, or a variant of it, with all the settings of its runs.

    `base` is False for a variant; `changes` are then the settings that make it one. `steps` are 0 until they are known,
    and `step_seconds` is what a step took in the trial of a time budget.
    """

    name: str
    slug: str
    model: str
    base: bool
    changes: tuple[str, ...]
    values: dict[str, Any]
    steps: int
    step_seconds: float | None = None
    parameters: int | None = None  # where they were counted before training


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """A whole comparison. `common` are the settings that all entries start from; `given` is what the user asked for."""

    recipe: str
    budget: Budget
    seeds: tuple[int, ...]
    flavour: Flavour
    part: str
    sentence: int  # of the test text, for the pictures of alignments
    command: str
    created: str
    versions: dict[str, str]
    machine: str
    entries: tuple[Entry, ...]
    common: dict[str, Any] = dataclasses.field(default_factory=dict)
    given: dict[str, Any] = dataclasses.field(default_factory=dict)
    fingerprints: dict[str, str] = dataclasses.field(default_factory=dict)
    working_folder: str = ""

    def entry(self, slug: str) -> Entry:
        return next(entry for entry in self.entries if entry.slug == slug)

    def runs(self) -> list[tuple[Entry, int]]:
        """All (entry, seed), the first seed of every entry before the second of any."""
        return [(entry, seed) for seed in self.seeds for entry in self.entries]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Training:
    """How a run was trained."""

    steps: int
    seconds: float
    tokens_per_second: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Decoding:
    """How fast the test text was translated; tokens are the target's, ends included."""

    sentences: int
    tokens: int
    seconds: float
    tokens_per_second: float
    beam: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Alignment:
    """Attention of one translation: a row for each target piece, a column for each source piece."""

    source: tuple[str, ...]
    target: tuple[str, ...]
    weights: tuple[tuple[float, ...], ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunResult:
    """What was measured on one finished run. `scores` are at least "bleu" and "chrf"; `curve` is (step, valid_nll)."""

    entry: str
    seed: int
    folder: str
    parameters: int
    device: str
    training: Training
    decoding: Decoding
    scores: dict[str, Score]
    perplexity: float | None
    by_length: tuple[LengthBin, ...]
    alignment: Alignment | None
    fingerprints: dict[str, str]
    commands: tuple[str, ...]
    curve: tuple[tuple[int, float], ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Failure:
    """Why a run has no result: one line, and the last of what it said. `exit` is its exit code, or minus a signal."""

    entry: str
    seed: int
    reason: str
    details: str
    exit: int


# Places ---------------------------------------------------------------------------------------------------------------


def run_folder(folder: Path, slug: str, seed: int) -> Path:
    return folder / RUNS / slug / f"seed-{seed}"


def result_path(folder: Path, slug: str, seed: int) -> Path:
    return folder / RUNS / slug / f"seed-{seed}.json"


def translations_path(folder: Path, slug: str, seed: int) -> Path:
    return folder / RUNS / slug / f"seed-{seed}.txt"


def failure_path(folder: Path, slug: str, seed: int) -> Path:
    return folder / RUNS / slug / f"seed-{seed}.failed.json"


def recipe_path(folder: Path, slug: str) -> Path:
    return folder / RECIPES / f"{slug}.toml"


# Writing --------------------------------------------------------------------------------------------------------------


def write_plan(folder: Path, plan: Plan) -> None:
    flavour = plan.flavour
    row = dataclasses.asdict(plan) | {
        "flavour": {"tokenized": flavour.tokenized, "lowercase": flavour.lowercase, "language": flavour.language}
    }
    write_json(folder / PLAN, {"format": FORMAT, **row})


def write_result(folder: Path, result: RunResult, translations: Sequence[str]) -> None:
    """The translations first: where there is a result, they are whole."""
    write_lines(translations_path(folder, result.entry, result.seed), translations)
    row = dataclasses.asdict(result)
    row["scores"] = {name: score.to_plain() for name, score in result.scores.items()}
    row["by_length"] = [{"low": part.low, "high": part.high, **part.to_plain()} for part in result.by_length]
    name = translations_path(folder, result.entry, result.seed).name
    write_json(result_path(folder, result.entry, result.seed), {"format": FORMAT, **row, "translations": name})
    failure_path(folder, result.entry, result.seed).unlink(missing_ok=True)


def write_failure(folder: Path, failure: Failure) -> None:
    path = failure_path(folder, failure.entry, failure.seed)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, {"format": FORMAT, **dataclasses.asdict(failure)})


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """One text per line; a line end inside a text becomes a space."""
    write_bytes(path, "".join(one_line(line) + "\n" for line in lines).encode())


def one_line(text: str) -> str:
    return _LINE_ENDS.sub(" ", text)


# Reading --------------------------------------------------------------------------------------------------------------


def read_plan(folder: str | Path) -> Plan:
    """The plan of a comparison's folder."""
    path = Path(folder) / PLAN
    if not path.is_file():
        raise CheckpointError(folder, f"it is no comparison: it has no {PLAN}", "Give the --out of a comparison")
    row = _Fields.of(path)
    budget, flavour = row.section("budget"), row.section("flavour")
    entries = tuple(_entry(item) for item in row.sections("entries", MOST_ENTRIES))
    if not entries or len({entry.slug for entry in entries}) < len(entries):
        raise row.damaged("entries")
    seeds = tuple(row.wholes("seeds", MOST_SEEDS))
    if not seeds or len(set(seeds)) < len(seeds) or min(seeds) < 0:
        raise row.damaged("seeds")
    return Plan(
        recipe=row.text("recipe"),
        budget=Budget(
            kind=budget.one_of("kind", BUDGETS),
            seconds=budget.number("seconds", optional=True),
            parameters=budget.whole("parameters", optional=True),
        ),
        seeds=seeds,
        flavour=Flavour(
            tokenized=flavour.truth("tokenized"),
            lowercase=flavour.truth("lowercase"),
            language=flavour.text("language"),
        ),
        part=row.one_of("part", PARTS),
        sentence=row.whole("sentence"),
        command=row.text("command"),
        created=row.text("created"),
        versions=row.named_texts("versions"),
        machine=row.text("machine"),
        entries=entries,
        common=row.section("common").values,
        given=row.section("given").values,
        fingerprints=row.named_texts("fingerprints"),
        working_folder=row.text("working_folder"),
    )


def _entry(row: _Fields) -> Entry:
    slug = row.text("slug")
    if not _SLUG.fullmatch(slug):  # it becomes part of paths
        raise row.damaged("slug")
    return Entry(
        name=row.text("name"),
        slug=slug,
        model=row.text("model"),
        base=row.truth("base"),
        changes=tuple(row.texts("changes", 100)),
        values=row.section("values").values,
        steps=row.whole("steps"),
        step_seconds=row.number("step_seconds", optional=True),
        parameters=row.whole("parameters", optional=True),
    )


def read_results(folder: str | Path, plan: Plan | None = None) -> tuple[list[RunResult], list[Failure]]:
    """All results and all failures of a comparison, in the order of its plan. A run that is left to do is in neither."""
    folder = Path(folder)
    plan = read_plan(folder) if plan is None else plan
    results, failures = [], []
    for entry, seed in sorted(plan.runs(), key=lambda run: plan.entries.index(run[0])):
        if result_path(folder, entry.slug, seed).exists():
            results.append(read_result(folder, entry.slug, seed))
        elif failure_path(folder, entry.slug, seed).exists():
            failures.append(read_failure(folder, entry.slug, seed))
    return results, failures


def read_result(folder: Path, slug: str, seed: int) -> RunResult:
    row = _Fields.of(result_path(folder, slug, seed))
    if (row.text("entry"), row.whole("seed")) != (slug, seed):
        raise row.damaged("entry")
    training, decoding, scores = row.section("training"), row.section("decoding"), row.section("scores")
    return RunResult(
        entry=slug,
        seed=seed,
        folder=run_folder(Path(), slug, seed).as_posix(),
        parameters=row.whole("parameters"),
        device=row.text("device"),
        training=Training(
            steps=training.whole("steps"),
            seconds=training.number("seconds"),
            tokens_per_second=training.number("tokens_per_second"),
        ),
        decoding=Decoding(
            sentences=decoding.whole("sentences"),
            tokens=decoding.whole("tokens"),
            seconds=decoding.number("seconds"),
            tokens_per_second=decoding.number("tokens_per_second"),
            beam=decoding.whole("beam"),
        ),
        scores={name: _score(scores.section(name)) for name in ("bleu", "chrf")},
        perplexity=row.number("perplexity", optional=True),
        by_length=tuple(_length_bin(item) for item in row.sections("by_length", 1000)),
        alignment=_alignment(row.section("alignment")) if row.values.get("alignment") is not None else None,
        fingerprints=row.named_texts("fingerprints"),
        commands=tuple(row.texts("commands", 1000)),
        curve=tuple(_curve(row)),
    )


def read_failure(folder: Path, slug: str, seed: int) -> Failure:
    row = _Fields.of(failure_path(folder, slug, seed))
    code = row.values.get("exit")
    if type(code) is not int:
        raise row.damaged("exit")
    return Failure(entry=slug, seed=seed, reason=row.text("reason"), details=row.text("details"), exit=code)


def read_translations(folder: str | Path, result: RunResult) -> list[str]:
    """One text for each line of the test text."""
    lines = read_text_lines(translations_path(Path(folder), result.entry, result.seed))
    if len(lines) != result.decoding.sentences:
        where = translations_path(Path(folder), result.entry, result.seed)
        what = f"it has {len(lines)} lines, the test text had {result.decoding.sentences}"
        raise CheckpointError(where, what, MENDING)
    return lines


def read_test(folder: str | Path) -> tuple[list[str], list[str]]:
    """Sources and references of the test text."""
    sources, references = (read_text_lines(Path(folder) / name) for name in (TEST_SOURCE, TEST_REFERENCE))
    if len(sources) != len(references):
        what = f"it has {len(references)} lines, {TEST_SOURCE} has {len(sources)}"
        raise CheckpointError(Path(folder) / TEST_REFERENCE, what, MENDING)
    return sources, references


def read_text_lines(path: Path) -> list[str]:
    """The lines that `write_lines` wrote."""
    try:
        if path.stat().st_size > MOST_BYTES:
            raise CheckpointError(path, "the file is too large to be what it claims", MENDING)
        text = path.read_bytes().decode()
    except OSError as error:
        raise CheckpointError(path, f"it cannot be read ({error.strerror})", MENDING) from None
    except UnicodeDecodeError:
        raise CheckpointError(path, "it is not UTF-8 text", MENDING) from None
    return text.split("\n")[:-1]


def _score(row: _Fields) -> Score:
    return Score(
        name=row.text("name"),
        value=row.number("value"),
        low=row.number("low", optional=True),
        high=row.number("high", optional=True),
        signature=row.text("signature"),
        details=row.section("details").values,
    )


def _length_bin(row: _Fields) -> LengthBin:
    bleu, chrf = (
        Score(
            label,
            row.number(name),
            row.number(f"{name}_low", optional=True),
            row.number(f"{name}_high", optional=True),
        )
        for name, label in (("bleu", "BLEU"), ("chrf", "chrF"))
    )
    return LengthBin(row.whole("low"), row.whole("high", optional=True), row.whole("sentences"), bleu, chrf)


def _alignment(row: _Fields) -> Alignment:
    source, target = row.texts("source", MOST_PIECES), row.texts("target", MOST_PIECES)
    weights = row.listed("weights", MOST_PIECES)
    fits = len(weights) == len(target) and all(isinstance(line, list) and len(line) == len(source) for line in weights)
    if not fits or not all(_is_number(weight) for line in weights for weight in line):
        raise row.damaged("weights")
    return Alignment(
        source=tuple(source), target=tuple(target), weights=tuple(tuple(map(float, line)) for line in weights)
    )


def _curve(row: _Fields) -> list[tuple[int, float]]:
    points = row.listed("curve", MOST_ROWS)
    for point in points:
        if not (isinstance(point, list) and len(point) == 2 and type(point[0]) is int and _is_number(point[1])):
            raise row.damaged("curve")
    return [(step, float(loss)) for step, loss in points]


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)


@dataclasses.dataclass(frozen=True)
class _Fields:
    """The fields of a JSON object from a file; one of the wrong type says which file and which field."""

    path: Path
    values: dict[str, Any]

    @classmethod
    def of(cls, path: Path) -> _Fields:
        values = read_json(path)
        if not isinstance(values, dict):
            raise CheckpointError(path, "it is not what a comparison writes", MENDING)
        if values.get("format") != FORMAT:
            what = f"its format is {values.get('format')!r}, this version reads {FORMAT}"
            raise CheckpointError(path, what, "Use the version of regard that wrote it")
        return cls(path, values)

    def damaged(self, key: str) -> CheckpointError:
        return CheckpointError(self.path, f"the file is damaged: {key!r} is not what it should be", MENDING)

    def text(self, key: str) -> str:
        value = self.values.get(key)
        if not isinstance(value, str) or len(value) > 100_000:
            raise self.damaged(key)
        return value

    def one_of(self, key: str, known: Sequence[str]) -> str:
        if self.text(key) not in known:
            raise self.damaged(key)
        return self.text(key)

    def truth(self, key: str) -> bool:
        value = self.values.get(key)
        if not isinstance(value, bool):
            raise self.damaged(key)
        return value

    def whole(self, key: str, optional: bool = False) -> Any:
        """A whole number that is not negative."""
        value = self.values.get(key)
        if value is None and optional:
            return None
        if type(value) is not int or not 0 <= value < 1 << 53:
            raise self.damaged(key)
        return value

    def number(self, key: str, optional: bool = False) -> Any:
        value = self.values.get(key)
        if value is None and optional:
            return None
        if not _is_number(value):
            raise self.damaged(key)
        return float(value)  # type: ignore[arg-type]

    def listed(self, key: str, most: int) -> list[Any]:
        value = self.values.get(key)
        if not isinstance(value, list) or len(value) > most:
            raise self.damaged(key)
        return value

    def texts(self, key: str, most: int) -> list[str]:
        items = self.listed(key, most)
        if not all(isinstance(item, str) and len(item) <= 100_000 for item in items):
            raise self.damaged(key)
        return items

    def wholes(self, key: str, most: int) -> list[int]:
        items = self.listed(key, most)
        if not all(type(item) is int for item in items):
            raise self.damaged(key)
        return items

    def section(self, key: str) -> _Fields:
        value = self.values.get(key)
        if not isinstance(value, Mapping):
            raise self.damaged(key)
        return _Fields(self.path, dict(value))

    def sections(self, key: str, most: int) -> list[_Fields]:
        items = self.listed(key, most)
        if not all(isinstance(item, dict) for item in items):
            raise self.damaged(key)
        return [_Fields(self.path, item) for item in items]

    def named_texts(self, key: str) -> dict[str, str]:
        section = self.section(key)
        return {name: section.text(name) for name in section.values}
