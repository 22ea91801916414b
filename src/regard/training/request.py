"""What a run is asked to do: recipe, files, settings and another run's model, brought together into plain values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from regard.core import config as configuration
from regard.core.errors import CheckpointError, ConfigError
from regard.data.addresses import DATASETS, SHARDS, is_path
from regard.data.checks.languages import claimed_by_names
from regard.data.prepared import from_home
from regard.models.base import MODELS, Capability
from regard.tasks.folder import CONFIG, read_config
from regard.training.config import RunConfig, build_run_config, read_recipe
from regard.training.kinds import KINDS, LABELLED, PAIRS, TAGGED, TEXT, begins_with, kind_given, kind_read, model_after
from regard.training.model_section import DEFAULT, build_model_config, config_class, settings_of
from regard.training.sizes import heads_for

WRITING: frozenset[Capability] = frozenset({"continues", "composes"})  # beside translators
# what fine-tuning may change of a model
CHANGED = (
    "dropout", "attention_dropout", "activation_dropout", "classifier_dropout", "weight_dropout", "variational", "auxiliary"
)  # fmt: skip


def gather(
    recipe: str | None,
    files: Mapping[str, str],
    settings: str | Mapping[str, Any] | Iterable[str],
    start_from: Path | None,
) -> dict[str, Any]:
    """The values that were given for a run, checked, with the paths of the data made absolute.

    `files` are those that were named apart from settings: src and tgt, or pairs, or text, or labelled, or tagged.
    """
    values = read_recipe(recipe) if recipe else {}
    files = {name: _absolute(path) for name, path in files.items() if path}
    if files:
        if set(files) not in ({"src", "tgt"}, {"pairs"}, {"text"}, {"labelled"}, {"tagged"}):
            if "labelled" in files or "tagged" in files:
                kind = "labelled" if "labelled" in files else "tagged"
                raise ConfigError("train", f"other text is given beside {kind} text", "Give only one of them")
            if "text" in files:
                raise ConfigError(
                    "train", "both text and pairs are given", "Give text for a language model, else pairs"
                )
            if "pairs" in files:
                raise ConfigError("train", "both pairs and src or tgt are given", "Give src and tgt, or pairs")
            raise ConfigError("train", "only one of src and tgt is given", "Give both files")
        if recipe:  # the user's files replace the recipe's whole data section, but for languages and filters
            kept = ("source_language", "target_language", "min_words", "max_words", "max_ratio", "filters", "allow")
            kept = ("documents", "valid_part", "test_part") if "text" in files else kept
            kept = () if "labelled" in files else ("tag_column",) if "tagged" in files else kept
            values["data"] = {k: v for k, v in values.get("data", {}).items() if k in kept}
        values = configuration.merge(values, {"data": {**_named_languages(files), **files}})
    of_recipe = values.get("model") or {}
    if start_from is not None:  # model and tokenizer are the other run's, whatever a recipe says
        values = {name: section for name, section in values.items() if name not in ("model", "tokenizer")}
    given = nested(settings)
    if "model" in values and _model_name(given) not in (None, _model_name(values) or DEFAULT):
        values.pop("model")  # sizes of one model mean nothing to another
    values = configuration.merge(values, given)
    if name := _usual_model(values, start_from):
        values = configuration.merge(values, {"model": {"name": name}})
    model = values.get("model")
    if (
        recipe is None
        and start_from is None
        and isinstance(model, dict)
        and "heads" not in model
        and type(model.get("width")) is int
        and "heads" in settings_of(config_class(model))
    ):
        model["heads"] = heads_for(model["width"])
    asked = values
    if start_from is not None:
        # what is wrong with the other sections is said before models are compared
        build_run_config({name: part for name, part in values.items() if name != "model"})
        values = _with_model_of(start_from, values)
        _check_depth(of_recipe, asked.get("model") or {}, values["model"], start_from)
    config = build_run_config(values)
    data = config.data
    if not (data.src or data.tgt or data.pairs or data.corpora or data.text or data.labelled or data.tagged):
        raise ConfigError(
            "train",
            "there is nothing to train on",
            "Give a recipe, or --src and --tgt, --pairs, --text, --labelled or --tagged, or set data.corpora",
        )
    _check_kind(config, asked)
    _anchor(values)
    return values


def _named_languages(files: Mapping[str, str]) -> dict[str, str]:
    """The languages that corpus.en and corpus.de claim, unless settings say others: a server is asked by them."""
    source, target = claimed_by_names((files["src"], files["tgt"])) if set(files) == {"src", "tgt"} else ("", "")
    return {"source_language": source, "target_language": target} if source else {}


def _check_kind(config: RunConfig, values: Mapping[str, Any]) -> None:
    """Refuses a model of one kind of text with text of another, and settings that mean nothing for it."""
    name, best_by = config.model.name, config.train.best_by
    given, read = kind_given(config.data), kind_read(name)
    if best_by == "accuracy" and read not in (LABELLED, TAGGED):
        what = f"{name} has no accuracy: it is neither a classifier nor a tagger"
        raise ConfigError("setting train.best_by", what, "Use train.best_by=loss")
    if best_by == "f1" and read is not TAGGED:
        raise ConfigError("setting train.best_by", f"{name} marks no chunks: it is no tagger", "Use train.best_by=loss")
    if given is not read:
        other = f"set model.name={given.default}, or " if given.default else ""
        todo = other + read.give
        raise ConfigError("setting model.name", f"{name} {read.need}", todo[0].upper() + todo[1:])
    wrong = [(section, key) for section, keys in given.idle.items() for key in keys if key in values.get(section, {})]
    if given is not PAIRS:
        wrong += [("augment", key) for key in values.get("augment", {})]
    if given is not PAIRS and not MODELS.get(name).capabilities & WRITING:
        wrong += [("search", key) for key in values.get("search", {})]
    for section, key in wrong:
        why = f"it does nothing for {'plain' if given is TEXT else given.name} text"
        why = f"{name} writes no text" if section == "search" else why
        raise ConfigError(f"setting {section}.{key}", why, "Leave it out")


def nested(settings: str | Mapping[str, Any] | Iterable[str]) -> dict[str, Any]:
    """Settings as nested values: from texts `a.b=c`, from nested values, or from values under dotted names."""
    if isinstance(settings, str):
        settings = settings.split()
    if not isinstance(settings, Mapping):
        return configuration.apply_overrides({}, settings)
    result: dict[str, Any] = {}
    for name, value in settings.items():
        for key in reversed(str(name).split(".")):
            value = {key: value}
        result = configuration.merge(result, value)
    return result


def _usual_model(values: Mapping[str, Any], start_from: Path | None) -> str:
    """The model of a run that names none, by its text; empty where another default holds."""
    data = values.get("data")
    kind = next((kind for kind in KINDS if isinstance(data, Mapping) and data.get(kind.name)), PAIRS)
    if _model_name(values) is not None or kind is PAIRS:
        return ""
    if start_from is None:
        return kind.default
    return "" if kind is TEXT else model_after(str(read_config(start_from)["model"].get("name")), kind)


def _model_name(values: Mapping[str, Any]) -> Any:
    model = values.get("model")
    return model.get("name") if isinstance(model, Mapping) else None


def _with_model_of(other: Path, values: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a run that starts from another's weights: model and tokenizer are the other's, perhaps of other depths."""
    theirs = read_config(other)
    if not isinstance(theirs.get("tokenizer"), dict):
        raise CheckpointError(other / CONFIG, "it does not say how its tokenizer was made", "Start from a whole run")
    if theirs["model"].get("name") == begins_with(_model_name(values)):
        theirs = configuration.merge(theirs, {"model": {"name": _model_name(values)}})
    for key, value in values.get("model", {}).items():
        if key not in theirs["model"]:
            build_model_config({"name": theirs["model"]["name"], key: value})  # says that there is no such setting
    depths = MODELS.get(theirs["model"]["name"]).depths
    if "layers" in depths and "layers" in values.get("model", {}):  # of all stacks whose own depth is not asked for
        theirs = {**theirs, "model": {name: value for name, value in theirs["model"].items() if name not in depths}}
    for section, allowed in (("model", (*CHANGED, *depths)), ("tokenizer", ())):
        for key, value in values.get(section, {}).items():
            if key not in allowed and theirs[section].get(key) != value:
                raise ConfigError(
                    f"setting {section}.{key}",
                    f"a run that starts from {other} keeps its {section} ({key}={theirs[section].get(key)!r})",
                    "Leave the setting out",
                )
    model = configuration.merge(theirs["model"], values.get("model", {}))
    search = configuration.merge(theirs.get("search", {}), values.get("search", {}))
    return {**values, "model": model, "tokenizer": theirs["tokenizer"], "search": search}


def _check_depth(of_recipe: Mapping[str, Any], asked: Mapping[str, Any], model: Mapping[str, Any], other: Path) -> None:
    """Refuses a recipe whose point are its depths, where nobody says whether these are meant or the other run's."""
    if of_recipe.get("name", DEFAULT) != model["name"]:
        return
    own = [name for name in MODELS.get(model["name"]).depths if name != "layers" and of_recipe.get(name)]
    if any(of_recipe[name] != (model.get(name) or model.get("layers")) and name not in asked for name in own):
        theirs = " ".join(f"model.{name}={model.get(name) or model.get('layers')}" for name in own)
        ours = " ".join(f"model.{name}={of_recipe[name]}" for name in own)
        raise ConfigError(
            f"--from {other}", f"the recipe's model has other depths ({ours}) than that one", f"Add {ours}, or {theirs}"
        )


def _anchor(values: Mapping[str, Any]) -> None:
    """Makes the data's folder and its store absolute, so that the run can be resumed from anywhere."""
    data = values["data"]
    paths = [
        value
        for section in (data, *data.get("corpora", ()))
        for key, value in section.items()
        if key.endswith(("src", "tgt", "pairs", "text", "labelled", "tagged")) and value and isinstance(value, str)
    ]
    for section in (data, *data.get("corpora", ())):
        for key, value in section.items():
            if isinstance(value, str) and value.startswith((DATASETS, SHARDS)):
                section[key] = _absolute(value)
    if any(is_path(path) and _absolute(path) != path for path in paths):
        data["folder"] = str(from_home(data.get("folder", "")).absolute())
    if data.get("store") not in (None, "", "memory"):
        data["store"] = str(from_home(data["store"]).absolute())
    if (values.get("tokenizer") or {}).get("words"):
        values["tokenizer"]["words"] = _absolute(values["tokenizer"]["words"])
    if (values.get("train") or {}).get("vectors"):
        values["train"]["vectors"] = _absolute(values["train"]["vectors"])


def _absolute(path: str) -> str:
    """A path from the root; other addresses (bundled:NAME, hf:NAME, - for standard input) as they are."""
    if is_path(path):
        return str(from_home(path).absolute())
    if path.startswith(SHARDS):
        return SHARDS + str(from_home(path.removeprefix(SHARDS)).absolute())
    if path.startswith(DATASETS):  # a folder, perhaps with a split behind it
        place, colon, split = path.removeprefix(DATASETS).partition(":")
        if from_home(place).is_dir():
            return f"{DATASETS}{from_home(place).absolute()}{colon}{split}"
    return path
