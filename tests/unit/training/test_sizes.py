"""Sizes chosen from the data are valid, and grow with it."""

import pytest

from regard.data.split import Pairs
from regard.training.config import build_run_config
from regard.training.sizes import choose_sizes


def pairs(count: int, words: int) -> Pairs:
    line = " ".join(["word"] * words)
    return Pairs([line] * count, [line] * count)


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
