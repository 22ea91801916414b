"""Every model has settings of its own: those of another one are refused, and a setting without its section is found."""

from __future__ import annotations

import pytest
import torch

from regard.core.errors import ConfigError
from regard.models.base import MODELS, build_model
from regard.training.config import build_run_config, recipe_names
from regard.training.request import gather

FILES = {"src": "a.src", "tgt": "a.tgt"}


def refusal(values: dict) -> str:
    with pytest.raises(ConfigError) as caught:
        build_run_config(values)
    return str(caught.value)


@pytest.mark.parametrize("name", MODELS.names())
def test_a_name_chooses_the_configuration(name):
    assert type(build_run_config({"model": {"name": name}}).model) is MODELS.get(name).Config


def test_without_a_name_it_is_a_transformer():
    assert build_run_config({}).model.name == "transformer"


def test_a_setting_of_another_model_is_refused_with_its_owners_name():
    message = refusal({"model": {"name": "bahdanau", "heads": 4}})
    assert message.startswith("setting model.heads: it is a setting of bert, ")
    assert " transformer, " in message.partition(", not of bahdanau")[0]
    assert ", not of bahdanau. Leave it out, or set model.name; " in message
    assert "settings of bahdanau: attention, dropout, embedding, " in message
    message = refusal({"model": {"readout": 4}})
    assert message.startswith("setting model.readout: it is a setting of bahdanau, ")
    assert ", not of transformer." in message


def test_a_setting_of_no_model_names_the_nearest():
    message = refusal({"model": {"name": "bahdanau", "embeding": 4}})
    assert message == "setting model.embeding: there is no such setting. Perhaps you mean model.embedding."


@pytest.mark.parametrize(
    ("values", "advice"),
    [
        ({"model": {"name": "bahdanau"}, "readout": 5}, "Perhaps you mean model.readout."),
        ({"readout": 5, "model": {"name": "bahdanau"}}, "Perhaps you mean model.readout."),
        ({"heads": 5}, "Perhaps you mean model.heads."),
        (
            {"input_feeding": 5, "model": {"name": "bahdanau"}},
            "Perhaps you mean model.input_feeding, with model.name=luong.",
        ),
        ({"input_feeding": True}, "Perhaps you mean model.input_feeding, with model.name=luong."),
        ({"heads": 5, "model": 7}, "Perhaps you mean model.heads."),
    ],
)
def test_a_setting_without_its_section_is_found_in_the_model_that_was_named(values, advice):
    assert refusal(values).endswith(f"there is no such section. {advice}")


@pytest.mark.parametrize(("name", "heads"), [("transformer", 2), ("bahdanau", None)])
def test_heads_are_derived_only_for_models_that_have_them(name, heads):
    given = gather(None, FILES, {"model": {"name": name, "width": 50}}, None)
    assert given["model"].get("heads") == heads


def test_a_width_without_a_model_is_a_transformers():
    assert gather(None, FILES, ["model.width=50"], None)["model"]["heads"] == 2


def test_another_model_than_the_recipes_leaves_the_recipes_sizes():
    given = gather("demo", {}, ["model.name=bahdanau", "model.width=50"], None)
    assert given["model"] == {"name": "bahdanau", "width": 50}
    assert given["train"], "all else is the recipe's"
    same = gather("demo", {}, ["model.name=transformer", "model.dropout=0.2"], None)
    assert same["model"].keys() > {"name", "dropout"}


def test_naming_the_model_that_a_recipe_means_anyhow_changes_nothing(tmp_path):
    recipe = tmp_path / "mine.toml"
    recipe.write_text('[data]\npairs = "bundled:tatoeba-en-de"\n[model]\nwidth = 32\nheads = 2\n')
    given = gather(str(recipe), {}, ["model.name=transformer"], None)
    assert given["model"] == {"name": "transformer", "width": 32, "heads": 2}


@pytest.mark.parametrize("recipe", [name for name in recipe_names() if name.startswith("multi30k")])
def test_recipes_for_one_vocabulary_can_have_two(recipe):
    """Word-level runs keep each language's words apart."""
    values = gather(recipe, {}, ["tokenizer.joint=false", "data.folder=/nowhere"], None)
    config = build_run_config(values)
    with torch.device("meta"):
        build_model(config.model.name, config.model, source_vocabulary=50, target_vocabulary=60, shared=False)


@pytest.mark.parametrize("name", ["bahdanau", "cho", "gnmt", "luong", "sutskever", "transformer"])
def test_tables_can_be_tied_without_a_recipe(name):
    config = build_run_config(gather(None, FILES, [f"model.name={name}", "model.tie=auto", "model.width=64"], None))
    with torch.device("meta"):
        model = build_model(name, config.model, source_vocabulary=50, target_vocabulary=50, shared=True)
    assert getattr(model.output, "weight") is getattr(model, "source_embedding").weight  # noqa: B009
