"""The plan of a comparison: made from what the user asks for, checked, and joined with an earlier one in its folder."""

from __future__ import annotations

import dataclasses
import difflib
import math
import os
import platform
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from regard.comparing.budget import IN_PROPORTION, Vocabulary, count_parameters, match_parameters, sizes_of
from regard.comparing.entries import Draft, checked, draft_entries, settled, slug_for
from regard.comparing.results import (
    BUDGETS,
    MOST_COMMANDS,
    MOST_ENTRIES,
    MOST_SEEDS,
    PLAN,
    Budget,
    Entry,
    Plan,
    read_plan,
)
from regard.core import config as configuration
from regard.core.device import choose_device
from regard.core.errors import ConfigError, DataError
from regard.data.addresses import STANDARD_INPUT
from regard.data.corpus import Corpus, load_corpus
from regard.data.split import Pairs
from regard.evaluation.lengths import count_words
from regard.evaluation.metrics import Flavour
from regard.models.base import MODELS
from regard.training.checking import check_before_training
from regard.training.config import build_run_config
from regard.training.progress import Reporter
from regard.training.request import gather, nested
from regard.training.run import versions
from regard.training.text import sizes_for, train_tokenizers, with_allowed

SHORT, LONG = 8, 15  # words of the sentence that is drawn, where there are such sentences
FAR = 0.05  # a part of the parameters that is worth a warning
MOST_SHOWN = 4
CHOSEN_BY_TIME = tuple(
    f"train.{name}" for name in ("steps", "warmup", "save_every", "validate_every", "log_every", "compile")
)
SAME_BATCHES = {"train": {"packed": False}}  # unless asked for: not every model could read packed ones
CHOSEN_BY_PARAMETERS = ("train.lr", *(f"model.{name}" for name in ("width", *IN_PROPORTION)))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request:
    """What the user asks for."""

    recipe: str | None = None
    files: Mapping[str, str] = dataclasses.field(default_factory=dict)
    models: Sequence[str] = ()
    variants: Sequence[str] = ()
    seeds: int = 3
    budget: str = "steps"
    seconds: float | None = None
    parameters: int | None = None
    settings: str | Mapping[str, Any] | Sequence[str] = ()
    allow: Sequence[str] = ()
    tokenized: bool = False
    lowercase: bool = False
    command: str = ""

    def __post_init__(self) -> None:
        if not 1 <= self.seeds <= MOST_SEEDS:
            wrong = "less than 1" if self.seeds < 1 else f"more than {MOST_SEEDS}"
            raise ConfigError("--seeds", f"{self.seeds} is {wrong}", "Give for example 3")
        if self.budget not in BUDGETS:
            near = difflib.get_close_matches(self.budget, BUDGETS, n=1)
            advice = f"Perhaps you mean {near[0]}" if near else f"Use one of {', '.join(BUDGETS)}"
            raise ConfigError("--budget", f"{self.budget!r} is not one of {', '.join(BUDGETS)}", advice)
        for name, kind in (("seconds", "time"), ("parameters", "parameters")):
            value = getattr(self, name)
            if value is not None and self.budget != kind:
                what = f"it is given, but the budget is {self.budget}"
                raise ConfigError(f"--{name}", what, f"Add --budget {kind}, or leave it out")
            if value is not None and not 1 <= value < 1e12:
                raise ConfigError(f"--{name}", f"{value} is not a sensible number", "Give 1 or more")
        if self.budget == "time" and self.seconds is None:
            raise ConfigError("--budget time", "it does not say how long", "Add for example --seconds 600")


class Prepared(NamedTuple):
    """A plan and the text it is about."""

    plan: Plan
    corpus: Corpus


def prepare_plan(request: Request, folder: Path, report: Reporter) -> Prepared:
    """Makes the plan, or adds to the one that the folder has. Writes nothing."""
    before = existing_plan(folder)
    recipe = request.recipe or " and ".join(Path(name).name for name in request.files.values())
    given = nested(request.settings)  # they go over all entries
    values = with_allowed(_gathered(request, given, before), request.allow)
    values = configuration.merge(SAME_BATCHES, values)
    _refuse_standard_input(values)
    choose_device(build_run_config(values).train.device)
    timed = request.budget == "time"
    draft_entries(recipe, checked("recipe", values), given, request.models, request.variants, timed)  # mistakes first
    corpus: Corpus | None = None
    if request.recipe is None:  # sizes come from the text
        corpus = _read_corpus(values, report, check=before is None)
        values = configuration.merge(sizes_for(corpus, values), values)
    common = checked("recipe", values)
    if before is not None:
        _check_same(before, common, request, folder)
    drafts = draft_entries(recipe, common, given, request.models, request.variants, timed)
    if len(drafts) == 1 and request.seeds == 1 and before is None:
        what = f"there is only one model, {drafts[0].name}, and one seed: nothing is compared"
        raise ConfigError("compare", what, 'Name more in --models, or add --variant "section.key=value"')
    corpus = corpus or _read_corpus(values, report, check=before is None)
    part, test = measured_part(corpus)
    budget = Budget(kind=request.budget, seconds=request.seconds, parameters=request.parameters)
    known = before.entries if before is not None else ()
    if request.budget == "parameters":
        if before is not None:
            budget = before.budget
        drafts, budget, counts = _equal_parameters(drafts, known, corpus, budget, report)
    else:
        counts = {}
    seed = common["train"]["seed"]
    plan = Plan(
        recipe=recipe,
        budget=budget,
        seeds=tuple(range(seed, seed + request.seeds)),
        flavour=Flavour(
            tokenized=request.tokenized, lowercase=request.lowercase, language=common["data"]["target_language"]
        ),
        part=part,
        sentence=choose_sentence(test),
        commands=({"command": request.command, "folder": os.getcwd()},),
        created=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        versions=versions(),
        machine=machine(),
        entries=(),
        common=common,
        fingerprints={"data": corpus.fingerprint},
    )
    entries = _entries(drafts, known, counts, request.budget)
    if before is not None:
        _say_about_seeds(before.seeds, plan.seeds, len(entries) > len(known), report)
        plan = _joined(before, plan, folder)
    plan = dataclasses.replace(plan, entries=entries)
    if len(plan.entries) > MOST_ENTRIES:
        raise ConfigError("compare", f"{len(plan.entries)} entries are more than {MOST_ENTRIES}", "Compare fewer")
    return Prepared(plan, corpus)


def read_prepared(folder: Path, report: Reporter) -> Prepared:
    """The plan of a folder and its text, which must be what it was."""
    plan = read_plan(folder)
    corpus = load_corpus(build_run_config(plan.common).data, report.say)
    _check_fingerprint(plan, corpus, folder)
    return Prepared(plan, corpus)


def existing_plan(folder: Path) -> Plan | None:
    """The plan that a folder has. None if there is no such folder, or nothing in it."""
    if folder.exists() and not folder.is_dir():
        raise ConfigError(folder, "the output is a file, not a folder", "Give another --out")
    if (folder / PLAN).exists():
        return read_plan(folder)
    if folder.exists() and any(not entry.name.startswith(".") for entry in folder.iterdir()):
        raise ConfigError(folder, "the folder is not empty, and it holds no comparison", "Give another --out")
    return None


def measured_part(corpus: Corpus) -> tuple[str, Pairs]:
    """The text that translations are measured on: the test part, or else the validation part."""
    part, pairs = ("test", corpus.test) if len(corpus.test) else ("validation", corpus.valid)
    if not len(pairs):
        what = "there is no test text: data.test_size and data.valid_size hold out none"
        raise DataError("compare", what, "Set data.test_src and data.test_tgt, or data.test_size=500")
    return part, pairs


def choose_sentence(test: Pairs) -> int:
    """A sentence for the pictures: of median length, among those that are neither short nor long."""
    words = [count_words(source) for source in test.sources]
    order = sorted(range(len(words)), key=lambda i: (words[i], i))
    usual = [i for i in order if SHORT <= words[i] <= LONG] or order
    return usual[len(usual) // 2]


def machine() -> str:
    """What the runs are made on, in words."""
    name = platform.processor() or platform.machine()
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                name = line.partition(":")[2].strip()
                break
    except OSError:
        pass
    parts = [f"{name}, {os.cpu_count()} cores", platform.system()]
    if torch.cuda.is_available():
        parts.insert(0, torch.cuda.get_device_name())
    return "; ".join(parts)


# What was asked for ---------------------------------------------------------------------------------------------------


def _gathered(request: Request, given: Mapping[str, Any], before: Plan | None) -> dict[str, Any]:
    try:
        return gather(request.recipe, request.files, _asked(request, given, before), None)
    except ConfigError as error:
        (only,) = request.models if len(request.models) == 1 else ("",)
        if not error.where.startswith("setting model.") or only not in MODELS.names():
            raise
        # settings go over the recipe's own model first, and the user thinks of the one that was named
        todo = f"To compare variants of {only} alone, write model.name={only} instead of --models {only}"
        raise ConfigError(error.where, error.what, todo) from None


def _asked(request: Request, given: Mapping[str, Any], before: Plan | None) -> dict[str, Any]:
    """Without a recipe, sizes are chosen for the first model named, in this comparison or when it began."""
    first = next(iter(request.models), "").strip() if before is None else before.common.get("model", {}).get("name", "")
    if request.recipe is None and first in MODELS.names() and "name" not in given.get("model", {}):
        return configuration.merge({"model": {"name": first}}, given)
    return dict(given)


def _refuse_standard_input(values: Mapping[str, Any]) -> None:
    for section in (values["data"], *values["data"].get("corpora", ())):
        if STANDARD_INPUT in section.values():
            what = "the text is read once for every run, and standard input can be read only once"
            raise ConfigError("compare", what, "Write it to a file first")


def _read_corpus(values: Mapping[str, Any], report: Reporter, check: bool) -> Corpus:
    data = build_run_config(values).data
    if check:
        check_before_training(data, report)
    return load_corpus(data, report.say)


# Entries --------------------------------------------------------------------------------------------------------------


def _entries(
    drafts: Sequence[Draft], known: Sequence[Entry], counts: Mapping[str, int], kind: str
) -> tuple[Entry, ...]:
    """The known entries, and the new ones after them."""
    entries, taken = list(known), [entry.slug for entry in known]
    for draft in drafts:
        old = next((entry for entry in known if entry.name == draft.name), None)
        values = {**draft.values, "data": {**draft.values["data"], "check": False}}  # the plan has checked the text
        if old is not None:
            differing = differences(_without_budget(old.values, kind), _without_budget(values, kind))
            if differing:
                what = f"{draft.name} is in this comparison with other settings: {_listed(differing)}"
                raise ConfigError("compare", what, "Give another --out")
            continue
        twin = next((entry for entry in known if entry.values == values), None)
        if twin is not None:
            what = f"{draft.name} is in this comparison already, as {twin.name}"
            raise ConfigError("compare", what, f"Name it {twin.name.split()[0]} in --models, as before")
        slug = slug_for(draft.name, taken)
        taken.append(slug)
        entries.append(
            Entry(
                name=draft.name,
                slug=slug,
                model=draft.model,
                changes=draft.changes,
                values=values,
                steps=0 if kind == "time" else values["train"]["steps"],
                fixed=draft.fixed,
                parameters=counts.get(draft.name),
            )
        )
    return tuple(entries)


def _without_budget(values: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """Settings without those that a budget chooses."""
    chosen = {"time": CHOSEN_BY_TIME, "parameters": CHOSEN_BY_PARAMETERS}.get(kind, ())
    return {
        section: {key: value for key, value in part.items() if f"{section}.{key}" not in chosen}
        for section, part in values.items()
    }


def _equal_parameters(
    drafts: Sequence[Draft], known: Sequence[Entry], corpus: Corpus, budget: Budget, report: Reporter
) -> tuple[list[Draft], Budget, dict[str, int]]:
    """The entries in the width that gives each the same number of parameters: the first one's, if none was asked for.

    A variant has the sizes of its model where it has as many parameters with them: one head or eight, nothing else
    differs.
    """
    for draft in drafts:
        sizes = sizes_of(draft.values["model"])
        for change in draft.changes:
            name = change.partition("=")[0].removeprefix("model.")
            if name in sizes and change.startswith("model."):
                what = f"the budget of parameters chooses the {name} of every entry"
                raise ConfigError(f"--variant {change!r}", what, "Leave it out, or use --budget steps")
    config = build_run_config(drafts[0].values)
    report.say("Training the tokenizer, to count parameters...")
    tokenizers = train_tokenizers(corpus, config.tokenizer, report)
    vocabulary = Vocabulary(tokenizers.source.size, tokenizers.target.size, tokenizers.joint)
    wanted = budget.parameters or count_parameters(drafts[0].values["model"], vocabulary)
    matched, counts = [], {}
    bases: dict[str, tuple[dict[str, Any], int]] = {}
    for draft in drafts:
        model = draft.values["model"]
        old = next((entry for entry in known if entry.name == draft.name), None)
        if old is not None:
            section = {**model, **sizes_of(old.values["model"])}
            found = section, old.parameters or count_parameters(section, vocabulary)
        else:
            alike = [other for other in drafts if draft.base and other.of == draft.of]  # one width for all their heads
            heads = [other.values["model"].get("heads", 1) for other in alike]
            shared = _with_sizes_of(bases[draft.of], model, vocabulary) if draft.of in bases else None
            found = shared or match_parameters(model, wanted, vocabulary, heads)
        section, count = found
        if draft.base:
            bases[draft.of] = found
        if abs(count - wanted) > FAR * wanted and old is None:
            report.warn(f"{draft.name} has {count:,} parameters, not {wanted:,}: no width gives it a nearer number.")
        draft = dataclasses.replace(draft, values=checked(draft.name, {**draft.values, "model": section}))
        matched.append(settled(draft))
        counts[draft.name] = count
    return matched, dataclasses.replace(budget, parameters=wanted), counts


def _with_sizes_of(
    base: tuple[dict[str, Any], int], model: Mapping[str, Any], vocabulary: Vocabulary
) -> tuple[dict[str, Any], int] | None:
    """A variant in the sizes of its model, if it has as many parameters then."""
    section = {**model, **{name: size for name, size in sizes_of(base[0]).items() if name in model}}
    try:
        count = count_parameters(section, vocabulary)
    except ConfigError:  # these heads do not divide the width
        return None
    return (section, count) if count == base[1] else None


# Joining with an earlier plan -----------------------------------------------------------------------------------------


def _check_same(before: Plan, common: Mapping[str, Any], request: Request, folder: Path) -> None:
    """Raises unless a request is about the same text, settings and budget as the plan that is there."""
    differing = differences(before.common, common)
    if before.budget.kind != request.budget or before.budget.seconds != request.seconds:
        differing.append(f"budget was {_in_words(before.budget)}, not {request.budget}")
    if request.parameters is not None and request.parameters != before.budget.parameters:
        differing.append(f"parameters were {before.budget.parameters}, not {request.parameters}")
    for name in ("tokenized", "lowercase"):
        if getattr(before.flavour, name) != getattr(request, name):
            differing.append(f"--{name} was {'given' if getattr(before.flavour, name) else 'not given'}")
    if differing:
        raise ConfigError(
            folder,
            f"the folder holds another comparison: {_listed(differing)}",
            "Give another --out, or ask for the same; models, variants and seeds may be added",
        )


def _joined(before: Plan, plan: Plan, folder: Path) -> Plan:
    """The earlier plan with more seeds. Its new entries come from `_entries`."""
    if before.fingerprints.get("data") != plan.fingerprints["data"]:
        raise _other_text(folder)
    seeds = tuple(dict.fromkeys([*before.seeds, *plan.seeds]))
    commands = (*before.commands, *(asked for asked in plan.commands if asked not in before.commands))
    return dataclasses.replace(before, seeds=seeds, commands=commands[:MOST_COMMANDS])


def _say_about_seeds(before: Sequence[int], asked: Sequence[int], enlarged: bool, report: Reporter) -> None:
    """All entries have all seeds: those that were there, and those that are asked for."""
    kept = [str(seed) for seed in before if seed not in asked]
    if kept and enlarged:
        report.say(f"New entries are also trained with the seeds that this comparison has: {', '.join(kept)}.")
    new = [str(seed) for seed in asked if seed not in before]
    if new:
        report.say(f"The entries that are here are trained with new seeds too: {', '.join(new)}.")


def _check_fingerprint(plan: Plan, corpus: Corpus, folder: Path) -> None:
    if plan.fingerprints.get("data") != corpus.fingerprint:
        raise _other_text(folder)


def _other_text(folder: Path) -> DataError:
    return DataError(
        folder, "the text is not what this comparison was started with", "Restore the files, or give another --out"
    )


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """What differs between two sets of settings, as a reader would say it."""
    found = []
    for section in dict.fromkeys([*old, *new]):
        ours, theirs = old.get(section, {}), new.get(section, {})
        for key in dict.fromkeys([*ours, *theirs]):
            if ours.get(key) != theirs.get(key):
                found.append(f"{section}.{key} was {ours.get(key)!r}, not {theirs.get(key)!r}")
    return found


def _listed(differing: Sequence[str]) -> str:
    more = len(differing) - MOST_SHOWN
    return ", ".join(differing[:MOST_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _in_words(budget: Budget) -> str:
    if budget.seconds is not None:
        seconds = budget.seconds
        return f"time ({int(seconds) if math.isclose(seconds, int(seconds)) else seconds} seconds)"
    return budget.kind
