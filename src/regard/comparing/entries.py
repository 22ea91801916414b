"""The entries of a comparison: what `--models` and `--variant` ask for, as whole recipes over the same data."""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from regard.core import config as configuration
from regard.core.errors import ConfigError
from regard.models.base import MODELS
from regard.training.config import build_run_config, read_recipe, recipe_names
from regard.training.model_section import DEFAULT, config_class, settings_of
from regard.training.sizes import heads_for, usual_rate

SAME_FOR_ALL = ("data", "tokenizer", "augment")
# Of another recipe's training, these are the compared recipe's: they make budget and measurements equal.
EQUAL = (
    "steps", "batch_tokens", "accumulate", "max_tokens", "seed", "save_every", "validate_every", "valid_sentences",
    "log_every", "precision", "device", "compile", "graphs", "packed", "threads", "workers",
)  # fmt: skip
CARRIED = ("width", "dropout", "tie")  # settings that mean the same in every model that has them
RATED = ("adamw", "adam", "muon")  # optimizers that `usual_rate` is for
_PREFIX = re.compile(r"\s*([^\s=:]+)\s*:(?!=)\s*(.*)", re.DOTALL)
_BETWEEN = re.compile(r"\s+(?=[A-Za-z_][\w.]*\s*=)")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Draft:
    """An entry in the making.

    `adapted`: its model was put into the recipe by name, and embeddings are as wide as states; `rated`: its learning
    rate was chosen for its width. Both follow the width. `of` is the name of the model that it is, or is a variant of;
    `fixed` are the keys of the settings that the user gave.
    """

    name: str
    of: str
    changes: tuple[str, ...]
    values: dict[str, Any]
    fixed: tuple[str, ...] = ()
    adapted: bool = False
    rated: bool = False

    @property
    def base(self) -> bool:
        return not self.changes

    @property
    def model(self) -> str:
        return self.values["model"]["name"]


def draft_entries(
    recipe: str,
    common: Mapping[str, Any],
    given: Mapping[str, Any],
    models: Sequence[str],
    variants: Sequence[str],
    timed: bool = False,
) -> list[Draft]:
    """All entries, models first, each followed by its variants.

    `common` are the recipe's settings, resolved; `given` those of them that the user set, which go over all entries.
    With `timed`, the steps are not known yet, and nothing is fitted to them.
    """
    names = [name.strip() for name in models] or [str(common["model"]["name"])]
    bases: list[Draft] = []
    for name in names:
        if not name:
            raise ConfigError("--models", "a name is missing", "Write for example --models transformer,luong")
        draft = _of_model(name, recipe, common, given)
        draft = draft if timed else fitted(draft)
        if any(draft.name == other.name for other in bases):
            raise ConfigError("--models", f"{draft.name} is given twice", "Name each once")
        bases.append(draft)
    called = {base.model: base.name for base in bases if [other.model for other in bases].count(base.model) == 1}
    called |= {typed: base.name for typed, base in zip(names, bases, strict=True)}
    called |= {base.name: base.name for base in bases}
    asked = [_read_variant(text, called) for text in variants]
    drafts: list[Draft] = []
    for base in bases:
        drafts.append(base)
        for (only, changes), text in zip(asked, variants, strict=True):
            if only in ("", base.name):
                alone = bool(only) or len(bases) == 1
                draft = _variant(base, changes, text, alone)
                drafts.append(draft if timed else fitted(draft))
    _check_all_differ(drafts)
    return drafts


# Models ---------------------------------------------------------------------------------------------------------------


def _of_model(name: str, recipe: str, common: Mapping[str, Any], given: Mapping[str, Any]) -> Draft:
    adapted = rated = False
    if name in (common["model"]["name"], recipe):
        called, values = _called(name), dict(common)
    elif name in MODELS.names():
        called, values, adapted = name, _with_model(name, common), True
        rated = "lr" not in given.get("train", {}) and common["train"]["optimizer"] in RATED
    elif name in recipe_names() or name.endswith(".toml") or Path(name).is_file():
        called, values = _called(name), _with_recipe(name, common)
    else:
        raise _unknown(name)
    if values["model"].get("name", DEFAULT) not in translators():
        what = f"{values['model']['name']} does not translate, and translators are what is compared"
        raise ConfigError(f"--models {name}" if name != recipe else recipe, what, f"Models: {', '.join(translators())}")
    model = {key: value for key, value in given.get("model", {}).items() if key != "name"}
    values = configuration.merge(values, {**given, "model": model})
    values = checked(called, values)
    fixed = tuple(f"{section}.{key}" for section, part in given.items() for key in part)
    draft = Draft(name=called, of=called, changes=(), values=values, fixed=fixed, adapted=adapted, rated=rated)
    return settled(draft)


def translators() -> list[str]:
    return [name for name in MODELS.names() if "translates" in MODELS.get(name).capabilities]


def _called(name: str) -> str:
    """The entry's name for one that was typed: a recipe's without its folder."""
    return Path(name).stem if name.endswith(".toml") else name


def _unknown(name: str) -> ConfigError:
    known = [*translators(), *recipe_names()]
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    advice = f"Perhaps you mean {near[0]}" if near else f"Models: {', '.join(translators())}; or give a recipe"
    return ConfigError(f"--models {name}", "there is no model and no recipe of that name", advice)


def _with_model(name: str, common: Mapping[str, Any]) -> dict[str, Any]:
    """The recipe with another model: of the old one's settings, those stay that mean the same."""
    known = settings_of(config_class({"name": name}))
    old = common["model"]
    section: dict[str, Any] = {"name": name} | {key: old[key] for key in CARRIED if key in known and key in old}
    if "embedding" in known and "width" in section:
        section["embedding"] = section["width"]
    heads = next((f.default for f in dataclasses.fields(config_class(section)) if f.name == "heads"), None)
    if isinstance(heads, int) and isinstance(section.get("width"), int) and section["width"] % heads:
        section["heads"] = heads_for(section["width"])
    return {**common, "model": section}


def _with_recipe(name: str, common: Mapping[str, Any]) -> dict[str, Any]:
    """Another recipe's model, search and training over the data and the budget of this one."""
    other = read_recipe(name)
    for section in ("model", "search", "train"):
        if not isinstance(other.get(section, {}), Mapping):
            raise ConfigError(f"recipe {name!r}", f"{section} is not a section", f"Write [{section}]")
    train = {**other.get("train", {}), **{key: common["train"][key] for key in EQUAL}}
    kept = {section: common[section] for section in SAME_FOR_ALL}
    return {**kept, "model": other.get("model", {}), "train": train, "search": other.get("search", {})}


# Variants -------------------------------------------------------------------------------------------------------------


def _read_variant(text: str, names: Mapping[str, str]) -> tuple[str, tuple[str, ...]]:
    """`[MODEL:] section.key=value ...` into the entry that it is of ("" for all) and its settings.

    `names` gives the entry for each name that a user may write: as in --models, or as in the table.
    """
    match = _PREFIX.fullmatch(text)
    only, rest = (match[1], match[2]) if match else ("", text)
    where = f"--variant {text!r}"
    if only and only not in names:
        near = difflib.get_close_matches(only, names, n=1)
        advice = f"Perhaps you mean {near[0]}" if near else f"Models of this comparison: {', '.join(names)}"
        raise ConfigError(where, f"{only} is not one of the models compared", advice)
    changes = tuple(part.strip() for part in _BETWEEN.split(rest.strip()) if part.strip())
    if not changes:
        raise ConfigError(where, "it has no settings", 'Write for example --variant "model.heads=1"')
    for change in changes:
        keys, _ = configuration.parse_override(change)
        _check_change(where, keys)
    return names.get(only, ""), tuple(re.sub(r"\s*=\s*", "=", change, count=1) for change in changes)


def _check_change(where: str, keys: Sequence[str]) -> None:
    """Refuses what would make two runs incomparable."""
    name = ".".join(keys)
    if keys[0] in ("data", "tokenizer"):
        what = f"{name} changes the text, and all entries of a comparison have the same"
        raise ConfigError(where, what, "Make another comparison, with this setting after the recipe")
    refused = {
        "train.seed": ("every entry is trained with the same seeds", "Give --seeds N"),
        "train.steps": ("the steps are the budget, which all entries share", "Set them after the recipe, for all"),
        "train.max_tokens": (
            "other pairs would be left out as too long, and all entries train on the same text",
            "Set it after the recipe, for all",
        ),
        "train.patience": ("early stopping would make the budgets unequal", "Leave it out"),
        "model.name": ("that is another model, not a variant", "Name it in --models"),
    }
    if name in refused:
        raise ConfigError(where, *refused[name])


def _variant(base: Draft, changes: tuple[str, ...], text: str, alone: bool) -> Draft:
    name = " ".join([base.name, *changes])
    keys = [".".join(configuration.parse_override(change)[0]) for change in changes]
    values = configuration.apply_overrides(base.values, changes)
    model = values["model"]
    if base.adapted and "embedding" in model and "model.width" in keys and "model.embedding" not in keys:
        model["embedding"] = model["width"]
    try:
        values = checked(name, values)
    except ConfigError as error:
        if alone:
            raise
        advice = f'{error.todo}. To make the variant of one model only, write --variant "MODEL: {text.strip()}"'
        raise ConfigError(error.where, error.what, advice) from None
    draft = Draft(
        name=name,
        of=base.name,
        changes=changes,
        values=values,
        fixed=tuple(dict.fromkeys([*base.fixed, *keys])),
        adapted=base.adapted,
        rated=base.rated and "train.lr" not in keys,
    )
    return settled(draft)


# All ------------------------------------------------------------------------------------------------------------------


def checked(name: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Settings with all defaults filled in; an error in them names the entry."""
    try:
        return configuration.to_plain(build_run_config(values))
    except ConfigError as error:
        raise ConfigError(f"{name}: {error.where}", error.what, error.todo) from None


def settled(draft: Draft) -> Draft:
    """The learning rate for the width, and all steps made."""
    values = draft.values
    train = {**values["train"], "patience": 0}
    if draft.rated:
        train["lr"] = usual_rate(config_class(values["model"]), values["model"].get("width", 0))
    return dataclasses.replace(draft, values={**values, "train": train})


def fitted(draft: Draft) -> Draft:
    """A warm-up of at most a third of the steps, and lines often enough, where the user gave none of it."""
    train = dict(draft.values["train"])
    most = {"warmup": train["steps"] // 3, "log_every": max(1, train["steps"] // 10)}
    train |= {name: min(train[name], number) for name, number in most.items() if f"train.{name}" not in draft.fixed}
    return dataclasses.replace(draft, values={**draft.values, "train": train})


def _check_all_differ(drafts: Sequence[Draft]) -> None:
    seen: dict[str, Draft] = {}
    for draft in drafts:
        key = repr(sorted((section, sorted(part.items())) for section, part in draft.values.items()))
        if key in seen and not draft.base:
            what = f"it changes nothing: {seen[key].name} has these settings already"
            raise ConfigError(f"--variant {' '.join(draft.changes)!r}", what, "Leave it out, or change something")
        if key in seen:
            raise ConfigError("--models", f"{draft.name} and {seen[key].name} are the same", "Leave one out")
        seen[key] = draft


def slug_for(name: str, taken: Sequence[str]) -> str:
    """A short name for files: small letters, digits and hyphens, unlike those taken."""
    plain = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:80].strip("-") or "entry"
    slug, number = plain, 2
    while slug in taken:
        slug, number = f"{plain}-{number}", number + 1
    return slug
