"""Sizes chosen from the data are valid for every model, and grow with it."""

import pytest

from regard.data.corpus import Corpus
from regard.data.split import Pairs
from regard.models.base import MODELS
from regard.models.transformer import TransformerConfig
from regard.training.config import build_run_config
from regard.training.sizes import choose_sizes, heads_for
from regard.training.text import sizes_for

CONFIGS = {name: MODELS.get(name).Config for name in MODELS.names() if "translates" in MODELS.get(name).capabilities}


def pairs(count: int, words: int, space: str = " ", held_out: int = 1) -> Corpus:
    line = space.join(["word" if space else "我"] * words)
    valid = Pairs([line] * held_out, [line] * held_out)
    return Corpus(
        train=Pairs([line] * count, [line] * count), valid=valid, test=valid, fingerprint="", files={}, dropped=0
    )


@pytest.mark.parametrize("cpu", [True, False])
@pytest.mark.parametrize("words", [1, 8, 30])
@pytest.mark.parametrize("count", [1, 4_999, 5_000, 60_000, 500_000])
def test_every_choice_is_a_valid_configuration_of_every_model(count, words, cpu):
    data = pairs(count, words)
    for name, cls in CONFIGS.items():
        chosen = choose_sizes(data, cls, cpu)
        config = build_run_config({**chosen, "model": {**chosen["model"], "name": name}})
        assert config.model.name == name
        assert 0 < config.train.warmup < config.train.steps
        assert config.train.save_every <= config.train.steps
        assert config.train.clip == 1.0, "which recurrent models need"
        assert config.model.width % getattr(config.model, "heads", 1) == 0


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("cpu", [True, False])
def test_more_text_never_gives_a_smaller_model(cpu, name):
    chosen = [choose_sizes(pairs(count, 15), CONFIGS[name], cpu) for count in (1000, 10_000, 100_000, 600_000)]
    growing = [("model", key) for key in ("width", "layers", "embedding") if key in chosen[0]["model"]]
    assert ("model", "width") in growing
    for section, key in (*growing, ("tokenizer", "size"), ("train", "steps")):
        values = [values[section][key] for values in chosen]
        assert values == sorted(values)
        assert values[0] < values[-1]
    assert chosen[0]["model"]["dropout"] > chosen[-1]["model"]["dropout"]


@pytest.mark.parametrize("name", CONFIGS)
def test_a_cpu_gets_less_to_do(name):
    data = pairs(600_000, 20)
    small, large = (choose_sizes(data, CONFIGS[name], cpu) for cpu in (True, False))
    assert small["model"]["width"] < large["model"]["width"]
    assert small["train"]["batch_tokens"] < large["train"]["batch_tokens"]


def test_a_transformer_gets_the_sizes_of_one():
    chosen = choose_sizes(pairs(20_000, 10), TransformerConfig, cpu=True)
    assert chosen["model"] == {"width": 256, "layers": 3, "heads": 4, "dropout": 0.3}
    assert (chosen["tokenizer"]["size"], chosen["train"]["lr"]) == (6000, 1e-3)


def test_a_recurrent_model_gets_tables_that_can_be_tied_and_keeps_its_depth():
    for name in ("bahdanau", "cho", "sutskever", "luong", "gnmt"):
        chosen = choose_sizes(pairs(20_000, 10), CONFIGS[name], cpu=True)
        model = chosen["model"]
        assert model["embedding"] == model["width"] == 256
        assert "layers" not in model
        assert chosen["train"]["lr"] == 4e-3
        build_run_config({"model": {**model, "name": name, "tie": "target"}})


def test_the_model_that_was_named_gets_its_own_sizes():
    named = sizes_for(pairs(100, 5), {"model": {"name": "cho"}, "train": {"device": "cpu"}})
    assert named["model"].keys() == {"embedding", "width", "dropout"}
    unnamed = sizes_for(pairs(100, 5), {"train": {"device": "cpu"}})
    assert unnamed["model"].keys() == {"width", "layers", "heads", "dropout"}


def test_text_without_spaces_is_not_taken_for_short():
    with_spaces, without = (choose_sizes(pairs(20_000, 20, space), TransformerConfig, cpu=True) for space in (" ", ""))
    assert with_spaces["train"]["steps"] == without["train"]["steps"]


def test_patience_needs_something_held_out():
    assert choose_sizes(pairs(5, 5, held_out=0), TransformerConfig, cpu=True)["train"]["patience"] == 0
    assert choose_sizes(pairs(5, 5), TransformerConfig, cpu=True)["train"]["patience"] > 0


@pytest.mark.parametrize("name", ["transformer", "bahdanau"])
def test_fine_tuning_is_short_and_gentle_and_leaves_the_model_alone(name):
    fresh, tuned = (choose_sizes(pairs(500, 8), CONFIGS[name], cpu=True, fine_tuning=flag) for flag in (False, True))
    assert tuned["train"]["steps"] < fresh["train"]["steps"] / 5
    assert tuned["train"]["lr"] < fresh["train"]["lr"] / 3
    assert "model" not in tuned
    assert "tokenizer" not in tuned


def test_heads_follow_a_width_that_was_given():
    assert [heads_for(width) for width in (512, 256, 64, 50, 30, 16, 7, 6, 1)] == [8, 8, 4, 2, 1, 1, 1, 1, 1]


def test_warm_up_and_checkpoints_follow_steps_that_were_given():
    train = choose_sizes(pairs(100_000, 8), TransformerConfig, cpu=True, steps=50)["train"]
    assert (train["steps"], train["warmup"], train["save_every"]) == (50, 5, 10)
