"""Sizes chosen from the data are valid, and grow with it."""

import pytest

from regard.data.corpus import Corpus
from regard.data.split import Pairs
from regard.training.config import build_run_config
from regard.training.sizes import choose_sizes, heads_for


def pairs(count: int, words: int, space: str = " ", held_out: int = 1) -> Corpus:
    line = space.join(["word" if space else "我"] * words)
    valid = Pairs([line] * held_out, [line] * held_out)
    return Corpus(
        train=Pairs([line] * count, [line] * count), valid=valid, test=valid, fingerprint="", files={}, dropped=0
    )


@pytest.mark.parametrize("cpu", [True, False])
@pytest.mark.parametrize("words", [1, 8, 30])
@pytest.mark.parametrize("count", [1, 4_999, 5_000, 60_000, 500_000])
def test_every_choice_is_a_valid_configuration(count, words, cpu):
    config = build_run_config(choose_sizes(pairs(count, words), cpu))
    assert config.model.width % config.model.heads == 0
    assert 0 < config.train.warmup < config.train.steps
    assert config.train.save_every <= config.train.steps


@pytest.mark.parametrize("cpu", [True, False])
def test_more_text_never_gives_a_smaller_model(cpu):
    chosen = [choose_sizes(pairs(count, 15), cpu) for count in (1000, 10_000, 100_000, 600_000)]
    for section, key in (("model", "width"), ("model", "layers"), ("tokenizer", "size"), ("train", "steps")):
        values = [values[section][key] for values in chosen]
        assert values == sorted(values)
        assert values[0] < values[-1]
    assert chosen[0]["model"]["dropout"] > chosen[-1]["model"]["dropout"]


def test_a_cpu_gets_less_to_do():
    data = pairs(600_000, 20)
    small, large = choose_sizes(data, cpu=True), choose_sizes(data, cpu=False)
    assert small["model"]["width"] < large["model"]["width"]
    assert small["train"]["batch_tokens"] < large["train"]["batch_tokens"]


def test_text_without_spaces_is_not_taken_for_short():
    with_spaces, without = (choose_sizes(pairs(20_000, 20, space), cpu=True) for space in (" ", ""))
    assert with_spaces["train"]["steps"] == without["train"]["steps"]


def test_patience_needs_something_held_out():
    assert choose_sizes(pairs(5, 5, held_out=0), cpu=True)["train"]["patience"] == 0
    assert choose_sizes(pairs(5, 5), cpu=True)["train"]["patience"] > 0


def test_fine_tuning_is_short_and_gentle_and_leaves_the_model_alone():
    fresh, tuned = (choose_sizes(pairs(500, 8), cpu=True, fine_tuning=flag) for flag in (False, True))
    assert tuned["train"]["steps"] < fresh["train"]["steps"] / 5
    assert tuned["train"]["lr"] < fresh["train"]["lr"] / 3
    assert "model" not in tuned
    assert "tokenizer" not in tuned


def test_heads_follow_a_width_that_was_given():
    assert [heads_for(width) for width in (512, 256, 64, 50, 30, 16, 7, 6, 1)] == [8, 8, 4, 2, 1, 1, 1, 1, 1]


def test_warm_up_and_checkpoints_follow_steps_that_were_given():
    train = choose_sizes(pairs(100_000, 8), cpu=True, steps=50)["train"]
    assert (train["steps"], train["warmup"], train["save_every"]) == (50, 5, 10)
