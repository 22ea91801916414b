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
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from regard.comparing.fields import FORMAT, MENDING, Fields, is_number
from regard.core.errors import CheckpointError
from regard.core.files import quoted, write_bytes, write_json
from regard.evaluation.metrics import Flavour, Score

PLAN, RECIPES, RUNS = "plan.json", "recipes", "runs"
TEST_SOURCE, TEST_REFERENCE = "test.src", "test.ref"
BUDGETS = ("steps", "time", "parameters")
PARTS = ("test", "validation")
MOST_ENTRIES, MOST_SEEDS, MOST_COMMANDS = 200, 100, 1000
MOST_ROWS, MOST_PIECES, MOST_BYTES = 100_000, 2_000, 512 << 20
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

    `changes` are the settings that make it a variant, none for a model as it is. `fixed` are the keys of all settings that
    the user gave, which no budget changes. `steps` are 0 until they are known.
    """

    name: str
    slug: str
    model: str
    changes: tuple[str, ...]
    values: dict[str, Any]
    steps: int
    fixed: tuple[str, ...] = ()
    parameters: int | None = None  # where they were counted before training


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """A whole comparison. `common` are the settings that all entries start from.

    `commands` are those that made and enlarged it, each {"command": what was typed, "folder": where}.
    """

    recipe: str
    budget: Budget
    seeds: tuple[int, ...]
    flavour: Flavour
    part: str
    sentence: int  # of the test text, for the pictures of alignments
    commands: tuple[dict[str, str], ...]
    created: str
    versions: dict[str, str]
    machine: str
    entries: tuple[Entry, ...]
    common: dict[str, Any] = dataclasses.field(default_factory=dict)
    fingerprints: dict[str, str] = dataclasses.field(default_factory=dict)

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
    """How fast the test text was translated; tokens are the target's, ends included.

    `seconds` are the median of so many `rounds` over the whole text; `batch_tokens` bounds what is decoded at once.
    """

    sentences: int
    tokens: int
    seconds: float
    tokens_per_second: float
    sentences_per_second: float
    rounds: int
    batch_tokens: int
    beam: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Alignment:
    """Attention of one translation: a row for each target piece, a column for each source piece."""

    source: tuple[str, ...]
    target: tuple[str, ...]
    weights: tuple[tuple[float, ...], ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunResult:
    """What was measured on one finished run. `scores` are at least "bleu" and "chrf"; `curve` is (step, valid_nll).

    It was trained on `pairs` pairs; `left_out` more were too long for the model or for train.max_tokens. `commands` are
    as typed in the folder of the comparison.
    """

    entry: str
    seed: int
    folder: str
    parameters: int
    pairs: int
    left_out: int
    device: str
    machine: str
    versions: dict[str, str]
    training: Training
    decoding: Decoding
    scores: dict[str, Score]
    perplexity: float | None
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


def train_arguments(folder: Path, slug: str, seed: int) -> list[str]:
    """The command of one run, as a user would type it after `regard`."""
    recipe, run = recipe_path(folder, slug).as_posix(), run_folder(folder, slug, seed).as_posix()
    return ["train", recipe, "--out", run, f"train.seed={seed}"]


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
    row = Fields.of(path)
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
        commands=tuple(
            {"command": item.text("command"), "folder": item.text("folder")}
            for item in row.sections("commands", MOST_COMMANDS)
        ),
        created=row.text("created"),
        versions=row.named_texts("versions"),
        machine=row.text("machine"),
        entries=entries,
        common=_padded(row.section("common").values),
        fingerprints=row.named_texts("fingerprints"),
    )


def _padded(values: dict[str, Any]) -> dict[str, Any]:
    """Settings of a comparison that was begun before batches could be packed: it goes on with the same ones."""
    train = values.get("train")
    return {**values, "train": {"packed": False, **train}} if isinstance(train, dict) else values


def _entry(row: Fields) -> Entry:
    slug = row.text("slug")
    if not _SLUG.fullmatch(slug):  # it becomes part of paths
        raise row.damaged("slug")
    return Entry(
        name=row.text("name"),
        slug=slug,
        model=row.text("model"),
        changes=tuple(row.texts("changes", 100)),
        values=_padded(row.section("values").values),
        steps=row.whole("steps"),
        fixed=tuple(row.texts("fixed", 1000)),
        parameters=row.whole("parameters", optional=True),
    )


def read_results(folder: str | Path, plan: Plan | None = None) -> tuple[list[RunResult], list[Failure]]:
    """All results and all failures of a comparison, in the order of its plan. A run that is left to do is in neither."""
    folder = Path(folder)
    plan = read_plan(folder) if plan is None else plan
    results, failures = [], []
    for entry, seed in sorted(plan.runs(), key=lambda run: plan.entries.index(run[0])):
        if result_path(folder, entry.slug, seed).exists():
            try:
                results.append(read_result(folder, entry.slug, seed))
            except CheckpointError as error:
                todo = f"`regard compare --resume {quoted(folder)}` measures that run again"
                raise CheckpointError(error.where, error.what, todo) from None
        elif failure_path(folder, entry.slug, seed).exists():
            failures.append(read_failure(folder, entry.slug, seed))
    return results, failures


def read_result(folder: Path, slug: str, seed: int) -> RunResult:
    row = Fields.of(result_path(folder, slug, seed))
    if (row.text("entry"), row.whole("seed")) != (slug, seed):
        raise row.damaged("entry")
    training, decoding, scores = row.section("training"), row.section("decoding"), row.section("scores")
    return RunResult(
        entry=slug,
        seed=seed,
        folder=run_folder(Path(), slug, seed).as_posix(),
        parameters=row.whole("parameters"),
        pairs=row.whole("pairs"),
        left_out=row.whole("left_out"),
        device=row.text("device"),
        machine=row.text("machine"),
        versions=row.named_texts("versions"),
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
            sentences_per_second=decoding.number("sentences_per_second"),
            rounds=decoding.whole("rounds"),
            batch_tokens=decoding.whole("batch_tokens"),
            beam=decoding.whole("beam"),
        ),
        scores={name: _score(scores.section(name)) for name in ("bleu", "chrf")},
        perplexity=row.number("perplexity", optional=True),
        alignment=_alignment(row.section("alignment")) if row.values.get("alignment") is not None else None,
        fingerprints=row.named_texts("fingerprints"),
        commands=tuple(row.texts("commands", 1000)),
        curve=tuple(_curve(row)),
    )


def read_failure(folder: Path, slug: str, seed: int) -> Failure:
    row = Fields.of(failure_path(folder, slug, seed))
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


def _score(row: Fields) -> Score:
    return Score(
        name=row.text("name"),
        value=row.number("value"),
        low=row.number("low", optional=True),
        high=row.number("high", optional=True),
        signature=row.text("signature"),
        details=row.section("details").values,
    )


def _alignment(row: Fields) -> Alignment:
    source, target = row.texts("source", MOST_PIECES), row.texts("target", MOST_PIECES)
    weights = row.listed("weights", MOST_PIECES)
    fits = len(weights) == len(target) and all(isinstance(line, list) and len(line) == len(source) for line in weights)
    if not fits or not all(is_number(weight) for line in weights for weight in line):
        raise row.damaged("weights")
    return Alignment(
        source=tuple(source), target=tuple(target), weights=tuple(tuple(map(float, line)) for line in weights)
    )


def _curve(row: Fields) -> list[tuple[int, float]]:
    points = row.listed("curve", MOST_ROWS)
    for point in points:
        if not (isinstance(point, list) and len(point) == 2 and type(point[0]) is int and is_number(point[1])):
            raise row.damaged("curve")
    return [(step, float(loss)) for step, loss in points]
