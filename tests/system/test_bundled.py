"""What ships in the package: the pretrained model and the demo."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib import resources
from pathlib import Path

import pytest

import regard
from regard.core.files import read_json
from regard.data.corpus import load_corpus
from regard.tasks.folder import CONFIG, DATA, SCORES
from regard.tasks.pretrained import bundled_model
from regard.training.config import build_run_config


@pytest.fixture(scope="module")
def translator() -> regard.Translator:
    return regard.load(device="cpu")


def test_it_is_small_and_has_a_card():
    folder = bundled_model()
    assert sum(path.stat().st_size for path in folder.iterdir()) <= 15 << 20
    card = (folder / "CARD.md").read_text(encoding="utf-8")
    for part in ("CC BY 2.0 FR", "tatoeba", "Limits", "BLEU", "held-out"):
        assert part in card
    for score in read_json(folder / SCORES)["scores"].values():
        assert f"{score['value']:.2f}" in card
        assert score["signature"] in card


def test_it_translates(translator):
    assert translator.translate("Where is the nearest bank?") == "Wo ist die nächste Bank?"
    assert translator.translate(["I am hungry.", "", "Good evening!"], beam=1)[1] == ""


def test_it_really_knows_its_corpus_and_not_by_heart(translator):
    """On held-out pairs that the training text does not hold, on either side."""
    config = read_json(bundled_model() / CONFIG)
    sections = {name: config[name] for name in ("data", "tokenizer", "model", "augment", "train", "search")}
    corpus = load_corpus(build_run_config(sections).data)
    assert corpus.fingerprint == read_json(bundled_model() / DATA)["fingerprint"]
    assert not set(corpus.test.sources) & set(corpus.train.sources)
    assert not set(corpus.test.targets) & set(corpus.train.targets)
    part = corpus.test.head(60)
    written = translator.translate(part.sources, beam=2)
    from regard.evaluation.metrics import corpus_scores

    assert corpus_scores(written, part.targets, metrics=("chrf",), confidence=False)["chrf"].value > 50


def test_every_sentence_of_a_line_is_translated(translator):
    assert translator.translate("He laughed. She cried. Nobody came.").count(".") == 3


def test_without_a_model_the_command_uses_it(command: Callable):
    done = command("translate", "--json", "I am hungry.")
    assert (done.code, done.err) == (0, "")
    assert json.loads(done.out)["translations"][0]["text"].startswith("Ich")


def test_the_demo_runs_through(command: Callable, tmp_path: Path, monkeypatch):
    """With next to no training: every part of it works, and a second one does not touch the first."""
    monkeypatch.chdir(tmp_path)
    recipe = (resources.files("regard.recipes") / "demo.toml").read_text(encoding="utf-8")
    recipe = recipe.replace("max_pairs = 60000", "max_pairs = 600").replace("_size = 500", "_size = 12")
    (tmp_path / "tiny.toml").write_text(recipe + "max_length = 8\n", encoding="utf-8")
    monkeypatch.setattr("regard.cli.demo.RECIPE", "tiny.toml")
    monkeypatch.setattr("regard.cli.demo._affordable_steps", lambda config, seconds: 3)
    done = command("demo", "--seconds", "5")
    assert done.code == 0, done.err
    for part in ("Wo ist die nächste Bank?", "Held-out sentences", "regard translate --model regard-demo"):
        assert part in done.out
    assert (tmp_path / "regard-demo" / "alignment.png").stat().st_size > 5000
    assert set(read_json(tmp_path / "regard-demo" / SCORES)["scores"]) == {"bleu", "chrf"}
    from regard.cli.demo import free_folder

    assert free_folder(Path("regard-demo")).name == "regard-demo-2"


def test_the_demo_of_a_language_model_runs_through(command: Callable, tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    recipe = (resources.files("regard.recipes") / "demo-lm.toml").read_text(encoding="utf-8")
    for before, after in (
        ("width = 128", "width = 16"),
        ("layers = 4", "layers = 1"),
        ("context = 128", "context = 32"),
    ):
        assert before in recipe
        recipe = recipe.replace(before, after)
    text = tmp_path / "speeches.txt"
    text.write_text("".join(f"ROMEO:\nFirst Citizen {i}, KING RICHARD, well met!\n\n" for i in range(200)))
    (tmp_path / "tiny.toml").write_text(recipe.replace("bundled:tinyshakespeare", str(text)), encoding="utf-8")
    monkeypatch.setattr("regard.cli.demo_text.RECIPE", "tiny.toml")
    monkeypatch.setattr("regard.cli.demo_text._affordable_steps", lambda config, seconds: 3)
    done = command("demo", "--task", "lm", "--seconds", "5")
    assert done.code == 0, done.err
    for part in (
        "3 steps fit into about 5 seconds",
        "2. What it writes",
        "ROMEO:",
        "regard generate --model regard-demo",
    ):
        assert part in done.out
    written = done.out.split("2. What it writes")[1].split("3. Next")[0]
    assert len(written) > 300  # beyond the context
    assert set(read_json(tmp_path / "regard-demo" / SCORES)["scores"]) >= {"perplexity", "bits_per_byte"}


@pytest.mark.parametrize("seconds", ["4", "1", "-3"])
def test_a_demo_is_not_too_short(command: Callable, seconds):
    done = command("demo", "--seconds", seconds)
    assert done.code != 0
    assert f"--seconds: {seconds} is less than 5. Give at least 5, or 0 for the default" in done.err


def test_the_demo_measures_the_machine():
    from regard.cli.demo import _affordable_steps
    from regard.training.config import read_recipe

    config = build_run_config(read_recipe("demo"))
    few, many = _affordable_steps(config, 10), _affordable_steps(config, 100)
    assert 50 <= few < many / 3
