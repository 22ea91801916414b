"""Equal budgets: parameters by the width of a model, and steps by the time that one takes."""

from __future__ import annotations

import json

import pytest

import regard.comparing.budget as budget
from regard.comparing.budget import (
    Vocabulary,
    count_parameters,
    match_parameters,
    step_seconds,
    steps_within,
    trial_seconds,
    with_compiling,
    with_steps,
    with_width,
)
from regard.comparing.entries import translators
from regard.models.base import MODELS, build_model
from regard.training.log import read_metrics
from regard.training.model_section import build_model_config, settings_of

SMALL = Vocabulary(400, 400, True)


def with_model(name: str) -> dict:
    """As a comparison has it that names the model: embeddings as wide as states, tied."""
    known = settings_of(MODELS.get(name).Config)
    return {"name": name, "width": 64, "tie": "auto"} | ({"embedding": 64} if "embedding" in known else {})


def test_parameters_are_those_of_the_model():
    config = build_model_config({"name": "luong", "width": 32})
    model = build_model("luong", config, source_vocabulary=50, target_vocabulary=60, shared=False)
    assert count_parameters({"name": "luong", "width": 32}, Vocabulary(50, 60, False)) == model.parameters_count()


@pytest.mark.parametrize("name", translators())
def test_every_translator_can_have_about_so_many_parameters(name):
    section, count = match_parameters(with_model(name), 200_000, SMALL)
    assert abs(count - 200_000) < 0.03 * 200_000
    assert count == count_parameters(section, SMALL)


def test_a_model_that_fits_is_left_alone():
    section = {"name": "transformer", "width": 36, "heads": 6, "inner": 50}
    found, count = match_parameters(section, count_parameters(section, SMALL), SMALL)
    assert {**found, **section} == found
    assert count == count_parameters(section, SMALL)


def test_a_number_out_of_reach_gives_the_nearest():
    section, count = match_parameters({"name": "sutskever", "width": 64}, 10, SMALL)
    assert section["width"] == 2
    assert count > 10


def test_other_widths_follow():
    section = {"name": "bahdanau", "width": 64, "embedding": 64, "attention": 32, "readout": 0}
    assert with_width(section, 96) == {**section, "width": 96, "embedding": 96, "attention": 48}
    assert with_width({"name": "luong", "width": 8, "attention": "global"}, 16)["attention"] == "global"


def test_heads_divide_the_width():
    for heads in (1, 3, 8):
        section, _ = match_parameters({"name": "transformer", "width": 48, "heads": heads, "inner": 96}, 300_000, SMALL)
        assert section["width"] % heads == 0


def test_a_step_takes_what_the_steady_part_of_the_log_says(tmp_path):
    path = tmp_path / "metrics.jsonl"
    rows = [{"step": 2, "seconds": 9.0, "nll": 1.0}]  # a slow beginning
    rows += [{"step": step, "seconds": 9.0 + (step - 2) * 0.25} for step in range(4, 41, 2)]
    torn = '{"step": 42, "seco'
    path.write_text("".join(json.dumps(row) + "\n" for row in rows) + torn)
    assert step_seconds(read_metrics(path)) == pytest.approx(0.25)
    assert steps_within(600, 0.25) == 2400


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([], None),
        ([{"step": 4, "seconds": 2.0}], 0.5),
        ([{"step": 4, "valid_nll": 2.0}], None),
        ([{"step": 4, "seconds": 0.0}], None),
        ([{"step": 4, "seconds": None}], None),
    ],
)
def test_short_logs(rows, expected):
    assert step_seconds(rows) == expected


def test_at_least_one_step_is_made():
    assert steps_within(1, 60) == 1
    assert steps_within(1e9, 1e-9) == budget.MOST_STEPS


def test_trials_take_a_tenth_within_bounds():
    assert [trial_seconds(s) for s in (5, 300, 10_000)] == [8.0, 30.0, 60.0]


def test_whether_to_compile_follows_from_the_time():
    """By an endless trial's number of steps every run would compile, and a short one would then be slower than its trial."""

    def chosen(asked, seconds, on_cuda):
        values = with_compiling({"train": {"compile": asked, "lr": 0.1}, "model": {}}, seconds, on_cuda)
        assert values["train"]["lr"] == 0.1
        return values["train"]["compile"]

    assert [chosen("auto", seconds, True) for seconds in (20, 10_000)] == [False, True]
    assert chosen("auto", 10_000, False) is False
    assert [chosen(asked, 20, False) for asked in (True, False)] == [True, False]


def test_what_comes_in_steps_is_scaled_with_them():
    train = {"steps": 1000, "warmup": 100, "save_every": 250, "validate_every": 0, "log_every": 50, "lr": 0.1}
    scaled = with_steps({"train": train, "model": {}}, 200)["train"]
    assert scaled == {"steps": 200, "warmup": 20, "save_every": 50, "validate_every": 0, "log_every": 20, "lr": 0.1}
    assert with_steps({"train": {**train, "warmup": 900}}, 9)["train"]["warmup"] == 3


def test_what_the_user_gave_is_not_scaled():
    train = {"steps": 1000, "warmup": 100, "save_every": 250, "validate_every": 40, "log_every": 50}
    fixed = ("train.warmup", "train.save_every", "train.log_every", "train.steps")
    assert with_steps({"train": train}, 90, fixed)["train"] == {**train, "steps": 90, "validate_every": 4}
