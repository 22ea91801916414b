"""The demo of word vectors: it trains what its recipe says within its time, and shows what is near."""

from __future__ import annotations

import random

import pytest

from regard.cli import demo_embed
from regard.training.config import build_run_config, read_recipe

RECIPE = """
[data]
text = "{text}"
valid_part = 0.0
test_part = 0.0
[tokenizer]
kind = "word"
[model]
name = "word2vec"
width = 8
[train]
steps = 30
batch_tokens = 256
optimizer = "sgd"
clip = 0.0
label_smoothing = 0.0
warmup = 0
threads = 1
"""


@pytest.fixture
def small(tmp_path, monkeypatch):
    """The demo with a small text of its own."""
    draw = random.Random(0)
    days, drinks = ("monday", "friday", "sunday"), ("coffee", "tea", "beer")
    lines = [f"we met on {draw.choice(days)} and drank {draw.choice(drinks)}" for _ in range(400)]
    (tmp_path / "text").write_text("\n".join(lines) + "\n")
    (tmp_path / "small.toml").write_text(RECIPE.format(text=tmp_path / "text"))
    monkeypatch.setattr(demo_embed, "RECIPE", str(tmp_path / "small.toml"))
    monkeypatch.setattr(demo_embed, "ANALOGIES", (("monday", "friday", "coffee"),))
    return tmp_path


def test_the_demo_trains_and_shows_neighbours(small, capsys):
    demo_embed.run_embed_demo(small / "run", 60)
    shown = capsys.readouterr().out
    assert "30 steps, for about 60 seconds" in shown
    assert "monday is to friday as coffee is to: " in shown
    assert "│ monday │" in shown
    assert "│ mother │" not in shown  # a word that the text does not have
    assert f"regard nearest tea --model {small / 'run'}" in shown


def test_no_more_steps_than_there_is_time_for(small, monkeypatch):
    config = build_run_config(read_recipe(str(small / "small.toml")))
    ticks = iter(range(1000))
    monkeypatch.setattr(demo_embed.time, "monotonic", lambda: 10.0 * next(ticks))  # a step takes ten seconds
    assert demo_embed._affordable_steps(config, 300) == 25
    assert demo_embed._affordable_steps(config, 10_000) == 30  # the recipe's are enough


def test_the_recipe_is_whole():
    config = build_run_config(read_recipe("demo-embed"))
    assert (config.model.name, config.data.text) == ("word2vec", "bundled:tatoeba-en")
    assert build_run_config(read_recipe("wikitext2-bert")).model.name == "bert"
