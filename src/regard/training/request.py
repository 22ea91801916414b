"""What a run is asked to do: recipe, files, settings and another run's model, brought together into plain values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from regard.core import config as configuration
from regard.core.errors import CheckpointError, ConfigError
from regard.data.addresses import DATASETS, is_path
from regard.data.prepared import from_home
from regard.models.base import MODELS, LanguageModel
from regard.tasks.folder import CONFIG, read_config
from regard.training.config import RunConfig, build_run_config, read_recipe
from regard.training.model_section import DEFAULT, build_model_config, config_class, settings_of
from regard.training.sizes import heads_for

DEFAULT_OF_TEXT = "gpt"  # the model of a run on plain text that names none
DEFAULT_OF_LABELLED = "gpt-classifier"
# what fine-tuning may change of a model
CHANGED = (
    "dropout", "attention_dropout", "activation_dropout", "classifier_dropout", "weight_dropout", "variational", "auxiliary"
)  # fmt: skip
# settings that would silently do nothing for text that is not pairs
OF_PAIRS = {
    "text": {
        "data": ("source_language", "target_language"),
        "tokenizer": ("joint",),
        "train": ("max_tokens", "valid_sentences"),
    },
    "labelled": {
        "data": ("source_language", "target_language"),
        "tokenizer": ("joint",),
        "train": ("valid_sentences",),
    },
}


def gather(
    recipe: str | None,
    files: Mapping[str, str],
    settings: str | Mapping[str, Any] | Iterable[str],
    start_from: Path | None,
) -> dict[str, Any]:
    """The values that were given for a run, checked, with the paths of the data made absolute.

    `files` are those that were named apart from settings: src and tgt, or pairs, or text, or labelled.
    """
    values = read_recipe(recipe) if recipe else {}
    files = {name: _absolute(path) for name, path in files.items() if path}
    if files:
        if set(files) not in ({"src", "tgt"}, {"pairs"}, {"text"}, {"labelled"}):
            if "labelled" in files:
                raise ConfigError("train", "other text is given beside labelled text", "Give only one of them")
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
            kept = () if "labelled" in files else kept
            values["data"] = {k: v for k, v in values.get("data", {}).items() if k in kept}
        values = configuration.merge(values, {"data": files})
    if start_from is not None:  # model and tokenizer are the other run's, whatever a recipe says
        values = {name: section for name, section in values.items() if name not in ("model", "tokenizer")}
    given = nested(settings)
    if "model" in values and _model_name(given) not in (None, _model_name(values) or DEFAULT):
        values.pop("model")  # sizes of one model mean nothing to another
    values = configuration.merge(values, given)
    if start_from is None and _is_text(values) and _model_name(values) is None:
        values = configuration.merge(values, {"model": {"name": DEFAULT_OF_TEXT}})
    if _is_labelled(values) and _model_name(values) is None:
        name = DEFAULT_OF_LABELLED if start_from is None else _classifier_from(start_from)
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
    config = build_run_config(values)
    data = config.data
    if not (data.src or data.tgt or data.pairs or data.corpora or data.text or data.labelled):
        raise ConfigError(
            "train",
            "there is nothing to train on",
            "Give a recipe, or --src and --tgt, or --pairs, or --text, or set data.corpora or data.labelled",
        )
    _check_kind(config, asked)
    _anchor(values)
    return values


def _check_kind(config: RunConfig, values: Mapping[str, Any]) -> None:
    """Refuses a model of one kind of text with text of another, and settings that mean nothing for it."""
    data, name = config.data, config.model.name
    model = MODELS.get(name)
    given = "text" if data.text else "labelled" if data.labelled else "pairs"
    read = "pairs"
    if issubclass(model, LanguageModel) or "classifies" in model.capabilities:
        read = "text" if issubclass(model, LanguageModel) else "labelled"
    if config.train.best_by == "accuracy" and read != "labelled":
        what = f"{name} has no accuracy: it is no classifier"
        raise ConfigError("setting train.best_by", what, "Use train.best_by=loss")
    if given == read:
        known = OF_PAIRS.get(given, {})
        wrong = [(section, key) for section, keys in known.items() for key in keys if key in values.get(section, {})]
        if given != "pairs":
            wrong += [("augment", key) for key in values.get("augment", {})]
        for section, key in wrong:
            raise ConfigError(
                f"setting {section}.{key}", "it is for sentence pairs, and does nothing here", "Leave it out"
            )
        return
    what = {
        "pairs": f"{name} translates: it needs pairs",
        "text": f"{name} is a language model: it needs plain text",
        "labelled": f"{name} is a classifier: it needs labelled text",
    }[read]
    other = {"text": f"set model.name={DEFAULT_OF_TEXT}, or ", "labelled": f"set model.name={DEFAULT_OF_LABELLED}, or "}
    files = {
        "pairs": "give --src and --tgt",
        "text": "give --text, or set data.text",
        "labelled": "set data.labelled",
    }
    todo = other.get(given, "") + files[read]
    raise ConfigError("setting model.name", what, todo[0].upper() + todo[1:])


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


def _is_text(values: Mapping[str, Any]) -> bool:
    data = values.get("data")
    return isinstance(data, Mapping) and bool(data.get("text"))


def _is_labelled(values: Mapping[str, Any]) -> bool:
    data = values.get("data")
    return isinstance(data, Mapping) and bool(data.get("labelled"))


def _classifier_from(other: Path) -> str:
    """The classifier that can begin with another run's weights."""
    theirs = str(read_config(other)["model"].get("name"))
    if "classifies" in MODELS.get(theirs).capabilities:
        return theirs
    for name in MODELS.names():
        if _begins_with(name) == theirs:
            return name
    raise ConfigError("train", f"no classifier can begin with {theirs}, the model of {other}", "Start from a gpt")


def _begins_with(name: Any) -> str:
    """The model whose weights a classifier's body can begin with; empty for all others."""
    return getattr(MODELS.get(name), "begins_with", "") if isinstance(name, str) else ""


def _model_name(values: Mapping[str, Any]) -> Any:
    model = values.get("model")
    return model.get("name") if isinstance(model, Mapping) else None


def _with_model_of(other: Path, values: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a run that starts from another's weights: model and tokenizer are the other's."""
    theirs = read_config(other)
    if not isinstance(theirs.get("tokenizer"), dict):
        raise CheckpointError(other / CONFIG, "it does not say how its tokenizer was made", "Start from a whole run")
    if theirs["model"].get("name") == _begins_with(_model_name(values)):
        theirs = configuration.merge(theirs, {"model": {"name": _model_name(values)}})
    for key, value in values.get("model", {}).items():
        if key not in theirs["model"]:
            build_model_config({"name": theirs["model"]["name"], key: value})  # says that there is no such setting
    for section in ("model", "tokenizer"):
        for key, value in values.get(section, {}).items():
            if theirs[section].get(key) != value and key not in CHANGED:
                raise ConfigError(
                    f"setting {section}.{key}",
                    f"a run that starts from {other} keeps its {section} ({key}={theirs[section].get(key)!r})",
                    "Leave the setting out",
                )
    model = configuration.merge(theirs["model"], values.get("model", {}))
    search = configuration.merge(theirs.get("search", {}), values.get("search", {}))
    return {**values, "model": model, "tokenizer": theirs["tokenizer"], "search": search}


def _anchor(values: Mapping[str, Any]) -> None:
    """Makes the data's folder and its store absolute, so that the run can be resumed from anywhere."""
    data = values["data"]
    paths = [
        value
        for section in (data, *data.get("corpora", ()))
        for key, value in section.items()
        if key.endswith(("src", "tgt", "pairs", "text", "labelled")) and value and isinstance(value, str)
    ]
    for section in (data, *data.get("corpora", ())):
        for key, value in section.items():
            if isinstance(value, str) and value.startswith(DATASETS):
                section[key] = _absolute(value)
    if any(is_path(path) and _absolute(path) != path for path in paths):
        data["folder"] = str(from_home(data.get("folder", "")).absolute())
    if data.get("store") not in (None, "", "memory"):
        data["store"] = str(from_home(data["store"]).absolute())
    if (values.get("tokenizer") or {}).get("words"):
        values["tokenizer"]["words"] = _absolute(values["tokenizer"]["words"])


def _absolute(path: str) -> str:
    """A path from the root; other addresses (bundled:NAME, hf:NAME, - for standard input) as they are."""
    if is_path(path):
        return str(from_home(path).absolute())
    if path.startswith(DATASETS):  # a folder, perhaps with a split behind it
        place, colon, split = path.removeprefix(DATASETS).partition(":")
        if from_home(place).is_dir():
            return f"{DATASETS}{from_home(place).absolute()}{colon}{split}"
    return path
