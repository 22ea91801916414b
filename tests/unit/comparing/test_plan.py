"""Plans: what entries are made of, the mistakes that users make, and adding to a comparison that is there."""

from __future__ import annotations

import dataclasses
import os
import sys
import tomllib
from pathlib import Path

import pytest

from regard.comparing.entries import draft_entries, slug_for, translators
from regard.comparing.plan import Prepared, Request, choose_sentence, prepare_plan
from regard.comparing.recipe_text import to_toml
from regard.comparing.results import PLAN, Plan, read_plan, write_plan
from regard.core import config as configuration
from regard.core.errors import CheckpointError, ConfigError, DataError, RegardError
from regard.data.split import Pairs
from regard.training.config import build_run_config, read_recipe
from regard.training.progress import Reporter

QUIET = Reporter(quiet=True)
RECIPE = """
[data]
src = "{src}"
tgt = "{tgt}"
valid_size = 20
test_size = 20
target_language = "de"
[tokenizer]
size = 300
[model]
width = 16
layers = 1
heads = 2
dropout = 0.25
[train]
steps = 20
batch_tokens = 600
warmup = 5
save_every = 10
threads = 1
"""


def drafts(models=(), variants=(), settings=(), recipe="demo"):
    given = configuration.apply_overrides({}, settings)
    common = configuration.to_plain(build_run_config(configuration.merge(read_recipe(recipe), given)))
    return {draft.name: draft for draft in draft_entries(recipe, common, given, list(models), list(variants))}


@pytest.fixture
def recipe(tmp_path: Path, text_files) -> Path:
    path = tmp_path / "mine.toml"
    path.write_text(RECIPE.format(src=text_files.src, tgt=text_files.tgt))
    return path


def prepared(path: Path, folder: Path, **asked) -> Prepared:
    return prepare_plan(Request(**{"recipe": str(path), "command": "regard compare", **asked}), folder, QUIET)


def written(path: Path, folder: Path, **asked) -> Plan:
    plan = prepared(path, folder, **asked).plan
    folder.mkdir(exist_ok=True)
    write_plan(folder, plan)
    return plan


# Entries


def test_the_recipes_own_model_is_the_recipe_as_it_is():
    values = drafts(["transformer"])["transformer"].values
    expected = configuration.to_plain(build_run_config(read_recipe("demo")))
    assert values["model"] == expected["model"]
    assert values["train"] == {**expected["train"], "patience": 0}
    assert drafts() == drafts(["transformer"])
    assert drafts(["demo"])["demo"].values == values


@pytest.mark.parametrize("name", translators())
def test_every_model_can_be_named(name):
    draft = drafts([name])[name]
    assert draft.model == name
    assert draft.values["model"]["width"] == 128
    assert draft.values["model"].get("embedding", 128) == 128
    assert draft.values["model"]["dropout"] == 0.0
    assert draft.values["model"]["tie"] == "auto"
    assert draft.values["data"] == drafts()["transformer"].values["data"]
    build_run_config(draft.values)


def test_another_model_gets_the_learning_rate_that_suits_it():
    assert drafts(["luong"])["luong"].values["train"]["lr"] == 4e-3
    assert drafts(["luong"], settings=["train.lr=0.5"])["luong"].values["train"]["lr"] == 0.5
    assert drafts(["luong"], settings=["train.optimizer=sgd"])["luong"].values["train"]["lr"] == 4e-3  # the recipe's
    wide = drafts(["luong"], ["model.width=2048"])["luong model.width=2048"]
    assert wide.values["train"]["lr"] == 1e-3
    assert wide.values["model"]["embedding"] == 2048


def test_heads_fit_the_width_of_the_recipe():
    assert (
        drafts(["universal"], settings=["model.width=90", "model.heads=3"])["universal"].values["model"]["heads"] == 3
    )
    base = configuration.to_plain(build_run_config({"model": {"name": "luong", "width": 90}}))
    found = draft_entries("x", base, {}, ["transformer"], [])[0].values["model"]
    assert found["width"] % found["heads"] == 0


def test_another_recipe_brings_its_model_search_and_training_but_not_data_and_budget():
    found = drafts(["multi30k-bahdanau"])["multi30k-bahdanau"].values
    ours, theirs = drafts()["transformer"].values, read_recipe("multi30k-bahdanau")
    assert found["model"]["attention"] == theirs["model"]["attention"]
    assert found["search"]["length_norm"] == "plain"
    assert found["train"]["consistency"] == theirs["train"]["consistency"]
    for name in ("data", "tokenizer", "augment"):
        assert found[name] == ours[name]
    for name in ("steps", "batch_tokens", "accumulate", "max_tokens", "save_every", "precision", "device", "threads"):
        assert found["train"][name] == ours["train"][name]


def test_a_recipe_can_be_a_path(recipe):
    assert drafts([str(recipe)])["mine"].values["model"]["width"] == 16


def test_settings_go_over_all_entries_and_warm_up_never_takes_more_than_a_third():
    found = drafts(["transformer", "luong", "multi30k-bahdanau"], settings=["train.steps=60", "train.clip=0.5"])
    for draft in found.values():
        assert draft.values["train"]["steps"] == 60
        assert draft.values["train"]["clip"] == 0.5
        assert draft.values["train"]["warmup"] == 20
    assert drafts(settings=["train.steps=60", "train.warmup=50"])["transformer"].values["train"]["warmup"] == 50


def test_variants_are_of_every_model_or_of_the_one_they_name():
    found = drafts(["transformer", "universal"], ["model.heads=1", "transformer: model.layers=1  train.ema = 0.9"])
    assert list(found) == [
        "transformer",
        "transformer model.heads=1",
        "transformer model.layers=1 train.ema=0.9",
        "universal",
        "universal model.heads=1",
    ]
    both = found["transformer model.layers=1 train.ema=0.9"]
    assert (both.values["model"]["layers"], both.values["train"]["ema"]) == (1, 0.9)
    assert not both.base
    assert both.changes == ("model.layers=1", "train.ema=0.9")
    assert found["universal"].base


@pytest.mark.parametrize("prefix", ["mine", "{}"])
def test_variants_name_a_recipe_as_it_was_typed(recipe, prefix):
    variant = f"{prefix.format(recipe)}: model.heads=1"
    assert list(drafts([str(recipe), "luong"], [variant])) == ["mine", "mine model.heads=1", "luong"]
    own = drafts([str(recipe), "luong"], [variant], recipe=str(recipe))
    assert list(own) == ["mine", "mine model.heads=1", "luong"]
    assert list(drafts([str(recipe), "luong"], ["transformer: model.heads=1"])) == list(own)  # there is only one


def test_the_same_entry_under_another_name_is_refused(recipe, tmp_path):
    out = tmp_path / "out"
    written(recipe, out, models=[str(recipe), "luong"])
    with pytest.raises(ConfigError, match="transformer is in this comparison already, as mine"):
        prepared(recipe, out, models=["transformer"])


def test_with_a_time_budget_nothing_is_fitted_to_steps_that_are_not_known_yet(recipe, tmp_path):
    asked = {"settings": ["train.steps=9", "train.log_every=4"], "variants": ["train.save_every=3"]}
    plan = prepared(recipe, tmp_path / "out", budget="time", seconds=9.0, **asked).plan
    base, variant = plan.entries
    assert base.values["train"]["warmup"] == 5
    assert base.fixed == ("train.steps", "train.log_every")
    assert variant.fixed == (*base.fixed, "train.save_every")
    steps = prepared(recipe, tmp_path / "out", **asked).plan.entries[0].values["train"]
    assert (steps["warmup"], steps["log_every"]) == (3, 4)


@pytest.mark.parametrize(
    ("models", "variants", "settings", "said"),
    [
        (["luon"], [], [], "--models luon: there is no model and no recipe of that name. Perhaps you mean luong"),
        (["demmo"], [], [], "Perhaps you mean demo"),
        (["qqqq"], [], [], "Models: bahdanau, "),
        (["luong", ""], [], [], "a name is missing"),
        (["luong", "luong"], [], [], "luong is given twice"),
        (["transformer", "demo"], [], [], "demo and transformer are the same. Leave one out"),
        ([], ["data.max_pairs=5"], [], "data.max_pairs changes the text, and all entries of a comparison have the same"),
        ([], ["tokenizer.size=5"], [], "tokenizer.size changes the text"),
        ([], ["train.steps=5"], [], "the steps are the budget"),
        ([], ["train.seed=5"], [], "Give --seeds N"),
        ([], ["train.patience=5"], [], "budgets unequal"),
        ([], ["train.max_tokens=5"], [], "other pairs would be left out as too long"),
        ([], ["model.name=luong"], [], "Name it in --models"),
        ([], [""], [], "it has no settings"),
        ([], ["heads"], [], "it is not of the form section.key=value"),
        ([], ["model.heads=4"], [], "it changes nothing: transformer has these settings already"),
        ([], ["model.heads=1", "model.heads=1"], [], "it changes nothing: transformer model.heads=1"),
        ([], ["model.hedas=1"], [], "setting model.hedas: there is no such setting. Perhaps you mean model.heads"),
        ([], ["luong: model.layers=1"], [], "luong is not one of the models compared. Models of this comparison: trans"),
        (["transformer", "luong"], ["model.heads=1"], [], 'write --variant "MODEL: model.heads=1"'),
        (["gpt"], [], [], "--models gpt: gpt does not translate"),
        (["ptb-nplm"], [], [], "--models ptb-nplm: nplm does not translate"),
        (["transformer", "luong"], [], ["model.heads=1"], "luong: setting model.heads: it is a setting of bert, "),
        (["no.toml"], [], [], "no.toml: the recipe cannot be read"),
    ],
)  # fmt: skip
def test_mistakes_of_users_are_told(models, variants, settings, said):
    with pytest.raises(ConfigError) as error:
        drafts(models, variants, settings)
    assert said in str(error.value)


def test_slugs_are_plain_and_unlike_those_taken():
    assert slug_for("transformer model.heads=1", []) == "transformer-model-heads-1"
    assert slug_for("../..", []) == "entry"
    assert slug_for("Luong", ["luong"]) == "luong-2"
    assert len(slug_for("x" * 500, [])) <= 90


def test_a_recipe_that_is_written_reads_back():
    values = {
        "data": {
            "src": 'a "b" \\ \x7f\n ü',
            "columns": ["en", 3],
            "corpora": [{"src": "x", "weight": 0.5}],
            "none": None,
        },
        "train": {"lr": 1e-9, "steps": 10**9, "graphs": True, "beta2": 0.98},
    }
    read = tomllib.loads(to_toml(values, "what it is"))
    assert read.pop("about") == "what it is"
    del values["data"]["none"]
    assert read == values
    whole = drafts()["transformer"].values
    again = tomllib.loads(to_toml(whole))
    assert configuration.to_plain(build_run_config(again)) == whole


# Requests


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"seeds": 0}, "--seeds: 0 is less than 1. Give for example 3"),
        ({"seeds": 1000}, "1000 is more than 100"),
        ({"budget": "tim"}, "Perhaps you mean time"),
        ({"budget": "money"}, "Use one of steps, time, parameters"),
        ({"budget": "time"}, "it does not say how long. Add for example --seconds 600"),
        ({"budget": "time", "seconds": 0.0}, "0.0 is not a sensible number"),
        ({"seconds": 5.0}, "it is given, but the budget is steps. Add --budget time, or leave it out"),
        ({"parameters": 5}, "Add --budget parameters"),
    ],
)
def test_requests_that_cannot_be_met_are_refused(asked, said):
    with pytest.raises(ConfigError) as error:
        Request(recipe="demo", **asked)
    assert said in str(error.value)


def test_a_plan_says_all_that_is_needed(recipe, tmp_path):
    plan = prepared(recipe, tmp_path / "out", models=["transformer", "luong"], seeds=2, lowercase=True).plan
    assert plan.seeds == (1, 2)
    assert [entry.slug for entry in plan.entries] == ["transformer", "luong"]
    assert [entry.steps for entry in plan.entries] == [20, 20]
    assert plan.part == "test"
    assert plan.flavour.lowercase
    assert plan.flavour.language == "de"
    assert [(entry.slug, seed) for entry, seed in plan.runs()] == [
        ("transformer", 1), ("luong", 1), ("transformer", 2), ("luong", 2),
    ]  # fmt: skip
    assert not (tmp_path / "out").exists()
    (tmp_path / "out").mkdir()
    write_plan(tmp_path / "out", plan)
    assert read_plan(tmp_path / "out") == plan


def test_all_entries_read_padded_batches_unless_asked_for(recipe, tmp_path):
    """Only some models can read packed ones, which hold more text."""
    for settings, expected in (([], False), (["train.packed=true"], True), (["train.packed=auto"], "auto")):
        models = ["transformer", "luong", "europarl-en-de"]
        plan = prepared(recipe, tmp_path / str(expected), models=models, settings=settings).plan
        assert [entry.values["train"]["packed"] for entry in plan.entries] == [expected] * 3


def test_seeds_go_on_from_the_recipes(recipe, tmp_path):
    assert prepared(recipe, tmp_path / "out", seeds=2, settings=["train.seed=7"]).plan.seeds == (7, 8)


def test_files_without_a_recipe_have_sizes_chosen_from_them(text_files, tmp_path):
    files = {"src": str(text_files.src), "tgt": str(text_files.tgt)}
    request = Request(files=files, models=["luong", "transformer"], seeds=1, settings=["train.steps=7"])
    plan = prepare_plan(request, tmp_path / "out", QUIET).plan
    assert [entry.values["model"]["width"] for entry in plan.entries] == [128, 128]
    assert plan.entries[0].values["train"]["steps"] == 7
    assert plan.entries[0].values["data"]["src"] == str(text_files.src)
    assert plan.recipe == "pairs.en and pairs.de"


def test_equal_parameters_are_the_first_entrys(recipe, tmp_path):
    models = ["luong", "transformer"]
    asked = {"models": models, "budget": "parameters", "seeds": 1, "settings": ["model.width=64"]}
    plan = prepared(recipe, tmp_path / "out", **asked).plan
    first, second = plan.entries
    assert first.values["model"]["width"] == 64
    assert first.parameters == plan.budget.parameters
    assert second.parameters == pytest.approx(first.parameters, rel=0.03)
    for variant, name in (
        ("model.width=32", "width"),
        ("transformer: model.inner=32", "inner"),
        ("luong: model.embedding=32 model.tie=none", "embedding"),
    ):
        with pytest.raises(ConfigError, match=f"chooses the {name} of every entry"):
            prepared(recipe, tmp_path / "out", **asked, variants=[variant])
    prepared(recipe, tmp_path / "out", **asked, variants=["luong: model.attention=local-m"])  # no size


def test_variants_have_the_sizes_of_their_model_where_parameters_are_as_many(recipe, tmp_path):
    out = tmp_path / "out"
    asked = {"models": ["luong", "transformer"], "budget": "parameters", "seeds": 1, "settings": ["model.width=48"]}
    variants = ["transformer: model.heads=3", "transformer: model.heads=8", "transformer: model.layers=2"]
    plan = written(recipe, out, **asked, variants=variants)
    _, base, three, eight, deep = plan.entries
    for variant in (three, eight):
        assert {**variant.values["model"], "heads": 2} == base.values["model"]
        assert variant.parameters == base.parameters
    assert base.values["model"]["width"] % (2 * 24) == 0
    assert deep.values["model"]["width"] < base.values["model"]["width"]
    assert deep.parameters == pytest.approx(base.parameters, rel=0.05)
    later = written(recipe, out, **asked, variants=["transformer: model.heads=4"])
    assert later.entries[: len(plan.entries)] == plan.entries
    assert {**later.entries[-1].values["model"], "heads": 2} == base.values["model"]


@pytest.mark.parametrize(
    ("asked", "kind", "said"),
    [
        ({"settings": ["data.valid_size=-1", "data.test_size=-1"]}, DataError, "there is no test text"),
        ({"seeds": 1}, ConfigError, "there is only one model, transformer, and one seed: nothing is compared"),
        ({"settings": ["data.src=-"]}, ConfigError, "standard input can be read only once"),
        ({"settings": ["train.device=gpu"]}, ConfigError, "'gpu' is not a device"),
        ({"recipe": "mane"}, ConfigError, "there is no recipe or file of that name"),
        ({"recipe": None}, ConfigError, "there is nothing to train on"),
    ],
)
def test_plans_that_cannot_be_made(recipe, tmp_path, asked, kind, said):
    with pytest.raises(kind) as error:
        prepared(recipe, tmp_path / "out", **asked)
    assert said in str(error.value)
    assert not (tmp_path / "out").exists()


def test_without_test_text_validation_text_is_measured(recipe, tmp_path):
    plan = prepared(recipe, tmp_path / "out", settings=["data.test_size=-1"]).plan
    assert plan.part == "validation"


def test_the_sentence_of_the_pictures_is_of_usual_length():
    def of(*lengths):
        return choose_sentence(Pairs(["w " * n for n in lengths], ["x"] * len(lengths)))

    assert of(1, 9, 40, 12, 10) == 4
    assert of(1, 2, 3) == 1
    assert of(30) == 0


# A folder that is there


def test_the_output_must_be_free_or_a_comparison(recipe, tmp_path):
    with pytest.raises(ConfigError, match="the output is a file, not a folder"):
        prepared(recipe, recipe)
    with pytest.raises(ConfigError, match="the folder is not empty, and it holds no comparison"):
        prepared(recipe, tmp_path)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / PLAN).write_text("{}")
    with pytest.raises(CheckpointError, match="its format is None"):
        prepared(recipe, tmp_path / "out")


def test_models_variants_and_seeds_can_be_added(recipe, tmp_path):
    out = tmp_path / "out"
    first = written(recipe, out, models=["transformer"], seeds=2)
    second = written(recipe, out, models=["luong"], variants=["model.layers=3"], seeds=3)
    assert [entry.name for entry in second.entries] == ["transformer", "luong", "luong model.layers=3"]
    assert second.entries[0] == first.entries[0]
    assert second.seeds == (1, 2, 3)
    assert second.created == first.created
    assert second.commands == first.commands  # the same words, in the same folder
    assert written(recipe, out, models=["transformer"], seeds=1) == second  # asking for less takes nothing away


def test_all_commands_are_kept_with_where_they_were_given(recipe, tmp_path, monkeypatch):
    out = tmp_path / "out"
    first = written(recipe, out, models=["transformer"], command="regard compare a")
    assert first.commands == ({"command": "regard compare a", "folder": os.getcwd()},)
    monkeypatch.chdir(tmp_path)
    second = {"command": "regard compare b", "folder": str(tmp_path)}
    for _ in range(2):
        written(recipe, out, models=["luong"], command="regard compare b")
        assert read_plan(out).commands == (*first.commands, second)


def test_seeds_that_are_added_are_told(recipe, tmp_path, capsys):
    out = tmp_path / "out"
    written(recipe, out, models=["transformer"], seeds=2)
    report = Reporter()
    report.console.file = sys.stderr

    def said(**asked) -> str:
        prepare_plan(Request(recipe=str(recipe), **asked), out, report)
        return " ".join(capsys.readouterr().err.split())

    one = said(models=["luong"], seeds=1)
    assert "New entries are also trained with the seeds that this comparison has: 2." in one
    assert "The entries that are here are trained with new seeds too: 3." in said(seeds=3)
    assert "seed" not in said(models=["luong"], seeds=2)
    assert "seed" not in said(seeds=1)


def test_another_comparison_in_the_folder_is_refused_with_what_differs(recipe, tmp_path):
    out = tmp_path / "out"
    written(recipe, out)
    for asked, said in (
        ({"settings": ["train.steps=9"]}, "train.steps was 20, not 9"),
        ({"settings": ["data.max_pairs=100"]}, "data.max_pairs was 0, not 100"),
        ({"budget": "time", "seconds": 5.0}, "budget was steps, not time"),
        ({"lowercase": True}, "--lowercase was not given"),
    ):
        with pytest.raises(ConfigError) as error:
            prepared(recipe, out, **asked)
        assert "the folder holds another comparison" in str(error.value)
        assert said in str(error.value)
        assert "models, variants and seeds may be added" in str(error.value)


def test_text_that_has_changed_is_refused(recipe, tmp_path, text_files):
    out = tmp_path / "out"
    plan = written(recipe, out)
    write_plan(out, dataclasses.replace(plan, fingerprints={"data": "another"}))
    with pytest.raises(DataError, match="the text is not what this comparison was started with"):
        prepared(recipe, out)


def test_a_comparison_of_before_batches_could_be_packed_goes_on_with_padded_ones(recipe, tmp_path):
    out = tmp_path / "out"
    plan = written(recipe, out, models=["transformer", "luong"])
    text = (out / PLAN).read_text()
    assert text.count('"packed": false,') == 3  # of what is common, and of each entry
    (out / PLAN).write_text(text.replace('"packed": false,', ""))
    assert read_plan(out) == plan
    assert prepared(recipe, out, models=["transformer", "luong", "cho"]).plan.entries[:2] == plan.entries


@pytest.mark.parametrize("broken", ["", "[]", '{"format": 1}', '{"format": 1, "entries": [{"slug": "../x"}]}', "nan"])
def test_a_damaged_plan_is_an_error(tmp_path, broken):
    (tmp_path / PLAN).write_text(broken)
    with pytest.raises(RegardError):
        read_plan(tmp_path)


def test_no_path_is_taken_from_a_plan(recipe, tmp_path):
    out = tmp_path / "out"
    plan = written(recipe, out)
    for slug in ("../x", "/etc", "a/b", "..", ""):
        write_plan(out, dataclasses.replace(plan, entries=(dataclasses.replace(plan.entries[0], slug=slug),)))
        with pytest.raises(CheckpointError, match="'slug' is not what it should be"):
            read_plan(out)


def test_a_setting_of_the_only_model_named_is_told_how_to_write(recipe: Path, tmp_path: Path):
    """Settings go over the recipe's own model; who names one other model means settings of that one."""
    asked = {"models": ("luong",), "settings": ("model.score=dot",), "variants": ("model.score=concat",)}
    with pytest.raises(
        ConfigError, match=r"model\.score.*not of transformer.*model\.name=luong instead of --models luong"
    ):
        prepared(recipe, tmp_path / "out", **asked)
    with pytest.raises(ConfigError, match=r"Leave it out"):
        prepared(recipe, tmp_path / "out", **{**asked, "models": ("luong", "cho")})
