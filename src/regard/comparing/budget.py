"""Equal budgets: how wide a model must be to have so many parameters, and how many steps fit into a time."""

from __future__ import annotations

import functools
import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from regard.core import config as configuration
from regard.core.errors import ConfigError
from regard.models.base import build_model
from regard.training.model_section import build_model_config
from regard.training.regions import COMPILE_SECONDS, SAVED
from regard.training.step_time import step_seconds as step_seconds

GRID = (
    8,
    4,
    2,
)  # widths are multiples of the first; of the others where that is too coarse and nothing else is there to turn
IN_PROPORTION = ("embedding", "inner", "attention", "readout")
CLOSE = 0.005  # a part of the parameters that is not worth another search
WIDEST = 1 << 14
SHORTEST_TRIAL, LONGEST_TRIAL = 8.0, 60.0  # seconds
MOST_STEPS = 100_000_000


# Parameters -----------------------------------------------------------------------------------------------------------


class Vocabulary(NamedTuple):
    """The sizes of both vocabularies, and whether they are one."""

    source: int
    target: int
    shared: bool


def count_parameters(model: Mapping[str, Any], vocabulary: Vocabulary) -> int:
    """Of a model section, without making the weights."""
    config = build_model_config(model)
    with torch.device("meta"):
        outline = build_model(
            config.name,
            config,
            source_vocabulary=vocabulary.source,
            target_vocabulary=vocabulary.target,
            shared=vocabulary.shared,
        )
    return outline.parameters_count()


def match_parameters(
    given: Mapping[str, Any], wanted: int, vocabulary: Vocabulary, heads: Sequence[int] = ()
) -> tuple[dict[str, Any], int]:
    """A model section of a width for which the number of parameters comes nearest to the one wanted, and that number.

    Other widths of the model follow in proportion. What is left between two widths is made up by the inner width of
    feed-forward layers, where there are some. The width suits the model's heads, and also other numbers of `heads`.
    """
    model: dict[str, Any] = configuration.to_plain(build_model_config(given))
    found = model, count_parameters(model, vocabulary)
    if _error(found[1], wanted) <= CLOSE:
        return found
    if not isinstance(model.get("width"), int):
        raise ConfigError(f"model {model['name']}", "it has no width that could be changed", "Use another --budget")

    @functools.cache
    def count_at(width: int) -> int:
        return count_parameters(with_width(model, width), vocabulary)

    heads = [*heads, model["heads"]] if "heads" in model else []
    multiples = [math.lcm(grid, *(2 * number for number in heads)) for grid in GRID]
    low, high = 0, multiples[0]
    while count_at(high) < wanted and high < WIDEST:
        low, high = high, 2 * high
    for multiple in multiples:
        while high - low > multiple:  # a wider model has more parameters
            middle = (low + high) // 2 // multiple * multiple
            low, high = (middle, high) if count_at(middle) < wanted else (low, middle)
        width = min([w for w in (low, high) if w], key=lambda w: _error(count_at(w), wanted))
        nearest = with_width(model, width), count_at(width)
        if "inner" in model:
            nearest = min(nearest, _with_inner(*nearest, wanted, vocabulary), key=lambda f: _error(f[1], wanted))
        found = min(found, nearest, key=lambda f: _error(f[1], wanted))
        if _error(found[1], wanted) <= CLOSE:
            break
    return found


def _error(count: int, wanted: int) -> float:
    return abs(count - wanted) / wanted


def sizes_of(model: Mapping[str, Any]) -> dict[str, int]:
    """The settings of a model section that matching may change."""
    return {
        name: model[name]
        for name in ("width", *IN_PROPORTION)
        if type(model.get(name)) is int and (model[name] > 0 or name == "inner")
    }


def with_width(model: Mapping[str, Any], width: int) -> dict[str, Any]:
    """A model section of another width, where what was as wide still is, and the rest follows in multiples of 8."""
    section = {**model, "width": width}
    for name in IN_PROPORTION:
        old = model.get(name)
        if isinstance(old, int) and old > 0:
            exact = old * width / model["width"]
            section[name] = width if old == model["width"] else max(8, round(exact / 8) * 8)
    return section


def _with_inner(section: dict[str, Any], count: int, wanted: int, vocabulary: Vocabulary) -> tuple[dict[str, Any], int]:
    """The section with the inner width that makes up for what is missing: the number grows in proportion to it."""
    inner = section["inner"] or 4 * section["width"]
    more = count_parameters({**section, "inner": inner + 8}, vocabulary) - count
    if more <= 0:
        return section, count
    better = inner + 8 * round((wanted - count) / more)
    better = min(max(better, inner // 16 * 8, 8), 2 * inner)
    section = {**section, "inner": better}
    return section, count_parameters(section, vocabulary)


# Time -----------------------------------------------------------------------------------------------------------------


def trial_seconds(seconds: float) -> float:
    """How long a trial trains, to learn what a step takes."""
    return min(LONGEST_TRIAL, max(SHORTEST_TRIAL, seconds / 10))


def with_compiling(values: Mapping[str, Any], seconds: float, on_cuda: bool) -> dict[str, Any]:
    """`train.compile=auto` by the time that a run has: its steps, by which it is decided else, are not known yet."""
    train = values["train"]
    if train["compile"] != "auto":
        return dict(values)
    return {**values, "train": {**train, "compile": on_cuda and seconds * SAVED > COMPILE_SECONDS}}


def steps_within(seconds: float, of_a_step: float) -> int:
    return min(MOST_STEPS, max(1, int(seconds / of_a_step)))


def with_steps(values: Mapping[str, Any], steps: int, fixed: Collection[str] = ()) -> dict[str, Any]:
    """Settings of a run of so many steps: warm-up, validation and saving come at the same parts of it.

    Those that are `fixed` ("train.warmup"), since the user gave them, stay.
    """
    train = values["train"]
    part = steps / train["steps"]
    scaled = {
        name: max(1, round(train[name] * part)) if train[name] else 0
        for name in ("warmup", "save_every", "validate_every")
    }
    scaled["warmup"] = min(scaled["warmup"], steps // 3)
    scaled["log_every"] = min(train["log_every"], max(1, steps // 10))
    chosen = {name: value for name, value in scaled.items() if f"train.{name}" not in fixed}
    return configuration.merge(values, {"train": {**chosen, "steps": steps}})
