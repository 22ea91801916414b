"""Sizes chosen from a text, and settings that contradict a run on text."""

from __future__ import annotations

import pytest

import regard
from regard.core.config import merge
from regard.core.errors import ConfigError
from regard.models.base import MODELS
from regard.training.config import build_run_config
from regard.training.progress import Reporter
from regard.training.text_sizes import choose_text_sizes

LANGUAGE_MODELS = [name for name in MODELS.names() if "continues" in MODELS.get(name).capabilities]


@pytest.mark.parametrize("name", LANGUAGE_MODELS)
@pytest.mark.parametrize("characters", [1_000, 1_000_000, 10_000_000, 1_000_000_000])
@pytest.mark.parametrize("cpu", [True, False])
def test_every_size_of_text_gives_a_valid_configuration(name, characters, cpu):
    chosen = choose_text_sizes(characters, MODELS.get(name).Config, cpu)
    config = build_run_config(merge(chosen, {"model": {"name": name}}))
    assert config.train.batch_tokens >= 1024
    assert config.train.warmup < config.train.steps
    assert config.train.save_every <= config.train.steps


def test_what_the_user_sets_goes_with_what_is_chosen():
    """Widths of words follow the width that is given, so that tables can be one."""
    chosen = choose_text_sizes(10_000, MODELS.get("lstmlm").Config, cpu=True)
    config = build_run_config(merge(chosen, {"model": {"name": "lstmlm", "width": 48, "tie": "output"}}))
    assert config.model.words == 48


def test_more_text_more_model_and_whole_words_more_vocabulary():
    gpt = MODELS.get("gpt").Config
    small, large = (choose_text_sizes(count, gpt, cpu=False) for count in (100_000, 100_000_000))
    assert small["model"]["width"] < large["model"]["width"]
    assert small["tokenizer"] == {"kind": "bytebpe", "size": 1000}
    assert choose_text_sizes(100_000, gpt, cpu=True, kind="space")["tokenizer"] == {"kind": "space", "size": 10_000}
    assert choose_text_sizes(100_000, gpt, cpu=True, steps=7)["train"]["steps"] == 7


@pytest.mark.parametrize(
    ("setting", "kind"),
    [
        ("augment.bpe_dropout=0.1", "text"),
        ("train.max_tokens=5", "text"),
        ("tokenizer.joint=false", "text"),
        ("data.source_language=en", "text"),
        ("train.valid_sentences=10", "text"),
        ("augment.typos=0.1", "labelled"),
        ("train.valid_sentences=3", "labelled"),
        ("train.mixed_lengths=true", "text"),
    ],
)
def test_settings_of_pairs_are_refused(tmp_path, setting, kind):
    (tmp_path / "a.txt").write_text("a\tone two\nb\tthree four\n")
    files = {kind: str(tmp_path / "a.txt")}
    with pytest.raises(ConfigError, match=f"{setting.partition('=')[0]}: it does nothing for (plain|labelled) text"):
        regard.train(out=tmp_path / "run", settings=[setting], report=Reporter(quiet=True), **files)


@pytest.mark.parametrize(("kind", "name"), [("text", "bert"), ("labelled", "kim"), ("tagged", "recurrent-tagger")])
def test_a_model_that_writes_nothing_refuses_how_to_search(tmp_path, kind, name):
    (tmp_path / "a.txt").write_text("a\tone\nb\ttwo\n")
    settings = [f"model.name={name}", "search.beam=3"]
    with pytest.raises(ConfigError, match=rf"search\.beam: {name} writes no text"):
        regard.train(out=tmp_path / "run", settings=settings, **{kind: str(tmp_path / "a.txt")})
