"""Recipes, overrides and plain values into checked, frozen dataclasses."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Literal

import pytest

from regard.core.config import apply_overrides, build, merge, parse_override, read_toml, to_plain
from regard.core.errors import ConfigError
from regard.training.config import RunConfig, build_run_config, read_recipe, recipe_about, recipe_names
from regard.training.kinds import kind_given, kind_read


@dataclasses.dataclass(frozen=True, kw_only=True)
class Inner:
    depth: int = 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class Example:
    count: int = 3
    rate: float = 0.5
    label: str = "a"
    quick: bool = False
    colour: Literal["red", "green"] = "red"
    places: tuple[int, ...] = (0, 1)
    limit: int | None = None
    inner: Inner = Inner()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Needy:
    name: str


def error_of(values: dict, cls: type = Example) -> str:
    with pytest.raises(ConfigError) as caught:
        build(cls, values, "part")
    return str(caught.value)


def test_build_takes_what_fits() -> None:
    built = build(
        Example,
        {"count": 2e3, "rate": 2, "quick": True, "colour": "green", "places": [4], "limit": 7, "inner": {"depth": 9}},
    )
    assert built == Example(
        count=2000, rate=2.0, quick=True, colour="green", places=(4,), limit=7, inner=Inner(depth=9)
    )
    assert type(built.count) is int
    assert type(built.rate) is float
    assert build(Example, {"limit": None, "places": 5}) == Example(places=(5,))


@pytest.mark.parametrize(
    ("values", "where", "rest"),
    [
        ({"cuont": 1}, "part.cuont", ["no such setting", "part.count"]),
        ({"zzz": 1}, "part.zzz", ["no such setting", "colour, count, inner, label, limit, places, quick, rate"]),
        ({"inner": {"deepth": 1}}, "part.inner.deepth", ["part.inner.depth"]),
        ({"inner": 5}, "part.inner", ["a section is expected, got 5"]),
        ({"count": "x"}, "part.count", ["a whole number is expected, got 'x'", "part.count=8"]),
        ({"count": 1.5}, "part.count", ["a whole number is expected, got 1.5"]),
        ({"count": True}, "part.count", ["a whole number is expected, got True"]),
        ({"count": None}, "part.count", ["a whole number is expected, got None"]),
        ({"rate": "fast"}, "part.rate", ["a number is expected, got 'fast'"]),
        ({"rate": False}, "part.rate", ["a number is expected, got False"]),
        ({"rate": float("nan")}, "part.rate", ["nan is not a finite number"]),
        ({"rate": float("inf")}, "part.rate", ["inf is not a finite number"]),
        ({"label": 5}, "part.label", ["a text is expected, got 5"]),
        ({"quick": 1}, "part.quick", ["true or false is expected, got 1"]),
        ({"colour": "gren"}, "part.colour", ["'gren' is not one of red, green", "Perhaps you mean 'green'"]),
        ({"colour": 7}, "part.colour", ["7 is not one of red, green", "Use one of red, green"]),
        ({"places": ["x"]}, "part.places[0]", ["a whole number is expected", "part.places=[8]"]),
        ({"limit": "x"}, "part.limit", ["got 'x'"]),
    ],
)
def test_build_names_what_does_not_fit(values: dict, where: str, rest: list[str]) -> None:
    message = error_of(values)
    assert message.startswith(f"setting {where}: ")
    assert all(part in message for part in rest), message
    assert "?." not in message


def test_build_names_a_missing_setting() -> None:
    assert "name" in error_of({}, Needy)


def test_configurations_are_frozen() -> None:
    config = build_run_config({})
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.train.steps = 7  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.model.width = 7


@pytest.mark.parametrize(
    ("text", "keys", "value"),
    [
        ("train.steps=100", ["train", "steps"], 100),
        ("train.steps=1_000", ["train", "steps"], 1000),
        ("train.lr=1e-4", ["train", "lr"], 1e-4),
        ("train.lr=.5", ["train", "lr"], 0.5),
        ("train.lr=-2.", ["train", "lr"], -2.0),
        ("train.compile=true", ["train", "compile"], True),
        ("train.compile=True", ["train", "compile"], True),
        ("train.compile=FALSE", ["train", "compile"], False),
        ("data.source_language=no", ["data", "source_language"], "no"),
        ("data.src=a/b=c.en", ["data", "src"], "a/b=c.en"),
        ('data.src="two words.en"', ["data", "src"], "two words.en"),
        ("data.src=two words.en", ["data", "src"], "two words.en"),
        ("data.src=1.0.en", ["data", "src"], "1.0.en"),
        ("data.src=", ["data", "src"], ""),
        ("data.tsv_columns=[1, 0]", ["data", "tsv_columns"], [1, 0]),
        (" train . steps = 5 ", ["train", "steps"], 5),
    ],
)
def test_overrides_are_read(text: str, keys: list[str], value: object) -> None:
    found = parse_override(text)
    assert found == (keys, value)
    assert type(found[1]) is type(value)


@pytest.mark.parametrize("text", ["steps", "=5", ".steps=5", "train.=5", "train..steps=5"])
def test_what_is_no_override_is_explained(text: str) -> None:
    with pytest.raises(ConfigError, match=r"not of the form section\.key=value.*train\.steps=1000"):
        parse_override(text)


def test_deeply_nested_override_is_text() -> None:
    assert parse_override("a.b=" + "[" * 100_000)[1] == "[" * 100_000


def test_overrides_go_over_values_and_leave_them_alone() -> None:
    values = {"train": {"steps": 1, "lr": 2.0}}
    assert apply_overrides(values, ["train.steps=5", "model.width=8", "train.steps=6"]) == {
        "train": {"steps": 6, "lr": 2.0},
        "model": {"width": 8},
    }
    assert values == {"train": {"steps": 1, "lr": 2.0}}
    with pytest.raises(ConfigError, match="'steps' is a value, not a section"):
        apply_overrides(values, ["train.steps.more=5"])


def test_merge_goes_deep_and_leaves_its_arguments_alone() -> None:
    base, more = {"a": {"x": 1, "y": 2}, "b": 3}, {"a": {"y": 5}, "c": {"z": 1}}
    merged = merge(base, more)
    assert merged == {"a": {"x": 1, "y": 5}, "b": 3, "c": {"z": 1}}
    merged["c"]["z"] = 9
    assert (base, more) == ({"a": {"x": 1, "y": 2}, "b": 3}, {"a": {"y": 5}, "c": {"z": 1}})


def test_there_are_recipes() -> None:
    assert {"demo", "multi30k-en-de", "tatoeba-en-de"} <= set(recipe_names())


@pytest.mark.parametrize("name", recipe_names())
def test_every_shipped_recipe_is_valid_and_survives_json(name: str) -> None:
    config = build_run_config(read_recipe(name))
    data = config.data
    assert data.pairs or (data.src and data.tgt) or data.text or data.labelled or data.tagged
    assert kind_given(data) is kind_read(config.model.name)
    again = build_run_config(json.loads(json.dumps(to_plain(config))))
    assert again == config
    assert isinstance(again, RunConfig)
    assert recipe_about(name), "a recipe says what it is for"


def test_a_recipe_can_be_like_another(tmp_path: Path) -> None:
    other = read_recipe("multi30k-quick")
    path = tmp_path / "mine.toml"
    path.write_text('like = "multi30k-quick"\n[model]\nencoder_layers = 3\n[train]\nsteps = 7\n')
    mine = read_recipe(str(path))
    assert mine["model"] == {**other["model"], "encoder_layers": 3}
    assert mine["train"] == {**other["train"], "steps": 7}
    assert {name: part for name, part in mine.items() if name not in ("model", "train")} == {
        name: part for name, part in other.items() if name not in ("model", "train")
    }
    assert build_run_config(read_recipe("multi30k-6-2")).model.depth == (6, 2)
    for wrong in ('"mutli30k"', "3", '["demo"]', '"../demo"'):
        path.write_text(f"like = {wrong}\n")
        with pytest.raises(ConfigError, match=r"`like` is .*, and no other recipe that ships"):
            read_recipe(str(path))


def test_every_setting_survives_json() -> None:
    built = Example(count=9, rate=1e-9, label="ä=[", quick=True, colour="green", places=(3, 2, 1), limit=4)
    assert build(Example, json.loads(json.dumps(to_plain(built)))) == built


def test_a_recipe_is_a_name_or_a_path(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('about = "mine"\n[train]\nsteps = 7\n')
    assert read_recipe(str(path)) == {"train": {"steps": 7}}
    assert read_recipe("demo")["tokenizer"]["kind"] == "bpe"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("dem", "Perhaps you mean demo"),
        ("qqqqqq", "`regard recipes` lists the names"),
        ("nowhere/mine.toml", "cannot be read (No such file or directory)"),
    ],
)
def test_unknown_recipe(name: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_recipe(name)
    assert name in str(caught.value)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"[train\nsteps = 5", "not valid TOML"),
        (b"[train]\nsteps = \n", "at line 2"),
        (b"[train]\nlabel = '\xff'", "not UTF-8"),
        (b"a = " + b"[" * 100_000, "nested too deeply"),
        (b"#" * (1 << 20) + b"#", "larger than 1 MiB"),
        (b"about = 5", "`about` is not a text"),
    ],
)
def test_broken_recipe(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "broken.toml"
    path.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        read_recipe(str(path))
    assert str(path) in str(caught.value)
    assert message in str(caught.value)


def test_a_folder_is_no_recipe(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is a directory, not a recipe"):
        read_toml(tmp_path)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"steps": 5}, "section steps: there is no such section. Perhaps you mean train.steps."),
        ({"width": 5}, "Perhaps you mean model.width."),
        ({"beam": 5}, "Perhaps you mean search.beam."),
        ({"tran": {"steps": 5}}, "section tran: there is no such section. Perhaps you mean train."),
        ({"qqq": {}}, "Known sections: augment, data, model, search, tokenizer, train."),
        ({"train": 5}, "section train: it is a section, got the value 5. Set train.KEY=VALUE."),
        ({"model": {"name": 5}}, "setting model.name: a text is expected, got 5"),
        ({"model": {"name": "os.system"}}, "model 'os.system': there is none of that name"),
        ({"model": {"heads": 3}}, "setting model.heads: 3 heads do not divide the width 256"),
        ({"train": {"steps": 0}}, "setting train.steps: 0 is less than 1. Give 1 or more."),
        ({"train": {"steps": -5}}, "setting train.steps: -5 is less than 1"),
        ({"train": {"ema": 1.0}}, "setting train.ema: 1.0 is not in [0, 1)"),
        ({"model": {"dropout": 1.5}}, "setting model.dropout: 1.5 is not in [0, 1)"),
        ({"data": {"valid_size": -2}}, "setting data.valid_size: it is -2"),
        ({"search": {"beam": 0}}, "setting search.beam: 0 is not from 1 to 64"),
        ({"tokenizer": {"size": 3}}, "setting tokenizer.size: 3 tokens are too few"),
    ],
)
def test_run_configurations_are_checked(values: dict, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        build_run_config(values)
    assert message in str(caught.value)
